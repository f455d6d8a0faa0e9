"""No attack succeeds in the sandbox, and each of them succeeds outside it."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from cases import SQUARES

from attacks import ATTACKS, HARMS, Outcome, open_scene
from codecheck.sandbox import CheckedProgram, SandboxLimits, missing_layers, run_checked
from processes import alive, descendants_of, refusing

LIMITS = SandboxLimits(wall_s=3, cpu_s=1)
ROOT = Path(__file__).parents[1]
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def scene(tmp_path):
    # What an attack leaves behind becomes a child of this process, wherever it hides.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    missing_layers()  # starts the process that forks all others
    with open_scene(tmp_path) as scene:
        yield scene


FIRST = {attack.done: name for name, attack in reversed(ATTACKS.items())}
FIRST[HARMS["outlives"]] = "equal to everything"  # in place of one that takes seconds


@pytest.mark.parametrize("name", FIRST.values())
def test_an_attack_of_each_kind_fails(scene, name):
    assert_fails(scene, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_fails(scene, name):
    assert_fails(scene, name)


def assert_fails(scene, name):
    attack = ATTACKS[name]
    before = descendants_of(os.getpid())
    start = time.monotonic()
    verdict = run_checked(
        CheckedProgram(attack.program(scene, scale=10_000), "f", attack.tests), LIMITS
    )
    late = is_late(time.monotonic() - start)
    outcome = Outcome(verdict.passed, verdict.detail, late or bool(end_survivors(before)))
    assert not attack.done(scene, outcome), verdict
    assert not outcome.passed
    assert not outcome.outlived


def is_late(seconds):
    """Whether a program was ended too late; where the machine keeps all waiting, by what it now
    makes of a harmless one.
    """
    if seconds <= 2 * LIMITS.wall_s:
        return False
    start = time.monotonic()
    run_checked(CheckedProgram("def f(x): return 4", "f", SQUARES), LIMITS)
    return seconds > 2 * LIMITS.wall_s + 20 * (time.monotonic() - start)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_the_attack_succeeds_where_nothing_stops_it(scene, name):
    attack = ATTACKS[name]
    before = descendants_of(os.getpid())
    passed, said, late = run_freely(attack, scene)
    outcome = Outcome(passed, said, late or bool(end_survivors(before)))
    assert attack.done(scene, outcome), outcome


@pytest.mark.parametrize("which", ["of_each_kind", pytest.param("fails", marks=pytest.mark.long)])
def test_attacks_fail_without_namespaces(which):
    """As in most containers: what the kernel gives beside the filter and Landlock is not needed."""
    program = (
        "import sys, pytest\nsys.exit(pytest.main(['-q', '-x', '-p', 'no:cacheprovider', '-k',"
        f" 'test_an_attack and {which}', 'tests/test_attacks.py']))"
    )
    command = refusing(["unshare"], program)
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def run_freely(attack, scene):
    """An attack and its tests in one interpreter without any limit, as a naive grader has it: a
    pass is status 0, or "passed".
    """
    program = f"{attack.program(scene, scale=3)}\n{attack.tests}\ncheck(f)\nprint('passed')\n"
    command = [sys.executable, "-S", "-c", program]
    seconds = 1 if attack.done is HARMS["outlives"] else 20
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        given = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "cwd": folder}
        child = subprocess.Popen(command, close_fds=False, **given)
        late = False
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            late = True
        output.seek(0)
        said = output.read().decode(errors="replace")
    return child.returncode == 0 or "\npassed" in f"\n{said}", said, late


def end_survivors(before):
    """The processes that are new among this one's children; they are dead afterwards."""
    survivors = [pid for pid in descendants_of(os.getpid()) - before if alive(pid)]
    for pid in descendants_of(os.getpid()) - before:
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # another one's child
            os.waitpid(pid, 0)
    return survivors
