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
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache, reduce
from itertools import chain, islice, repeat, takewhile
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictInt

from ttsgraph.base.errors import CallFailed, GraphError, NoAnswer

if TYPE_CHECKING:  # graph imports this module; arrays are slow to import
    from ttsgraph.base.arrays import FloatArray, IntArray
    from ttsgraph.graphs.graph import CollaborationGraph
    from ttsgraph.graphs.roles import Role

Rule = Literal["none", "lossless", "beta", "passed"]
Number = Annotated[float, Field(strict=True)]

CLOSED = ConfigDict(extra="forbid")
"""Configuration of the parts of a node: unknown keys are errors."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


def in_waves(members: Sequence[int], sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Split the members into waves of these sizes, repeating the last size; without sizes, into a
    single wave. Without members, there is no wave.
    """
    left, every = iter(members), sizes or (len(members),)
    waves = (tuple(islice(left, size)) for size in chain(every, repeat(every[-1])))
    return tuple(takewhile(len, waves))


def stops(stop: Stop, known: Mapping[int, str | None], total: int) -> bool:
    """Return True if a vote of `total` answers may stop; `known` holds the forms by position, None
    for an answer without a form.
    """
    if stop.rule == "none":
        return len(known) >= total
    votes = Counter(form for form in known.values() if form is not None)
    leader, rival = [*sorted(votes.values(), reverse=True), 0, 0][:2]
    sure = stop.confident and confidence(leader, rival) >= stop.level
    return sure or decided(known, total)


def most_frequent(forms: Iterable[str | None]) -> str | None:
    """Return the most frequent form (on a tie, the earliest), or None if there is no form. Forms of
    two parts, separated by U+001F, are counted by their first part, then by the second one.
    """
    votes = Counter(form for form in forms if form is not None)
    if any("\x1f" in form for form in votes):
        first = most_frequent(form.partition("\x1f")[0] for form in votes.elements())
        votes = Counter(
            {form: n for form, n in votes.items() if form.partition("\x1f")[0] == first}
        )
    return max(votes, key=lambda form: votes[form]) if votes else None


def decided(known: Mapping[int, str | None], total: int) -> bool:
    """Return True if no missing answer can change which form is the most frequent (on a tie, the
    earliest).
    """
    missing = [place for place in range(total) if place not in known]
    leader = most_frequent(known[place] for place in sorted(known))
    if not missing or leader is None:
        return not missing
    # A rival does best if it gets all missing votes. It may be a form that is not yet named, or
    # differ from the leader only in its second part.
    unnamed = {"\x1e", leader.partition("\x1f")[0] + "\x1f\x1e"}
    for rival in {*known.values(), *unnamed} - {leader, None}:
        whole = {**known, **dict.fromkeys(missing, rival)}
        if most_frequent(whole[place] for place in range(total)) != leader:
            return False
    return True


@lru_cache(maxsize=4096)
def confidence(leader: int, rival: int) -> float:
    """Return the probability that the leader of a vote stays ahead of the runner-up, given their
    numbers of votes.
    """
    from ttsgraph.base.special import fair_coin_tail  # imports numpy, which is slow

    return fair_coin_tail(rival + 1, rival + leader + 1)


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
    """Next step of a node, other than to take another node's answer."""

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


