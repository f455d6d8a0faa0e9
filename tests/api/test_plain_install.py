"""The wheel without extras in an empty environment: a project and a search."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.processes import ran, said_by
from tests.support.project import ROOT, copy_folder
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.extras import EXTRAS
from ttsgraph.scaffold.cells import json_lines

MOST_MB = 250
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_dependency_has_its_reason():
    told = (ROOT / "docs" / "reference" / "installation.md").read_text()
    table = {
        name for row in told.splitlines() if row[:1] == "|" for name in re.findall("`(.+?)`", row)
    }
    assert {re.split(r"[\[<>=!]", each)[0] for each in PROJECT["dependencies"]} <= table
    assert set(EXTRAS.values()) <= set(PROJECT["optional-dependencies"])


def test_commands_load_without_any_extra():
    others = {package for package, extra in EXTRAS.items() if extra != "serve"}
    code = f"import sys; sys.modules.update(dict.fromkeys({sorted(others)}))\n"
    code += "import ttsgraph.api.result, ttsgraph.api.export, ttsgraph.deployment.bundle\n"
    code += "import ttsgraph.service.server"
    said_by([sys.executable, "-c", code])


@pytest.fixture(scope="module")
def binaries(tmp_path_factory):
    """The commands of an environment that has the wheel and what it requires, nothing else."""
    folder = tmp_path_factory.mktemp("plain")
    source = folder / "source"
    for name in ("checker", "flows", "pipeline", "reader"):
        copy_folder(name, source)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    uv = [sys.executable, "-m", "uv"]
    python = folder / "env" / "bin" / "python"
    pins = ROOT / "requirements" / "constraints.txt"
    said_by([*uv, "build", "-q", "--wheel", "-o", str(folder), str(source)])
    said_by([*uv, "venv", "-q", "-p", sys.executable, str(folder / "env")])
    install = [*uv, "pip", "install", "-q", "--compile-bytecode", "--python", str(python)]
    said_by([*install, "-c", str(pins), *map(str, folder.glob("*.whl"))])
    return python.parent


def said(binaries: Path, cwd: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """What a command says and how it ends; it sees nothing of this environment."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "MYPYPATH")
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    return ran([str(binaries / "ttsgraph"), *command], cwd, env)


@pytest.mark.slow
def test_a_plain_installation_is_small(binaries):
    files = (
        path for path in binaries.parent.rglob("*") if path.is_file() and not path.is_symlink()
    )
    blocks = sum(4096 * -(-path.stat().st_size // 4096) for path in files)
    assert blocks / 2**20 <= MOST_MB


@pytest.mark.slow
def test_from_questions_to_a_graph(binaries, tmp_path):
    def done(folder: str, *command: str) -> str:
        ended = said(binaries, tmp_path / folder, *command)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    prices = ["--price", "0.1,0.3"]
    rows = [{"question": f"When? {k} + {k + 1}", "answer": f"{2 * k + 1} days"} for k in range(60)]
    (tmp_path / "support.jsonl").write_text(json_lines(rows))
    with serve(StubServer(("org/small", "org/large"), skill=0.7)) as url:
        assert "Commands" in done("", "--help")
        done("", "init", "mine", "--url", url, "--budget", "$0.00002", *prices)
        done("mine", "add", "--questions", "../support.jsonl", "--kind", "similarity")
        shown = done("mine", "run", "--task", "support")
    assert "<- in use" in shown
    assert shown.startswith(("support: Use this", "support: Don't use"))
    assert "next: ttsgraph serve results/mine/support/found" in shown
    bundle = json.loads((tmp_path / "mine/results/mine/support/found/bundle.json").read_text())
    assert "voter" not in {node["role"] for node in bundle["graph"]["nodes"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "extra"),
    [(("lineage", "a@b"), "flows"), (("register",), "flows"), (("serve", "."), "serve")],
)
def test_a_missing_extra_is_named_in_a_line(binaries, tmp_path, command, extra):
    (tmp_path / "params.yaml").write_text("{profile: mine, tasks: [a], methods: [random]}\n")
    done = said(binaries, tmp_path, *command)
    assert done.returncode == 2
    assert f"ttsgraph[{extra}]" in done.stderr
    assert len(done.stderr.splitlines()) == 1
