"""Racing: contenders are run on growing batches of common questions, and one that a rival has
beaten is stopped.

A contender is a graph, or in the init stages a model multiset in several topologies, whose share of
a question is their mean. All contenders answer the same first questions; at each look those still
in the race are compared with the one that leads then, on the questions that all of them have
answered. The test is about the whole batch: the null hypothesis is that with all of its questions
the graph would not be worse than the leader. Differences are paired by question, and the questions
are drawn from the batch without replacement, so the leader's lead D after n of N questions has,
under the null, a mean of at most 0 and a variance of n (1 - n/N) times the mean square of a
question's difference. That mean square is taken with one difference of 1 added, so that few
questions that happen to agree never look certain, and D less half a question, as it moves in whole
ones. A graph is stopped when D exceeds the normal quantile of 1 - confidence^(1 / (looks x
rivals)): by Sidak's correction, a graph that the whole batch would not show to be worse is stopped
with a probability of at most 1 - confidence, whatever it meets (tests/contest/test_racing.py
measures it). The correction asks that the leads at different looks and over different rivals are
not negatively correlated: looks share questions, and rivals the graph's own answers. As they are
much alike, the rate is far below what is promised. Bonferroni's correction promises as much, but
never stops a graph at a level above 1 / (looks x rivals), however low the confidence.

It was chosen by measuring on batches of 16 to 100 questions: the exact sign test and the exact test
on the highest lead of a random bridge, both for draws without replacement, kept the error rate too,
but stopped a graph that is worse by 6 questions a side in 100 later (after 85 % of the questions
and more on average, this one after 79 %). Without the half question it would break its promise.
Means of several graphs move in smaller steps, so that for multisets the same test is more careful
still.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.special import normal_quantile
from ttsgraph.evaluation.environment import Evaluator, Feedback
from ttsgraph.evaluation.objective import Objective
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Usage
from ttsgraph.settings.stages import RacingSettings
from ttsgraph.tasks.base import Question

NO_FEEDBACK = Feedback((), Usage(), 0.0)

AskScores = Callable[[Collection[str], int], Awaitable[Mapping[str, FloatArray]]]
"""Brings the named contenders to so many questions; gives each one's shares (n,) in its value, NaN
where there is no grade.
"""


def batches(total: int, settings: RacingSettings) -> list[int]:
    """How many questions have been asked at each look, the last being all."""
    sizes = [min(settings.first, total)]
    while sizes[-1] < total:
        sizes.append(min(total, math.ceil(sizes[-1] * settings.growth)))
    return sizes


def level(confidence: float, comparisons: int) -> float:
    """The level of each of so many comparisons at which all of them are right with at least this
    confidence (Sidak, 1967).
    """
    return float(1 - confidence ** (1 / max(1, comparisons)))


def beaten(leader: FloatArray, graph: FloatArray, total: int, alpha: float) -> bool:
    """Whether a graph is worse than the leader at level `alpha`, by both graphs' shares (n,) on the
    first of `total` questions.

    Questions that either of them has no grade for (NaN) don't count.
    """
    differences = (leader - graph)[~np.isnan(leader - graph)]
    n = len(differences)
    lead = float(differences.sum())
    if lead <= 0 or n >= total:
        return False
    mean_square = (float(differences @ differences) + 1) / (n + 1)
    return lead - 0.5 > -normal_quantile(alpha) * math.sqrt(mean_square * n * (1 - n / total))


def losers(shares: Mapping[str, FloatArray], total: int, alpha: float) -> set[str]:
    """The contenders that the leader has beaten at level `alpha`, by their shares on the same first
    of `total` questions.

    The leader is the one with the best mean. Where nothing is graded nobody leads or is beaten.
    """
    graded = [name for name in shares if not np.isnan(shares[name]).all()]
    if not graded:
        return set()
    leader = max(graded, key=lambda name: float(np.nanmean(shares[name])))
    return {name for name in graded if beaten(shares[leader], shares[name], total, alpha)}


async def race(
    contenders: Collection[str], total: int, settings: RacingSettings, ask: AskScores, settle: bool
) -> set[str]:
    """Race the named contenders over `total` questions; returns those that were stopped.

    `settle` says that the others go on to the whole batch; otherwise one that is left alone goes no
    further.
    """
    running = list(contenders)
    stopped = set[str]()
    sizes = batches(total, settings)
    alpha = level(settings.confidence, (len(sizes) - 1) * (len(running) - 1))
    for size in sizes:
        shares = await ask(running, size)
        if size == total:
            break
        stopped |= losers(shares, total, alpha)
        running = [name for name in running if name not in stopped]
        if len(running) == 1 and not settle:
            break
    return stopped


def joined(known: Feedback, more: Feedback) -> Feedback:
    """Feedback on some questions and on further ones, as one."""
    return replace(
        known,
        results=known.results + more.results,
        usage=known.usage + more.usage,
        wall_s=known.wall_s + more.wall_s,
    )


class Race:
    """Races of graphs on one batch of questions, one after another. What is known from an earlier
    one is not asked again.

    `settle` says that graphs not stopped go on to the whole batch, and that the best of them is a
    rival in later races; otherwise a graph that is left alone goes no further.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        settings: RacingSettings,
        objective: Objective,
        settle: bool,
    ) -> None:
        self.questions = questions
        self.settings = settings
        self.objective = objective
        self.settle = settle
        self._known: dict[str, Feedback] = {}
        self._best: tuple[float, CollaborationGraph] | None = None

    async def run(
        self,
        graphs: Sequence[CollaborationGraph],
        recalled: Sequence[Feedback],
        environment: Evaluator,
        publish: Publish = ignore,
    ) -> list[Feedback]:
        """Feedback of each graph, `stopped` where it was beaten; the first ones `recalled` from an
        earlier run of this race.

        Graphs that failed are forgotten, so that they are asked anew if they are proposed again.
        """
        contenders = {graph.to_json(): graph for graph in graphs}
        for text in contenders:
            if text in self._known:
                self._known[text] = again(self._known[text])
        self._known |= {
            graph.to_json(): feedback for graph, feedback in zip(graphs, recalled, strict=False)
        }
        if len(recalled) < len(graphs):
            await self._race(contenders, environment, publish)
        found = []
        for graph in graphs:
            feedback = self._known[graph.to_json()]
            found.append(feedback)
            self._known[graph.to_json()] = again(feedback)
        for text, graph in contenders.items():
            if environment.failed(self._known[text]):
                del self._known[text]
            else:
                self._lead(graph, self._known[text])
        return [*recalled, *found[len(recalled) :]]

    def recall(self, graph: CollaborationGraph, feedback: Feedback) -> None:
        """Take in what came of a graph in an earlier run of this race; it did not fail."""
        self._known[graph.to_json()] = again(feedback)
        self._lead(graph, feedback)

    def _lead(self, graph: CollaborationGraph, feedback: Feedback) -> None:
        """Make it the rival of later races if it is the best so far."""
        if self.settle and not feedback.stopped:
            value = self.objective.value(feedback)
            self._best = max(self._best or (value, graph), (value, graph), key=lambda best: best[0])

    async def _race(
        self, contenders: dict[str, CollaborationGraph], environment: Evaluator, publish: Publish
    ) -> None:
        """One race, to its end; what came of it is in `_known`."""
        rivals = {self._best[1].to_json(): self._best[1]} if self._best else {}
        running = contenders | rivals

        async def ask(names: Collection[str], size: int) -> dict[str, FloatArray]:
            await self._ask([running[name] for name in names], size, environment, publish)
            return {name: self.objective.shares(_first(self._known[name], size)) for name in names}

        stopped = await race(running, len(self.questions), self.settings, ask, self.settle)
        for text in running:
            self._known[text] = replace(self._known[text], stopped=text in stopped)

    async def _ask(
        self,
        graphs: Sequence[CollaborationGraph],
        size: int,
        environment: Evaluator,
        publish: Publish,
    ) -> None:
        """Bring these graphs to `size` questions."""
        so_far = [(graph, self._known.get(graph.to_json(), NO_FEEDBACK)) for graph in graphs]
        short = [(graph, known) for graph, known in so_far if len(known.results) < size]
        jobs = [(graph, self.questions[len(known.results) : size]) for graph, known in short]
        for (graph, known), more in zip(
            short, await environment.evaluate_all(jobs, publish), strict=True
        ):
            self._known[graph.to_json()] = joined(known, more)


def _first(feedback: Feedback, size: int) -> Feedback:
    return replace(feedback, results=feedback.results[:size])


def again(feedback: Feedback) -> Feedback:
    """The same feedback without what it cost: what is known is not called again, nor waited for."""
    usage = replace(feedback.usage, spent_dollars=0.0, cached_calls=feedback.usage.calls)
    return replace(feedback, usage=usage, wall_s=0.0)
