"""What a program in the sandbox can do, and what counts as a pass."""

import os
import time
from pathlib import Path

import pytest

from pipeline.errors import CallFailed
from pipeline.tasks import sandbox
from pipeline.tasks.sandbox import SandboxLimits, run_program

LIMITS = SandboxLimits(cpu_s=2, wall_s=60)


@pytest.mark.parametrize(
    "program", ["pass", "", "import math\nassert math.sqrt(4) == 2", "print('x' * 10_000_000)", "x = 'ü\ud800'"]
)
def test_a_program_that_ends_has_passed(program):
    assert run_program(program, LIMITS).passed


@pytest.mark.parametrize(
    ("program", "detail"),
    [
        ("assert 1 == 2, 'one is not two'", "AssertionError: one is not two"),
        ("def f(:", "SyntaxError"),
        ("\x00", "SyntaxError"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("raise SystemExit", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; os._exit(0)", ""),
        ("import os; os.abort()", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL); raise ValueError", ""),
        ("print('started'); print('passed'); quit()", "NameError"),
        ("input()", "EOFError"),
        ("import numpy", "ModuleNotFoundError"),
    ],
)
def test_a_program_that_does_not_end_by_itself_has_failed(program, detail):
    verdict = run_program(program, LIMITS)
    assert not verdict.passed
    assert not verdict.timed_out
    assert detail in verdict.detail


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "x = 'a' * (2 << 30)",
        "open('big', 'w').write('x' * (2 << 20))",
        "files = [open(__import__('os').devnull) for _ in range(100)]",
        "import socket; socket.create_connection(('127.0.0.1', 9), 2)",
    ],
    ids=["processor", "memory", "file", "files", "network"],
)
def test_the_limits_hold(program):
    assert not run_program(program, LIMITS).passed


def test_a_program_that_waits_is_killed():
    verdict = run_program("import time; time.sleep(600)", SandboxLimits(wall_s=2))
    assert (verdict.passed, verdict.timed_out) == (False, True)


def test_noise_on_the_pipe_is_no_pass():
    noise = "import os\nfor pipe in range(3, 60):\n    try: os.write(pipe, b'passed' * 1000)\n    except OSError: pass"
    assert not run_program(noise, LIMITS).passed


def test_the_environment_is_empty_and_the_folder_private(monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    program = "import os\nassert 'SECRET_KEY' not in os.environ\nassert os.listdir('.') == []\nopen('mine', 'w').close()"
    assert run_program(program, LIMITS).passed


def test_the_folder_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_program("open('mine', 'w').close()", LIMITS).passed
    assert list(tmp_path.iterdir()) == []


def test_hashes_are_the_same_in_every_run():
    assert all(run_program(f"assert hash('a') == {value}", LIMITS).passed for value in [hash_of_a(), hash_of_a()])


def hash_of_a() -> int:
    return int(run_program("raise ValueError(hash('a'))", LIMITS).detail.removeprefix("ValueError: "))


@pytest.mark.skipif("--pid" not in sandbox._isolation(), reason="the kernel allows no process namespace here")
def test_nothing_outlives_the_program(tmp_path):
    program = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(1)
    open({str(tmp_path / "late")!r}, "w").close()
    time.sleep(600)
"""
    assert run_program(program, LIMITS).passed
    time.sleep(2)
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize(
    ("python", "message"),
    [("/nonexistent/python", "status 127|could be started"), ("/bin/false", "ended with status 1 before it ran the program")],
)
def test_a_child_that_cannot_start_is_a_failed_call(python, message):
    with pytest.raises(CallFailed, match=message):
        run_program("pass", LIMITS, python)


def test_nowhere_to_work_is_a_failed_call(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent/folder")
    with pytest.raises(CallFailed, match=r"no process for a program could be started: .*No such file"):
        run_program("pass", LIMITS)


def test_no_descriptor_is_left_open():
    run_program("pass", LIMITS)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(5):
        run_program("pass", LIMITS)
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)
