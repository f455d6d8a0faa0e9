"""Structured graphs that every search has to beat: single calls, and votes, fans and chains of one
model or of several.

The graphs are within the budget, and each kind comes in a few sizes. The contest measures which of
them is best; this module knows only the score of each single model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import calls_within
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import FUSER, VOTER, get_role, joining, selecting
from ttsgraph.searching.agent.base import Brief, affordable, in_words
from ttsgraph.searching.response.evidence import Evidence, call_signatures, revisions

MOST_SOURCES = 12
"""Maximum number of answers that a model call reads in these graphs: prompts grow with each answer.
"""

MOST_VOTES = 40
LONGEST_CHAIN = 6

HOPE = 0.5
PRICE = 0.002
"""Number of standard deviations added to a graph's expected value as optimism, and gain in value
that one new call per question has to bring.
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Graph of a search, with its label; its expected value, and the standard deviation of that
    value; its cost in budget units; its predicted accuracy; and its observed accuracy on the
    `n_scored` questions that it was run on.
    """

    graph: CollaborationGraph
    label: str
    value: float
    spread: float = 0.0
    units: float = math.nan
    predicted: float = math.nan
    observed: float = math.nan
    n_scored: int = 0


@dataclass(frozen=True, slots=True)
class ContestResult:
    """Results of a contest, passed to the loop that follows: the answers of all nodes; the
    contenders except routes, best first; the number of training questions in the evidence; the
    number of calls spent; and the seconds that a single call of each model takes.
    """

    evidence: Evidence
    leaders: tuple[Candidate, ...]
    train: int
    calls: int = 0
    latencies: Mapping[str, float] = field(default_factory=dict)


Form = tuple[int, str, bool]


def form_of(graph: CollaborationGraph) -> Form:
    """Return the form of a graph: the number of revisions before the answer (two or more count as
    two), the sink's role, and whether a model call before the sink reads several answers. Graphs
    that differ only in models and sizes have the same form; so do all routes.
    """
    several = graph.route is None and any(
        len(graph.predecessors[node.id]) > 1
        for node in graph.nodes
        if node.id != graph.sink and get_role(node.role).calls_model
    )
    revised = 0 if graph.route else min(revisions(graph)[graph.sink], 2)
    return revised, graph.node(graph.sink).role, several


Make = Callable[[int], CollaborationGraph]
Labelled = tuple[CollaborationGraph, str]


def labelled(
    found: Iterable[Labelled], fits: Callable[[CollaborationGraph], bool]
) -> dict[CollaborationGraph, str]:
    """Return the graphs that fit, each with its first label."""
    kept: dict[CollaborationGraph, str] = {}
    for graph, label in found:
        if graph not in kept and fits(graph):
            kept[graph] = label
    return kept


def bisected(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest size up to `high` that fits, given that `low` fits. Bisection finds it
    because costs grow with the size.
    """
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


