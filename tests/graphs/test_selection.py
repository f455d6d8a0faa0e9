"""Roles that select: a judge has its model choose an answer, a verifier takes what passes the check
of its kind.
"""

from __future__ import annotations

import asyncio

from ttsgraph.evaluation.executor import run_graph
from ttsgraph.graphs import topologies
from ttsgraph.graphs.roles import chosen, get_role
from ttsgraph.models.client import Completion, Request, Sampling
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt

POOL = ModelPool((ModelSpec("m", "f", 1e8, 1e8, 2, 8, Price(0.1, 0.1)),))
Q = Question("q", "When are refunds paid?", "five days")


class Says:
    """Answers alone are numbered; whoever reads answers says what it is told to."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.asked = []

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.messages[-1].content)
        alone = "Solution 1" not in self.asked[-1]
        return Completion(f"answer {request.replica}" if alone else self.said, 10, 3, 0.5)

    async def aclose(self) -> None: ...


def answer(role: str, client: Says, kind: str = "similarity"):
    graph = topologies.parallel(["m"] * 3, "m", role)
    return asyncio.run(
        run_graph(graph, Q, Prompt(get_task(kind), "Answer."), Sampling(), POOL, client)
    )


def test_a_judge_gives_the_answer_that_its_model_chooses() -> None:
    client = Says("The second is right.\nBest: 2")
    found = answer("judge", client)
    assert found.text == "answer 1"
    assert found.usage.calls == 4
    shown = client.asked[-1]
    assert Q.text in shown
    assert "Solution 3" in shown
    assert shown.endswith("Give no solution of your own. End with one line: Best: <number>")


def test_a_judge_that_names_none_is_taken_at_its_word() -> None:
    assert chosen("Five days.", ["a", "b"]) == "Five days."
    assert chosen("Best: 7", ["a", "b"]) == "Best: 7"
    assert chosen("best solution: **1**", ["a", "b"]) == "a"


def test_a_judge_needs_no_votes_and_so_is_offered_for_free_text() -> None:
    assert get_role("judge").calls_model
    assert not get_role("judge").votes
    assert get_role("voter").votes


def test_a_verifier_takes_what_keeps_the_schema() -> None:
    task = get_task("json", {"schema": {"type": "object", "required": ["days"]}})
    answers = ["no idea", '{"weeks": 1}', '{"weeks": 1}', '{"days": 5}']
    decide = get_role("verifier").decide
    assert decide is not None
    assert decide(task, answers) == '{"days": 5}'
    assert decide(task, answers[:3]) == '{"weeks": 1}'  # none passes, so all may vote
    assert decide(get_task("number"), ["soon", "5", "6", "6"]) == "6"
