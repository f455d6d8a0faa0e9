"""Structured graphs that every search has to beat. The graphs are within the budget, and each kind
comes in a few sizes:

plain     single calls, and votes, fans and chains of one model or of several

Under a budget for the mean cost, also graphs that stop early:

votes     in waves, either lossless or with a confidence rule; as large as the mean budget allows
cascades  answers from one model or several first; if they disagree, a vote by a more expensive
          model
fusions   an expensive model fuses cheap answers only if they disagree
checks    answers one after another until one passes the check: all from one model, or some from one
          and the rest from another

The contest measures which of them is best; this module knows only the score of each single model.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, combinations, product

from ttsgraph.evaluation.objective import pareto_front
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import calls_within
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, FUSER, VOTER, get_role, joining, selecting
from ttsgraph.graphs.stopping import LOSSLESS, Gate, Stop
from ttsgraph.searching.agent.base import Brief, in_words
from ttsgraph.searching.response.evidence import call_signatures, revisions

MOST_SOURCES = 12
"""Maximum number of answers that a model call reads in these graphs: prompts grow with each answer.
"""

MOST_VOTES = 40
LONGEST_CHAIN = 6

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
    """Contenders for a brief: maps from graphs to their labels, simple kinds of graphs first.

    Without `mixes` each graph has a single model.
    """

    def __init__(self, brief: Brief, mixes: bool = True) -> None:
        self.brief = brief
        self.mixes = mixes
        self.ranked = brief.ranked(brief.affordable)
        self.cheapest = min(self.ranked, key=brief.cost.single)
        self.sinks = joining(brief.roles)
        self.selectors = selecting(brief.roles)

    @cached_property
    def graphs(self) -> dict[CollaborationGraph, str]:
        """Graphs that never stop early."""
        singles = ((topologies.single(model), f"one call of {model}") for model in self.ranked)
        of_one = chain.from_iterable(map(self._of_one, self.ranked))
        return labelled(chain(singles, of_one, self._mixes() if self.mixes else ()), self.fits)

    @cached_property
    def adaptive(self) -> dict[CollaborationGraph, str]:
        """Graphs that may stop early; votes, cascades and fusions are included only if a voter is
        among the roles.
        """
        voting = [self._votes(), self._cascades()] if VOTER in self.sinks else []
        return labelled(chain(*voting, self._until_passed()), self.fits)

    def fits(self, graph: CollaborationGraph) -> bool:
        """Return True if a graph is within the budget and makes no call of a greedy model twice."""
        signatures = call_signatures(graph, self.brief.greedy)
        calls = [signatures[node.id] for node in graph.nodes if get_role(node.role).calls_model]
        return len(set(calls)) == len(calls) and self.brief.budget.admits(graph)

    def largest(self, make: Make, least: int, most: int) -> int:
        """Return the largest size from `least` to `most` that fits; 0 if no size fits."""
        fits = self.fits(make(least))
        return bisected(lambda size: self.fits(make(size)), least, most) if fits else 0

    def _grow(
        self, make: Make, label: str, most: int, also: Sequence[int] = (3, 5)
    ) -> Iterator[Labelled]:
        """Yield the largest graph of at least two calls that fits, another of half that size, and
        any of the sizes `also` that fit.
        """
        largest = self.largest(make, 2, most)
        for size in sorted({largest, (largest + 1) // 2, *also}):
            if 2 <= size <= largest:
                yield make(size), label.format(size)

    def _helpers(self, model: str) -> list[str]:
        """Return the models that may read answers of `model`: the model itself, the cheapest model,
        and the two best single models.
        """
        readers = [model, self.cheapest, *self.ranked[:2]] if self.mixes else [model]
        return list(dict.fromkeys(readers))

    def _of_one(self, model: str) -> Iterator[Labelled]:
        """Yield votes, fans and chains of a model's calls; the last node may have another model."""
        roles = [role for role in (VOTER, FUSER) if role in self.sinks]
        roles += [role for role in (*self.sinks, *self.selectors) if role not in roles]
        for role in roles if model not in self.brief.greedy else ():
            if get_role(role).weighs:  # answers of one model have equal weights
                continue
            for sink in self._helpers(model) if get_role(role).calls_model else [model]:
                label, most = f"{{}} x {model}, {get_role(role).ending(sink)}", MOST_SOURCES
                if role == VOTER:
                    label, most = f"majority of {{}} x {model}", MOST_VOTES
                yield from self._grow(partial(_fan, [], model, sink, role), label, most)
        several = f"chain of {{}} x {model}"
        yield from self._grow(partial(_chain, model, []), several, LONGEST_CHAIN, (2, 3, 4))
        for end in self._helpers(model) if FUSER in self.sinks else []:
            yield topologies.parallel([model], end), f"{model}, fused by {end}"
        for end in self._helpers(model)[1:]:
            yield topologies.chain([model, end]), f"{model}, refined by {end}"
            refined = f"{several}, then {end}"
            yield from self._grow(partial(_chain, model, [end]), refined, LONGEST_CHAIN - 2, ())

    def _mixes(self) -> Iterator[Labelled]:
        """Yield votes and fans of pairs and triples of the four best single models, in several
        proportions.
        """
        leading = self.ranked[:4]
        for first, second in combinations(leading, 2):
            sinks = self._sinks_of(first)
            for share, (role, sink) in product((0.5, 0.75, 0.25), sinks):
                yield from self._mix(first, second, share, role, sink)
            for (role, sink), (a, b) in product(sinks, ((1, 1), (2, 1), (2, 2))):
                if not get_role(role).by_majority or a + b > 2:
                    yield _together([first] * a + [second] * b, sink, role)
        for three in combinations(leading, 3):
            for (role, sink), times in product(self._sinks_of(self.cheapest), (1, 2)):
                yield _together(three * times, sink, role)

    def _sinks_of(self, model: str) -> list[tuple[str, str]]:
        """Return each role that ends a mix, with this model and with the cheapest one."""
        both = product((*self.sinks, *self.selectors), dict.fromkeys((model, self.cheapest)))
        return [(r, sink) for r, sink in both if sink == model or get_role(r).calls_model]

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

    def _votes(self) -> Iterator[Labelled]:
        models = [model for model in self.ranked[:LEADING] if model not in self.brief.greedy]
        for model, stop in product(models, STOPS):
            make = partial(_vote_of, model, stop)
            largest = self.largest(make, 3, MOST_VOTES)
            for size in {largest, (largest + 1) // 2, 5}:
                if 3 <= size <= largest:
                    yield make(size), f"majority of up to {size} x {model}{words(stop)}"

    def _cascades(self) -> Iterator[Labelled]:
        models = tiers(self.brief)
        for k, dear in enumerate(models):
            for cheap in models[: k + 1] if self.mixes else [dear]:
                counts = OWN_VOTES if cheap not in self.brief.greedy else OWN_VOTES[:1]
                for count in counts if cheap != dear else ():
                    yield from self._gated([cheap] * count, dear)
                for count in counts[1:] if FUSER in self.sinks else ():
                    fused = topologies.parallel([cheap] * count, dear, FUSER)
                    where = f"where {count} x {cheap} disagree"
                    yield topologies.with_sink(fused, gate=Gate(0.0)), f"fused by {dear} {where}"
            for several in (2, 3) if self.mixes else ():
                for voters in combinations(models[:k], several):
                    yield from self._gated(voters, dear)

    def _gated(self, voters: Sequence[str], dear: str) -> Iterator[Labelled]:
        brief = self.brief
        least = sum(brief.cost.single(model) for model in voters)
        if brief.cost.metric != "runtime" and least > brief.budget.limit * (1 + 1e-9):
            return
        first = in_words(Counter(voters))
        later = LATER if dear not in brief.greedy else LATER[:1]
        for over, more in product(gates(len(voters)), later):
            where = f"{dear} where {first} disagree by more than {over:g}"
            label = f"majority of up to {more} x {where}" if more > 1 else where
            yield gated(voters, over, [dear] * more), label
        if len(voters) == FIRST + THEN and len(set(voters)) == 1:
            yield unless_sure(voters, dear), f"{dear} where {first} are not sure"

    def _until_passed(self) -> Iterator[Labelled]:
        """Yield graphs that ask for answers until one passes the check: from one model, or first
        from one and then from another. Each comes in two sizes: as large as the mean budget allows,
        and half as large.
        """
        greedy = self.brief.greedy
        checking = [role for role in self.selectors if get_role(role).checks]
        leading = list(dict.fromkeys([self.cheapest, *self.ranked[: 2 * LEADING]]))
        for role, first, last in product(checking, leading, leading):
            if last in greedy:
                continue
            for before in BEFORE[:1] if first == last or first in greedy else BEFORE:
                make = partial(_first_then, first, before, last, role)
                most = self.largest(make, 1, MOST_CHECKED - before)
                for size in {most, (most + 1) // 2} if most else ():
                    begins = f"{before} x {first}, then " if first != last else ""
                    count = size + before if first == last else size
                    yield make(size), f"{begins}up to {count} x {last} until one passes"


def _fan(others: Sequence[str], model: str, sink: str, role: str, count: int) -> CollaborationGraph:
    return topologies.parallel([*others, *[model] * count], sink, role)


def _chain(model: str, end: Sequence[str], count: int) -> CollaborationGraph:
    return topologies.chain([model] * count + [*end])


def _vote_of(model: str, stop: Stop, count: int) -> CollaborationGraph:
    return vote([model] * count, stop)


def _first_then(first: str, before: int, last: str, role: str, count: int) -> CollaborationGraph:
    return topologies.until_passed([first] * before + [last] * count, role)


def _together(models: Sequence[str], sink: str, role: str) -> Labelled:
    label = f"{in_words(Counter(models))}, {get_role(role).ending(sink)}"
    return topologies.parallel(models, sink, role), label


def probes(contenders: Contenders) -> list[CollaborationGraph]:
    """Return small graphs within the budget, the most informative first. They measure how much a
    vote, a refinement and a fusion gain for the leading models.
    """
    ranked, cheapest, roles = contenders.ranked, contenders.cheapest, contenders.sinks
    greedy = contenders.brief.greedy
    best = ranked[0]
    tried: list[list[CollaborationGraph]] = []
    """For each probe, the graphs of which the first that fits is run."""
    for model in dict.fromkeys([*ranked[:3], cheapest]):
        for role in reversed(roles) if model not in greedy else ():
            tried.append([topologies.parallel([model] * n, model, role) for n in (3, 2)])
        tried.append([topologies.chain([model] * n) for n in (3, 2)])
    for helper in dict.fromkeys([cheapest, *ranked[1:2]]):
        if helper == best:
            continue
        tried.append([topologies.chain([best, helper])])
        if FUSER in roles:
            drafts = [[best] * n for n in (6, 4, 3, 2) if best not in greedy]
            drafts += [[best, other] for other in ranked[1:]]
            tried.append([topologies.parallel(models, helper) for models in drafts])
    if len(ranked) > 1 and FUSER in roles:
        tried.append([topologies.parallel(ranked[:2], best)])
    if len(ranked) > 2 and VOTER in roles:
        tried.append([topologies.parallel(ranked[:3], best, VOTER)])
    fitting = dict.fromkeys(next(filter(contenders.fits, graphs), None) for graphs in tried)
    found = [graph for graph in fitting if graph is not None]
    return [graph for graph in found if contenders.mixes or len(graph.model_counts()) == 1]


def vote(models: list[str], stop: Stop, then: int = THEN) -> CollaborationGraph:
    """Return a vote in waves. The first wave of a lossless vote is a majority of the voters,
    because fewer votes can't decide it.
    """
    waves = (len(models) // 2 + 1, 1) if stop == LOSSLESS else (FIRST, then)
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
    scores, price = brief.single_scores, brief.cost.single
    cheap_first = sorted(brief.ranked(brief.cost.pool), key=price)
    points = [(scores.get(name, 0.0), price(name)) for name in cheap_first]
    front = {cheap_first[k] for k in pareto_front(points)}
    chosen = sorted(brief.ranked(cheap_first), key=lambda name: name not in front)[:TIERS]
    return [name for name in cheap_first if name in chosen]


def words(stop: Stop | None) -> str:
    """Return the suffix of a vote's label that names its stop rule."""
    if stop is None:
        return ""
    return ", lossless" if stop == LOSSLESS else f", {stop.rule} {stop.level:g}"
