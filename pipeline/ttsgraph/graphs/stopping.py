"""Rules that say when a vote may stop before all nodes have answered, when a node need not run, and
which nodes are asked next.

A stop rule looks at the answers that a voter has so far, and compares them by their extracted form:

none       never stops early: every predecessor answers
lossless   stops once no missing answer can change the result of the vote (the default)
beta       stops once the leader is ahead of the runner-up with a probability of at least `level`,
           the posterior of a coin between the two with a uniform prior
passed     stops once an answer passes the check; the only rule for nodes that check answers

A gate compares the answers of the nodes that it watches. Their disagreement is 1 - (share of the
most frequent answer); answers without a form agree with none.

Demand starts at the sink: the sink is asked first, and every node that is asked asks its
predecessors, all in parallel or stage by stage (the nodes that its gate watches, then its waves). A
stage is asked if the node is still open after the previous stage has answered. So which nodes run
depends only on the answers, never on the order in which they arrive. The executor follows
`QuestionState.decide`, both for a search and for a waiting user, with a different Patience for
each; `settle` applies the same rules to many questions at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictInt

from ttsgraph.base.errors import GraphError

if TYPE_CHECKING:  # graph imports this module; arrays are slow to import
    from ttsgraph.base.arrays import FloatArray, IntArray
    from ttsgraph.graphs.graph import CollaborationGraph
    from ttsgraph.graphs.roles import Role

Rule = Literal["none", "lossless", "beta", "passed"]
Number = Annotated[float, Field(strict=True)]

CLOSED = ConfigDict(extra="forbid")
"""Configuration of the parts of a node: unknown keys are errors."""


@dataclass(frozen=True, slots=True, order=True)
class Stop:
    """A node's stop rule. Only beta uses `level`, which is 0 for other rules. Raises GraphError if
    the level doesn't fit the rule.
    """

    __pydantic_config__ = CLOSED

    rule: Rule = "lossless"
    level: Number = 0.0

    def __post_init__(self) -> None:
        if self.confident and not 0.5 < self.level < 1:
            raise GraphError(f"expected a stop level above 0.5 and below 1, found {self.level!r}")
        if not self.confident and self.level:
            raise GraphError(f"expected no level for stop rule {self.rule}, found {self.level!r}")

    @property
    def confident(self) -> bool:
        """True for the rule beta, under which a vote may stop before its result is certain."""
        return self.rule == "beta"

    def to_json(self) -> str | dict[str, Any]:
        """Return the rule as plain data for a graph file."""
        return {"rule": self.rule, "level": self.level} if self.confident else self.rule

    @property
    def words(self) -> str:
        """Description of when the vote stops."""
        return {
            "none": "once all have answered",
            "lossless": "once no further answer can change it",
            "beta": f"once the leader stays ahead of the runner-up with probability {self.level:g}",
            "passed": "once an answer passes the check",
        }[self.rule]


LOSSLESS = Stop()
NEVER = Stop("none")
PASSED = Stop("passed")


@dataclass(frozen=True, slots=True, order=True)
class Gate:
    """Condition under which a node runs: its watched predecessors (default: all) disagree by more
    than `over`; otherwise the node takes their most frequent answer. A node that runs reads its
    other predecessors, which are asked only then; if it watches all, it reads all. Raises
    GraphError unless `over` is at least 0 and below 1.
    """

    __pydantic_config__ = CLOSED

    over: Number
    watches: tuple[StrictInt, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "watches", tuple(sorted(set(self.watches))))
        if not 0 <= self.over < 1:
            raise GraphError(
                f"expected the 'over' of a gate to be at least 0 and below 1, found {self.over!r}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the gate as plain data for a graph file."""
        return {"over": self.over} | ({"watches": list(self.watches)} if self.watches else {})


