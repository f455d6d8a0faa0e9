"""What a solution in the sandbox can do, what counts as a pass, and when there is no verdict."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from cases import SQUARES, programs, tables

from codecheck.errors import NotChecked
from codecheck.sandbox import CheckedProgram, SandboxLimits, missing_layers, run_checked
from processes import alive, descendants_of, refused_calls, wait_until

LIMITS = SandboxLimits(cpu_s=2, wall_s=60)
TABLES = tables("verdicts.txt")
PROGRAMS = programs()


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
    with pytest.raises(NotChecked, match=rf"tests of square fail before they call it: .*{row[1]}"):
        run("def square(x): return x * x", row[0])


@pytest.mark.parametrize("row", [*TABLES["noise"], ["[" * 100_000]], ids=lambda row: row[0][:60])
def test_noise_instead_of_answers_is_no_pass(row):
    noise = PROGRAMS["noise"].format(line=f"{row[0]}\n")
    assert not run(noise).passed
    assert not run(f"{noise}\ndef square(x): return x * x + 1").passed


def test_a_solution_that_waits_is_killed():
    verdict = run("import time; time.sleep(600)", limits=SandboxLimits(wall_s=2))
    assert (verdict.passed, verdict.timed_out) == (False, True)


def test_a_process_that_is_slow_to_start_takes_nothing_from_its_program(tmp_path):
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 2\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    program = CheckedProgram("def square(x): return x * x", "square", SQUARES)
    assert run_checked(program, SandboxLimits(wall_s=1.5), python=str(slow)).passed


def test_a_solution_that_fills_its_folder_before_the_tests_are_ready_has_failed():
    fills = "for k in range(10): open(str(k), 'w').close()"
    solution = f"import time\n{fills}\ntime.sleep(60)\ndef square(x): return x * x"
    for _ in range(5):
        verdict = run(solution, limits=SandboxLimits(folder_files=3))
        assert (verdict.passed, verdict.detail) == (False, "it wrote more than its folder may hold")


@pytest.mark.parametrize(
    ("python", "why"),
    [("/nonexistent/python", "No such file"), ("/bin/false", "ended with status 1")],
)
def test_a_child_that_cannot_start_is_a_failed_call(python, why):
    with pytest.raises(NotChecked, match=rf"can.t start a process .*{why}"):
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


GRADE = PROGRAMS["grade two programs"]


def test_without_isolation_it_refuses_unless_less_is_accepted():
    output = refused_calls(["landlock_create_ruleset"], GRADE)
    assert output.startswith("refused programs written by models can't be isolated here (files:")
    assert output.endswith("weaker True False\n")


def test_isolation_needs_no_namespaces():
    assert refused_calls(["unshare"], GRADE).startswith("confined True\n")


SLEEPS = PROGRAMS["asks for what sleeps"]


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


WRITERS = dict(tables("writers.txt")["writers"])
SOLUTION = PROGRAMS["writes until it is refused"]
TESTS = "def check(f):\n    assert f({most}) == {expected!r}\n"


MOUNT = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
NEEDS_MOUNTS = pytest.mark.skipif(
    subprocess.run(MOUNT, capture_output=True, check=False).returncode != 0,
    reason="this kernel lets no user mount a file system",
)


@NEEDS_MOUNTS
@pytest.mark.parametrize("kind", WRITERS)
def test_the_kernel_refuses_what_is_beyond_the_folder_s_size(kind):
    source = SOLUTION.format(writer=WRITERS[kind])
    limits = SandboxLimits(folder_size=4 << 20, wall_s=60)
    ended = run_checked(CheckedProgram(source, "f", TESTS.format(most=3, expected=(3, 0))), limits)
    assert ended.passed, ended
    if kind == "mapped files":  # a signal ends who writes where there is no room
        assert not run_checked(CheckedProgram(source, "f", "def check(f): f(9)"), limits).passed
        return
    ended = run_checked(CheckedProgram(source, "f", TESTS.format(most=9, expected=(4, 28))), limits)
    assert ended.passed, ended


@NEEDS_MOUNTS
def test_the_kernel_bounds_the_number_of_files():
    source = SOLUTION.format(writer="open(f'f{k}', 'wb').close()")
    limits = SandboxLimits(folder_files=8, wall_s=60)
    tests = TESTS.format(most=99, expected=(8, 28))
    assert run_checked(CheckedProgram(source, "f", tests), limits).passed


@pytest.mark.parametrize("kind", WRITERS)
def test_without_namespaces_the_folder_is_looked_at(kind):
    source = "import time\n" + SOLUTION.format(writer=f"time.sleep(0.06); {WRITERS[kind]}")
    said = refused_calls(["unshare"], PROGRAMS["asks for what writes"].format(source=source))
    assert said == "it wrote more than its folder may hold\n"


PLACES = {"CWD": repr(os.getcwd()), "FILE": repr(os.path.abspath(__file__))}
CLOSED = {
    name: re.sub("CWD|FILE", lambda word: PLACES[word[0]], expression)
    for name, expression in tables("closed.txt")["closed"]
}


def test_what_a_folder_or_file_holds_and_what_others_do_stays_closed(tmp_path, monkeypatch):
    program = PROGRAMS["learns of what is closed"].format(closed=CLOSED)
    ended = run_checked(CheckedProgram(program, "learned", "def check(f): assert f(0) == [], f(0)"))
    assert ended.passed, ended.detail
    names: dict[str, object] = {}
    monkeypatch.chdir(tmp_path)  # the program changes the folder too
    exec(program, names)
    assert len(names["learned"](0)) > len(CLOSED) // 2  # where nothing stops it


def test_names_sizes_and_where_links_point_are_told(tmp_path):
    """Not promised otherwise: the kernel's Landlock bounds neither stat nor readlink."""
    (tmp_path / "secret").write_text("12345")
    (tmp_path / "link").symlink_to("secret")
    program = (
        "import os\ndef f(folder):\n"
        "    size = os.stat(f'{folder}/secret').st_size\n"
        "    return size, os.readlink(f'{folder}/link'), dict(os.environ)"
    )
    check = f"def check(f): assert f({str(tmp_path)!r}) == (5, 'secret', {{}})"
    assert run_checked(CheckedProgram(program, "f", check)).passed
