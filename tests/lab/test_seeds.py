"""A task from several seeds, through all its stages, told together."""

from contextlib import chdir
from pathlib import Path

import pandas as pd
import pytest

from lab.seeds import KEPT, METHOD, seeds
from tests.support.simulated_project import SimulatedProject

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    project = SimulatedProject(tmp_path_factory.mktemp("seeds"))
    project.settings["limits"] = {"dollars": 1000}
    project.save()
    with chdir(project.folder):
        seeds("math", 2, 3)
    return project.folder


TABLE = Path("reports/seeds/simulated-small-math.csv")
SEEDS = Path(KEPT, "simulated-small", "math")


def test_every_arm_is_told_over_the_questions_of_both_seeds(made):
    parts = []
    for seed in ("3", "4"):
        folder = made / SEEDS / seed
        questions = pd.read_parquet(folder / "data/simulated-small/math/questions.parquet")
        path = folder / f"results/simulated-small/math/{METHOD}/answers.parquet"
        answers = pd.read_parquet(path, filters=[("arm", "==", "found")])
        parts.append(answers.merge(questions[["id", "text"]], left_on="question_id", right_on="id"))
    both = pd.concat(parts).astype({"correct": float})
    assert len(both) == 400
    shares = both.groupby("text")["correct"].mean()
    assert 200 < len(shares) < 400  # some are drawn by both seeds, and count once
    table = pd.read_csv(made / TABLE).set_index("arm")
    assert {"found", "put up", "single", "one call of gemma-3-1b"} <= set(table.index)
    assert set(table["seeds"]) == {2}
    assert set(table["questions"]) == {len(shares)}
    assert table.loc["found", "accuracy"] == pytest.approx(shares.mean(), abs=1e-6)
    assert (made / TABLE.with_suffix(".md")).exists()
    # The project is as it was.
    assert not (made / "data").exists()
    assert not (made / "results/simulated-small").exists()