class Contenders:
    """Contenders for a brief; `graphs` maps each graph to its label, simple kinds of graphs first.

    Without `mixes` each graph has a single model.
    """

    def __init__(self, brief: Brief, mixes: bool = True) -> None:
        self.brief = brief
        self.mixes = mixes
        scores = brief.single_scores
        self.ranked = sorted(affordable(brief), key=lambda model: -scores.get(model, 0.0))
        self.cheapest = min(self.ranked, key=brief.cost.single)
        self.sinks = joining(brief.roles)
        self.selectors = selecting(brief.roles)
        self.graphs = labelled(self._forms(), self.fits)

    def _forms(self) -> Iterator[Labelled]:
        for model in self.ranked:
            yield topologies.single(model), f"one call of {model}"
        for model in self.ranked:
            yield from self._of_one(model)
        if self.mixes:
            yield from self._mixes()

    def fits(self, graph: CollaborationGraph) -> bool:
        """Return True if a graph is within the budget and makes no call of a greedy model twice."""
        signatures = call_signatures(graph, self.brief.greedy)
        calls = [signatures[node.id] for node in graph.nodes if get_role(node.role).calls_model]
        return len(set(calls)) == len(calls) and self.brief.budget.admits(graph)

    def _grow(
        self, make: Make, label: str, least: int, most: int, also: Sequence[int] = (3, 5)
    ) -> Iterator[Labelled]:
        """Yield the largest graph that fits, another of half that size, and any of the sizes `also`
        that fit.
        """
        largest = self.largest(make, least, most)
        for size in sorted({largest, (largest + 1) // 2, *also}):
            if least <= size <= largest:
                yield make(size), label.format(size)

    def largest(self, make: Make, least: int, most: int) -> int:
        """Return the largest size from `least` to `most` that fits; 0 if no size fits."""
        fits = self.fits(make(least))
        return bisected(lambda size: self.fits(make(size)), least, most) if fits else 0

    def _helpers(self, model: str) -> list[str]:
        """Return the models that may read answers of `model`: the model itself, the cheapest model,
        and the two best single models.
        """
        readers = [model, self.cheapest, *self.ranked[:2]] if self.mixes else [model]
        return list(dict.fromkeys(readers))

    def _of_one(self, model: str) -> Iterator[Labelled]:
        """Yield votes, fans and chains of a model's calls; the last node may have another model."""
        repeats = model not in self.brief.greedy
        if VOTER in self.sinks and repeats:
            vote = f"majority of {{}} x {model}"
            yield from self._grow(partial(_fan, [], model, model, VOTER), vote, 2, MOST_VOTES)
        for sink in self._helpers(model) if FUSER in self.sinks and repeats else []:
            fan = f"{{}} x {model}, fused by {sink}"
            yield from self._grow(partial(_fan, [], model, sink, FUSER), fan, 2, MOST_SOURCES)
        others = [role for role in self.sinks if role not in (FUSER, VOTER)]
        for role in [*others, *self.selectors] if repeats else []:
            if not get_role(role).weighs:  # answers of one model have equal weights
                for sink in self._helpers(model) if get_role(role).calls_model else [model]:
                    several = f"{{}} x {model}, {get_role(role).ending(sink)}"
                    make = partial(_fan, [], model, sink, role)
                    yield from self._grow(make, several, 2, MOST_SOURCES)
        chain = f"chain of {{}} x {model}"
        yield from self._grow(partial(_chain, model, []), chain, 2, LONGEST_CHAIN, (2, 3, 4))
        for end in self._helpers(model) if FUSER in self.sinks else []:
            yield topologies.parallel([model], end), f"{model}, fused by {end}"
        for end in self._helpers(model)[1:]:
            yield topologies.chain([model, end]), f"{model}, refined by {end}"
            refined = f"chain of {{}} x {model}, then {end}"
            yield from self._grow(partial(_chain, model, [end]), refined, 2, LONGEST_CHAIN - 2, ())

    def _mixes(self) -> Iterator[Labelled]:
        """Yield votes and fans of pairs and triples of the four best single models, in several
        proportions.
        """
        leading = self.ranked[:4]
        for first, second in combinations(leading, 2):
            for share in (0.5, 0.75, 0.25):
                for role, sink in self._sinks_of(first):
                    yield from self._mix(first, second, share, role, sink)
            for role, sink in self._sinks_of(first):
                for a, b in ((1, 1), (2, 1), (2, 2)):
                    if not get_role(role).by_majority or a + b > 2:
                        yield self._together([first] * a + [second] * b, sink, role)
        for three in combinations(leading, 3):
            for role, sink in self._sinks_of(self.cheapest):
                for times in (1, 2):
                    yield self._together(list(three) * times, sink, role)

    @staticmethod
    def _together(models: Sequence[str], sink: str, role: str) -> Labelled:
        words = f"{in_words(Counter(models))}, {get_role(role).ending(sink)}"
        return topologies.parallel(models, sink, role), words

    def _sinks_of(self, model: str) -> Iterator[tuple[str, str]]:
        for role in (*self.sinks, *self.selectors):
            yield role, model
            if get_role(role).calls_model and model != self.cheapest:
                yield role, self.cheapest

    def _mix(
        self, first: str, second: str, share: float, role: str, sink: str
    ) -> Iterator[Labelled]:
        """Yield a graph, if one fits, that spends about this share of the budget on calls of
        `first` and the rest on calls of `second`.
        """
        limit = share * self.brief.budget.fixed_limit
        most = calls_within(limit, self.brief.cost.single(first), MOST_SOURCES)
        for count in range(most, 0, -1):
            make = partial(_fan, [first] * count, second, sink, role)
            if n := self.largest(make, 1, MOST_SOURCES):
                ends = get_role(role).ending(sink)
                yield make(n), f"{count} x {first} and {n} x {second}, {ends}"
                return


def _fan(others: Sequence[str], model: str, sink: str, role: str, count: int) -> CollaborationGraph:
    return topologies.parallel([*others, *[model] * count], sink, role)


def _chain(model: str, end: Sequence[str], count: int) -> CollaborationGraph:
    return topologies.chain([model] * count + [*end])


def probes(contenders: Contenders) -> dict[CollaborationGraph, str]:
    """Return small graphs within the budget, each with its label, the most informative first. They
    measure how much a vote, a refinement and a fusion gain for the leading models.
    """
    ranked = contenders.ranked
    cheapest = contenders.cheapest
    roles = contenders.sinks
    greedy = contenders.brief.greedy
    found: dict[CollaborationGraph, str] = {}

    def first_that_fits(graphs: Iterable[CollaborationGraph]) -> None:
        graph = next(filter(contenders.fits, graphs), None)
        if graph is not None:
            found.setdefault(graph, "probe")

    best = ranked[0]
    for model in dict.fromkeys([*ranked[:3], cheapest]):
        for role in reversed(roles) if model not in greedy else []:
            first_that_fits(topologies.parallel([model] * n, model, role) for n in (3, 2))
        first_that_fits(topologies.chain([model] * n) for n in (3, 2))
    for helper in dict.fromkeys([cheapest, *ranked[1:2]]):
        if helper == best:
            continue
        first_that_fits([topologies.chain([best, helper])])
        if FUSER in roles:
            drafts = [[best] * n for n in (6, 4, 3, 2) if best not in greedy]
            drafts += [[best, other] for other in ranked[1:]]
            first_that_fits(topologies.parallel(models, helper) for models in drafts)
    if len(ranked) > 1 and FUSER in roles:
        first_that_fits([topologies.parallel(ranked[:2], best)])
    if len(ranked) > 2 and VOTER in roles:
        first_that_fits([topologies.parallel(ranked[:3], best, VOTER)])
    return {
        graph: label
        for graph, label in found.items()
        if contenders.mixes or len(graph.model_counts()) == 1
    }
