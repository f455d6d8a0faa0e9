"""Stop rules and gates for many questions at a time: the executor's rules over arrays of answer
classes.

Costs and answers of a graph follow from the answers that its nodes would give if asked. Arrays of
answer classes have one entry for each of C cases, which are pairs of a sample and a question. Class
0 is the right answer, each higher number is another answer, and a negative number is an answer
without a form.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.stopping import PASSED, Stop, confidence

RUNS = -1
"""Value in place of a predecessor's index if the node runs its role."""


@dataclass(frozen=True, slots=True)
class NodeOutcomes:
    """Outcome of a node in each of C cases: `taken` is the index of the predecessor whose answer is
    taken, or RUNS, and `used` the number of stages that the node waited for.
    """

    taken: IntArray
    used: IntArray


ByNode = Mapping[int, IntArray]
"""Node id -> the node's answer classes in C cases."""

Settled = dict[int, NodeOutcomes]
"""Node id -> the node's outcomes, for nodes that have a gate or make no call."""


def settle(
    graph: CollaborationGraph, node_id: int, classes: ByNode, passing: BoolArray | None = None
) -> NodeOutcomes:
    """Return the outcomes of a node that has a gate or makes no call, given its predecessors'
    classes in C cases. `passing`, an array of shape (classes, C), tells which classes pass the
    check. Without it, a verifier is treated as a plain vote, but if its stop rule is `passed`,
    exactly the right answers are assumed to pass. A weighted vote is treated as a plain vote.
    """
    node, role = graph.node(node_id), get_role(graph.node(node_id).role)
    before, stages = graph.predecessors[node_id], graph.stages[node_id]
    # For each stage after which the node may take an answer: the cases in which it does, and the
    # index of the predecessor that leads.
    ends: list[tuple[BoolArray, IntArray]] = []
    if node.gate:
        leader, votes = leading(np.stack([classes[p] for p in stages[0]]))
        places = np.array([before.index(p) for p in stages[0]])
        ends.append((1 - votes / len(stages[0]) <= node.gate.over, places[leader]))
    if not role.calls_model:
        later = stages[bool(node.gate) :] or (graph.reads[node_id],)
        members = [p for stage in later for p in stage]
        places = np.array([before.index(p) for p in members])
        inputs = np.stack([classes[p] for p in members])
        ballot = Votes(inputs)
        checked = role.checks and (passing is not None or node.stop == PASSED)
        passed = Votes(np.where(_passes(inputs, passing), inputs, -1)) if checked else None
        for heard in accumulate(map(len, later)):
            leader, votes = ballot.leading(heard)
            if passed:
                best, passing_votes = passed.leading(heard)
                leader = np.where(passing_votes > 0, best, leader)
            if passed and node.stop == PASSED:
                stopping = (passing_votes > 0) | (heard == len(members))
            else:
                stopping = ballot.stops(node.stop, heard, leader, votes)
            ends.append((stopping, places[leader]))
    takes, taken = zip(*ends, strict=True)
    # A vote over the answers that its gate watches waits for no further stage.
    used = [min(number, len(stages)) for number, _ in enumerate(ends, 1)]
    return NodeOutcomes(np.select(takes, taken, RUNS), np.select(takes, used, len(stages)))


def _passes(inputs: IntArray, passing: BoolArray | None) -> BoolArray:
    """Return which of the answers pass, as an array shaped like `inputs`; without `passing`, the
    right answers pass.
    """
    if passing is None:
        return inputs == 0
    return (inputs >= 0) & passing[np.maximum(inputs, 0), np.arange(inputs.shape[1])]


def leading(inputs: IntArray) -> tuple[IntArray, IntArray]:
    """Return, for each column, the first position of the most frequent class and its number of
    votes; on a tie, the earliest class leads. Rows of `inputs` are voters, columns are cases.
    """
    return Votes(inputs).leading(len(inputs))


