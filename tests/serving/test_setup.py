"""`make setup` builds the serve environment where it is needed; the user's own stays."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lab import python_path
from tests.support.processes import ran
from tests.support.project import ROOT

pytestmark = pytest.mark.slow

# In place of the Python that makes environments: it notes what it is asked, and makes them empty.
MAKER = """
echo "$@" >> made
case "$1 $2" in
  "-m venv") mkdir -p "$3/bin" && ln -sf "$PWD/maker" "$3/bin/python";;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which the environment of ttsgraph is ready and that of servers is not."""
    for name in ("Makefile", "params.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    needed = "pyproject.toml requirements/constraints.txt requirements/serve.txt"
    for name in (*needed.split(), "pipeline/ttsgraph/serving/convert.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    own = tmp_path / ".venv" / "bin"
    own.mkdir(parents=True)
    python = f'PYTHONPATH={python_path(ROOT)} exec {sys.executable} -P "$@"'
    noted = {own / name: f"echo {name} $@ >> made" for name in ("ttsgraph", "uv")}
    for path, script in ({tmp_path / "maker": MAKER, own / "python": python} | noted).items():
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    (tmp_path / ".venv" / ".ready").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_setup(folder: Path, target: str = "setup") -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return ran(["make", target, f"PYTHON={folder / 'maker'}"], folder, environment)


def use(folder: Path, profile: str) -> None:
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"profile": profile}))


def contents(folder: Path) -> dict[Path, int]:
    """What is in the environment of servers, with times."""
    return {path: path.stat().st_mtime_ns for path in (folder / ".venv-serve").rglob("*")}


def test_a_profile_that_serves_here_gets_the_environment_once(folder):
    done = make_setup(folder)
    assert done.returncode == 0, done.stderr
    made = (folder / "made").read_text()
    assert "-m venv .venv-serve" in made
    assert "-r requirements/serve.txt" in made
    assert (folder / ".venv-serve" / ".ready").exists()
    assert make_setup(folder).returncode == 0
    assert (folder / "made").read_text() == made
    (folder / ".venv-serve" / ".ready").unlink()  # as where it was interrupted
    assert make_setup(folder).returncode == 0
    assert (folder / "made").read_text() == made * 2


@pytest.mark.parametrize("marked", [False, True])
def test_a_vllm_that_the_user_installed_is_left_as_it_is(folder, marked):
    if marked:  # into an environment that `make setup` made
        assert make_setup(folder).returncode == 0
        shutil.rmtree(folder / ".venv-serve" / "bin")
        (folder / "made").unlink()
        # Older than the list of packages by more than a file system's clock may miss.
        os.utime(folder / ".venv-serve" / ".ready", (0, 0))
    packages = folder / ".venv-serve" / "lib" / "python3.11" / "site-packages"
    (packages / "vllm-0.32.0.dist-info").mkdir(parents=True)
    (folder / ".venv-serve" / "bin").mkdir()
    (folder / ".venv-serve" / "bin" / "python").touch()
    before = contents(folder)
    done = make_setup(folder)
    assert done.returncode == 0, done.stderr
    assert "installed there by hand" in done.stdout
    assert contents(folder) == before
    assert not (folder / "made").exists()
    assert make_setup(folder, ".venv-serve/.ready").returncode != 0
    assert contents(folder) == before


WORDS = {
    "simulated": "no model is served here",
    "paper": "needs vLLM for GPUs",
    "own": "/opt/vllm/bin/python (engine.python)",
}


@pytest.mark.parametrize("profile", WORDS)
def test_a_profile_that_has_no_use_for_it_gets_none_and_says_what_it_needs(folder, profile):
    laptop = yaml.safe_load((folder / "profiles" / "laptop.yaml").read_text())
    own = laptop | {"engine": laptop["engine"] | {"python": "/opt/vllm/bin/python"}}
    (folder / "profiles" / "own.yaml").write_text(yaml.safe_dump(own))
    use(folder, profile)
    done = make_setup(folder)
    assert done.returncode == 0, done.stderr
    assert WORDS[profile] in done.stdout
    assert not (folder / ".venv-serve").exists()
    use(folder, "nothing")
    assert "unknown profile 'nothing'" in make_setup(folder).stderr
