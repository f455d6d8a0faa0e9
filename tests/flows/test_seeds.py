"""A task from several seeds, through all its stages, told together."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path

import pandas as pd
import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph_flows.seeds import KEPT, METHOD, seeds

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = SimulatedProject(tmp_path_factory.mktemp("seeds"))
    project.settings["limits"] = {"dollars": 1000}
    project.save()
    with chdir(project.folder):
        seeds("math", 2, 3)
    return project.folder


def found_answers(made: Path) -> pd.DataFrame:
    """What the found graphs of both seeds answered, with the questions' texts."""
    parts = []
    for seed in ("3", "4"):
        folder = made / KEPT / "simulated-small" / "math" / seed
        questions = pd.read_parquet(folder / "data/simulated-small/math/questions.parquet")
        path = folder / f"results/simulated-small/math/{METHOD}/answers.parquet"
        answers = pd.read_parquet(path, filters=[("arm", "==", "found")])
        parts.append(answers.merge(questions[["id", "text"]], left_on="question_id", right_on="id"))
    return pd.concat(parts)


def test_every_arm_is_told_over_both_seeds(made: Path):
    table = pd.read_csv(made / "reports/seeds/simulated-small-math.csv").set_index("arm")
    assert {"found", "put up", "single"} <= set(table.index)
    assert {f"one call of {name}" for name in ("llama-3.2-1b", "gemma-3-1b")} <= set(table.index)
    assert (table["seeds"] == 2).all()
    both = found_answers(made)
    assert len(both) == 400
    assert 200 < both["text"].nunique() < 400  # some are drawn by both seeds, and count once
    assert (table["questions"] == both["text"].nunique()).all()
    page = (made / "reports/seeds/simulated-small-math.md").read_text()
    assert page.startswith("# simulated-small-math over 2 seeds (simulated)\n")


def test_shares_are_those_of_the_seeds_own_tests(made: Path):
    table = pd.read_csv(made / "reports/seeds/simulated-small-math.csv").set_index("arm")
    shares = found_answers(made).astype({"correct": float}).groupby("text")["correct"].mean()
    assert table.loc["found", "accuracy"] == pytest.approx(shares.mean(), abs=1e-6)


def tokens_spent(folder: Path) -> list[int]:
    return [json.loads(path.read_text())["tokens"] for path in sorted(folder.rglob("spent/*.json"))]


def test_what_is_started_again_comes_to_the_same_and_is_held_to_the_same_limits(made: Path):
    page = (made / "reports/seeds/simulated-small-math.md").read_text()
    kept = made / KEPT / "simulated-small" / "math" / "3"
    spent = tokens_spent(kept)
    assert spent
    with chdir(made):
        seeds("math", 2, 3)
    assert (made / "reports/seeds/simulated-small-math.md").read_text() == page
    # Calls of a simulated model are not kept, so they are made, and counted, again.
    assert tokens_spent(kept) == [2 * tokens for tokens in spent]


def test_seeds_have_questions_of_their_own_and_leave_the_project_as_it_was(made: Path):
    kept = made / KEPT / "simulated-small" / "math"
    first, second = (
        set(pd.read_parquet(kept / seed / "data/simulated-small/math/questions.parquet")["id"])
        for seed in ("3", "4")
    )
    assert first != second
    assert not (made / "data").exists()
    assert not (made / "results/simulated-small").exists()
    assert "seed: 0" in (made / "params.yaml").read_text()
