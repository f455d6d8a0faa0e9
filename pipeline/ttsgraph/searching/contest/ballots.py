"""Multi-model graphs, built from a contest's evidence: votes by multisets of the pool's models, the
same voters with a fuser, and the same voters with an expensive model that is asked only if they
disagree.

Voters are chosen according to their observed or simulated answers, so shared errors are taken into
account. A multiset starts with one voter, and grows by the voter or pair of voters with the largest
gain per unit of price; several first voters are tried. All of this is arithmetic on tallies: no
call is made.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from ttsgraph.base.arrays import FloatArray, IntArray
from ttsgraph.base.rounding import rounded
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import calls_within
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import FUSER, VOTER
from ttsgraph.graphs.stopping import Stop
from ttsgraph.searching.agent.base import Brief, in_words
from ttsgraph.searching.contest import contenders as forms
from ttsgraph.searching.contest.contenders import Labelled
from ttsgraph.searching.response.evidence import BLANK

STARTS = 2
PAIRED = 6
"""Number of the best single models that multisets start from, in addition to the cheapest model;
and number of voters with the largest gains that are also tried in pairs.
"""

LEAST_GAIN = 1e-4
"""Minimum gain in accuracy for a voter to be added."""

SIZES = (1.0, 0.5, 0.25)
"""Shares of the budget for which multisets are built."""

MEAN_REACH = 2.0
"""Factor applied to a budget for the mean cost, for votes in waves: few questions need all voters,
so more voters are affordable.
"""

ENDS = 3
"""Number of the best single models that fuse the voters' answers, or that are asked if the voters
disagree.
"""

Tallies = npt.NDArray[np.int16]
Voices = tuple[str, ...]


@dataclass(frozen=True)
class Ballots:
    """Simulated or observed answers of models, the prices of their calls, the maximum number of
    voters, and the greedy models. `draws` maps each model to (k, C) classes of answers: k draws for
    each of C questions, 0 for a right answer and negative for an unreadable one.
    """

    draws: Mapping[str, IntArray]
    prices: Mapping[str, float]
    most: int
    greedy: frozenset[str] = frozenset()

    def found(self, limit: float) -> list[Voices]:
        """Return distinct multisets of two or more voters, for the whole limit and for parts of it.
        The voters of a multiset are in order of importance: if the multiset is unaffordable, a
        prefix of it is also a good choice. Grown multisets overfit the questions, so unfitted ones
        with equal numbers of the best models are included as well.
        """
        found = dict[Voices, None]()
        for share in SIZES:
            room = share * limit
            fit = [model for model, price in self.prices.items() if price <= room]
            starts = sorted(fit, key=lambda model: -self._alone[model])[:STARTS]
            starts += sorted(fit, key=lambda model: self.prices[model])[:1]
            for start in dict.fromkeys(starts):
                found[self._grown((start,), room, fit)] = None
            found[self._each(room)] = None
        return [voices for voices in found if len(voices) > 1]

    def _each(self, limit: float) -> Voices:
        """Return a multiset of all models, the best first: each model once, then further rounds of
        the models that aren't greedy, as far as the limit allows.
        """
        ranked = sorted(self.prices, key=lambda model: -self._alone[model])
        again = [model for model in ranked if model not in self.greedy]
        kept: list[str] = []
        for model in [*ranked, *again * (self.most - 1)]:
            if len(kept) < self.most and self._price(kept) + self.prices[model] <= limit + 1e-9:
                kept.append(model)
        return tuple(kept)

    def share(self, voices: Voices) -> float:
        """Return the share of questions that a vote of these voters answers correctly; a tie counts
        as the chance that the right answer wins it.
        """
        return float(_right(self._tally(voices)[None])[0])

    def ordered(self, voices: Voices) -> Voices:
        """Return the voters, sorted from the best single model to the worst: the earliest voter
        wins a tie.
        """
        return tuple(sorted(voices, key=lambda model: (-self._alone[model], model)))

    @cached_property
    def _alone(self) -> dict[str, float]:
        return {model: float((draws == 0).mean()) for model, draws in self.draws.items()}

    @cached_property
    def _shown(self) -> dict[str, Tallies]:
        """Map from each model to the tallies of its first 0 to k draws for C questions, by F forms
        of answers: (k + 1, F, C).
        """
        count = max(1, *(int(draws.max(initial=0)) for draws in self.draws.values())) + 1
        each = np.arange(count)[:, None]
        shown = {}
        for model, draws in self.draws.items():
            after = np.insert(draws, 0, BLANK, axis=0)[:, None, :]
            shown[model] = (after == each).cumsum(axis=0, dtype=np.int16)
        return shown

    def _tally(self, voices: Voices) -> Tallies:
        """Return the tally (F, C) of these voters; draws repeat if there are too few."""
        tally = np.zeros_like(next(iter(self._shown.values()))[0])
        for model, count in Counter(voices).items():
            shown = self._shown[model]
            times, more = divmod(count, len(shown) - 1)
            tally += times * shown[-1] + shown[more]
        return tally

    def _grown(self, voices: Voices, limit: float, fit: Sequence[str]) -> Voices:
        while True:
            gains = self._gains(voices, limit, [(model,) for model in fit])
            leading = sorted(gains, key=lambda added: -gains[added])[:PAIRED]
            pairs = combinations_with_replacement(sorted(model for (model,) in leading), 2)
            gains |= self._gains(voices, limit, pairs)
            if max(gains.values(), default=0.0) < LEAST_GAIN:
                return voices
            best = max(gains, key=lambda added: gains[added] / max(self._price(added), 1e-9))
            if gains[best] < LEAST_GAIN:
                best = max(gains, key=lambda added: gains[added])
            voices = (*voices, *best)

    def _gains(
        self, voices: Voices, limit: float, options: Iterable[Voices]
    ) -> dict[Voices, float]:
        """Return, by option, the gain in accuracy from adding the option's voters. Options are
        skipped if they are unaffordable, if there would be too many voters, or if a greedy
        model would vote twice.
        """
        left = limit - self._price(voices)
        tallies: dict[Voices, Tallies] = {}
        for added in options:
            both = Counter((*voices, *added))
            once = all(both[model] == 1 for model in added if model in self.greedy)
            if once and both.total() <= self.most and self._price(added) <= left + 1e-9:
                tallies[added] = self._tally((*voices, *added))
        if not tallies:
            return {}
        gains = _right(np.stack(list(tallies.values()))) - self.share(voices)
        return dict(zip(tallies, map(rounded, gains.tolist()), strict=True))

    def _price(self, voices: Iterable[str]) -> float:
        return sum(self.prices[model] for model in voices)


def _right(tallies: Tallies) -> FloatArray:
    """Return the share of questions (n,) on which form 0 leads, given n tallies of F forms for C
    questions (n, F, C); a tie counts as form 0's chance of winning it.
    """
    most = tallies[:, 1:].max(axis=1)
    right = tallies[:, 0]
    level = (right == most) & (right > 0)
    rivals = (tallies[:, 1:] == right[:, None]).sum(axis=1)
    return np.asarray(((right > most) + level / (1.0 + rivals)).mean(axis=1))


def mixed(brief: Brief, drawn: Callable[[str], IntArray]) -> dict[CollaborationGraph, str]:
    """Return graphs within the budget, each with its label. `drawn` returns a model's answers in
    calls that read only the question, as classes (k, C) of k draws for C questions.
    """
    most = min(forms.MOST_VOTES, brief.budget.max_nodes - 1)
    if VOTER not in brief.roles or most < 2:
        return {}
    timed = brief.cost.metric == "runtime"
    stops = brief.budget.of == "mean" and not timed and not brief.objective.joint
    limit = brief.budget.limit * (MEAN_REACH if stops else 1.0)
    prices = {model: brief.cost.single(model) for model in brief.affordable}
    if timed:  # voters run in parallel, so another voter adds no time
        prices = dict.fromkeys(prices, brief.budget.limit / most)
    counts = {model: calls_within(limit, price, most - 1) + 1 for model, price in prices.items()}
    draws = {model: drawn(model)[:count] for model, count in counts.items()}
    ballots = Ballots(draws, prices, most, brief.greedy)
    found = _of_ballots(ballots, ballots.found(limit), brief, stops)
    return forms.labelled(found, brief.budget.admits)


def _of_ballots(
    ballots: Ballots, multisets: Sequence[Voices], brief: Brief, stops: bool
) -> Iterator[Labelled]:
    ends = brief.ranked(brief.cost.pool)[:ENDS]
    for voices in multisets:
        for stop in forms.STOPS[:2] if stops else (None,):
            for kept in _fitting(partial(_vote, ballots, stop), voices, brief):
                named = in_words(Counter(ballots.ordered(kept)))
                yield _vote(ballots, stop, kept), f"{named}, majority{forms.words(stop)}"
        for end in ends:
            if FUSER in brief.roles:
                fused = partial(topologies.parallel, sink_model=end)
                for kept in _fitting(fused, voices[: forms.MOST_SOURCES], brief):
                    yield fused(kept), f"{in_words(Counter(kept))}, fused by {end}"
            for over in forms.OVER if brief.budget.of == "mean" and end not in voices else ():
                asked = partial(forms.gated, over=over, then=[end])
                for kept in _fitting(asked, voices, brief):
                    where = f"where {in_words(Counter(kept))} disagree by more than {over:g}"
                    if over in forms.gates(len(kept)):
                        yield asked(kept), f"{end} {where}"


def _fitting(
    make: Callable[[Voices], CollaborationGraph], voices: Voices, brief: Brief
) -> list[Voices]:
    """Return the longest affordable prefix of the voters, and half of that prefix."""
    low = forms.bisected(lambda n: brief.budget.admits(make(voices[:n])), 1, len(voices))
    return [voices[:n] for n in sorted({low, (low + 1) // 2}) if n > 1]


def _vote(ballots: Ballots, stop: Stop | None, voices: Voices) -> CollaborationGraph:
    ordered = list(ballots.ordered(voices))
    if stop is None:
        return topologies.parallel(ordered, ordered[0], VOTER)
    return forms.vote(ordered, stop, then=1)