def in_waves(members: Sequence[int], sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Split the members into waves of these sizes, repeating the last size; without sizes, into a
    single wave.
    """
    if not sizes:
        return (tuple(members),)
    found: list[tuple[int, ...]] = []
    start = 0
    while start < len(members):
        size = sizes[min(len(found), len(sizes) - 1)]
        found.append(tuple(members[start : start + size]))
        start += size
    return tuple(found)


Head = Callable[[str], str]
"""Function that returns the part of a form that a two-stage vote counts first; the second stage
counts only forms with the winning part.
"""


def stops(
    stop: Stop, known: Mapping[int, str | None], total: int, head: Head | None = None
) -> bool:
    """Return True if a vote of `total` answers may stop; `known` holds the forms by position, None
    for an answer without a form.
    """
    if len(known) >= total:
        return True
    if stop.rule == "none":
        return False
    if decided(known, total, head):
        return True
    votes = Counter(form for form in known.values() if form is not None)
    counts = tuple(sorted(votes.values(), reverse=True))
    return stop.confident and bool(counts) and confidence(counts) >= stop.level


def most_frequent(forms: Iterable[str | None], head: Head | None = None) -> str | None:
    """Return the most frequent form (on a tie, the earliest), or None if there is no form."""
    votes = Counter(form for form in forms if form is not None)
    if head is not None and votes:
        first = most_frequent(map(head, votes.elements()))
        votes = Counter({form: count for form, count in votes.items() if head(form) == first})
    return max(votes, key=lambda form: votes[form]) if votes else None


def decided(known: Mapping[int, str | None], total: int, head: Head | None = None) -> bool:
    """Return True if no missing answer can change which form is the most frequent (on a tie, the
    earliest).
    """
    left = total - len(known)
    if left <= 0:
        return True
    if head is not None:
        heads = {k: None if form is None else head(form) for k, form in known.items()}
        leader = most_frequent(heads[place] for place in sorted(heads))
        within = {k: form if heads[k] == leader else None for k, form in known.items()}
        return decided(heads, total) and decided(within, total)
    votes: Counter[str] = Counter()
    first: dict[str, int] = {}
    for place in sorted(known):
        form = known[place]
        if form is not None:
            votes[form] += 1
            first.setdefault(form, place)
    if not votes:
        return False
    missing = next(place for place in range(total) if place not in known)
    leader = max(votes, key=lambda form: (votes[form], -first[form]))
    # A rival does best if it gets all missing votes; a form not yet named would first appear at the
    # first missing place.
    rivals = [(votes[form], min(first[form], missing)) for form in votes if form != leader]
    return not any(
        count + left > votes[leader] or (count + left == votes[leader] and place < first[leader])
        for count, place in (*rivals, (0, missing))
    )


@lru_cache(maxsize=4096)
def confidence(votes: tuple[int, ...]) -> float:
    """Return the probability that the leader stays ahead of the runner-up, given the vote counts of
    the forms, largest first.
    """
    from ttsgraph.base.special import fair_coin_p  # imports numpy, which is slow

    rival = votes[1] if len(votes) > 1 else 0
    return fair_coin_p(rival + 1, rival + votes[0] + 1, "greater")


def disagreement(forms: Sequence[str | None]) -> float:
    """Return 1 minus the share of the most frequent form; 1 if no answer has a form."""
    votes = Counter(form for form in forms if form is not None)
    return 1 - max(votes.values(), default=0) / len(forms) if forms else 1.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Tolerance for missing answers. Without a `quorum`, every node that is asked has to answer, or
    the run fails. With one, for a waiting user, a vote ends as soon as no missing answer can change
    it, and continues without failed voters if at least this share of its finished voters has
    answered. With `fallback`, any node continues without failed inputs, and a node that fails
    passes on an answer from its inputs.
    """

    quorum: float | None = None
    fallback: bool = False


ALL = Patience()


class NextMove(Enum):
    """Next step of a node, other than to take another node's answer (TakeAnswer)."""

    WAIT = auto()
    """wait for the stage that the node asked for"""
    ASK = auto()
    """ask the node's next stage"""
    CHECK = auto()
    """check the answers of the current stage, and ask the next one unless an answer passes"""
    RUN = auto()
    """run the node's role on the answers that it reads"""
    FAIL = auto()
    """fail, because the node lacks answers"""


@dataclass(frozen=True, slots=True)
class TakeAnswer:
    """Decision to pass on the answer of node `of`, chosen by a vote or a closed gate."""

    of: int
    closed: bool = False


@dataclass(eq=False)
class QuestionState:
    """State of one question. By node, `stage` is the index of the stage that an asked node waits
    for, and `waiting` is how many nodes of that stage have not ended. `texts` holds the answers,
    `silent` the nodes that will give none, and `lost` the silent nodes whose call failed or whose
    inputs were lost. `form` extracts the form of a text.
    """

    graph: CollaborationGraph
    roles: Mapping[int, Role]
    form: Callable[[str], str | None]
    head: Head | None = None
    patience: Patience = ALL
    stage: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._forms: dict[int, str | None] = {}

    def begun(self, patience: Patience) -> QuestionState:
        """Return a copy of this state for another question, before any node has answered."""
        stage, waiting = self.stage.copy(), self.waiting.copy()
        return QuestionState(self.graph, self.roles, self.form, self.head, patience, stage, waiting)

    def ended(self, node: int) -> bool:
        """Return True if a node has answered or never will."""
        return node in self.texts or node in self.silent

    def heard(self, nodes: Iterable[int]) -> list[int]:
        """Return which of these nodes have answered."""
        return [p for p in nodes if p in self.texts]

    def ask(self, node: int) -> list[int]:
        """Ask a node and all nodes it needs first; return the nodes that can run now, in order."""
        ready: list[int] = []
        pending = [node]
        while pending:
            i = pending.pop()
            if i in self.stage:
                continue
            self.stage[i] = 0
            first = self.graph.stages[i][0]
            pending += first
            self.waiting[i] = sum(not self.ended(p) for p in first)
            if not self.waiting[i]:
                ready.append(i)
        return self._in_order(ready)

    def go_on(self, node: int) -> list[int]:
        """Ask a node's next stage; return the nodes that can run now."""
        self.stage[node] += 1
        awaited = self.awaited(node)
        ready = [i for member in awaited for i in self.ask(member)]
        self.waiting[node] = sum(not self.ended(p) for p in awaited)
        return self._in_order(ready) if self.waiting[node] else [node]

    def arrived(self, node: int) -> list[int]:
        """Return the nodes that have to decide again after this one ended, with or without an
        answer.
        """
        ready = []
        for after in self.graph.successors[node]:
            if after not in self.stage or self.ended(after):
                continue
            awaited = len(self.graph.stages[after]) == 1 or node in self.awaited(after)
            self.waiting[after] -= awaited
            if self.patience.quorum is not None or (awaited and not self.waiting[after]):
                ready.append(after)
        return ready

    def decide(self, node: int) -> NextMove | TakeAnswer:
        """Return the next step of an asked node, or the answer that it takes."""
        if self.patience.quorum is not None:
            if self._is_over(node):
                return self.leader(self.graph.reads[node])
            if not self.lost.isdisjoint(self.graph.predecessors[node]) and not self._bears(node):
                return NextMove.FAIL
        if self.waiting[node]:
            return NextMove.WAIT
        made = self.graph.node(node)
        if not made.adaptive:
            return NextMove.RUN
        stages, stage = self.graph.stages[node], self.stage[node]
        goes_on = stage + 1 < len(stages)
        if made.gate and not stage:
            forms = [self._form(p) for p in self.heard(stages[0])]
            if disagreement(forms) <= made.gate.over:
                return replace(self.leader(stages[0]), closed=True)
        elif goes_on and made.stop != PASSED:
            voices = [p for group in stages[1 if made.gate else 0 : stage + 1] for p in group]
            total = len(self.graph.reads[node])
            if self.heard(voices) and stops(made.stop, self._known(voices), total, self.head):
                return self.leader(voices)
        if goes_on:
            return NextMove.CHECK if made.stop == PASSED else NextMove.ASK
        return NextMove.RUN

    def leader(self, nodes: Iterable[int]) -> TakeAnswer:
        """Return the decision to take the most frequent answer of these nodes, from the first node
        that gave it. If no answer has a form, the first answer is taken.
        """
        heard = self.heard(nodes)
        forms = [self._form(p) for p in heard]
        most = most_frequent(forms, self.head)
        return TakeAnswer(heard[0 if most is None else forms.index(most)])

    def awaited(self, node: int) -> tuple[int, ...]:
        """Return the members of the stage that a node waits for."""
        return self.graph.stages[node][self.stage[node]]

    def drop(self) -> set[int]:
        """Withdraw the requests that the sink no longer waits for, so that they can be made again.
        Return the nodes that it still waits for, including the sink itself.
        """
        found: set[int] = set()
        pending = [self.graph.sink]
        while pending:
            i = pending.pop()
            if i not in found and not self.ended(i):
                found.add(i)
                pending += self.awaited(i)
        for i in [i for i in self.stage if i not in found and not self.ended(i)]:
            del self.stage[i], self.waiting[i]
        return found

    def is_sure(self, node: int) -> bool:
        """Return True if neither missing nor lost answers could change the vote of a node."""
        reads = self.graph.reads[node]
        forms = {k: self._form(p) for k, p in enumerate(reads) if p in self.texts}
        return self.roles[node].by_majority and decided(forms, len(reads), self.head)

    def _is_over(self, node: int) -> bool:
        """Return True if a vote is decided before all its voters have answered. Only a certain
        result counts: beta waits for the end of its wave, as in a search.
        """
        made = self.graph.node(node)
        reads = self.graph.reads[node]
        forms = self._known(reads)
        return (
            len(forms) < len(reads)
            and self.roles[node].by_majority
            and made.stop.rule != "none"
            and not (made.gate and not self.stage[node])
            and decided(forms, len(reads), self.head)
            and self._has_quorum(node)
        )

    def _bears(self, node: int) -> bool:
        """Return True if a node can continue without its lost inputs."""
        role = self.roles[node]
        if role.calls_model and not self.patience.fallback:
            return False
        if self.waiting[node] or self.stage[node] + 1 < len(self.graph.stages[node]):
            return True  # more answers may arrive
        heard = self.heard(self.graph.reads[node])
        enough = len(heard) >= max(1, role.min_in_degree) or self.heard(self.awaited(node))
        return bool(enough) and (self.patience.fallback or self._has_quorum(node))

    def _has_quorum(self, node: int) -> bool:
        """Return True if a quorum has answered, among the asked voters that have ended."""
        requested = [p for p in self.graph.reads[node] if p in self.stage]
        least = (self.patience.quorum or 0) * sum(map(self.ended, requested))
        return len(self.heard(requested)) >= max(1.0, least)

    def _form(self, node: int) -> str | None:
        """Return the extracted form of a node's answer, or None if the node has no answer or its
        answer has no form.
        """
        if node not in self.texts:
            return None
        if node not in self._forms:
            self._forms[node] = self.form(self.texts[node])
        return self._forms[node]

    def _known(self, nodes: Iterable[int]) -> dict[int, str | None]:
        """Return the forms of the nodes that have ended, by position."""
        return {k: self._form(p) for k, p in enumerate(nodes) if self.ended(p)}

    def _in_order(self, nodes: list[int]) -> list[int]:
        return sorted(nodes, key=self.graph.places.__getitem__) if len(nodes) > 1 else nodes


def run_times(
    graph: CollaborationGraph, used: Mapping[int, IntArray], weights: Mapping[int, FloatArray]
) -> FloatArray:
    """Return the time of the sink's answer on each of Q questions. For each node, `weights` and
    `used` hold an array of length Q: the seconds that the node takes, and the number of stages that
    it waited for (0 if it was not asked). A node starts when it is first asked, and its stages run
    one after another.
    """
    import numpy as np  # slow to import

    count = len(used[graph.sink])
    asked = {i: np.full(count, np.inf) for i in graph.order}
    asked[graph.sink] = np.zeros(count)
    ends: dict[int, FloatArray] = {}
    # Times only fall from one pass to the next, and each pass settles at least one more node, so
    # these passes are enough.
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
