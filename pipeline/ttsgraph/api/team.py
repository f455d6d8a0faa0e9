"""An existing team of models, to be compared with what a search finds for its cost.

A team is a graph file, or a list of proposers and an aggregator, as in a mixture of agents:

    proposers: [small, small, large]
    aggregator: large
    layers: 2                           # a layer of proposers, then the aggregator

Proposers in the first layer answer independently. In further layers, the same proposers read all
answers of the previous layer. The aggregator reads the answers of the last layer of proposers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ttsgraph.base.errors import InputError, SettingsError
from ttsgraph.base.parsing import ClosedModel, load, parse
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import FUSER, check_roles, get_role
from ttsgraph.graphs.topologies import layered
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.trials import Case

TEAM = "team"
"""Label of a team that isn't read from a file."""


class Team(ClosedModel):
    """Preset of a team, with the models' names in the profile's pool."""

    proposers: Annotated[tuple[str, ...], Field(min_length=1)]
    """models called in parallel; a model listed twice is called twice"""
    aggregator: str | None = None
    """model that combines the proposers' answers; optional if the role calls no model (voter)"""
    layers: int = Field(default=2, ge=2)
    """number of layers, including the aggregator"""
    role: str = FUSER
    """role of the aggregator: fuser, judge, voter, ..."""


def preset_case(given: Any, profile: Profile) -> Case:
    """Return the test case of a team, given as a graph, as a Team's keys, or as a file with either.

    Raises InputError if the file can't be read, or the team is invalid.
    """
    label, where = TEAM, TEAM
    if isinstance(given, str | Path):
        path, label, where = Path(given), Path(given).stem, str(given)
        if not path.is_file():
            raise InputError(f"{path}: expected a file with a team, found none")
        given = CollaborationGraph.read(path) if path.suffix == ".json" else load(Team, path)
    team = parse(Team, given, TEAM) if isinstance(given, Mapping) else given
    if isinstance(team, Team):
        if team.aggregator is None and get_role(team.role).calls_model:
            raise SettingsError(f"{where}: expected an aggregator, or `role: voter`, found neither")
        levels = [list(team.proposers)] * (team.layers - 1)
        graph = layered(levels, team.aggregator or team.proposers[0], team.role)
    else:
        graph = team
    for node in graph.nodes:
        _ = profile.model_pool()[node.model]
    check_roles(graph)
    return Case(graph, {"arm": TEAM, "label": label})
