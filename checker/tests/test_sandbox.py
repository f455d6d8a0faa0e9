"""What a solution in the sandbox can do, what counts as a pass, and when there is no verdict."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from cases import SQUARES, tables

from codecheck.errors import NotChecked
from codecheck.sandbox import CheckedProgram, SandboxLimits, missing_layers, run_checked
from processes import alive, descendants_of, refused_calls, wait_until

LIMITS = SandboxLimits(cpu_s=2, wall_s=60)
TABLES = tables("verdicts.txt")


def run(solution, tests=SQUARES, given="", limits=LIMITS):
    return run_checked(CheckedProgram(solution, "square", tests, given), limits)


@pytest.mark.parametrize("row", TABLES["wrong solutions, and why"], ids=" ".join)
def test_a_wrong_solution_fails_and_says_why(row):
    solution, *details = row
    verdict = run(solution)
    assert (verdict.passed, verdict.timed_out) == (False, False)
    assert all(detail in verdict.detail for detail in details)


def test_null_bytes_are_no_program():
    assert "null bytes" in run("\x00").detail  # a SyntaxError or, in older Python, a ValueError


@pytest.mark.parametrize("row", TABLES["tests at the margin"], ids=" ".join)
def test_asserts_at_the_margin_are_tests(row):
    """Without `check`, as MBPP has them."""
    assert run("def square(x): return x * x", *row).passed
    for wrong in ("def square(x): return x + 1", "def other(x): return x * x", "1 / 0"):
        assert not run(wrong, *row).passed


@pytest.mark.parametrize("row", TABLES["no tests, and why"], ids=" ".join)
def test_tests_that_test_nothing_give_no_verdict(row):
    with pytest.raises(NotChecked, match=rf"tests of square can.t check it: .*{row[1]}"):
        run("def square(x): return x * x", row[0])


NOISE = """
import os
for pipe in range(3, 60):
    try: os.write(pipe, {line!r}.encode() * 5)
    except OSError: pass
"""


@pytest.mark.parametrize("row", [*TABLES["noise"], ["[" * 100_000]], ids=lambda row: row[0][:60])
def test_noise_instead_of_answers_is_no_pass(row):
    noise = NOISE.format(line=f"{row[0]}\n")
    assert not run(noise).passed
    assert not run(f"{noise}\ndef square(x): return x * x + 1").passed


def test_a_solution_that_waits_is_killed():
    verdict = run("import time; time.sleep(600)", limits=SandboxLimits(wall_s=2))
    assert (verdict.passed, verdict.timed_out) == (False, True)


def test_a_process_that_is_slow_to_start_takes_nothing_from_its_program(tmp_path):
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 2\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    program = CheckedProgram(
        "def square(x): return x * x", "square", "def check(f): assert f(2) == 4"
    )
    assert run_checked(program, SandboxLimits(wall_s=1.5), python=str(slow)).passed


def test_a_solution_that_fills_its_folder_before_the_tests_are_ready_has_failed():
    solution = (
        "import time\nfor k in range(10): open(str(k), 'w').close()\ntime.sleep(60)\ndef square(x):"
        " return x * x"
    )
    for _ in range(5):
        verdict = run(solution, limits=SandboxLimits(folder_files=3))
        assert (verdict.passed, verdict.detail) == (False, "it wrote more than its folder may hold")


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("/nonexistent/python", "can.t start a process .*No such file"),
        ("/bin/false", "can.t start a process .* ended with status 1"),
    ],
)
def test_a_child_that_cannot_start_is_a_failed_call(python, message):
    with pytest.raises(NotChecked, match=message):
        run_checked(CheckedProgram("", "square", SQUARES), LIMITS, python=python)


def test_nowhere_to_work_is_a_failed_call(monkeypatch):
    missing_layers()
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent/folder")
    with pytest.raises(NotChecked, match=r"can't start a process for a program: .*No such file"):
        run("pass")


def test_no_descriptor_is_left_open():
    run("pass")
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(5):
        run("pass")
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)


GRADE = """
from codecheck import CheckedProgram, NotIsolated, run_checked
two, three = (CheckedProgram(f"def f(): return {k}", "f", "def check(f): assert f() == 2") for k in (2, 3))
try:
    print("confined", run_checked(two).passed)
except NotIsolated as error:
    print("refused", error)
print("weaker", run_checked(two, accept_weaker=True).passed, run_checked(three, accept_weaker=True).passed)
"""


def test_without_isolation_it_refuses_unless_less_is_accepted():
    output = refused_calls(["landlock_create_ruleset"], GRADE)
    assert output.startswith("refused programs written by models can't be isolated here (files:")
    assert output.endswith("weaker True False\n")


def test_isolation_needs_no_namespaces():
    assert refused_calls(["unshare"], GRADE).startswith("confined True\n")


SLEEPS = """
from codecheck.sandbox import *
run_checked(CheckedProgram("import time; time.sleep(600)", "f", "def check(f): f()"))
"""


def test_a_killed_asker_leaves_no_process_and_its_folder_goes_with_the_next_one(tmp_path):
    env = os.environ | {"TMPDIR": str(tmp_path)}

    def asking(program):
        return subprocess.Popen([sys.executable, "-c", program], env=env)

    with asking(SLEEPS) as killed, asking(SLEEPS) as asker:
        wait_until(lambda: all(len(descendants_of(each.pid)) == 3 for each in (killed, asker)))
        folders = set(tmp_path.iterdir())
        running = descendants_of(killed.pid)
        killed.kill()
        wait_until(lambda: not any(map(alive, running)))
        assert asking(SLEEPS.replace("time.sleep(600)", "1")).wait() == 0
        (kept,) = tmp_path.iterdir()  # of the one that still asks
        assert kept in folders
        asker.kill()
    assert asking(SLEEPS.replace("time.sleep(600)", "1")).wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_template_that_is_killed_is_a_failed_call_and_the_next_one_works():
    run("pass")
    before = descendants_of(os.getpid())
    failed = []

    def ask():
        try:
            run("import time; time.sleep(600)")
        except NotChecked as error:
            failed.append(str(error))

    asking = Thread(target=ask)
    asking.start()
    wait_until(lambda: len(descendants_of(os.getpid()) - before) == 2)
    (template,) = (pid for pid in before if descendants_of(pid) - before)
    os.kill(template, signal.SIGKILL)
    asking.join()
    assert "ended with status -9" in failed[0]
    assert run("def square(x): return x * x").passed


def test_whenever_a_verdict_is_interrupted_the_next_ones_are_right():
    def interrupt(*_):
        raise ZeroDivisionError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for milliseconds in range(1, 31):
            with contextlib.suppress(ZeroDivisionError):
                signal.setitimer(signal.ITIMER_REAL, milliseconds / 1000)
                run("def square(x): return x * x")
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert not run("def square(x): return x").passed
            assert run("def square(x): return x * x").passed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
