"""A question's way through a graph: of every node, whom it asks next, or whether it is done.

Demand goes from the sink: it is asked for first, and every node asks for its predecessors, all at
once, or stage by stage (what its gate watches, then its waves). A stage is asked for once the one
before it has answered and the node is still open. So which nodes run depends on answers alone,
never on which of them came first.

The executor does what `Asking.decide` says, for a search and for somebody who waits; `settle` says
the same of many questions at once. They differ in Patience alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import Role, get_role
from ttsgraph.graphs.stopping import PASSED, Head, decided, disagreement, most_frequent, stops


@dataclass(frozen=True, slots=True)
class Patience:
    """With how little a graph answers. Without a `quorum` all that is asked has to answer, or the
    run fails. With one, for somebody who waits, a vote is over as soon as no missing answer can
    change it, and goes on without failed voices while this share of those asked has answered;
    `fallback` lets any node go on without what failed, and pass on what it was to read.
    """

    quorum: float | None = None
    fallback: bool = False


ALL = Patience()


class Step(Enum):
    """A node's next step, where it doesn't take another's answer."""

    WAIT = auto()
    """for what it has asked for"""
    ASK = auto()
    """for its next stage"""
    CHECK = auto()
    """its stage, and ask for the next one unless an answer passes"""
    RUN = auto()
    """what its role does, with the answers that it reads"""
    FAIL = auto()
    """as it lacks answers"""


@dataclass(frozen=True, slots=True)
class Take:
    """A node passes on the answer of this one, which a vote has taken, or a gate that is closed."""

    of: int
    closed: bool = False


@dataclass(eq=False)
class Asking:
    """The state of one question. `stage` is the index of the stage that each asked node waits for,
    `waiting` how many of it are missing; `texts` are answers, `silent` are nodes that will give
    none, `lost` those of them whose call failed. `form` reads a text.
    """

    graph: CollaborationGraph
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

    def begun(self, patience: Patience) -> Asking:
        """The same state for a question of its own; nothing has answered yet."""
        stage, waiting = self.stage.copy(), self.waiting.copy()
        return Asking(self.graph, self.form, self.head, patience, stage, waiting)

    def ended(self, node: int) -> bool:
        """Nothing more is to come of a node."""
        return node in self.texts or node in self.silent

    def heard(self, nodes: Iterable[int]) -> list[int]:
        """Those of some nodes that have answered."""
        return [p for p in nodes if p in self.texts]

    def ask(self, node: int) -> list[int]:
        """Ask for a node and all it needs first; returns what waits for nothing, in order."""
        ready: list[int] = []
        asked = [node]
        while asked:
            i = asked.pop()
            if i in self.stage:
                continue
            self.stage[i] = 0
            first = self.graph.stages[i][0]
            asked += first
            self.waiting[i] = sum(not self.ended(p) for p in first)
            if not self.waiting[i]:
                ready.append(i)
        return self._in_order(ready)

    def go_on(self, node: int) -> list[int]:
        """Ask for the node's next stage; returns the nodes that wait for nothing."""
        self.stage[node] += 1
        awaited = self.awaited(node)
        ready = [i for member in awaited for i in self.ask(member)]
        self.waiting[node] = sum(not self.ended(p) for p in awaited)
        return self._in_order(ready) if self.waiting[node] else [node]

    def arrived(self, node: int) -> list[int]:
        """The nodes that this one's end, with or without an answer, lets decide anew."""
        ready = []
        for after in self.graph.successors[node]:
            if after not in self.stage or self.ended(after):
                continue
            awaited = len(self.graph.stages[after]) == 1 or node in self.awaited(after)
            self.waiting[after] -= awaited
            if self.patience.quorum is not None or (awaited and not self.waiting[after]):
                ready.append(after)
        return ready

    def decide(self, node: int) -> Step | Take:
        """Whom a node that was asked asks next, or what it does without asking."""
        if self.patience.quorum is not None:
            if self._is_over(node):
                return self.leader(self.graph.reads[node])
            if not self.lost.isdisjoint(self.graph.predecessors[node]) and not self._bears(node):
                return Step.FAIL
        if self.waiting[node]:
            return Step.WAIT
        made = self.graph.node(node)
        if not made.adaptive:
            return Step.RUN
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
            return Step.CHECK if made.stop == PASSED else Step.ASK
        return Step.RUN

    def leader(self, nodes: Iterable[int]) -> Take:
        """The first of these nodes that gives their most frequent answer, or any at all."""
        heard = self.heard(nodes)
        forms = [self._form(p) for p in heard]
        most = most_frequent(forms, self.head)
        return Take(heard[0 if most is None else forms.index(most)])

    def awaited(self, node: int) -> tuple[int, ...]:
        """The members of the stage that a node waits for."""
        return self.graph.stages[node][self.stage[node]]

    def needed(self) -> set[int]:
        """The nodes that the sink still waits for, itself too."""
        found: set[int] = set()
        asked = [self.graph.sink]
        while asked:
            i = asked.pop()
            if i not in found and not self.ended(i):
                found.add(i)
                asked += self.awaited(i)
        return found

    def is_sure(self, node: int) -> bool:
        """Neither missing answers nor lost ones could change the vote that a node takes."""
        reads = self.graph.reads[node]
        known = {k: self._form(p) for k, p in enumerate(reads) if p in self.texts}
        return self._role(node).by_majority and decided(known, len(reads), self.head)

    def _is_over(self, node: int) -> bool:
        """A vote is decided before all have answered; beta waits for its wave, as measured."""
        made = self.graph.node(node)
        reads = self.graph.reads[node]
        known = self._known(reads)
        return (
            len(known) < len(reads)
            and self._role(node).by_majority
            and made.stop.rule != "none"
            and not (made.gate and not self.stage[node])
            and decided(known, len(reads), self.head)
            and self._has_quorum(node)
        )

    def _bears(self, node: int) -> bool:
        """A node can go on without what was lost."""
        role = self._role(node)
        if role.calls_model and not self.patience.fallback:
            return False
        if self.waiting[node] or self.stage[node] + 1 < len(self.graph.stages[node]):
            return True  # there may be more to hear
        heard = self.heard(self.graph.reads[node])
        enough = len(heard) >= max(1, role.min_in_degree) or self.heard(self.awaited(node))
        return bool(enough) and (self.patience.fallback or self._has_quorum(node))

    def _has_quorum(self, node: int) -> bool:
        """Enough of the voices have answered that a vote asked so far."""
        asked = [p for p in self.graph.reads[node] if p in self.stage]
        least = (self.patience.quorum or 0) * sum(map(self.ended, asked))
        return len(self.heard(asked)) >= max(1.0, least)

    def _role(self, node: int) -> Role:
        return get_role(self.graph.node(node).role)

    def _form(self, node: int) -> str | None:
        """What is read of a node's answer; None where there is nothing."""
        if node not in self.texts:
            return None
        if node not in self._forms:
            self._forms[node] = self.form(self.texts[node])
        return self._forms[node]

    def _known(self, nodes: Iterable[int]) -> dict[int, str | None]:
        """Forms by place, of those of these nodes that have ended."""
        return {k: self._form(p) for k, p in enumerate(nodes) if self.ended(p)}

    def _in_order(self, nodes: list[int]) -> list[int]:
        return sorted(nodes, key=self.graph.places.__getitem__) if len(nodes) > 1 else nodes
