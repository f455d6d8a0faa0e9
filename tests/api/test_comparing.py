"""A team that somebody has beside what a search finds for its cost, and methods over seeds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from tests.support.cli import done, ended
from tests.support.project import ROOT
from ttsgraph.api.comparing import compare_methods, preset_case
from ttsgraph.base.errors import InputError, SettingsError
from ttsgraph.base.parsing import load
from ttsgraph.settings.profile import Profile

SMALL = "llama-3.2-1b"
OTHER = "gemma-3-1b"
TEAM = {"proposers": [SMALL, SMALL, OTHER], "aggregator": OTHER}
SECONDS = {
    "init": {"contest": {"calls": 150, "block": 6, "rounds": 1, "final_block": 6}},
    "search": {"max_iterations": 2, "patience": 1, "candidates": 2, "batch": 8},
}
"""Of a profile: searches that take a second."""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a simulated profile of two models, small enough to search in a second."""
    data = yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())
    data["pool"] = {name: data["pool"][name] for name in (SMALL, OTHER)}
    data["pool"][OTHER]["served_as"] = "google/gemma-3-1b-it"
    splits = {"train": 24, "val": 12, "test": 40}
    data["tasks"] = {"math": data["tasks"]["math"] | {"splits": splits}}
    data["tasks"]["math"]["source"]["size"] = 300
    data["budget"]["limit"] = 12
    data |= SECONDS
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
        {"reference_models": [SMALL, OTHER], "aggregator": SMALL, "layers": 3},
        [SMALL, OTHER, SMALL, OTHER, SMALL], "fuser", (2, 3),
    ),
    "a vote without an aggregator, of endpoints' names": (
        {"proposers": [SMALL, "google/gemma-3-1b-it"], "role": "voter"},
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


@pytest.mark.parametrize(
    ("team", "expected"),
    [
        ({"proposers": [SMALL]}, "aggregator"),
        (TEAM | {"aggregator": "gpt-9"}, "gpt-9"),
        (TEAM | {"role": "boss"}, "boss"),
        (TEAM | {"colour": "blue"}, "colour"),
    ],
)
def test_what_is_wrong_with_a_team_is_named(project, team, expected):
    with pytest.raises(InputError, match=expected):
        read(project, **team)


def test_methods_are_kept_with_their_seeds(project):
    output = done("compare", "--methods", "random,agent_reinforce", "--seeds", "2")
    path = project / "results/simulated/math/compare/random-agent_reinforce.json"
    told = json.loads(path.read_text())
    expected = [(method, seed) for method in ("random", "agent_reinforce") for seed in (3, 4)]
    assert [(row["method"], row["seed"]) for row in told["rows"]] == expected
    assert all(row["calls"] > 0 and row["units"] > 0 for row in told["rows"])
    assert told["smallest_p"] == 0.5
    assert told["tests"][0]["method"] == "agent_reinforce"
    assert " calls" in output


def test_a_wrong_name_is_said_before_anything_is_asked(project):
    known = profile(project)
    for methods, named in ((["random", "magic"], "magic"), (["random", "random"], "different")):
        with pytest.raises((SettingsError, InputError), match=named):
            asyncio.run(compare_methods(known, "math", methods, range(2)))
    for given in ([], ["--methods", "random", "--preset", "team.yaml"]):
        error = ended("compare", *given).exception
        assert isinstance(error, InputError)
        assert "--methods" in str(error)
