"""The paper's way asks the same and finds the same through the stages and in a whole search, which
`ttsgraph run` and `ttsgraph.search` make; with a contest both find the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from tests.support.project import Copy, database_in
from tests.support.stub_server import StubServer, serve
from ttsgraph.api.given import TASK, profile_of
from ttsgraph.api.result import project_search
from ttsgraph.scaffold.cells import json_lines
from ttsgraph.settings.profile import load_params
from ttsgraph_flows.dvc_stages import flow_of

ROWS = [{"question": f"{k} + {k + 1}", "answer": str(2 * k + 1)} for k in range(80)]
METHOD = "agent_reinforce"
SECTIONS: dict[str, Any] = {
    "engine": {"kind": "external", "seeds": True},
    "search": {"way": "paper", "max_iterations": 3, "patience": 2, "candidates": 3, "batch": 6},
    "init": {"questions": 4, "candidates": 3, "topologies": 2},
    "pilot": {"questions": 3, "widths": [1, 2], "depths": [1, 2], "random_graphs": 1},
    "evaluate": {"ablation": 0},  # a whole search has none
}
CONTEST: dict[str, Any] = SECTIONS | {
    "search": SECTIONS["search"] | {"way": "joint"},
    "init": {"contest": {"calls": 300}},
}
BUDGET = "$0.0004"
TABLES = {
    "pilot": ("label", "graph", "accuracy"),
    "init_family": ("counts", "graph", "accuracy"),
    "init_instances": ("counts", "graph", "accuracy"),
    f"{METHOD}/archive": ("iteration", "split", "graph", "accuracy"),
    f"{METHOD}/test": ("arm", "graph", "accuracy"),
}


def trace_of(stub: StubServer, folder: Path) -> SimpleNamespace:
    """What a search asked, the graphs that it evaluated by table, and how it began."""
    tables = {
        name: pd.read_parquet(folder / f"{name}.parquet")[list(columns)].to_dict("list")
        for name, columns in TABLES.items()
    }
    asked = sorted(json.dumps(each, sort_keys=True) for each in stub.requests)
    start = json.loads((folder / "start.json").read_text())
    return SimpleNamespace(asked=asked, tables=tables, start=start)


@contextmanager
def project(folder: Path, sections: dict[str, Any]) -> Iterator[StubServer]:
    """A project with the profile that `ttsgraph.search` makes of these sections."""
    folder.mkdir()
    stub = StubServer(("a", "b"), skill=0.6)
    with serve(stub) as url, chdir(folder):
        models = [{"name": "a", "price": 1.0, "base_url": url}]
        models += [{"name": "b", "price": 2.0, "base_url": url, "family": "other"}]
        copy = Copy(folder)
        file = Path("inputs", "qa.jsonl")
        file.write_text(json_lines(ROWS))
        made = profile_of(models, file, "exact", BUDGET, sections=sections)
        settings = made.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
        settings |= {"agent": {}, "init": sections["init"]}
        params = {"profile": "small", "tasks": [TASK], "methods": [METHOD], "seed": 0}
        copy.write(params | {"tracking_uri": database_in(folder)}, "small", settings)
        yield stub


def both(folder: Path, sections: dict[str, Any]) -> tuple[SimpleNamespace, SimpleNamespace]:
    """Through the stages, and in a whole search."""
    with project(folder / "stages", sections) as stub:
        for stage in ("sample", "profile", "pilot", "init_family", "init_instances"):
            flow_of(stage)(TASK)
        for stage in ("search", "evaluate"):
            flow_of(stage)(TASK, METHOD)
        stages = trace_of(stub, Path("results", "small", TASK))
    with project(folder / "run", sections) as stub:
        _, kept = project_search(load_params(), TASK, lambda line: None)
        return stages, trace_of(stub, kept / "tables")


def test_in_the_papers_way_both_ask_and_evaluate_the_same(tmp_path: Path) -> None:
    stages, run = both(tmp_path, SECTIONS)
    assert "contenders" not in stages.start
    assert all(stages.tables.values())
    assert stages.asked == run.asked
    for name, table in stages.tables.items():
        assert table == run.tables[name], name
    assert stages.start["counts"] == run.start["counts"]


def test_with_a_contest_both_evaluate_the_same_graphs(tmp_path: Path) -> None:
    stages, run = both(tmp_path, CONTEST)
    assert stages.start == run.start
    assert len(stages.start["contenders"]) > 1
    for name in ("init_instances", f"{METHOD}/archive"):
        assert stages.tables[name] == run.tables[name], name
    # A whole search with a contest has no pilot, and so no fixed topology to beat.
    tested, others = (
        [*zip(*trace.tables[f"{METHOD}/test"].values(), strict=True)] for trace in (stages, run)
    )
    assert [each for each in tested if each[0] != "fixed_topology"] == others
