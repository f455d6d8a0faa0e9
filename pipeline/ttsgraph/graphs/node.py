"""A node of a collaboration graph and its JSON format."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from ttsgraph.base.errors import GraphError
from ttsgraph.graphs.router import Router
from ttsgraph.graphs.stopping import (
    LOSSLESS,
    Gate,
    Stop,
    are_ids,
    parse_gate,
    parse_stop,
    parse_waves,
)


@dataclass(frozen=True, slots=True)
class Route:
    """A router and the final nodes of the branches, in the order in which the router numbers
    them.
    """

    router: Router
    ends: tuple[int, ...]

    def __lt__(self, other: Route) -> bool:
        return (self.router.text, self.ends) < (other.router.text, other.ends)

    def taken(self, asked: Container[int]) -> int:
        """Return the index of the branch that answered, given the nodes that ran: the first branch
        whose final node ran, or the router's default branch if there is none.
        """
        known = (k for k, end in enumerate(self.ends) if end in asked)
        return next(known, int(self.router.data["default"]))

    def to_json(self) -> dict[str, Any]:
        """Return the route as plain data for a graph file."""
        return {"to": list(self.ends), "router": self.router.to_json()}


def parse_route(value: Any) -> Route:
    """Parse a route from the data of a graph file. Raises GraphError if the data is not a valid
    route.
    """
    ends: Any = value.get("to") if isinstance(value, Mapping) else None
    if not are_ids(ends) or set(value) != {"to", "router"}:
        raise GraphError(
            'expected "route" to be {"to": [node ids], "router": {...}}, but it is not'
        )
    return Route(Router.of(value["router"]), tuple(ends))


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """One node, usually an LLM call.

    `stop` says when a voter has enough answers, and `waves` how many of its predecessors start
    together in each wave: the next wave starts if the vote is still open after the previous one.
    With a `gate`, the node runs only if answers disagree (ttsgraph/graphs/stopping.py); with a
    `route`, it is a router over branches.
    """

    id: int
    role: str
    model: str
    stop: Stop = LOSSLESS
    waves: tuple[int, ...] = ()
    gate: Gate | None = None
    route: Route | None = None

    @property
    def adaptive(self) -> bool:
        """True if the answers that the node asks for depend on other answers or on the question."""
        return bool(self.waves) or self.gate is not None or self.route is not None

    @property
    def label(self) -> tuple[str | int, ...]:
        """Description of the node without ids. Which nodes its gate watches is part of the
        description of edges.
        """
        plain = (self.role, self.model, 0)  # the 0 keeps hashes as they were recorded
        more: dict[str, Any] = {"gate": self.gate.over} if self.gate else {}
        more |= {name: value for name, value in self.settings.items() if name in ("stop", "wave")}
        more |= {"route": self.route.router.hash} if self.route else {}
        return (*plain, json.dumps(more, sort_keys=True)) if more else plain

    @property
    def settings(self) -> dict[str, Any]:
        """Settings other than id, role and model, as plain data for a graph file."""
        found: dict[str, Any] = {"stop": self.stop.to_json()} if self.stop != LOSSLESS else {}
        found |= {"wave": list(self.waves)} if self.waves else {}
        found |= {"gate": self.gate.to_json()} if self.gate else {}
        return found | ({"route": self.route.to_json()} if self.route else {})


_KINDS = {"id": int, "role": str, "model": str}
_PARSERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "stop": ("stop", parse_stop),
    "wave": ("waves", parse_waves),
    "gate": ("gate", parse_gate),
    "route": ("route", parse_route),
}
"""Key of a node in a graph file -> field name and parser."""


def parse_node(node: Any) -> Node:
    """Parse a node from the data of a graph file. Raises GraphError if the data is not a valid
    node.
    """
    if not isinstance(node, Mapping):
        raise GraphError(f"expected a node to be a JSON object, found {node!r}")
    keys = (*_KINDS, *_PARSERS)
    where = f"node {node.get('id')!r}"
    unknown = sorted(set(node) - set(keys))
    if unknown:
        raise GraphError(f"{where}: unknown key {unknown[0]!r}; expected {', '.join(keys)}")
    for key, kind in _KINDS.items():
        if type(node.get(key)) is not kind:
            raise GraphError(
                f"{where}: expected '{key}' of type {kind.__name__}, found {node.get(key)!r}"
            )
    options = {key: node[key] for key in _PARSERS if node.get(key) is not None}
    try:
        more = {_PARSERS[key][0]: _PARSERS[key][1](value) for key, value in options.items()}
    except GraphError as error:
        raise GraphError(f"{where}: {error}") from None
    return Node(node["id"], node["role"], node["model"], **more)