@dataclass(eq=False)
class QuestionState:
    """State of one question. `stage` is, by node, the index of the stage that an asked node waits
    for. `texts` holds the answers, and `errors` the reasons why calls gave none; a node may have
    both, if it passes on another answer. `form` extracts the form of a text.
    """

    graph: CollaborationGraph
    roles: Mapping[int, Role]
    form: Callable[[str], str | None]
    patience: Patience = ALL
    stage: dict[int, int] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    errors: dict[int, CallFailed | NoAnswer] = field(default_factory=dict)
    _forms: dict[int, str | None] = field(default_factory=dict, init=False)

    def ended(self, node: int) -> bool:
        """Return True if a node has answered or never will."""
        return node in self.texts or node in self.errors

    def lost(self, node: int) -> list[CallFailed]:
        """Return why predecessors of a node have failed or lost their own inputs; a refused prompt
        is no failure.
        """
        silent = [p for p in self.graph.predecessors[node] if p not in self.texts]
        errors = map(self.errors.get, silent)
        return [error for error in errors if isinstance(error, CallFailed)]

    def heard(self, nodes: Iterable[int]) -> list[int]:
        """Return which of these nodes have answered."""
        return [p for p in nodes if p in self.texts]

    def awaited(self, node: int) -> tuple[int, ...]:
        """Return the members of the stage that a node asked for last."""
        return self.graph.stages[node][self.stage[node]]

    def waits(self, node: int) -> bool:
        """Return True if a member of the stage that a node asked for has not ended."""
        # The last member is usually the last to end.
        return not all(map(self.ended, reversed(self.awaited(node))))

    def ask(self, *nodes: int) -> list[int]:
        """Ask nodes and all nodes that they need first; return those that can run now, in order."""
        ready: list[int] = []
        pending = [*nodes]
        while pending:
            i = pending.pop()
            if i not in self.stage:
                self.stage[i] = 0
                pending += self.awaited(i)
                ready += [] if self.waits(i) else [i]
        return sorted(ready, key=self.graph.order.index)

    def go_on(self, node: int) -> list[int]:
        """Ask a node's next stage; return the nodes that can run now."""
        self.stage[node] += 1
        ready = self.ask(*self.awaited(node))
        return ready if self.waits(node) else [node]

    def arrived(self, node: int) -> list[int]:
        """Return the nodes that have to decide again after this one ended, with or without an
        answer.
        """
        asked = [i for i in self.graph.successors[node] if i in self.stage and not self.ended(i)]
        early = self.patience.quorum is not None
        return [i for i in asked if early or not self.waits(i)]

    def decide(self, node: int) -> NextMove | int:
        """Return the next step of an asked node, or the node whose answer it takes."""
        made, stages, stage = self.graph.node(node), self.graph.stages[node], self.stage[node]
        if self.patience.quorum is not None:
            if self._is_over(node):
                return self.leader(self.graph.reads[node])
            if self.errors and self.lost(node) and not self._bears(node):
                return NextMove.FAIL
        if self.waits(node):
            return NextMove.WAIT
        if made.gate and not stage:
            forms = [self._form(p) for p in self.heard(stages[0])]
            if disagreement(forms) <= made.gate.over:
                return self.leader(stages[0])
        if stage + 1 == len(stages):
            return NextMove.RUN
        if made.stop == PASSED:
            return NextMove.CHECK
        voices = [p for group in stages[bool(made.gate) : stage + 1] for p in group]
        total = len(self.graph.reads[node])
        if self.heard(voices) and stops(made.stop, self._known(voices), total):
            return self.leader(voices)
        return NextMove.ASK

    def leader(self, nodes: Iterable[int]) -> int:
        """Return the first of these nodes that gave their most frequent answer; if no answer has a
        form, the first that answered.
        """
        heard = self.heard(nodes)
        forms = [self._form(p) for p in heard]
        return heard[forms.index(most_frequent(forms))]

    def drop(self) -> set[int]:
        """Withdraw the requests that the sink no longer waits for, so that they can be made again.
        Return the sink and the nodes that it waits for, or waited for until they ended.
        """
        needed = {self.graph.sink}
        for i in reversed(self.graph.order):
            if i in needed and not self.ended(i):
                needed.update(self.awaited(i))
        self.stage = {i: k for i, k in self.stage.items() if i in needed or self.ended(i)}
        return needed

    def is_sure(self, node: int) -> bool:
        """Return True if neither missing nor lost answers could change the vote of a node."""
        reads = self.graph.reads[node]
        forms = {k: self._form(p) for k, p in enumerate(reads) if p in self.texts}
        return self.roles[node].by_majority and decided(forms, len(reads))

    def _is_over(self, node: int) -> bool:
        """Return True if a vote is decided before all its voters have answered. Only a certain
        result counts: beta waits for the end of its wave, as in a search.
        """
        made, reads = self.graph.node(node), self.graph.reads[node]
        forms = self._known(reads)
        return (
            len(forms) < len(reads)
            and self.roles[node].by_majority
            and made.stop.rule != "none"
            and not (made.gate and not self.stage[node])
            and decided(forms, len(reads))
            and self._has_quorum(node)
        )

    def _bears(self, node: int) -> bool:
        """Return True if a node can continue without its lost inputs."""
        role, fallback = self.roles[node], self.patience.fallback
        if role.calls_model and not fallback:
            return False
        if self.waits(node) or self.stage[node] + 1 < len(self.graph.stages[node]):
            return True  # more answers may arrive
        heard = self.heard(self.graph.reads[node])
        enough = len(heard) >= max(1, role.min_in_degree) or bool(self.heard(self.awaited(node)))
        return enough and (fallback or self._has_quorum(node))

    def _has_quorum(self, node: int) -> bool:
        """Return True if a quorum has answered, among the asked voters that have ended."""
        requested = [p for p in self.graph.reads[node] if p in self.stage]
        least = (self.patience.quorum or 0) * sum(map(self.ended, requested))
        return len(self.heard(requested)) >= max(1.0, least)

    def _form(self, node: int) -> str | None:
        """Return the extracted form of a node's answer, or None if the node has no answer or its
        answer has no form.
        """
        if node in self.texts and node not in self._forms:
            self._forms[node] = self.form(self.texts[node])
        return self._forms.get(node)

    def _known(self, nodes: Iterable[int]) -> dict[int, str | None]:
        """Return the forms of the nodes that have ended, by position."""
        return {k: self._form(p) for k, p in enumerate(nodes) if self.ended(p)}


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
    asked = dict.fromkeys(graph.order, np.full(count, np.inf)) | {graph.sink: np.zeros(count)}
    ends: dict[int, FloatArray] = {}
    # Times only fall from one pass to the next, and each pass settles at least one more node, so
    # these passes are enough.
    for _ in range(len(graph.order) + 1):
        before, asked = asked, asked.copy()
        for i in graph.order:
            at = before[i]
            for k, stage in enumerate(graph.stages[i]):
                waits = used[i] > k
                for p in stage:
                    asked[p] = np.where(waits, np.minimum(asked[p], at), asked[p])
                latest = reduce(np.maximum, [ends[p] for p in stage], at)
                at = np.where(waits, latest, at)
            ends[i] = at + weights[i]
        if all(np.array_equal(before[i], asked[i]) for i in graph.order):
            break
    return ends[graph.sink]
