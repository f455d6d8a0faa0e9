"""A project in a folder of its own: written by `ttsgraph init`, searched by `ttsgraph run`, with
the installed wheel alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
import venv
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from lab import python_path
from tests.support.processes import said_by
from tests.support.project import ROOT, copy_folder
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import InputError
from ttsgraph.cli import app
from ttsgraph.settings.profile import load_params, load_profile

PRICES = ["--price-prompt", "0.1", "--price-completion", "0.3"]


def init(folder: Path, url: str, *more: str):
    return CliRunner().invoke(app, ["init", str(folder), "--url", url, *PRICES, *more])


def test_init_writes_a_project_that_settings_accept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(StubServer(("org/small", "org/large"))) as url:
        done = init(tmp_path / "mysearch", url)
    assert done.exit_code == 0, done.output
    monkeypatch.chdir(tmp_path / "mysearch")
    params = load_params()
    profile = load_profile("mine")
    assert (params.profile, params.tasks) == ("mine", ("sample",))
    assert list(profile.pool) == ["small", "large"]
    assert profile.budget.metric == "dollars"
    assert (
        profile.task("sample").splits.test
        + profile.task("sample").splits.train
        + profile.task("sample").splits.val
        == 40
    )
    assert list(yaml.safe_load(Path("dvc.yaml").read_text())["stages"]) == ["run"]


def test_init_changes_nothing_where_something_is_wrong(tmp_path: Path) -> None:
    with serve(StubServer(("org/small",))) as url:
        error = init(tmp_path / "a", url, "--model", "org/other").exception
        assert isinstance(error, InputError)
        assert "expected model 'org/other', but the server has org/small" in str(error)
        error = init(tmp_path / "a", url, "--budget", "cheap").exception
        assert "budget: expected '$0.002'" in str(error)
        assert not (tmp_path / "a").exists()
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").touch()
        assert "expected a new folder, found files in it" in str(
            init(tmp_path / "full", url).exception
        )
    assert "expected an OpenAI-compatible server's list of models" in str(
        init(tmp_path / "a", "http://127.0.0.1:9/v1").exception
    )


def support(folder: Path) -> Path:
    """300 support questions with short reference answers."""
    rows = [
        {"question": f"When is refund {k} paid? {k} + {k + 1}", "answer": f"{2 * k + 1} days later"}
        for k in range(300)
    ]
    (folder / "support.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "support.jsonl"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what git knows."""
    source = tmp_path_factory.mktemp("source")
    for name in ("checker", "flows", "pipeline"):
        copy_folder(name, source)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ["pip", "wheel", "-q", "--no-deps", "-w", str(source / "dist"), str(source)]
    done = subprocess.run(
        [sys.executable, "-m", *build], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return next((source / "dist").glob("*.whl"))


@pytest.mark.slow
def test_from_the_wheel_to_a_served_graph_in_six_commands(wheel: Path, tmp_path: Path) -> None:
    """Its libraries are those of this environment, which a path file lends to the new one; ttsgraph
    itself is the wheel's.
    """
    venv.create(tmp_path / "env", with_pip=True)
    site = next((tmp_path / "env" / "lib").glob("python*")) / "site-packages"
    lent = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "lent.pth").write_text(f"{lent}\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = support(tmp_path)
    binaries = tmp_path / "env" / "bin"
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    environment |= {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "SUPPORT_KEY": "anything",
    }
    commands: list[list[str]] = []

    def type_(*command: str, cwd: Path) -> str:
        commands.append(list(command))
        return said_by(command, cwd, environment)

    project = elsewhere / "mysearch"
    with serve(StubServer(("org/small", "org/large"), skill=0.7)) as url:
        type_("pip", "install", "-q", "--no-deps", str(wheel), cwd=elsewhere)
        more = ["--budget", "$0.00002", "--api-key-env", "SUPPORT_KEY"]
        type_("ttsgraph", "init", "mysearch", "--url", url, *PRICES, *more, cwd=elsewhere)
        type_(
            "ttsgraph",
            "new-task",
            "support",
            str(file),
            "--kind",
            "similarity",
            "--max-tokens",
            "16",
            cwd=project,
        )
        shown = type_("ttsgraph", "run", "--task", "support", cwd=project)
        assert "<- in use" in shown
        assert shown.startswith(("support: Use this", "support: Don't use"))
        assert "──▶ answer" in shown or "step 1: " in shown
        assert "next: ttsgraph serve results/mine/support/found" in shown
        last = ["ttsgraph", "serve", "results/mine/support/found", "--port", "0"]
        commands.append(last)
        server = subprocess.Popen(
            last, cwd=project, env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            at = next(
                word for line in server.stdout for word in line.split() if word.startswith("http")
            ).rstrip(",")
            question = {
                "model": "support@found",
                "messages": [{"role": "user", "content": "When? 4 + 5"}],
            }
            request = urllib.request.Request(
                f"{at}/chat/completions",
                json.dumps(question).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                answer = json.loads(response.read())["choices"][0]["message"]["content"]
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)
    assert answer.strip() in ("9", "10")
    assert len(commands) <= 6
    graph = json.loads((project / "results/mine/support/found/bundle.json").read_text())["graph"]
    assert "voter" not in {node["role"] for node in graph["nodes"]}


@pytest.mark.slow
def test_an_experiment_with_another_seed_shows_its_scores(tmp_path: Path) -> None:
    """`dvc exp run -S seed=...`, as dvc.yaml of a new project says."""
    project = tmp_path / "mysearch"
    environment = os.environ | {"PYTHONPATH": python_path(ROOT), "GIT_CONFIG_GLOBAL": os.devnull}
    environment |= {
        f"GIT_{who}_{what}": "a@b.c"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }

    def done(*command: str) -> str:
        return said_by(command, project, environment)

    with serve(StubServer(("org/small", "org/large"), skill=0.7)) as url:
        assert init(project, url, "--budget", "$0.00002").exit_code == 0
        command = project / "bin" / "ttsgraph"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ttsgraph "$@"\n')
        command.chmod(0o755)
        environment["PATH"] = f"{command.parent}{os.pathsep}{environment['PATH']}"
        (project / ".gitignore").write_text((project / ".gitignore").read_text() + "/bin/\n")
        done("git", "init", "-q")
        done(sys.executable, "-m", "dvc", "init", "-q")
        done(sys.executable, "-m", "dvc", "config", "core.analytics", "false")
        done("git", "add", "-A")
        done("git", "commit", "-qm", "Begin")
        done(sys.executable, "-m", "dvc", "exp", "run", "-S", "seed=7")
        shown = json.loads(done(sys.executable, "-m", "dvc", "metrics", "show", "--json"))
    (scores,) = (each["data"] for each in shown[""]["data"].values())
    assert scores["seed"] == 7
    assert 0 <= scores["accuracy"] <= 1
    assert scores["cost"] <= 0.00002
