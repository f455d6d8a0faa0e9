"""Answers of every node of the evaluated graphs, as arrays: evidence that a graph's score hides.

Answers to a question are classified by their extracted form. Class 0 holds right answers (if
answers are graded, good enough ones: see `passing_grade`). Each wrong form has its own number, up
to `FORMS` classes; further forms share the last number. An answer without a form can't be read: its
class is BLANK, which no vote counts. A call that several graphs make is stored once, under its
signature (`call_signatures`).
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.evaluation.environment import Feedback, NodeResult
from ttsgraph.evaluation.executor import draw_numbers
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.router import Router
from ttsgraph.graphs.settle import RUNS, settle
from ttsgraph.tasks.base import Question

FORMS = 8
"""Number of classes of answers to a question: the right one, six wrong forms, and all other wrong
forms together.
"""

UNKNOWN = -1
BLANK = -2
"""Special classes: UNKNOWN for a node that was not asked, BLANK for an answer that can't be read.
"""


def passing_grade(place: int) -> float:
    """Return the grade above which an answer to the question at this index counts as right. If
    answers are only right (1) or wrong (0), the grade makes no difference.

    If answers are graded, the share of answers that count as right approximates the mean score,
    because passing grades are spread evenly over the questions (by the golden ratio). A question
    has the same passing grade for all graphs, so if the worse of two answers passes, the better one
    passes too.
    """
    return (0.5 + place * 0.6180339887498949) % 1.0


def call_signatures(graph: CollaborationGraph, greedy: Collection[str] = ()) -> dict[int, int]:
    """Return for each node id a number that is equal for nodes that are certain to make the same
    calls, because their role, model, draw and inputs are equal. A node's draw is its number among
    the nodes with the same model and number of inputs, as in a run of the graph if no two members
    of the pool send the same requests.

    The numbers are the same in every process. Nodes with different inputs whose texts happen to be
    equal share calls too, but this isn't detected.
    """
    draws = draw_numbers(graph, greedy, str)
    found = dict[int, int]()
    for i in graph.order:
        node = graph.node(i)
        inputs = [found[p] for p in graph.predecessors[i]]
        # Without inputs, every role that calls a model sends only the question.
        role = node.role if inputs else ""
        model = node.model if get_role(node.role).calls_model else ""
        text = f"{role} {model} None {draws.get(i, 0)} {inputs}"
        if node.adaptive:
            asks = [[found[p] for p in stage] for stage in graph.stages[i]]
            text += f" {node.stop.to_json()} {node.gate and node.gate.over} {asks}"
        found[i] = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    return found


def revisions(graph: CollaborationGraph) -> dict[int, int]:
    """Return for each node id the largest number of revisions on a path that ends at the node. A
    revision is a model call that reads answers; the node's own call counts.
    """
    found: dict[int, int] = {}
    for i in graph.order:
        before = graph.predecessors[i]
        calls = get_role(graph.node(i).role).calls_model
        found[i] = max((found[p] for p in before), default=-1 if calls else 0) + int(calls)
    return found


Planned = dict[int, BoolArray]
"""Call signature -> array (Q,), True for each of the Q questions on which an earlier or planned
run makes this call.
"""


@dataclass(frozen=True, slots=True)
class Rows:
    """Calls of one node that has inputs: its model, its role, its level (as in `revisions`), and
    its inputs and answer on each of n questions.

    `questions` (n,) are indices of questions; `inputs` (d, n) are the classes of the d inputs, and
    `answers` (n,) the classes of the node's answers.
    """

    model: str
    role: str
    level: int
    questions: IntArray
    inputs: IntArray
    answers: IntArray


@dataclass(slots=True)
class GraphGrades:
    """Results of an evaluated graph: indices of n questions (n,), and the graph's grades on them
    (n,).
    """

    questions: IntArray
    right: FloatArray


class Evidence:
    """Results of all graphs and nodes that were evaluated on some of the Q questions.

    `draws` are answers of calls that read only the question: model -> number of the draw -> (Q,)
    classes, UNKNOWN if not asked. `greedy` models always give a question the same answer. `passed`
    (2, Q, FORMS) counts the answers of each class that passed the check, and those that were
    checked.
    """

    def __init__(self, questions: Sequence[Question], greedy: frozenset[str] = frozenset()) -> None:
        count = len(questions)
        unasked = partial(np.full, count, UNKNOWN)
        self.questions = questions
        self.greedy = greedy
        self.draws: dict[str, dict[int, IntArray]] = defaultdict(lambda: defaultdict(unasked))
        self.rows: list[Rows] = []
        self.graphs: dict[CollaborationGraph, GraphGrades] = {}
        self.refused: dict[CollaborationGraph, IntArray] = {}
        """Graph -> indices (n,) of the n questions that a provider refused to answer for it."""

        self.made: dict[int, BoolArray] = defaultdict(partial(np.full, count, False))
        """Call signature -> array (Q,), True for the questions on which the call was made."""

        self.passed: IntArray = np.zeros((2, count, FORMS), dtype=np.intp)
        self.lengths: dict[str, FloatArray] = defaultdict(partial(np.full, (count, 2), np.nan))
        """Model -> (Q, 2) numbers of tokens of the question and of the answer, for calls that read
        only the question; NaN if unknown.
        """

        self._places = {question.id: place for place, question in enumerate(questions)}
        self._sent: dict[Router, IntArray] = {}
        self._forms: list[dict[str, int]] = [{} for _ in questions]

    def missing(self, graph: CollaborationGraph, places: IntArray) -> IntArray:
        """Return the indices in `places` of questions that the graph has no grade on and that were
        not refused.
        """
        if (refused := self.refused.get(graph)) is not None:
            places = np.setdiff1d(places, refused, assume_unique=True)
        seen = self.graphs.get(graph)
        return places if seen is None else np.setdiff1d(places, seen.questions, assume_unique=True)

    def new_calls(
        self, graph: CollaborationGraph, places: IntArray, planned: Planned | None = None
    ) -> int:
        """Return the maximum number of new calls needed to run the graph on these questions: calls
        that no evaluated graph has made and that are not `planned`.
        """
        calls = self._asked(graph, places)
        return sum(int((~self._made(call, planned or {})[asked]).sum()) for call, asked in calls)

    def plan(self, graph: CollaborationGraph, places: IntArray, planned: Planned) -> None:
        """Add the graph's calls on these questions to the planned calls."""
        for call, asked in self._asked(graph, places):
            planned[call] = self._made(call, planned).copy()
            planned[call][asked] = True

    def _made(self, signature: int, planned: Planned) -> BoolArray:
        """Return an array (Q,), True for the questions on which the call was made or is planned."""
        found = planned.get(signature, self.made.get(signature))
        return np.zeros(len(self.questions), dtype=bool) if found is None else found

    def _asked(self, graph: CollaborationGraph, places: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield the signature of each call of the graph, with the questions in `places` on which it
        is made.
        """
        sent = self.sent(graph)[places]
        for k, branch in enumerate(graph.branches):
            for _, signature in self._calls(branch):
                yield signature, places[sent == k]

    def _calls(self, graph: CollaborationGraph) -> Iterator[tuple[int, int]]:
        """Yield the nodes that call a model, each with its signature."""
        for i, signature in call_signatures(graph, self.greedy).items():
            if get_role(graph.node(i).role).calls_model:
                yield i, signature

    def sent(self, graph: CollaborationGraph) -> IntArray:
        """Return for each of the Q questions the index (Q,) of the branch that answers it; 0
        without a route.
        """
        if graph.route is None:
            return np.zeros(len(self.questions), dtype=np.intp)
        cached = self._sent.get(graph.route.router)
        if cached is None:
            chosen = [graph.branch_of(question) for question in self.questions]
            cached = self._sent[graph.route.router] = np.array(chosen, dtype=np.intp)
        return cached

    def add(self, graph: CollaborationGraph, feedback: Feedback) -> None:
        """Add an evaluation with the answers of its nodes, if they were graded. Questions without a
        score are skipped; refused questions are remembered, so that they are not asked again.
        """
        refused = [self._places[r.question_id] for r in feedback.results if r.refused]
        if refused:
            self.refused[graph] = np.union1d(self.refused.get(graph, refused), refused)
        results = [result for result in feedback.results if result.correct is not None]
        if not results or not all(each.nodes for each in results):
            return
        places = np.array([self._places[each.question_id] for each in results])
        right = np.array([result.correct for result in results], dtype=float)
        seen = self.graphs.setdefault(graph, GraphGrades(places[:0], right[:0]))
        fresh = ~np.isin(places, seen.questions)
        seen.questions = np.concatenate([seen.questions, places[fresh]])
        seen.right = np.concatenate([seen.right, right[fresh]])
        sent = self.sent(graph)[places]
        for k, branch in enumerate(graph.branches):
            there = np.flatnonzero(sent == k)
            if len(there):
                self._add_nodes(branch, places[there], [results[j].nodes for j in there.tolist()])

    def _add_nodes(
        self, graph: CollaborationGraph, places: IntArray, nodes: Sequence[Mapping[int, NodeResult]]
    ) -> None:
        """Add the nodes' answers to these questions, for a graph without a route or one branch."""
        answers = self._classes(graph, places, nodes)
        draws = draw_numbers(graph, self.greedy, str)
        levels = revisions(graph)
        for i, signature in self._calls(graph):
            node = graph.node(i)
            before = graph.reads[i]
            ran = answers[i] != UNKNOWN
            if node.gate is not None and ran.any():  # the gate may have taken another answer
                inputs = {p: answers[p][ran] for p in graph.predecessors[i]}
                ran[ran] = settle(graph, i, inputs).taken == RUNS
            made = self.made[signature]
            new = ~made[places] & ran
            made[places[ran]] = True
            if not before:
                self.draws[node.model][draws[i]][places[ran]] = answers[i][ran]
                lengths = self.lengths[node.model]
                for place, answered in zip(places.tolist(), nodes, strict=True):
                    if (said := answered.get(i)) is not None and said.prompt_tokens:
                        lengths[place] = said.prompt_tokens, said.completion_tokens
                continue
            read = np.stack([answers[p] for p in before])
            # A node whose input was refused read fewer answers than a row has, so it adds no row.
            new &= (read != UNKNOWN).all(axis=0)
            if new.any():
                row = places[new], read[:, new], answers[i][new]
                self.rows.append(Rows(node.model, node.role, levels[i], *row))

    def sizes(self, cost: CostModel) -> dict[str, FloatArray]:
        """Return for each model the cost of a call on each of the Q questions (Q,), relative to the
        mean cost; 1 if the lengths of a question are unknown.
        """
        known = self.lengths.items()
        return {model: cost.relative(model, each) for model, each in known if model in cost.pool}

    def _classes(
        self, graph: CollaborationGraph, places: IntArray, nodes: Sequence[Mapping[int, NodeResult]]
    ) -> dict[int, IntArray]:
        """Return for each node id the classes (n,) of its answers to these n questions, UNKNOWN
        where the node was not needed.
        """
        found = {node.id: np.full(len(places), UNKNOWN, dtype=np.intp) for node in graph.nodes}
        for k, (place, answered) in enumerate(zip(places.tolist(), nodes, strict=True)):
            forms = self._forms[place]
            for i, result in answered.items():
                if i not in found:  # the router of the whole graph isn't part of a branch
                    continue
                if result.correct > passing_grade(place):
                    found[i][k] = 0
                elif not result.form:
                    found[i][k] = BLANK
                else:
                    found[i][k] = forms.setdefault(result.form, min(len(forms) + 1, FORMS - 1))
                if result.passes is not None and found[i][k] >= 0:
                    self.passed[:, place, found[i][k]] += result.passes, 1
        return found
