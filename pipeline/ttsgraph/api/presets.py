"""Teams that somebody already has, as graphs: a list of proposers and an aggregator, as in a
mixture of agents, or a graph file.

    proposers: [small, small, large]    # or reference_models
    aggregator: large
    layers: 2                           # proposers, then the aggregator; with 3, proposers twice

Proposers of the first layer answer alone, those of further layers each read all answers of the one
before, and the aggregator reads the last layer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import Closed, load, parse
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, FUSER, check_roles, get_role, role_names
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.trials import Case

Models = Annotated[tuple[str, ...], Field(min_length=1)]


class Team(Closed):
    """A preset; models are members of the profile's pool, or what their endpoints call them."""

    proposers: Models = Field(
        validation_alias=AliasChoices("proposers", "reference_models"),
        description="asked side by side; one that stands twice is asked twice",
    )
    aggregator: str | None = Field(
        default=None, description="makes one answer of theirs; may be left out where role votes"
    )
    layers: int = Field(
        default=2,
        ge=2,
        validation_alias=AliasChoices("layers", "num_layers"),
        description="the aggregator's among them",
    )
    role: str = Field(default=FUSER, description="the aggregator's: fuser, judge, voter, ...")


TEAM = "team"
"""What a team is called that has no file."""


def preset_case(given: Any, profile: Profile) -> Case:
    """A team to be tested: a graph, the keys of a Team, or a file. Raises InputError."""
    if isinstance(given, CollaborationGraph):
        check_roles(given)
        return Case(given, {"arm": TEAM, "label": TEAM})
    if isinstance(given, Mapping):
        graph = graph_of(parse(Team, given, TEAM), profile, TEAM)
        return Case(graph, {"arm": TEAM, "label": TEAM})
    path = Path(given)
    return Case(read_preset(path, profile), {"arm": TEAM, "label": path.stem})


def read_preset(path: Path, profile: Profile) -> CollaborationGraph:
    """The team of a file as a graph over the profile's pool. Raises InputError that names the file
    and what was expected.
    """
    if path.suffix == ".json":
        graph = CollaborationGraph.read(path)
        check_roles(graph)
        for node in graph.nodes:
            _ = profile.model_pool()[node.model]
        return graph
    return graph_of(load(Team, path), profile, str(path))


def graph_of(team: Team, profile: Profile, where: str) -> CollaborationGraph:
    """A team as a graph. Raises SettingsError that names `where` and what was expected."""
    if team.role not in role_names():
        raise SettingsError(
            f"{where}: role: expected one of {', '.join(role_names())}, found {team.role!r}"
        )
    if team.aggregator is None and get_role(team.role).calls_model:
        raise SettingsError(f"{where}: expected an aggregator, or role: voter, found neither")
    proposers = [_member(name, profile, where) for name in team.proposers]
    last = proposers[0] if team.aggregator is None else _member(team.aggregator, profile, where)
    width = len(proposers)
    later = FUSER if width > 1 else ASSISTANT
    layers = team.layers - 1
    nodes = [
        Node(layer * width + k, later if layer else ASSISTANT, model)
        for layer in range(layers)
        for k, model in enumerate(proposers)
    ]
    sink = Node(layers * width, team.role, last)
    edges = [
        (layer * width + a, layer * width + width + b)
        for layer in range(layers - 1)
        for a in range(width)
        for b in range(width)
    ]
    edges += [(sink.id - width + k, sink.id) for k in range(width)]
    graph = CollaborationGraph((*nodes, sink), tuple(edges))
    check_roles(graph)
    return graph


def _member(name: str, profile: Profile, where: str) -> str:
    """The member of the pool that this names, or whose endpoint calls it so."""
    members = list(profile.model_pool())
    if name in members:
        return name
    called = [own for own, model in profile.pool.items() if model.served_as == name]
    if len(called) != 1:
        raise SettingsError(
            f"{where}: expected a model of the profile's pool ({', '.join(members)}), found"
            f" {name!r}; `ttsgraph new-model` adds one"
        )
    return called[0]
