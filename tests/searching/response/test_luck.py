"""What few questions can't tell: models that seem to differ, and calls that err together."""

from __future__ import annotations

import numpy as np
import pytest

from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Usage
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.searching.response.model import ResponseModel
from ttsgraph.tasks.base import Question


def node(right: bool) -> NodeResult:
    return NodeResult(bool(right), "yes" if right else "no")


def add(evidence: Evidence, graph: CollaborationGraph, rights: np.ndarray) -> None:
    """Answers (nodes, questions) of a graph in which the last node answers."""
    results = [
        QuestionResult(question.id, bool(rights[-1, k]), nodes=dict(enumerate(map(node, column))))
        for k, (question, column) in enumerate(zip(evidence.questions, rights.T, strict=True))
    ]
    evidence.add(graph, Feedback(tuple(results), Usage(), 0.0))


@pytest.mark.parametrize("alike", [False, True])
def test_a_vote_of_readers_gains_what_their_answers_differ_by(alike: bool) -> None:
    """Two readers of one wrong answer, right on the same questions or each on its own."""
    rng = np.random.default_rng(5)
    questions = 240
    evidence = Evidence([Question(f"q{k}", str(k), "") for k in range(questions)])
    first = rng.random(questions) < 0.65
    second = first if alike else rng.random(questions) < 0.65
    wrong = np.zeros(questions, dtype=bool)
    panel = topologies.panel(["m0"], ["m1"] * 2, "m1", "voter", drafts_count=False)
    order = {i: k for k, i in enumerate(panel.order)}
    rights = np.array([wrong, first, second, first])
    assert panel.order[0] == 0
    assert order[panel.sink] == 3
    add(evidence, panel, rights)
    model = ResponseModel(evidence, ("m0", "m1"), np.random.default_rng(0), samples=8)
    many = topologies.panel(["m0"], ["m1"] * 9, "m1", "voter", drafts_count=False)
    gain = model.predict(many).accuracy - model.predict(panel).accuracy
    assert gain < 0.06 if alike else gain > 0.06
