"""Roles that select: a judge has its model choose an answer, a verifier takes what passes the check
of its kind.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ttsgraph.agent.base import Brief
from ttsgraph.contest.contenders import Contenders
from ttsgraph.evaluation.executor import run_graph
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.roles import Ballot, chosen, get_role
from ttsgraph.models.client import Client, Completion, Request, Sampling
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt
from ttsgraph.tasks.words import ExactTask

POOL = ModelPool((ModelSpec("m", "f", 1e8, 1e8, 2, 8, Price(0.1, 0.1)),))
Q = Question("q", "When are refunds paid?", "five days")


class Says(Client):
    """Answers alone are numbered; whoever reads answers says what it is told to."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.asked = []

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.messages[-1].content)
        alone = "Solution 1" not in self.asked[-1]
        return Completion(f"answer {request.replica}" if alone else self.said, 10, 3, 0.5)


def answer(role: str, client: Says, kind: str = "similarity"):
    graph = topologies.parallel(["m"] * 3, "m", role)
    return asyncio.run(
        run_graph(graph, Q, get_task(kind), Prompt("Answer."), Sampling(), POOL, client)
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


@pytest.mark.parametrize(
    "said",
    [
        "Best: 2",
        "Best: Solution 2",
        "**Best:** Solution 2.",
        "Best: (2)",
        "best: two",
        "The best solution is Solution 2.",
        "The best one is number 2",
        "Solution 2 is the best.",
        "Answer 2 is clearly the most accurate.",
        "I choose solution 2",
        "Solution 1 is wrong.\nBest: #2",
        "Best: <2>",
        "2",
        "Solution 2",
        "After all:\n**2**",
    ],
)
def test_a_judge_is_understood_however_it_names_one(said: str) -> None:
    assert chosen(get_task("exact"), said, ["a", "b", "a"]) == "b"


def test_a_judge_that_names_none_abstains_and_the_most_frequent_answer_is_taken() -> None:
    assert chosen(get_task("exact"), "Five days.", ["a", "b", "b"]) == "b"
    assert chosen(get_task("exact"), "Best: 7", ["a", "b", "b"]) == "b"
    assert chosen(get_task("exact"), "best solution: **1**", ["a", "b"]) == "a"


def test_a_verifier_takes_what_keeps_the_schema() -> None:
    task = get_task("json", {"schema": {"type": "object", "required": ["days"]}})
    answers = ["no idea", '{"weeks": 1}', '{"weeks": 1}', '{"days": 5}']

    def decide(task, answers):
        return get_role("verifier").choose(Ballot(task, Q, answers, [None] * len(answers)))

    assert decide(task, answers) == '{"days": 5}'
    assert decide(task, answers[:3]) == '{"weeks": 1}'  # none passes, so all may vote
    assert decide(get_task("number"), ["soon", "5", "6", "6"]) == "6"


THREE = ModelPool(
    tuple(
        ModelSpec(name, name, 1e8, 1e8, 2, 8, Price(0.1, 0.1), accuracy=accuracy)
        for name, accuracy in (("strong", 0.9), ("weak", 0.4), ("poor", 0.3))
    )
)


class Each(Client):
    """Each model has an answer of its own."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers

    async def complete(self, request: Request) -> Completion:
        return Completion(self.answers[request.model], 10, 3, 0.5)


def voted(role: str, answers: dict[str, str], pool: ModelPool) -> str | None:
    graph = topologies.parallel(["weak", "poor", "strong"], "weak", role)
    prompt = Prompt("Answer.")
    found = asyncio.run(
        run_graph(graph, Q, get_task("number"), prompt, Sampling(), pool, Each(answers))
    )
    assert found.usage.calls == 3
    return found.text


def test_a_weighted_vote_goes_by_how_often_models_are_right_alone() -> None:
    answers = {"weak": "5", "poor": "5", "strong": "6"}
    assert voted("voter", answers, THREE) == "5"
    assert voted("weighted", answers, THREE) == "6"
    unknown = ModelPool(tuple(replace(spec, accuracy=None) for spec in THREE.values()))
    assert voted("weighted", answers, unknown) == "5"
    # What could not be read weighs nothing.
    assert voted("weighted", answers | {"strong": "I do not know"}, THREE) == "5"


def test_two_that_agree_outweigh_one_that_is_a_little_better() -> None:
    ballot = Ballot(get_task("number"), Q, ["7", "8", "8"], [0.6, 0.5, 0.5])
    assert get_role("weighted").choose(ballot) == "8"
    assert get_role("weighted").choose(replace(ballot, accuracies=[1.0, 0.5, 0.5])) == "7"
    assert get_role("weighted").choose(replace(ballot, answers=["x", "y", "z"])) == "x"


class ByQuestion(ExactTask):
    """A kind whose public check looks at the question."""

    name = "by question"

    def passes_on(self, question: Question, text: str) -> bool:
        return question.text.split()[-1] in text


def test_a_verifier_sees_the_question() -> None:
    asked = Question("q", "Name a colour, with the word red", "dark red")
    ballot = Ballot(ByQuestion(), asked, ["blue", "blue", "dark red"], [None] * 3)
    assert get_role("verifier").choose(ballot) == "dark red"


def test_a_search_tries_the_selecting_roles_that_it_may() -> None:
    pool = ModelPool(
        tuple(ModelSpec(n, n, 1e8, 1e8, 2, 8, Price(0.1, 0.1)) for n in ("a", "b", "c"))
    )
    cost = CostModel(pool, Lengths(100, 50))
    scores = {"a": 0.6, "b": 0.5, "c": 0.4}

    def forms(*roles: str) -> dict[str, str]:
        brief = Brief("math", Budget(cost, 12.0, 12), scores, ("assistant", *roles))
        found = Contenders(brief).graphs
        return {graph.node(graph.sink).role: label for graph, label in found.items()}

    assert set(forms("fuser", "voter")) == {"assistant", "fuser", "voter"}
    more = forms("fuser", "voter", "weighted", "verifier", "judge")
    assert {"weighted", "verifier", "judge"} <= set(more)
    assert more["weighted"].endswith(", weighted majority")
    assert set(forms("judge")) == {"assistant", "judge"}
