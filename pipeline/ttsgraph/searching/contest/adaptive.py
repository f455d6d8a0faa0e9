"""Structured graphs that stop early: what stands beside the plain contenders where a budget is what
a question costs on average.

votes     in waves, lossless or by a confidence rule; as many as the mean budget holds
cascades  a cheap vote first, and a vote of a dearer model alone where that is contested
fusions   a dearer model fuses cheap answers only where they disagree
checks    one answer after another until one passes the check, of a model or of two in turn
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product

from ttsgraph.base.arrays import BoolArray, FloatArray
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.mean_cost import Classes, MeanCost
from ttsgraph.graphs.roles import FUSER, VOTER, get_role
from ttsgraph.graphs.stopping import LOSSLESS, Gate, Stop
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.contenders import MOST_VOTES, Contenders

BEFORE = (1, 2, 4)
"""Answers of a first model, before those of another, that are asked for until one passes."""

MOST_CHECKED = 24
"""The most answers that are asked for until one passes."""

STOPS = (LOSSLESS, Stop("beta", 0.95), Stop("beta", 0.8))
FIRST = 3
THEN = 2
"""Sizes of the first wave and of those that follow under a confidence rule: fewer can't be sure,
more answer at once.
"""

CHEAP_VOTES = (2, 3, 4, 5)
OVER = (0.0, 0.34)
"""Gates that open unless all agree, or unless about two thirds do."""

LATER = (1, 3, 7)
"""Votes of the dearer model that a cascade ends in."""

LEADING = 4
"""Models that score best alone, which cascades end in."""


def on_average(
    brief: Brief,
    classes: Classes,
    questions: int,
    passing: BoolArray | None = None,
    sizes: Mapping[str, FloatArray] | None = None,
) -> Brief:
    """The brief whose budget holds graphs by what a question costs on average, as far as
    `classes` say how answers agree, `passing` which of them pass a check and `sizes` which
    questions cost more.
    """
    cost = MeanCost(brief.cost, classes, questions, passing, sizes)
    return replace(brief, budget=replace(brief.budget, cost=cost))


def adaptive_contenders(contenders: Contenders) -> dict[CollaborationGraph, str]:
    """Graphs within the mean budget, and what each is in words; votes and cascades where the roles
    have a vote.
    """
    made = [_until_passed(contenders)]
    if VOTER in contenders.sinks:
        made = [_votes(contenders), _cascades(contenders), *made]
    found: dict[CollaborationGraph, str] = {}
    for graph, label in chain.from_iterable(made):
        if contenders.fits(graph):
            found.setdefault(graph, label)
    return found


def vote(models: list[str], stop: Stop, first: int = FIRST, then: int = THEN) -> CollaborationGraph:
    """A vote in waves. A lossless one begins with a majority, as nothing less can decide it."""
    waves = (len(models) // 2 + 1, 1) if stop == LOSSLESS else (first, then)
    return topologies.with_sink(
        topologies.parallel(models, models[0], VOTER), waves=waves, stop=stop
    )


def gated(first: Sequence[str], over: float, then: Sequence[str]) -> CollaborationGraph:
    """A vote of the models `first`, and where they disagree by more than `over` of those `then`
    alone.
    """
    graph = topologies.parallel([*first, *then], then[0], VOTER)
    gate = Gate(over, tuple(range(len(first))))
    if len(then) < FIRST:
        return topologies.with_sink(graph, gate=gate)
    return topologies.with_sink(graph, gate=gate, waves=(FIRST, THEN), stop=STOPS[1])


def fused_where_contested(cheap: str, count: int, over: float, dear: str) -> CollaborationGraph:
    """`count` cheap answers, fused by a dearer model where they disagree by more than `over`."""
    return topologies.with_sink(topologies.parallel([cheap] * count, dear, FUSER), gate=Gate(over))


def _votes(contenders: Contenders) -> Iterator[tuple[CollaborationGraph, str]]:
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


def _cascades(contenders: Contenders) -> Iterator[tuple[CollaborationGraph, str]]:
    brief = contenders.brief
    leading = contenders.ranked[:LEADING]
    scores = brief.single_scores
    # Behind a gate even a model may fit whose call costs more than a question may on average.
    for dear in sorted(brief.cost.pool, key=lambda model: -scores.get(model, 0.0))[:LEADING]:
        for cheap in dict.fromkeys([contenders.cheapest, *leading]):
            if cheap in brief.greedy or brief.cost.single(cheap) >= brief.cost.single(dear):
                continue
            for count in CHEAP_VOTES:
                for over in OVER if count > 2 else OVER[:1]:
                    yield from _gated(contenders, cheap, count, over, dear)


def _gated(
    contenders: Contenders, cheap: str, count: int, over: float, dear: str
) -> Iterator[tuple[CollaborationGraph, str]]:
    voters = [cheap] * count
    where = f"where {count} x {cheap} disagree by more than {over:g}"
    if FUSER in contenders.sinks and cheap != dear:
        yield fused_where_contested(cheap, count, over, dear), f"fused by {dear} {where}"
    if dear in contenders.brief.greedy:
        yield gated(voters, over, [dear]), f"{dear} {where}"
        return
    for more in LATER:
        label = f"majority of up to {more} x {dear} {where}"
        yield gated(voters, over, [dear] * more), label


def _until_passed(contenders: Contenders) -> Iterator[tuple[CollaborationGraph, str]]:
    """Answers of a model, or of one after those of another, that are asked for until one passes; as
    many as the mean budget holds.
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
    """What a vote's rule adds to its label."""
    if stop is None:
        return ""
    return ", lossless" if stop == LOSSLESS else f", {stop.rule} {stop.level:g}"
