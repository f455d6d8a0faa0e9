"""Predictions for graphs that were never run: each graph is simulated on the questions, with fitted
models of its nodes.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass
from functools import partial

import numpy as np

from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.base.rounding import rounded
from ttsgraph.base.special import expit, logit
from ttsgraph.evaluation.compare import Difference
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, FUSER
from ttsgraph.graphs.settle import GraphDemand, NodeOutcomes, Settled, answered, needs
from ttsgraph.searching.response.draws import fit_draws, sample_draws, sample_passing, wrong_form
from ttsgraph.searching.response.evidence import BLANK, Evidence, call_signatures, revisions
from ttsgraph.searching.response.reactions import Reactions, fit_reactions

MOST_DRAWS = 40
"""Number of draws of one model that are simulated per question; a graph with more draws of the
model repeats the first ones.
"""

UNIFORMS = 64
"""Number of rows of uniform random numbers. A node uses the row of its index in the graph, so that
graphs are compared on common random numbers.
"""

KEPT = 4000
"""Maximum number of nodes whose simulated answers are cached."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction for one graph: its accuracy with a standard deviation and, for each of the Q
    questions, the probability of a right answer (Q,).

    `own` is the standard deviation of a further error that is specific to the graph: running other
    graphs can't reduce it.
    """

    accuracy: float
    spread: float
    shares: FloatArray
    own: float = 0.0


class ResponseModel:
    """Simulator of graphs, fitted to evidence. It simulates `samples` draws of all unknowns in
    parallel on all questions: Q questions and S samples give C = S * Q columns, with the question
    index varying fastest.

    Graphs that share nodes share the simulation's noise. The `spread` of a prediction is the
    standard deviation over the samples: the uncertainty about roles and draws, without the error of
    the response model's form.
    """

    def __init__(
        self,
        evidence: Evidence,
        models: tuple[str, ...],
        rng: np.random.Generator,
        samples: int = 4,
    ) -> None:
        self.models = models
        self.samples = samples
        self.total = len(evidence.questions)
        self.greedy = evidence.greedy
        self._sent = evidence.sent
        self._questions: IntArray = np.tile(np.arange(self.total), samples)
        self._sample: IntArray = np.repeat(np.arange(samples), self.total)
        self.draws = fit_draws(evidence, models)
        self._alone = logit(self.draws.expected)[:, self._questions]
        self._wrong = self.draws.wrong[self._questions].T
        self._rng = rng
        self._drawn: dict[str, IntArray] = {}
        self._uniforms = rng.random((UNIFORMS, 4, len(self._questions)))
        self._habits = rng.random((len(models), len(self._questions)))
        self._reactions: dict[str, Reactions] = {}
        for role in sorted({ASSISTANT, FUSER, *(row.role for row in evidence.rows)}):
            rows = [row for row in evidence.rows if row.role == role and row.model in models]
            self._reactions[role] = fit_reactions(rows, self.draws, samples, rng)
        self._said: OrderedDict[int, tuple[IntArray, NodeOutcomes | None]] = OrderedDict()
        self.passing: BoolArray | None = None
        """Array (FORMS, C), True for classes of simulated answers that pass the check; None if no
        answer was checked.
        """
        if evidence.passed.any():
            self.passing = sample_passing(evidence.passed, self._questions, rng)

    def predict(self, graph: CollaborationGraph) -> Prediction:
        """Predict the graph's score on the questions."""
        right = self._right(graph)
        return Prediction(*self._over_samples(right), right.mean(axis=0))

    def difference(self, graph: CollaborationGraph, other: CollaborationGraph) -> Difference:
        """Predict the first graph's score minus the other graph's score, on the same draws."""
        mean, spread = self._over_samples(self._right(graph) - self._right(other))
        return Difference(min(1.0, max(-1.0, mean)), spread)

    def _over_samples(self, values: FloatArray) -> tuple[float, float]:
        """Return the mean of the values (samples, Q), and the standard deviation over samples of
        the mean over questions.
        """
        by_sample = values.mean(axis=1)
        return rounded(float(by_sample.mean())), rounded(float(by_sample.std(ddof=1)))

    def _right(self, graph: CollaborationGraph) -> FloatArray:
        """Return an array (samples, Q) with 1 if the graph is right, else 0. A route answers each
        question with one branch; a split may send a question to any branch, so the value is the
        probability of being right.
        """
        each = np.stack([self.classes(branch)[0][branch.sink] == 0 for branch in graph.branches])
        right = each[np.tile(self._sent(graph), self.samples), np.arange(each.shape[1])]
        if graph.route is not None and not graph.route.router.learnt:
            right = np.array(graph.route.router.shares) @ each
        return np.asarray(right.reshape(self.samples, self.total), dtype=float)

    def classes(self, graph: CollaborationGraph) -> tuple[dict[int, IntArray], Settled]:
        """Return the simulated answer classes (C,) of each node, by node id, as if every node were
        asked, and the outcomes of the nodes. The graph must have no route.
        """
        settled: Settled = {}
        levels = revisions(graph)
        used = Counter[str]()
        found = dict[int, IntArray]()
        for place, (i, signature) in enumerate(call_signatures(graph, self.greedy).items()):
            node = graph.node(i)
            before = graph.reads[i]
            if not before:
                drawn = self.drawn(node.model)
                found[i] = drawn[used[node.model] % len(drawn)]
                used[node.model] += 1
                continue
            if signature not in self._said:
                inputs = np.stack([found[p] for p in before])
                react = partial(self._react, node, levels[i], inputs, place)
                self._said[signature] = answered(graph, i, found, react, self.passing)
                if len(self._said) > KEPT:
                    self._said.popitem(last=False)
            found[i], outcome = self._said[signature]
            if outcome is not None:
                settled[i] = outcome
        return found, settled

    def demand(self, graph: CollaborationGraph) -> GraphDemand:
        """Return the nodes and stages that a graph needs in each of the C columns of `classes`."""
        classes, settled = self.classes(graph)
        return needs(graph, classes, self.passing, settled)

    def drawn(self, model: str) -> IntArray:
        """Return the simulated classes (k, C) of k single calls of a model, with the columns of
        `classes`; k is 1 for a greedy model.
        """
        if model not in self._drawn:
            index, greedy = self.models.index(model), model in self.greedy
            most = 1 if greedy else MOST_DRAWS
            asked = self.draws, index, self._questions, most, greedy
            self._drawn[model] = sample_draws(*asked, self._rng)
        return self._drawn[model]

    def _react(self, node: Node, level: int, inputs: IntArray, place: int) -> IntArray:
        reactions = self._reactions.get(node.role) or self._reactions[ASSISTANT]
        model = self.models.index(node.model)
        odds = reactions.log_odds(model, level, inputs, self._alone[model], self._sample)
        first, second, third, fourth = self._uniforms[place % UNIFORMS]
        # Two calls of one model on one question are both right more often than by chance, so some
        # calls use a random number that the model's calls on the question share.
        first = np.where(fourth < reactions.habit, self._habits[model], first)
        blank = third < reactions.blank[model]
        failed = np.where(blank, BLANK, self._taken_wrong(inputs, second))
        return np.where(first < expit(odds), 0, failed)

    def _taken_wrong(self, inputs: IntArray, uniform: FloatArray) -> IntArray:
        """Return a wrong answer for each column (C,): a random wrong input or, if no input is
        wrong, a form drawn according to the question's shares of wrong forms.
        """
        count, columns = inputs.shape
        turned = (uniform * count).astype(np.intp) + np.arange(count)[:, None]
        tried = np.take_along_axis(inputs, turned % count, axis=0)
        taken = tried[(tried > 0).argmax(axis=0), np.arange(columns)]
        none = taken <= 0
        taken[none] = wrong_form(self._wrong[:, none], uniform[none])
        return taken


SPREAD = 0.08
"""Standard deviation of the difference in accuracy between graphs within a budget and a single
call.
"""


class ConstantModel:
    """Baseline for the response model: it predicts that every graph is as good as a call of the
    best single model.
    """

    def __init__(self, evidence: Evidence, models: tuple[str, ...]) -> None:
        draws = fit_draws(evidence, models)
        readable = draws.expected * (1 - draws.blank)
        shares = readable[int(readable.mean(axis=1).argmax())]
        self._prediction = Prediction(rounded(float(shares.mean())), 0.0, shares, SPREAD)

    def predict(self, graph: CollaborationGraph) -> Prediction:
        """Return the prediction for a call of the best single model, whatever the graph."""
        return self._prediction


Predictor = ResponseModel | ConstantModel
"""Model that predicts the accuracy of graphs, including graphs that were never run."""
