"""Which nodes a question needs, as its answers come in, and how long that takes.

The sink is asked for first, and every node asks for its predecessors: all at once, or stage by
stage (what its gate watches, then its waves). A stage is asked for once the one before it has
answered and the node is still open. So which nodes run depends on answers alone, never on which of
them came first.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ttsgraph.base.arrays import FloatArray, IntArray
from ttsgraph.graphs.graph import CollaborationGraph


class Demand:
    """One question's way through a graph: what is asked for, and what each node still waits for.

    `stage` has the place of the stage that a node waits for, for every node asked for; of a node
    that was hurried on, `since` has the first stage that it still waits for.
    """

    def __init__(self, graph: CollaborationGraph) -> None:
        self.graph = graph
        self.stage: dict[int, int] = {}
        self.since: dict[int, int] = {}
        self.waiting: dict[int, int] = {}
        self.answered: set[int] = set()

    def copy(self) -> Demand:
        """The same state, to go on from."""
        other = Demand(self.graph)
        other.stage = self.stage.copy()
        other.since = self.since.copy()
        other.waiting = self.waiting.copy()
        other.answered = self.answered.copy()
        return other

    def ask(self, node: int) -> list[int]:
        """Ask for a node and all that it asks for first; returns the nodes that wait for nothing,
        in the graph's order.
        """
        ready: list[int] = []
        asked = [node]
        while asked:
            i = asked.pop()
            if i in self.stage:
                continue
            self.stage[i] = 0
            first = self.graph.stages[i][0]
            asked += first
            self.waiting[i] = sum(p not in self.answered for p in first)
            if not self.waiting[i]:
                ready.append(i)
        return self._in_order(ready)

    def arrived(self, node: int) -> list[int]:
        """The nodes whose stage is complete now that this one has answered."""
        self.answered.add(node)
        ready = []
        for after in self.graph.successors[node]:
            place = self.stage.get(after)
            if place is None or after in self.answered:
                continue
            stages = self.graph.stages[after]
            if (
                len(stages) == 1
                or node in stages[place]
                or (after in self.since and node in self.awaited(after))
            ):
                self.waiting[after] -= 1
                if not self.waiting[after]:
                    ready.append(after)
        return ready

    def goes_on(self, node: int) -> bool:
        """Whether the node has a further stage."""
        return self.stage[node] + 1 < len(self.graph.stages[node])

    def awaited(self, node: int) -> tuple[int, ...]:
        """The members of the stages that a node waits for."""
        stages = self.graph.stages[node]
        place = self.stage[node]
        return tuple(p for stage in stages[self.since.get(node, place) : place + 1] for p in stage)

    def go_on(self, node: int, hurry: bool = False) -> list[int]:
        """Ask for the node's next stage; returns the nodes that wait for nothing, itself where all
        have answered already.

        With `hurry` it goes on waiting for the stage before, too.
        """
        if hurry:
            self.since.setdefault(node, self.stage[node])
        else:
            self.since.pop(node, None)
        self.stage[node] += 1
        ready = [
            i for member in self.graph.stages[node][self.stage[node]] for i in self.ask(member)
        ]
        self.waiting[node] = sum(p not in self.answered for p in self.awaited(node))
        return self._in_order(ready) if self.waiting[node] else [node]

    def _in_order(self, nodes: list[int]) -> list[int]:
        return sorted(nodes, key=self.graph.places.__getitem__) if len(nodes) > 1 else nodes


def run_times(
    graph: CollaborationGraph, used: Mapping[int, IntArray], weights: Mapping[int, FloatArray]
) -> FloatArray:
    """(Q,) when the sink answers, by the seconds that each node takes (Q,) once it has what it
    reads.

    `used` (Q,) is how many of its stages each node waited for, 0 where it was not asked. A node
    begins when the first node that needs it asks for it, and stages follow one another.
    """
    count = len(used[graph.sink])
    asked = {i: np.full(count, np.inf) for i in graph.order}
    asked[graph.sink] = np.zeros(count)
    ends: dict[int, FloatArray] = {}
    # Times only fall from one pass to the next, and each pass settles at least one more node.
    for _ in range(len(graph.order) + 1):
        ends = {}
        wanted = {i: asked[i].copy() for i in graph.order}
        for i in graph.order:
            at = asked[i]
            for k, stage in enumerate(graph.stages[i]):
                waits = used[i] > k
                for p in stage:
                    wanted[p] = np.where(waits, np.minimum(wanted[p], at), wanted[p])
                latest = np.max([ends[p] for p in stage], axis=0) if stage else at
                at = np.where(waits, np.maximum(at, latest), at)
            ends[i] = at + weights[i]
        if all(np.array_equal(asked[i], wanted[i]) for i in graph.order):
            break
        asked = wanted
    return ends[graph.sink]
