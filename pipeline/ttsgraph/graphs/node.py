"""A node of a collaboration graph and its JSON format."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)

from ttsgraph.base.errors import GraphError
from ttsgraph.graphs.router import Router
from ttsgraph.graphs.stopping import CLOSED, LOSSLESS, Gate, Stop


@dataclass(frozen=True, slots=True)
class Route:
    """A router and the final nodes of the branches, in the order in which the router numbers
    them.
    """

    __pydantic_config__ = CLOSED

    ends: Annotated[tuple[StrictInt, ...], Field(alias="to")]
    router: Annotated[Router, PlainValidator(Router.of), PlainSerializer(Router.to_json)]

    def taken(self, asked: Container[int]) -> int:
        """Return the index of the branch that answered, given the nodes that ran: the first branch
        whose final node ran, or the router's default branch if there is none.
        """
        known = (k for k, end in enumerate(self.ends) if end in asked)
        return next(known, self.router.default)


def _as_rule(stop: Any) -> Any:
    return {"rule": stop} if isinstance(stop, str) else stop


def _as_sizes(wave: Any) -> Any:
    return wave if isinstance(wave, list | tuple) else [wave]


Waves = Annotated[
    tuple[Annotated[StrictInt, Field(ge=1)], ...],
    Field(alias="wave", min_length=1),
    BeforeValidator(_as_sizes),
]


@dataclass(frozen=True, slots=True)
class Node:
    """One node, usually an LLM call.

    `stop` says when a voter has enough answers, and `waves` how many of its predecessors start
    together in each wave: the next wave starts if the vote is still open after the previous one.
    With a `gate`, the node runs only if answers disagree (ttsgraph/graphs/stopping.py); with a
    `route`, it is a router over branches.
    """

    __pydantic_config__ = CLOSED

    id: StrictInt
    role: StrictStr
    model: StrictStr
    stop: Annotated[Stop, BeforeValidator(_as_rule), PlainSerializer(Stop.to_json)] = LOSSLESS
    waves: Waves = ()
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
        more = {name: value for name, value in self.settings.items() if name in ("stop", "wave")}
        more |= {"gate": self.gate.over} if self.gate else {}
        more |= {"route": self.route.router.hash} if self.route else {}
        return (*plain, json.dumps(more, sort_keys=True)) if more else plain

    @property
    def settings(self) -> dict[str, Any]:
        """Settings other than id, role and model, as plain data for a graph file."""
        if self.stop == LOSSLESS and not self.adaptive:
            return {}
        written: dict[str, Any] = _NODE.dump_python(
            self, mode="json", by_alias=True, exclude_defaults=True, exclude=set(KEYS[:3])
        )
        return written


_NODE = TypeAdapter(Node)
KEYS = ("id", "role", "model", "stop", "wave", "gate", "route")


def parse_node(node: Any) -> Node:
    """Parse a node from the data of a graph file. Raises GraphError if the data is not a valid
    node.
    """
    if not isinstance(node, Mapping):
        raise GraphError(f"expected a node to be a JSON object, found {node!r}")
    where = f"node {node.get('id')!r}"
    try:
        return _NODE.validate_python({k: value for k, value in node.items() if value is not None})
    except GraphError as error:
        raise GraphError(f"{where}: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        texts = {
            "missing": f"missing key {key!r}",
            "unexpected_keyword_argument": f"unknown key {key!r}; a node has {', '.join(KEYS)}",
        }
        other = f"key {key!r}: {first['msg']}, found {first['input']!r:.200}"
        raise GraphError(f"{where}: {texts.get(first['type'], other)}") from None
