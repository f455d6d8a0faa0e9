"""A team that somebody has beside what a search finds for its cost."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support.cli import done
from tests.support.project import ROOT, merged
from ttsgraph.api.given import preset_case
from ttsgraph.base.errors import InputError
from ttsgraph.base.parsing import load
from ttsgraph.settings.profile import Profile

SMALL = "llama-3.2-1b"
OTHER = "gemma-3-1b"
TEAM = {"proposers": [SMALL, SMALL, OTHER], "aggregator": OTHER}
SECONDS = {
    "tasks": {"math": {"splits": {"train": 24, "val": 12, "test": 40}, "source": {"size": 300}}},
    "budget": {"limit": 12},
    "init": {"contest": {"calls": 150}},
    "search": {"max_iterations": 2, "patience": 1, "candidates": 2, "batch": 8},
}
"""Of a profile: searches that take a second."""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a simulated profile of two models, small enough to search in a second."""
    data = yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())
    data["pool"] = {name: data["pool"][name] for name in (SMALL, OTHER)}
    data["tasks"] = {"math": data["tasks"]["math"]}
    data = merged(data, SECONDS)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "simulated.yaml").write_text(yaml.safe_dump(data))
    params = {"profile": "simulated", "tasks": ["math"], "methods": ["random"], "seed": 3}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def profile(folder: Path) -> Profile:
    return load(Profile, folder / "profiles" / "simulated.yaml")


def read(folder: Path, **team: object):
    (folder / "team.yaml").write_text(yaml.safe_dump(team))
    return preset_case("team.yaml", profile(folder)).graph


SHAPES = {
    "a fuser": (TEAM, [SMALL, SMALL, OTHER, OTHER], "fuser", (3, 2)),
    "layers, each of which reads the one before": (
        {"proposers": [SMALL, OTHER], "aggregator": SMALL, "layers": 3},
        [SMALL, OTHER, SMALL, OTHER, SMALL], "fuser", (2, 3),
    ),
    "a vote without an aggregator": (
        {"proposers": [SMALL, OTHER], "role": "voter"},
        [SMALL, OTHER, SMALL], "voter", (2, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_proposers_and_an_aggregator_are_a_graph(project, shape):
    team, models, role, size = SHAPES[shape]
    graph = read(project, **team)
    assert [node.model for node in graph.nodes] == models
    assert graph.node(graph.sink).role == role
    assert (graph.width, graph.depth) == size


def test_a_team_may_be_a_mapping_or_a_graph_too(project):
    known = profile(project)
    made = preset_case(TEAM, known)
    assert (made.columns["label"], made.graph) == ("team", read(project, **TEAM))
    (project / "graph.json").write_text(made.graph.to_json())
    for given in (made.graph, "graph.json"):
        assert preset_case(given, known).graph == made.graph


WRONG = {
    "aggregator": {"proposers": [SMALL]},
    "gpt-9": TEAM | {"aggregator": "gpt-9"},
    "boss": TEAM | {"role": "boss"},
    "colour": TEAM | {"colour": "blue"},
}


@pytest.mark.parametrize(("expected", "team"), WRONG.items())
def test_what_is_wrong_with_a_team_is_named(project, team, expected):
    with pytest.raises(InputError, match=expected):
        read(project, **team)


def test_a_team_is_compared_with_a_search_at_its_cost(project):
    (project / "mine.yaml").write_text(yaml.safe_dump(TEAM))
    shown = done("compare", "--preset", "mine.yaml")
    assert "worth it" in shown
    kept = json.loads((project / "results/simulated/math/compare/mine/comparison.json").read_text())
    costs = {row["graph"]: row["cost"] for row in kept["rows"]}
    assert costs["found graph"] <= costs["mine"] * 1.001
    assert kept["verdict"] in shown
