"""The protocol of proposers: whatever has an idea of which graphs to run next.

The forms that everybody would try, a probabilistic graph, an agent's edits, newcomers to the pool
and random draws are proposers; they never call a model. The loop (loop.py) runs what they ask for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.base import Exchange
from ttsgraph.searching.ranking import Result
from ttsgraph.searching.state import Proposal, State


class Proposer(ABC):
    """A source of graphs. `name` says in records who proposed them."""

    name: str

    @abstractmethod
    def ask(self, state: State) -> Sequence[Proposal]:
        """Return the graphs to run next, each on some questions; none if it is done."""

    def tell(self, state: State, proposals: Sequence[Proposal]) -> None:  # noqa: B027
        """Learn from proposals that were run, its own or others'. Nothing by default."""

    def results(self, state: State) -> list[Result]:
        """Return the graphs that it has come to in this iteration, to be validated. None by
        default.
        """
        return []

    def given(self, state: State) -> Collection[CollaborationGraph]:
        """Return the graphs that were admitted before it: they may run at any cost."""
        return ()

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        """Return who is credited with a graph that it asks for or comes to, if it is new."""
        return self.name

    @property
    def finished(self) -> bool:
        """True if nothing is left that is worth asking for; the search then stops. Never by
        default.
        """
        return False

    @property
    def is_plugin(self) -> bool:
        """True if the proposer comes from outside this project."""
        return type(self).__module__.partition(".")[0] not in ("ttsgraph", "lab")

    def take_exchanges(self) -> list[Exchange]:
        """Return the agent's exchanges with a language model since this was last called."""
        return []

    def snapshot(self) -> dict[str, Any]:
        """Return plain data to journal after each iteration: a distribution, a decision and its
        reason.
        """
        return {}


def named(proposer: Proposer) -> str:
    """The proposer and the module that it comes from, for messages."""
    return f"{proposer.name} (plug-in {type(proposer).__module__})"
