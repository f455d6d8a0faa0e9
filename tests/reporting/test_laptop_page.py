"""The default profile as its recorded calls have it: its first screen in a browser, and the figures
of README, which are those of its tables.
"""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path

import pandas as pd
import pytest

from lab.readme import BEGIN, END, block
from tests.support.project import ROOT
from ttsgraph.reporting.figures import shown
from ttsgraph.settings.profile import load_params
from ttsgraph.stages.plan import STAGES
from ttsgraph_flows.answers import answers_file
from ttsgraph_flows.verify import copy_into, flow_of, recorded_calls, replay_in

pytestmark = pytest.mark.long
TASK = "math"


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which the first task was rebuilt from the calls that are shipped, without any
    model, and its report written.
    """
    folder = tmp_path_factory.mktemp("laptop").resolve()
    with chdir(ROOT):
        params = load_params().model_copy(update={"tasks": (TASK,)})
        recorded = recorded_calls(params, TASK, {})
        assert recorded is not None
        copy_into(folder, params)
        replay_in(folder, params.profile, [recorded])
    with chdir(folder):
        for plan in STAGES:
            for method in params.methods if "method" in plan.per else (None,):
                given = [TASK] if "task" in plan.per else []
                flow_of(plan.name)(*given, *([method] if method else []))
    return folder


def test_readme_says_of_the_first_task_what_its_tables_have(laptop: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    told = json.loads((laptop / answers_file("laptop")).read_text())
    in_readme = readme.partition(BEGIN)[2].partition(END)[0]
    made = block(told, {}).partition(BEGIN)[2].partition(END)[0]
    assert made.strip() in in_readme


def test_every_figure_of_the_small_table_is_a_cell_of_the_test(laptop: Path) -> None:
    (told,) = json.loads((laptop / answers_file("laptop")).read_text())["tasks"]
    (used,) = [cells for cells in told["rows"] if cells[0].startswith("→ ")]
    named = next(cells[0] for cells in told["rows"] if "found by" in cells[0])
    method = named.removeprefix("→ ").removeprefix("found by ")
    test = pd.read_parquet(laptop / f"results/laptop/{TASK}/{method}/test.parquet")
    for cells, row in zip(told["rows"], test.to_dict("records"), strict=True):
        expected = [
            shown(row["accuracy"], "percent"),
            f"{shown(row['accuracy_low'], 'bare')} to {shown(row['accuracy_high'], 'bare')}",
            shown(row["dollars"] / (row["n_scored"] + row["n_unscored"]), "price"),
            shown(row["budget_units"], "fine"),
            shown(row["latency_s"], "time"),
            "" if row["arm"] == "found" else shown(row["p_differs"], "p"),
        ]
        assert cells[1:] == [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in expected]
        assert cells[0].endswith(row["label"] if row["arm"] != "found" else method)
        assert used[1] in told["sentence"]
