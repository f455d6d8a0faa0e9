"""What continuous integration runs ends in time, and says what it did not reach."""

import os
import subprocess
import sys

from lab import python_path
from tests.support.project import ROOT
from tests.support.until import FIRST


def test_the_most_telling_come_first_and_what_was_not_reached_is_named_and_no_failure(tmp_path):
    tests = {"zoo/test_other.py": "ab", FIRST[1]: "c", FIRST[0]: "d"}
    for name, letters in tests.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"def test_{x}():\n    assert False\n\n\n" for x in letters))
    command = [sys.executable, "-m", "pytest", "-v", "-p", "tests.support.until"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--until", "0"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    lines = [line.split("::")[1] for line in done.stdout.splitlines() if "%]" in line]
    assert [line.split()[0] for line in lines] == ["test_d", "test_c", "test_a", "test_b"]
    assert all("XFAIL (not reached in time)" in line for line in lines)


def test_the_files_that_come_first_are_there():
    places = (ROOT / "tests", ROOT)
    missing = [name for name in FIRST if not any((place / name).exists() for place in places)]
    assert missing == []
