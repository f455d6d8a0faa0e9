"""The benchmarks' own parts: what they measure against, and how a run ends."""

import asyncio
import json
import subprocess
import sys
from contextlib import chdir

import pandas as pd
import pytest

from lab import python_path
from lab.benchmarks import __main__ as bench
from lab.benchmarks import archive, service
from lab.benchmarks.endpoint import MODEL
from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import questions, stubbed_environment
from tests.support.project import ROOT
from ttsgraph.base.bookkeeping import BOOKKEEPING
from ttsgraph.evaluation.archive import COLUMNS
from ttsgraph.graphs.topologies import parallel
from ttsgraph.stages.schemas import Candidates, read_table
from ttsgraph_flows import report
from ttsgraph_flows.stage import load_stage


def test_every_benchmark_is_a_module_that_measures():
    for name in bench.BENCHMARKS:
        assert (
            "def measure() -> list[Ratio]:"
            in (ROOT / "lab" / "benchmarks" / f"{name}.py").read_text()
        )


def test_a_benchmark_is_run_by_its_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(service, "measure", lambda: [Ratio("r", 1.0, "at most", 1.0, {})])
    assert bench.main(["service"]) == 0


@pytest.mark.parametrize(
    ("value", "rule", "holds"),
    [(1.0, "at most", True), (1.1, "at most", False), (0.9, "at least", False)],
)
def test_a_ratio_holds_up_to_its_bound(value, rule, holds):
    assert Ratio("r", value, rule, 1.0, {}).holds is holds


def test_the_stub_server_answers_through_the_whole_stack():
    async def run():
        async with stubbed_environment(0.02) as environment:
            return await environment.evaluate(parallel([MODEL] * 3, MODEL), questions(2))

    feedback = asyncio.run(run())
    assert (feedback.n_unscored, feedback.usage.calls, feedback.usage.cached_calls) == (0, 8, 0)
    assert feedback.latency_s >= 2 * 0.02


@pytest.mark.slow
def test_a_run_stores_the_machine_and_the_ratios(tmp_path):
    command = [sys.executable, "-m", "lab.benchmarks", "growth"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": python_path(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    stored = json.loads((tmp_path / "reports" / "bench.json").read_text())
    assert stored["machine"]["cores"] >= 1
    (row,) = stored["ratios"]
    assert row["holds"] == (done.returncode == 0)
    assert row["name"] in done.stdout


def test_an_unknown_benchmark_lists_the_known_ones(capsys):
    assert bench.main(["speed"]) == 2
    assert (
        "unknown benchmark 'speed'; expected some of client_rate, peers" in capsys.readouterr().err
    )


@pytest.mark.slow
def test_the_big_archive_is_what_the_stages_leave_and_its_search_goes_on(tmp_path):
    made = archive.big_archive(tmp_path, candidates=200)
    with chdir(tmp_path):
        table = read_table(Candidates, made.method / "archive.parquet", "search")
        assert (table["split"] == "train").sum() == 200
        _, again = archive.search(load_stage(archive.TASK), made.method, archive.RecallEnvironment)
        kept = [column for column in COLUMNS if column not in BOOKKEEPING]
        pd.testing.assert_frame_equal(again.table()[kept], table[kept])
        report.report.fn()
    assert "simulated" in (tmp_path / "reports" / archive.NAME / "index.html").read_text()
