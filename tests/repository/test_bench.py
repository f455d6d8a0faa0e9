"""The benchmarks' own parts: what they measure against, and how a run ends."""

import asyncio
import json
from contextlib import chdir

import pytest

from lab.benchmarks import __main__ as bench
from lab.benchmarks import archive, growth
from lab.benchmarks.endpoint import MODEL
from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import questions, stubbed_environment
from ttsgraph.graphs.topologies import parallel
from ttsgraph.stages.schemas import Candidates, read_table
from ttsgraph_flows import report


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


def test_a_run_stores_the_machine_and_the_ratios(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(growth, "ROUNDS", 1)
    monkeypatch.chdir(tmp_path)
    ended = bench.main(["growth"])
    stored = json.loads((tmp_path / "reports" / "bench.json").read_text())
    assert stored["machine"]["cores"] >= 1
    (row,) = stored["ratios"]
    assert row["holds"] == (ended == 0)
    assert row["name"] in capsys.readouterr().out


def test_an_unknown_benchmark_lists_the_known_ones(capsys):
    assert bench.main(["speed"]) == 2
    assert "expected some of client_rate, peers" in capsys.readouterr().err


@pytest.mark.slow
def test_the_report_takes_the_big_archive(tmp_path):
    made = archive.big_archive(tmp_path, candidates=100)
    with chdir(tmp_path):
        table = read_table(Candidates, made.method / "archive.parquet", "search")
        assert (table["split"] == "train").sum() == 100
        report.report.fn()
    assert "simulated" in (tmp_path / "reports" / archive.NAME / "index.html").read_text()
