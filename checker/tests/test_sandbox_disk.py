"""What a program may write is bounded by the kernel where it gives namespaces, however quick the
program is.
"""

import subprocess

import pytest

from codecheck.sandbox import CheckedProgram, SandboxLimits, run_checked
from processes import refused_calls

WRITERS = {
    "files": "file = open(f'f{k}', 'wb'); file.write(BLOCK); file.close()",
    "deleted files": (
        "file = open('f', 'wb'); file.write(BLOCK); file.flush(); held.append(file); os.unlink('f')"
    ),
    "replaced files": (
        "file = open(f'f{k}', 'wb'); file.write(BLOCK); file.flush(); held.append(file);"
        " os.rename(f'f{k}', 'f')"
    ),
    "nameless files": (
        "file = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600); held.append(file); os.write(file,"
        " BLOCK)"
    ),
    "mapped files": (
        "file = open('f', 'wb+'); file.truncate(len(BLOCK)); map = mmap.mmap(file.fileno(), 0)\n"
        "            held.append(map); file.close(); os.unlink('f'); map[:] = BLOCK"
    ),
}
SOLUTION = """
import mmap, os
BLOCK = b"x" * (1 << 20)
def f(most):
    held, wrote = [], 0
    try:
        for k in range(most):
            {writer}
            wrote += 1
    except OSError as error:
        return wrote, error.errno
    return wrote, 0
"""
TESTS = "def check(f):\n    assert f({most}) == {expected!r}\n"


def mounts() -> bool:
    """Whether this kernel lets us mount in a namespace of our own."""
    done = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


@pytest.mark.parametrize("kind", WRITERS)
def test_the_kernel_refuses_what_is_beyond_the_folder_s_size(kind):
    if not mounts():
        pytest.skip("this kernel lets no user mount a file system")
    source = SOLUTION.format(writer=WRITERS[kind])
    limits = SandboxLimits(folder_size=4 << 20, wall_s=60)
    ended = run_checked(CheckedProgram(source, "f", TESTS.format(most=3, expected=(3, 0))), limits)
    assert ended.passed, ended
    if kind == "mapped files":  # a signal ends who writes where there is no room
        assert not run_checked(CheckedProgram(source, "f", "def check(f): f(9)"), limits).passed
        return
    ended = run_checked(CheckedProgram(source, "f", TESTS.format(most=9, expected=(4, 28))), limits)
    assert ended.passed, ended


def test_the_kernel_bounds_the_number_of_files():
    if not mounts():
        pytest.skip("this kernel lets no user mount a file system")
    source = SOLUTION.format(writer="open(f'f{k}', 'wb').close()")
    limits = SandboxLimits(folder_files=8, wall_s=60)
    assert run_checked(
        CheckedProgram(source, "f", TESTS.format(most=99, expected=(8, 28))), limits
    ).passed


WITHOUT = """
from codecheck.sandbox import CheckedProgram, SandboxLimits, run_checked
limits = SandboxLimits(folder_size=4 << 20, wall_s=60)
print(run_checked(CheckedProgram({source!r}, "f", "def check(f): f(60)"), limits).detail)
"""


@pytest.mark.parametrize("kind", WRITERS)
def test_without_namespaces_the_folder_is_looked_at(kind):
    source = "import time\n" + SOLUTION.format(writer=f"time.sleep(0.06); {WRITERS[kind]}")
    said = refused_calls(["unshare"], WITHOUT.format(source=source))
    assert said == "it wrote more than its folder may hold\n"
