"""A router as the last node of a graph: which of the branches before it answers a question."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ttsgraph.base.errors import GraphError
from ttsgraph.routing.router import Router


@dataclass(frozen=True, slots=True)
class Route:
    """A router and the nodes in which its branches end, in the order of its choices."""

    router: Router
    ends: tuple[int, ...]

    def __lt__(self, other: Route) -> bool:
        return (self.router.text, self.ends) < (other.router.text, other.ends)

    def check(self, node: int, before: Sequence[int], read: bool) -> None:
        """Raises GraphError where the node's predecessors are not these ends, or others read it."""
        if read:
            raise GraphError(f"node {node}: a router is the last node, found one that others read")
        if sorted(self.ends) != list(before) or len(self.ends) != self.router.branches:
            raise GraphError(
                f"node {node}: expected a route to its predecessors {list(before)}, each once, by a"
                f" router of as many branches; found {list(self.ends)} and {self.router.branches}"
            )

    def taken(self, asked: Container[int]) -> int:
        """The place of the branch that answered, by the nodes that a question asked; the default
        where none is known.
        """
        known = (k for k, end in enumerate(self.ends) if end in asked)
        return next(known, int(self.router.data["default"]))

    def to_json(self) -> dict[str, Any]:
        """As it stands in a graph's JSON."""
        return {"to": list(self.ends), "router": self.router.to_json()}


def parse_route(value: Any) -> Route:
    """A route as it stands in JSON. Raises GraphError."""
    ends = value.get("to") if isinstance(value, Mapping) else None
    if (
        not isinstance(ends, list | tuple)
        or set(value) != {"to", "router"}
        or not all(type(end) is int for end in ends)
    ):
        raise GraphError(
            'expected route as {"to": [node ids], "router": {...}}, found another thing'
        )
    return Route(Router.of(value["router"]), tuple(ends))
