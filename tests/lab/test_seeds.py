"""A task from several seeds, through all its stages, told together."""

from contextlib import chdir
from pathlib import Path

import pandas as pd
import pytest

from lab.seeds import KEPT, METHOD, seeds
from tests.support.simulated_project import SimulatedProject

TABLE = Path("reports/seeds/simulated-small-math.csv")
SEEDS = Path(KEPT, "simulated-small", "math")


@pytest.mark.slow
def test_every_arm_is_told_over_the_questions_of_both_seeds(tmp_path):
    project = SimulatedProject(tmp_path)
    project.settings["limits"] = {"dollars": 1000}
    project.save()
    with chdir(tmp_path):
        seeds("math", 2, 3)
    parts = []
    for seed in ("3", "4"):
        folder = tmp_path / SEEDS / seed
        questions = pd.read_parquet(folder / "data/simulated-small/math/questions.parquet")
        path = folder / f"results/simulated-small/math/{METHOD}/answers.parquet"
        answers = pd.read_parquet(path, filters=[("arm", "==", "found")])
        parts.append(answers.merge(questions[["id", "text"]], left_on="question_id", right_on="id"))
    both = pd.concat(parts).astype({"correct": float})
    assert len(both) == 400
    shares = both.groupby("text")["correct"].mean()
    assert 200 < len(shares) < 400  # some are drawn by both seeds, and count once
    table = pd.read_csv(tmp_path / TABLE).set_index("arm")
    assert {"found", "put up", "single", "one call of gemma-3-1b"} <= set(table.index)
    assert set(table["seeds"]) == {2}
    assert set(table["questions"]) == {len(shares)}
    assert table.loc["found", "accuracy"] == pytest.approx(shares.mean(), abs=1e-6)
    assert (tmp_path / TABLE.with_suffix(".md")).exists()
    # The project is as it was.
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "results/simulated-small").exists()
    assert "seed: 0" in (tmp_path / "params.yaml").read_text()
