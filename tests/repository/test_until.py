"""What continuous integration runs ends in time, and says what it did not reach."""

import os
import subprocess
import sys
import time
from pathlib import Path

from lab import python_path
from tests.support.until import FIRST

ROOT = Path(__file__).parents[2]
TESTS = {
    "zoo/test_other.py": "def test_a():\n    pass\n\n\ndef test_b():\n    pass\n",
    FIRST[1]: "def test_c():\n    pass\n",
    FIRST[0]: "def test_d():\n    assert False\n",
}


def run(folder: Path, seconds: float, *more: str) -> tuple[int, str]:
    """The exit status and output of a run of these tests that may go on for so long."""
    for name, text in TESTS.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    command = [sys.executable, "-m", "pytest", "-ra", "-v", "-p", "tests.support.until"]
    command += ["-p", "no:cacheprovider", "--until", str(time.time() + seconds), *more]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout


def test_what_was_not_reached_is_named_and_is_no_failure(tmp_path):
    status, said = run(tmp_path, -1)
    assert status == 0
    for name in ("test_other.py::test_a", "test_other.py::test_b", "::test_c", "::test_d"):
        (line,) = [line for line in said.splitlines() if line.startswith("XFAIL") and name in line]
        assert line.endswith("not reached in time")


def test_a_test_that_fails_in_time_fails_the_run_and_the_most_telling_come_first(tmp_path):
    status, said = run(tmp_path, 600)
    assert status == 1
    ran = [line.split("::")[1].split()[0] for line in said.splitlines() if "%]" in line]
    assert ran == ["test_d", "test_c", "test_a", "test_b"]


def test_the_files_that_come_first_are_there():
    places = (ROOT / "tests", ROOT)
    missing = [name for name in FIRST if not any((place / name).exists() for place in places)]
    assert missing == []
