"""Several processes on one port: who answers, what their figures add up to, and their end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import HANGS_S, ROOT
from tests.support.service import wait_for

PROGRAM = [sys.executable, "-m", "tests.support.crew"]


@pytest.fixture
def crew() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The program, and where it listens."""
    with subprocess.Popen(PROGRAM, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def answer(port: int) -> tuple[int, float, float]:
    """Who answered, and how many requests there were and are, by the figures of all."""
    with socket.create_connection(("127.0.0.1", port)) as asking, asking.makefile() as file:
        text = file.read()
    if not text:
        raise ConnectionResetError("it was in the queue of one that died")
    found = re.search(
        r"^process (\d+)$.*^ttsgraph_requests_total{.*} (\S+)$", text, re.MULTILINE | re.DOTALL
    )
    under_way = re.search(r"^ttsgraph_requests_under_way (\S+)$", text, re.MULTILINE)
    assert found is not None, text
    assert under_way is not None, text
    return int(found[1]), float(found[2]), float(under_way[1])


def ended(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


def test_both_answer_and_their_figures_add_up_and_they_end_together(crew) -> None:
    process, port = crew
    answers = [answer(port) for _ in range(40)]
    assert len({who for who, _, _ in answers}) == 2
    assert [count for _, count, _ in answers] == [float(k) for k in range(1, 41)]
    assert [count for _, _, count in answers] == [float(k) for k in range(1, 41)]
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANGS_S) == 0
    assert all(ended(who) for who, _, _ in answers)


def test_one_that_dies_is_replaced_and_what_it_counted_stays(crew) -> None:
    _, port = crew
    before = {answer(port)[0] for _ in range(40)}
    dead = before.pop()
    os.kill(dead, signal.SIGKILL)
    others: set[int] = set()

    def replaced() -> bool:
        try:
            others.add(answer(port)[0])
        except OSError:
            return False
        return len(others - {dead}) == 2

    wait_for(replaced, 120)
    _, count, under_way = answer(port)
    assert count > 40
    assert under_way < count  # those of the dead are no longer under way


def test_none_outlives_the_process_that_started_them(crew) -> None:
    process, port = crew
    both = {answer(port)[0] for _ in range(40)}
    process.kill()
    process.wait()
    wait_for(lambda: all(map(ended, both)), 60)


def test_what_keeps_one_from_starting_is_said() -> None:
    done = subprocess.run(
        [*PROGRAM, "broken"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "error: expected a name that is there"
    assert done.stdout == ""