class Votes:
    """Votes counted in order of arrival, with each form's first position. Rows of `inputs` are the
    voters, and columns are C cases.

    The count loops over votes instead of using three-dimensional arrays, because numpy is many
    times faster at adding and comparing whole rows of small numbers.
    """

    def __init__(self, inputs: IntArray) -> None:
        self.total, count = inputs.shape
        forms = int(inputs.max(initial=0)) + 1
        # The smallest type that holds every rank.
        small = np.int16 if forms * (self.total + 1) ** 2 < 2**15 else np.int32
        self._forms = np.arange(forms, dtype=small)[:, None]
        self._votes = np.zeros((self.total, forms, count), dtype=small)
        self._first = np.full((forms, count), self.total, dtype=small)
        before = np.zeros_like(self._first)
        for place, votes in enumerate(inputs.astype(small)):
            same = votes == self._forms
            np.copyto(self._first, small(place), where=same & (before == 0))
            before = np.add(before, same, out=self._votes[place])
        self._columns = np.arange(count)

    def leading(self, heard: int) -> tuple[IntArray, IntArray]:
        """Return, for each case, the position of the leading form among the first `heard` votes (0
        if no vote has a form), and its number of votes.
        """
        votes = self._votes[heard - 1]
        # Most votes first, then the earliest, then the lowest form; forms not yet seen have no
        # votes.
        rank = np.where(votes > 0, votes * (self.total + 1) - self._first, -self.total - 1)
        form = -(rank * len(rank) - self._forms).max(axis=0) % len(rank)
        most = votes.max(axis=0)
        return np.where(most > 0, self._first[form, self._columns], 0), most

    def stops(self, stop: Stop, heard: int, leader: IntArray, most: IntArray) -> BoolArray:
        """Return, for each case, True if the vote stops after its first `heard` answers, by the
        rule of `stopping.stops`; `leader` and `most` are as returned by `leading`.
        """
        left = self.total - heard
        if not left or stop.rule == "none":
            return np.full(len(self._columns), not left)
        votes = self._votes[heard - 1]
        # As in `decided`: a rival gets all missing votes, and wins a tie if it was named first.
        reach = votes + left
        beaten = (reach > most) | ((reach == most) & (self._first < leader))
        rivals = (votes > 0) & (self._first != leader)
        decided = (most > 0) & (left <= most) & ~(beaten & rivals).any(axis=0)
        return decided | _sure(stop, votes) if stop.confident else decided


def _sure(stop: Stop, votes: IntArray) -> BoolArray:
    """Return, for each case, True if the leader is certain enough for the rule beta. Rows of
    `votes` are forms, columns are cases.
    """
    rival, leader = np.partition(np.vstack([0 * votes[:1], votes]), -2, axis=0)[-2:]
    base = int(votes.max(initial=0)) + 1
    pairs, places = np.unique(leader * base + rival, return_inverse=True)
    sure = [confidence(*divmod(pair, base)) >= stop.level for pair in pairs.tolist()]
    return np.array(sure)[places]


Run = Callable[[], IntArray]
"""Function that returns the classes of a node's own answers in C cases."""


def answered(
    graph: CollaborationGraph, node_id: int, classes: ByNode, run: Run, passing: BoolArray | None
) -> tuple[IntArray, NodeOutcomes | None]:
    """Return the classes of a node's answers in C cases, each taken from a predecessor or, if the
    node runs, from `run`; and the node's outcomes, or None if it always runs. `passing` is as in
    `settle`.
    """
    node = graph.node(node_id)
    if not node.adaptive and get_role(node.role).calls_model:
        return run(), None
    outcome = settle(graph, node_id, classes, passing)
    inputs = np.stack([classes[p] for p in graph.predecessors[node_id]])
    passed = inputs[outcome.taken, np.arange(len(outcome.taken))]
    runs = outcome.taken == RUNS
    return np.where(runs, run(), passed) if runs.any() else passed, outcome


@dataclass(frozen=True, slots=True)
class GraphDemand:
    """Demand in C cases, by node: `stages` is the number of stages that the node asks for (0 if it
    is not needed), and `calls` is True in the cases in which it makes a call.
    """

    stages: Mapping[int, IntArray]
    calls: Mapping[int, BoolArray]

    def weights(self, costs: Mapping[int, float]) -> dict[int, FloatArray]:
        """Return the cost of each node in each case, given the cost of one call of each node."""
        nothing = np.zeros(len(next(iter(self.stages.values()))))
        paid = {i: np.multiply(n, costs[i], dtype=np.float64) for i, n in self.calls.items()}
        return dict.fromkeys(self.stages, nothing) | paid


def needs(
    graph: CollaborationGraph,
    classes: ByNode,
    passing: BoolArray | None = None,
    settled: Mapping[int, NodeOutcomes] | None = None,
) -> GraphDemand:
    """Return the nodes and stages that are needed in each of C cases, given the nodes' classes.
    `passing` is as in `settle`; `settled` holds the outcomes that are already known.
    """
    count = len(classes[graph.sink])
    asked = {i: np.full(count, i == graph.sink) for i in graph.order}
    stages: dict[int, IntArray] = {}
    calls = {}
    for i in reversed(graph.order):
        node, groups = graph.node(i), graph.stages[i]
        stages[i] = asked[i] * len(groups)
        runs = asked[i]
        if node.adaptive:
            outcome = (settled or {}).get(i) or settle(graph, i, classes, passing)
            stages[i] = asked[i] * outcome.used
            runs = asked[i] & (outcome.taken == RUNS)
        for k, members in enumerate(groups):
            for p in members:
                asked[p] |= stages[i] > k
        if get_role(node.role).calls_model:
            calls[i] = runs
    return GraphDemand(stages, dict(reversed(calls.items())))
