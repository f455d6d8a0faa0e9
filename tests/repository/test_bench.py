"""The benchmarks' own parts: what they measure against, and how a run ends."""

import json
from contextlib import chdir

import pytest

from lab.benchmarks import __main__ as bench
from lab.benchmarks import archive, growth
from ttsgraph.stages.schemas import Candidates, read_table
from ttsgraph_flows import report


def test_a_run_stores_the_machine_and_the_ratios(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(growth, "ROUNDS", 1)
    monkeypatch.chdir(tmp_path)
    ended = bench.main(["growth"])
    stored = json.loads((tmp_path / "reports" / "bench.json").read_text())
    assert stored["machine"]["cores"] >= 1
    (row,) = stored["ratios"]
    assert row["holds"] == (ended == 0)
    assert row["name"] in capsys.readouterr().out


@pytest.mark.slow
def test_the_report_takes_the_big_archive(tmp_path):
    archive.big_archive(tmp_path, candidates=100)
    with chdir(tmp_path):
        table = read_table(Candidates, archive.RESULTS / "archive.parquet", "search")
        assert (table["split"] == "train").sum() == 100
        report.report.fn()
    assert "simulated" in (tmp_path / "reports" / archive.NAME / "index.html").read_text()
