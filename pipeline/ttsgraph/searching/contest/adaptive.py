"""Structured graphs that stop early: further contenders under a budget for the mean cost.

votes     in waves, either lossless or with a confidence rule; as large as the mean budget allows
cascades  answers from one model or several first; if they disagree, a vote by a more expensive
          model
fusions   an expensive model fuses cheap answers only if they disagree
checks    answers one after another until one passes the check: all from one model, or some from one
          and the rest from another
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, combinations, product

from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, FUSER, VOTER, get_role
from ttsgraph.graphs.stopping import LOSSLESS, Gate, Stop
from ttsgraph.searching.agent.base import Brief, in_words
from ttsgraph.searching.contest.contenders import MOST_VOTES, Contenders, Labelled, labelled

BEFORE = (1, 2, 4)
"""Numbers of answers that the first of two models gives before the second one is asked, in graphs
that stop when an answer passes.
"""

MOST_CHECKED = 24
"""Maximum number of answers in a graph that stops when an answer passes."""

STOPS = (LOSSLESS, Stop("beta", 0.95), Stop("beta", 0.8))
FIRST = 3
THEN = 2
"""Sizes of the first wave and of each later wave under a confidence rule. Larger waves make more
calls in parallel; smaller ones save more calls.
"""

OWN_VOTES = (1, 2, 3, 4, 5)
"""Numbers of answers of one model before a gate. With a single answer, the gate opens only if this
answer can't be parsed.
"""

OVER = (0.0, 0.34, 0.5, 0.67, 0.8)
"""Thresholds of gates. From first to last, they open a gate unless all of its answers, or at least
two thirds, a half, a third or a fifth of them, agree.
"""

LATER = (1, 3, 7)
"""Maximum numbers of votes by the expensive model at the end of a cascade."""

LEADING = 4
TIERS = 6
"""Number of the best single models that are used for votes (twice that number for checks), and
number of models that are used for cascades.
"""


def adaptive_contenders(contenders: Contenders) -> dict[CollaborationGraph, str]:
    """Return graphs within the mean budget, each with its label. Votes, cascades and fusions are
    included only if a voter is among the roles.
    """
    made = [_until_passed(contenders)]
    if VOTER in contenders.sinks:
        made = [_votes(contenders), _cascades(contenders), *made]
    return labelled(chain.from_iterable(made), contenders.fits)


def vote(models: list[str], stop: Stop, first: int = FIRST, then: int = THEN) -> CollaborationGraph:
    """Return a vote in waves. The first wave of a lossless vote is a majority of the voters,
    because fewer votes can't decide it.
    """
    waves = (len(models) // 2 + 1, 1) if stop == LOSSLESS else (first, then)
    plain = topologies.parallel(models, models[0], VOTER)
    return topologies.with_sink(plain, waves=waves, stop=stop)


def gated(first: Sequence[str], over: float, then: Sequence[str]) -> CollaborationGraph:
    """Return a vote of the models `first` that is replaced by a vote of the models `then` if the
    answers of `first` disagree by more than `over`.
    """
    graph = topologies.parallel([*first, *then], then[0], VOTER)
    gate = Gate(over, tuple(range(len(first))))
    if len(then) < FIRST:
        return topologies.with_sink(graph, gate=gate)
    return topologies.with_sink(graph, gate=gate, waves=(FIRST, THEN), stop=STOPS[1])


def unless_sure(voters: Sequence[str], dear: str) -> CollaborationGraph:
    """Return a vote that is replaced by an expensive model's answer if the vote is unsure: if the
    first two voters disagree and, after the others have been asked too, more than one voter
    dissents.
    """
    count = len(voters)
    nodes = [Node(k, ASSISTANT, model) for k, model in enumerate((*voters, dear))]
    votes = tuple(range(count))
    later = Node(count + 1, VOTER, dear, gate=Gate(1.5 / count, votes))
    sink = Node(count + 2, VOTER, dear, gate=Gate(0.0, votes[:2]))
    edges = [(k, later.id) for k in (*votes, count)] + [(k, sink.id) for k in (0, 1, later.id)]
    return CollaborationGraph((*nodes, later, sink), tuple(edges))


def _votes(contenders: Contenders) -> Iterator[Labelled]:
    for model in contenders.ranked[:LEADING]:
        if model in contenders.brief.greedy:
            continue
        for stop in STOPS:
            most = min(MOST_VOTES, contenders.brief.budget.max_nodes - 1)
            largest = contenders.largest(partial(_vote_of, model, stop), 3, most)
            for size in {largest, (largest + 1) // 2, 5} if largest else ():
                if 3 <= size <= largest:
                    label = f"majority of up to {size} x {model}{words(stop)}"
                    yield _vote_of(model, stop, size), label


def _vote_of(model: str, stop: Stop, size: int) -> CollaborationGraph:
    return vote([model] * size, stop)


def gates(voters: int) -> list[float]:
    """Return the values of `OVER` that differ in how many of these voters have to agree, the
    strictest first.
    """
    needed = {math.ceil(voters * (1 - over) - 1e-9): over for over in reversed(OVER)}
    return sorted(needed.values())


def tiers(brief: Brief) -> list[str]:
    """Return the models for cascades, from cheap to expensive. Models that score higher than every
    cheaper model are chosen first, then the best of the others. Even a model whose call costs more
    than the mean budget may be chosen, because few questions get past the gate before it.
    """
    scores = brief.single_scores
    price = brief.cost.single
    cheap_first = sorted(brief.cost.pool, key=lambda name: (price(name), -scores.get(name, 0.0)))
    front = set[str]()
    best = -1.0
    for name in cheap_first:
        if scores.get(name, 0.0) > best:
            front.add(name)
            best = scores.get(name, 0.0)
    ranked = sorted(cheap_first, key=lambda name: (name not in front, -scores.get(name, 0.0)))
    return [name for name in cheap_first if name in ranked[:TIERS]]


def _cascades(contenders: Contenders) -> Iterator[Labelled]:
    brief = contenders.brief
    models = tiers(brief)
    fuses = FUSER in contenders.sinks
    for k, dear in enumerate(models):
        for cheap in models[: k + 1] if contenders.mixes else [dear]:
            for count in OWN_VOTES if cheap not in brief.greedy else OWN_VOTES[:1]:
                if cheap != dear:
                    yield from _gated(contenders, [cheap] * count, dear)
            for count in OWN_VOTES[1:] if fuses and cheap not in brief.greedy else ():
                fused = topologies.parallel([cheap] * count, dear, FUSER)
                where = f"where {count} x {cheap} disagree"
                yield topologies.with_sink(fused, gate=Gate(0.0)), f"fused by {dear} {where}"
        for several in (2, 3) if contenders.mixes else ():
            for voters in combinations([each for each in models[: k + 1] if each != dear], several):
                yield from _gated(contenders, voters, dear)


def _gated(contenders: Contenders, voters: Sequence[str], dear: str) -> Iterator[Labelled]:
    brief = contenders.brief
    least = sum(brief.cost.single(model) for model in voters)
    if brief.cost.metric != "runtime" and least > brief.budget.limit * (1 + 1e-9):
        return
    first = in_words(Counter(voters))
    for over in gates(len(voters)):
        where = f"where {first} disagree by more than {over:g}"
        for more in LATER if dear not in brief.greedy else LATER[:1]:
            label = f"majority of up to {more} x {dear} {where}" if more > 1 else f"{dear} {where}"
            yield gated(voters, over, [dear] * more), label
    if len(voters) == FIRST + THEN and len(set(voters)) == 1:
        yield unless_sure(voters, dear), f"{dear} where {first} are not sure"


def _until_passed(contenders: Contenders) -> Iterator[Labelled]:
    """Yield graphs, with their labels, that ask for answers until one passes the check: from one
    model, or first from one and then from another. Each comes in two sizes: as large as the mean
    budget allows, and half as large.
    """
    greedy = contenders.brief.greedy
    checking = [role for role in contenders.selectors if get_role(role).checks]
    leading = list(dict.fromkeys([contenders.cheapest, *contenders.ranked[: 2 * LEADING]]))
    for role, first, last in product(checking, leading, leading):
        if last in greedy:
            continue
        for before in BEFORE[:1] if first == last or first in greedy else BEFORE:
            make = partial(_first_then, first, before, last, role)
            most = contenders.largest(make, 1, MOST_CHECKED - before)
            for size in {most, (most + 1) // 2} if most else ():
                begins = f"{before} x {first}, then " if first != last else ""
                count = size + before if first == last else size
                yield make(size), f"{begins}up to {count} x {last} until one passes"


def _first_then(first: str, before: int, last: str, role: str, size: int) -> CollaborationGraph:
    return topologies.until_passed([first] * before + [last] * size, role)


def words(stop: Stop | None) -> str:
    """Return the suffix of a vote's label that names its stop rule."""
    if stop is None:
        return ""
    return ", lossless" if stop == LOSSLESS else f", {stop.rule} {stop.level:g}"
