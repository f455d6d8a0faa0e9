"""What keeps the code easy to find one's way in."""

import subprocess
import tomllib
from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).parents[2]
MOST = 600
"""Lines that read in one sitting."""


def test_no_file_of_code_is_long():
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.j2", "*.js", "*.css"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    files = [ROOT / name for name in listed.stdout.split()] or [
        *ROOT.glob("*.py"),
        *ROOT.glob("[pft]*/**/*.py"),
    ]
    assert len(files) > 100
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in files
        if path.exists()
    }
    assert {name: count for name, count in lengths.items() if count > MOST} == {}


def test_every_package_is_installed():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]["find"]["include"]
    found = set(find_packages(str(ROOT), include=patterns))
    assert found
    assert all(name.split(".")[0] == "ttsgraph" for name in found)  # no name that others may have
    for folder in {
        path.parent for top in ("", "flows") for path in (ROOT / "ttsgraph" / top).rglob("*.py")
    }:
        assert ".".join(folder.relative_to(ROOT).parts) in found, folder
