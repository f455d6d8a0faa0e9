"""`make repro` of a simulated project, killed in every stage and started again: the same files as
of one that nothing disturbed.

`make torture` kills it TORTURE_KILLS times (default 30) over all stages, `make test-slow` once in
each of three stages; test_repro_ends.py stops it by signals.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import psutil
import pytest
import yaml
from mlflow.tracking import MlflowClient

from tests.support.project import ROOT, one_prefect_server
from tests.support.simulated_project import SimulatedProject
from ttsgraph.stages.bookkeeping import BOOKKEEPING, FOLDER

KILLS = int(os.environ.get("TORTURE_KILLS", "30"))

COMMAND = (sys.executable, "-m", "ttsgraph_flows.repro")
STAGES = tuple(yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"])
BEGIN = "begin"
"""What comes before the first stage: looking what changed, and a Prefect server of its own."""

SHORT_S = 3.0
"""Seconds within which a stage is killed; one that has ended by then leaves it to the next."""

OF_THIS_RUN = (FOLDER, "spent")
"""Which run in MLflow it is, and what this very run took and paid rather than what it found."""


@dataclass
class Running:
    """A `make repro` under way; `began` gets each stage."""

    process: subprocess.Popen[str]
    began: SimpleQueue[str] = field(default_factory=SimpleQueue)
    said: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Follow what it prints to its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("Running stage '"):
                stage = line.removeprefix("Running stage '").partition("'")[0].partition("@")[0]
                self.began.put(stage)

    def wait_for(self, stage: str) -> bool:
        """Until this stage begins; False when the run ends without it."""
        if stage == BEGIN:
            return True
        while self.process.poll() is None or not self.began.empty():
            with contextlib.suppress(Empty):
                if self.began.get(timeout=0.2) == stage:
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
    def start(self, own_server: bool = False) -> Iterator[Running]:
        """Begin to rebuild, with a Prefect server of its own or that of the tests."""
        environment = {**self.environment, "DVC_NO_ANALYTICS": "1"}  # its daemon stays for a while
        if own_server:
            environment.pop("PREFECT_API_URL", None)
        process = subprocess.Popen(
            COMMAND,
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        running = Running(process)
        listener = threading.Thread(target=running.listen)
        listener.start()
        try:
            yield running
        finally:
            if process.poll() is None:
                running.kill()
            listener.join()

    def repro(self) -> str:
        """Rebuild to the end; returns what was printed."""
        with self.start() as running:
            running.process.wait(1800)  # seconds; it takes minutes where the machine is busy
        said = "".join(running.said)
        assert running.process.returncode == 0, said
        return said

    def outcome(self) -> dict[str, Any]:
        """Everything that a rebuilding has to bring back as it was."""
        found = {}
        for top in ("data", "results", "reports"):
            for path in sorted((self.folder / top).rglob("*")):
                name = path.relative_to(self.folder)
                of_this_run = set(name.parts) & set(OF_THIS_RUN) or name.name.startswith(".")
                if path.is_file() and not of_this_run:
                    found[name.as_posix()] = essence(path)
        return found

    def recorded(self) -> tuple[list[int], dict[str, str], list[str]]:
        """What MLflow holds: steps of the search's run, the aliases, and the versions."""
        client = MlflowClient(self.uri)
        with self.registry() as registry:
            versions = registry.versions("math")
        aliases = {alias: version.label for version in versions for alias in version.aliases}
        history = [
            client.get_metric_history(versions[0].run_id, f"{split}/n_scored")
            for split in ("train", "val")
        ]
        return (
            sorted(metric.step for metrics in history for metric in metrics),
            aliases,
            [v.label for v in versions],
        )


def essence(path: Path) -> Any:
    """What a file says, without what only this very run can say."""
    if path.name == "lineage.json":
        told = json.loads(path.read_text())
        record = {
            key: told["record"][key]
            for key in ("graph_hash", "candidates", "method", "test", "budget", "parent")
        }
        return {key: told[key] for key in ("version", "promoted", "reason", "gate")} | record
    if path.suffix == ".html":
        figures = re.findall(r'<data data-at="([^"]*)"[^>]*>([^<]*)<', path.read_text())
        return [(at, shown) for at, shown in figures if at.rpartition("/")[2] not in BOOKKEEPING]
    return path.read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a rebuilding ends with, in files and MLflow."""
    project = Tortured(tmp_path_factory.mktemp("undisturbed"))
    with one_prefect_server(project.folder / "server"):
        project.repro()
        outcome = project.outcome()
        assert {"questions.parquet", "index.html"} <= {Path(path).name for path in outcome}
        yield outcome, project.recorded()


def end_in(project: Tortured, stage: str, moment: float, own_server: bool) -> str | None:
    """Start to rebuild, and kill it this many seconds after the stage has begun; returns the stage
    that was under way then, None when it had ended by itself.
    """
    with project.start(own_server) as running:
        if not running.wait_for(stage):
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(moment)
            return None
        running.kill()
        if running.process.returncode == 0:
            return None
    while not running.began.empty():
        stage = running.began.get()
    return stage


def torture(
    folder: Path,
    undisturbed: tuple[dict[str, Any], Any],
    stages: Sequence[str],
    chance: random.Random,
) -> Counter[str]:
    """Rebuild once, killed in each of these stages on the way; returns how often in which."""
    outcome, recorded = undisturbed
    project = Tortured(folder)
    kills: Counter[str] = Counter()
    for stage in stages:
        moment = chance.uniform(0.0, SHORT_S)
        killed = end_in(project, stage, moment, stage in (BEGIN, STAGES[0]))
        kills.update([killed] if killed else [])
    project.repro()
    found = project.outcome()
    assert sorted(found) == sorted(outcome)
    assert [name for name in found if found[name] != outcome[name]] == []
    assert project.recorded() == recorded
    assert "up to date" in project.repro()
    return kills


@pytest.mark.slow
def test_a_rebuilding_killed_in_three_stages_ends_with_the_same_files(tmp_path, undisturbed):
    kills = torture(
        tmp_path, undisturbed, ["init_instances", "search", "evaluate"], random.Random(3)
    )
    assert kills.total() >= 2


@pytest.mark.long
def test_thirty_kills_over_all_stages_end_with_the_same_files(tmp_path, undisturbed, capsys):
    chance = random.Random(4)
    kills: Counter[str] = Counter()
    for number in range(2 * KILLS):
        wanted = max(KILLS - kills.total(), sum(stage not in kills for stage in STAGES))
        if not wanted:
            break
        # Those that were killed least come first; on the way they stand in their order.
        least = sorted([BEGIN, *STAGES], key=lambda stage: kills[stage])[:wanted]
        stages = [stage for stage in (BEGIN, *STAGES) if stage in least]
        folder = tmp_path / str(number)
        folder.mkdir()
        kills += torture(folder, undisturbed, stages, chance)
        shutil.rmtree(folder)
        with capsys.disabled():
            print(f"\nkills after {number + 1} rebuildings: {shown(kills)}", flush=True)
    assert kills.total() >= KILLS
    assert min(kills[stage] for stage in STAGES) >= 1, shown(kills)


def shown(kills: Counter[str]) -> str:
    """How often each stage was killed."""
    return ", ".join(f"{stage} {kills[stage]}" for stage in (BEGIN, *STAGES))
