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
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from mlflow.tracking import MlflowClient

from tests.support.processes import HANGS_S, all_below, called, wait_until
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


class Tortured(SimulatedProject):
    """A project that can be started, killed, emptied and looked at."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.method = "agent_reinforce"
        self.save()

    @contextlib.contextmanager
    def start(self, own_server: bool) -> Iterator[subprocess.Popen[bytes]]:
        """Begin to rebuild, with a Prefect server of its own or that of the tests."""
        env = self.environment | {"DVC_NO_ANALYTICS": "1"}  # its daemon stays for a while
        if own_server:
            env.pop("PREFECT_API_URL", None)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(COMMAND, cwd=self.folder, env=env, **quiet) as process:
            try:
                yield process
            finally:
                kill(process)

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
        steps = [
            metric.step
            for split in ("train", "val")
            for metric in client.get_metric_history(versions[0].run_id, f"{split}/n_scored")
        ]
        return sorted(steps), aliases, [version.label for version in versions]


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
        project.said_by(*COMMAND)
        outcome = project.outcome()
        assert {"questions.parquet", "index.html"} <= {Path(path).name for path in outcome}
        yield outcome, project.recorded()


def kill(process: subprocess.Popen[bytes]) -> None:
    """End everything that runs below a process at once, as a power cut does."""
    with contextlib.suppress(psutil.NoSuchProcess):
        group = psutil.Process(process.pid)
        group.suspend()  # starts nothing any more
        for each in [*group.children(recursive=True), group]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait()


def stage_of(process: subprocess.Popen[bytes]) -> str:
    """What a rebuilding is at."""
    below = all_below(process.pid)
    # The later first: one's name begins as another's.
    here = (name for name in STAGES[::-1] if called(below, f"ttsgraph_flows.{name}"))
    return next(here, BEGIN)


def end_in(project: Tortured, stage: str, moment: float, own_server: bool) -> str | None:
    """Start to rebuild, and kill it this many seconds after the stage has begun; returns the stage
    that was under way then, None when it had ended by itself.
    """
    with project.start(own_server) as process:
        wait_until(lambda: process.poll() is not None or stage_of(process) == stage, HANGS_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)
            return None
        return stage_of(process)


def torture(folder, undisturbed, stages, chance):
    """Rebuild once, killed in each of these stages on the way; returns how often in which."""
    outcome, recorded = undisturbed
    project = Tortured(folder)
    kills: Counter[str] = Counter()
    for stage in stages:
        moment = chance.uniform(0.0, SHORT_S)
        killed = end_in(project, stage, moment, stage in (BEGIN, STAGES[0]))
        kills.update([killed] if killed else [])
    project.said_by(*COMMAND)
    found = project.outcome()
    assert sorted(found) == sorted(outcome)
    assert [name for name in found if found[name] != outcome[name]] == []
    assert project.recorded() == recorded
    assert "up to date" in project.said_by(*COMMAND)
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
        kills += torture(folder, undisturbed, stages, chance)
        shutil.rmtree(folder)
        with capsys.disabled():
            print(f"\nkills after {number + 1} rebuildings: {shown(kills)}", flush=True)
    assert kills.total() >= KILLS
    assert min(kills[stage] for stage in STAGES) >= 1, shown(kills)


def shown(kills: Counter[str]) -> str:
    """How often each stage was killed."""
    return ", ".join(f"{stage} {kills[stage]}" for stage in (BEGIN, *STAGES))
