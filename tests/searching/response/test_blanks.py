"""Answers that can't be read are an outcome of their own: in evidence, in draws, in predictions."""

from __future__ import annotations

import numpy as np
import pytest

from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult
from ttsgraph.graphs import topologies
from ttsgraph.models.client import Usage
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.searching.response.model import ResponseModel
from ttsgraph.tasks.base import Question

QUESTIONS = 300
READABLE = 0.5


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """Three draws of a model: half unreadable, the others right nine times in ten."""
    rng = np.random.default_rng(0)
    questions = [Question(f"q{k}", str(k), "") for k in range(QUESTIONS)]
    graph = topologies.parallel(["m"] * 3, "m", "voter")
    results = []
    for question in questions:
        nodes = {}
        for i in range(3):
            right = bool(rng.random() < 0.9)
            form = ("yes" if right else f"no{rng.integers(5)}") * int(rng.random() < READABLE)
            nodes[i] = NodeResult(right and bool(form), form)
        best = max(nodes.values(), key=lambda node: (node.form != "", node.correct))
        results.append(QuestionResult(question.id, best.correct, nodes=nodes | {3: best}))
    found = Evidence(questions)
    found.add(graph, Feedback(tuple(results), Usage(), 0.0))
    return found


def test_a_vote_is_predicted_to_gain_what_others_say_in_place_of_a_blank(evidence) -> None:
    model = ResponseModel(evidence, ("m",), np.random.default_rng(1), samples=8)
    alone = model.predict(topologies.single("m")).accuracy
    voted = model.predict(topologies.parallel(["m"] * 6, "m", "voter")).accuracy
    assert alone == pytest.approx(0.9 * READABLE, abs=0.05)
    assert voted > 0.85


def test_a_call_that_reads_blanks_alone_is_predicted_too(evidence) -> None:
    model = ResponseModel(evidence, ("m",), np.random.default_rng(1), samples=4)
    fused = model.predict(topologies.parallel(["m"] * 3, "m", "fuser"))
    assert 0.2 < fused.accuracy < 1
