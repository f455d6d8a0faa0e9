"""`make repro` of a simulated project, killed in every stage and started again: the same files as of one that nothing disturbed.

`make torture` kills it TORTURE_KILLS times (default 30) over all stages, `make test-slow` once in each of three.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pandas as pd
import psutil

from tests.simulated_project import SimulatedProject
from tests.test_journal import MADE_NOW

KILLS = int(os.environ.get("TORTURE_KILLS", "30"))
COMMAND = (sys.executable, "-m", "flows.repro")
STAGES = ("sample", "profile", "pilot", "init_family", "init_instances", "search", "evaluate", "report")
BEGIN = "begin"
"""What comes before the first stage: looking what changed, and a Prefect server of its own."""

OF_THIS_RUN = ("run_id", "spent_dollars", "spent_tokens", "spent_seconds", "made_calls", "distinct_over_naive_calls")
"""Of search.json: which run in MLflow it is, and what this very run paid rather than what it found."""


@dataclass
class Running:
    """A `make repro` under way: the stages that began, each with the second of its beginning, are put into `began`."""

    process: subprocess.Popen[str]
    since: float = field(default_factory=time.monotonic)
    began: SimpleQueue[tuple[str, float]] = field(default_factory=SimpleQueue)
    said: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Follow what it prints to its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("Running stage '"):
                stage = line.removeprefix("Running stage '").partition("'")[0].partition("@")[0]
                self.began.put((stage, time.monotonic() - self.since))

    def wait_for(self, stage: str) -> bool:
        """Until this stage begins; False when the run ends without it."""
        if stage == BEGIN:
            return True
        while self.process.poll() is None or not self.began.empty():
            with contextlib.suppress(Empty):
                if self.began.get(timeout=0.2)[0] == stage:
                    return True
        return False

    def kill(self) -> None:
        """End everything that runs in its folder at once, as a power cut does."""
        group = psutil.Process(self.process.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            group.suspend()  # starts nothing any more
        for process in [*group.children(recursive=True), group]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        self.process.wait()


class Tortured(SimulatedProject):
    """A project that can be started, killed, emptied and looked at."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.method = "agent_reinforce"
        self.save()

    @contextlib.contextmanager
    def start(self) -> Iterator[Running]:
        """Begin to rebuild."""
        process = subprocess.Popen(
            COMMAND, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        running = Running(process)
        listener = threading.Thread(target=running.listen)
        listener.start()
        try:
            yield running
        finally:
            if process.poll() is None:
                running.kill()
            listener.join()

    def repro(self) -> tuple[list[str], dict[str, float]]:
        """Rebuild to the end; returns what was printed, and the seconds from the start at which each stage began, and the end."""
        with self.start() as running:
            running.process.wait(600)
            ended = time.monotonic() - running.since
        times = {}
        while not running.began.empty():
            stage, second = running.began.get()
            times[stage] = second
        assert running.process.returncode == 0, "".join(running.said)
        return running.said, times | {"end": ended}

    def outcome(self) -> dict[str, Any]:
        """Everything below data/, results/ and reports/ that a rebuilding has to bring back as it was."""
        found = {}
        for top in ("data", "results", "reports"):
            for path in sorted((self.folder / top).rglob("*")):
                if path.is_file() and not path.name.startswith("."):
                    found[path.relative_to(self.folder).as_posix()] = content(path)
        return found


def content(path: Path) -> Any:
    """What a file says, without what only this very run can say."""
    if path.suffix == ".parquet":
        table = pd.read_parquet(path)
        return table.drop(columns=MADE_NOW, errors="ignore").to_json()
    return path.read_bytes()
