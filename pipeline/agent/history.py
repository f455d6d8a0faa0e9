"""What a search has tried so far, with what agents ask of all of it kept as columns that grow by
what is new; and an agent with all that it was told, as methods hold it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ttsgraph.agent.base import Brief, Scored, SearchAgent, apply_edits
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.node_tallies import NO_TALLY, Edge, RoleOf, Tally, graph_tallies
from ttsgraph.evaluation.objective import Objective
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph


class _Column:
    """An array (n, ...) that grows at its end; taking in a row costs the same however long it
    is.
    """

    def __init__(self, dtype: npt.DTypeLike, *width: int) -> None:
        self._rows: npt.NDArray[Any] = np.empty((64, *width), dtype=dtype)
        self._length = 0

    def append(self, row: Any) -> None:
        """Add a row at the end."""
        if self._length == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self._length] = row
        self._length += 1

    @property
    def rows(self) -> npt.NDArray[Any]:
        """(n, ...) all rows; a view."""
        return self._rows[: self._length]


K = TypeVar("K")


def _add(sums: dict[K, Tally], more: Mapping[K, Tally]) -> None:
    for key, tally in more.items():
        sums[key] = sums.get(key, NO_TALLY) + tally


class History(Sequence[Scored]):
    """Candidates in the order in which they were told.

    Sums over all of them are taken from whole columns, not carried on from one update to the next:
    their last bits would come out differently, and with them now and then a graph. Tallies are
    added up in the order of candidates. `edges`, `nodes` and `roles` say what these repaired and
    spoilt in all of them.
    """

    def __init__(self, candidates: Iterable[Scored] = ()) -> None:
        self._candidates: list[Scored] = []
        self._shapes = _Column(float, 2)
        self._values = _Column(float)
        self._questions = _Column(int)
        self._of_iteration: dict[int, list[int]] = defaultdict(list)
        self._of_several = _Column(float)
        self._by_sink_role = defaultdict[str, list[float]](list)
        self.tried: set[tuple[int, int]] = set()
        self.edges: dict[Edge, Tally] = {}
        self.nodes: dict[int, Tally] = {}
        self.roles: dict[RoleOf, Tally] = {}
        self.extend(candidates)

    @classmethod
    def of(cls, candidates: Sequence[Scored]) -> History:
        """The same candidates as a history."""
        return candidates if isinstance(candidates, History) else cls(candidates)

    def append(self, candidate: Scored) -> None:
        """Add a candidate."""
        graph = candidate.graph
        value = candidate.value
        shape = graph.width, graph.depth
        self._of_iteration[candidate.iteration].append(len(self._candidates))
        self._candidates.append(candidate)
        self._shapes.append(shape)
        self._values.append(value)
        self._questions.append(candidate.n_scored)
        self.tried.add(shape)
        if graph.in_degree(graph.sink) > 1:
            self._of_several.append(value)
            self._by_sink_role[graph.node(graph.sink).role].append(value)
        tallies = candidate.tallies
        _add(self.edges, tallies.edges)
        _add(self.nodes, tallies.nodes)
        _add(self.roles, tallies.roles)

    def extend(self, candidates: Iterable[Scored]) -> None:
        """Add candidates, in order."""
        for candidate in candidates:
            self.append(candidate)

    def __len__(self) -> int:
        return len(self._candidates)

    @overload
    def __getitem__(self, place: int) -> Scored: ...

    @overload
    def __getitem__(self, place: slice) -> list[Scored]: ...

    def __getitem__(self, place: int | slice) -> Scored | list[Scored]:
        return self._candidates[place]

    @property
    def shapes(self) -> npt.NDArray[np.float64]:
        """(n, 2) width and depth."""
        return self._shapes.rows

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """(n,) what the objective makes of each."""
        return self._values.rows

    @property
    def questions(self) -> npt.NDArray[np.int64]:
        """(n,) how many questions were scored."""
        return self._questions.rows

    @property
    def latest(self) -> list[int]:
        """Places of the candidates of the last one's iteration."""
        return self._of_iteration[self[-1].iteration]

    @property
    def of_several(self) -> npt.NDArray[np.float64]:
        """(k,) values of those whose sink reads several answers."""
        return self._of_several.rows

    def of_sink_role(self, role: str) -> Sequence[float]:
        """Values of those whose sink reads several answers in this role."""
        return self._by_sink_role.get(role, ())


class AgentUpdates:
    """An agent, all that it was told, and what it said last: a graph to evaluate (`proposal`), the
    reason of its edits, and those that were refused.
    """

    def __init__(self, agent: SearchAgent, brief: Brief, reason: str = "") -> None:
        self.agent = agent
        self.brief = brief
        self.history = History()
        self.iteration = 0
        self.proposal: CollaborationGraph | None = None
        self.reason = reason
        self.refused: list[str] = []

    @property
    def proposals(self) -> list[CollaborationGraph]:
        """The proposal, if any."""
        return [] if self.proposal is None else [self.proposal]

    def hear(self, results: Sequence[tuple[CollaborationGraph, Feedback]]) -> None:
        """Take in the feedback of one more iteration."""
        self.iteration += 1
        objective = self.brief.objective
        self.history.extend(
            scored(graph, feedback, self.iteration, objective) for graph, feedback in results
        )

    def apply(self, distribution: GraphDistribution) -> None:
        """Ask for edits of a distribution, and make the legal part of them."""
        edits = self.agent.update(distribution, self.history, self.brief)
        self.proposal, self.refused = apply_edits(distribution, edits, self.brief)
        self.reason = edits.reason

    def state(self) -> dict[str, Any]:
        """Plain data: what the agent remembers, and its last word."""
        return {
            "agent": self.agent.state(),
            "iteration": self.iteration,
            "proposal": None if self.proposal is None else self.proposal.to_json(),
            "said": [self.reason, self.refused],
        }

    def restore(
        self, state: Mapping[str, Any], told: Iterable[tuple[int, CollaborationGraph, Feedback]]
    ) -> None:
        """The inverse of `state`; `told` is what was heard until then, with the iterations."""
        self.agent.restore(state["agent"])
        self.iteration = state["iteration"]
        proposal = state["proposal"]
        self.proposal = None if proposal is None else CollaborationGraph.from_json(proposal)
        self.reason, self.refused = state["said"]
        objective = self.brief.objective
        self.history.extend(
            scored(graph, feedback, iteration, objective) for iteration, graph, feedback in told
        )

    def snapshot(self) -> dict[str, Any]:
        """Why the distribution was changed last, and what was refused."""
        return {"reason": self.reason, "refused": self.refused}


def scored(
    graph: CollaborationGraph, feedback: Feedback, iteration: int, objective: Objective
) -> Scored:
    """A candidate with its feedback, as agents are told of it."""
    return Scored(
        graph,
        feedback.n_correct,
        feedback.n_scored,
        iteration,
        feedback.latency_s,
        objective,
        feedback.stopped,
        graph_tallies(graph, feedback.results),
    )
