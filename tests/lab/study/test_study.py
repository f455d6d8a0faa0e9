"""The study's harness: equal terms, costs, statistics, and a whole run on a small scale."""

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lab import python_path
from lab.study import paper
from lab.study.dags import labeled_dags, unlabeled_dags
from lab.study.over_seeds import paired_p
from lab.study.plan import Cell, load_study
from lab.study.report import power
from lab.study.run import Laboratory, run_cell
from lab.study.tables import holm
from tests.support.oracles import LABELED, UNLABELED
from tests.support.processes import said_by
from tests.support.project import ROOT
from ttsgraph.settings.profile import load_profile

PROFILE = load_profile("simulated", ROOT / "profiles")
SIMULATED = ROOT / "profiles" / "simulated.yaml"
SMALL = Path(__file__).with_name("small.yaml")
SETTINGS = load_study(SMALL)


class TestStats:
    def test_few_seeds_can_show_nothing_and_holm_steps_down(self):
        table = pd.DataFrame({"block": ["math"] * 12, "name": [f"m{k}" for k in range(12)]})
        assert "nothing can be significant" in power(8, table)
        assert power(9, table) == ""
        stepped = {"a": 0.03, "b": 0.06, "c": 0.06}
        assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(stepped)

    def test_six_differences_of_one_sign_have_the_smallest_p_there_is(self):
        assert paired_p([2, 3, 4, 5, 6, 7.5], [1, 1, 1, 1, 1, 1]) == pytest.approx(2 / 2**6)
        assert paired_p([1, 2], [1, 2]) == 1.0


class TestCells:
    laboratory = Laboratory(SETTINGS, PROFILE, "math")

    def run(self, method: str, seed: int = 0) -> dict[str, Any]:
        cell = Cell("math", method, "flops", 80.0, seed)
        return asyncio.run(run_cell(self.laboratory, cell))

    def test_all_methods_have_the_same_terms_and_test_questions(self):
        rows = [self.run(method) for method in (*paper.RIVALS, paper.OURS)]
        assert all(row["terms"] == rows[0]["terms"] for row in rows)
        assert {row["candidates"] for row in rows} == {12}
        tested = {
            tuple(question.id for question in self.laboratory.questions(seed)["test"])
            for seed in range(3)
        }
        assert len(tested) == 1

    def test_a_run_repeats_and_does_not_depend_on_what_ran_before(self):
        cell = Cell("math", paper.OURS, "flops", 80.0, 1)
        fresh = asyncio.run(run_cell(Laboratory(SETTINGS, PROFILE, "math"), cell))
        again = self.run(paper.OURS, seed=1)
        assert {**fresh, "cpu_s": 0} == {**again, "cpu_s": 0}


@pytest.mark.slow
def test_a_study_writes_tables_and_plots_that_say_simulated_and_resumes(tmp_path):
    for file, name in ((SMALL, "lab/study.yaml"), (SIMULATED, "profiles/simulated.yaml")):
        (tmp_path / name).parent.mkdir()
        shutil.copy(file, tmp_path / name)

    def run(*arguments: str) -> None:
        command = [sys.executable, "-m", "lab.study", "--workers", "2", "--seeds", *arguments]
        said_by(command, tmp_path, os.environ | {"PYTHONPATH": python_path(ROOT)})

    run("2")
    files = sorted((tmp_path / "reports" / "study").iterdir())
    assert all("simulated" in file.name for file in files)
    assert {f"table_{k}_simulated.csv" for k in (1, 2, 3)} <= {file.name for file in files}
    page = (tmp_path / "reports" / "study" / "study_simulated.md").read_text()
    assert "All figures are simulated, except the paper's" in page
    pictures = {file.name for file in files if file.suffix == ".svg"}
    assert pictures == set(re.findall(r"\]\((\S+\.svg)\)", page))
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "results").rglob("*.json")}
    next(iter(kept)).unlink()
    run("2")
    now = {file: file.stat().st_mtime_ns for file in (tmp_path / "results").rglob("*.json")}
    assert [file for file in kept if now[file] != kept[file]] == [next(iter(kept))]
    assert (tmp_path / "reports" / "study" / "study_simulated.md").read_text() == page
    run("1", "--first-seed", "7")
    fresh = pd.read_csv(tmp_path / "reports" / "study-from-seed-7" / "searches_simulated.csv")
    assert set(fresh["seed"]) == {7}
    assert (tmp_path / "reports" / "study" / "study_simulated.md").read_text() == page


def test_labeled_counts_match_the_published_ones():
    assert {n: labeled_dags(n) for n in LABELED} == LABELED


def test_unlabeled_counts_match_oeis():
    assert {n: unlabeled_dags(n) for n in UNLABELED} == UNLABELED
