"""Roles that select: a judge has its model choose, a verifier takes what passes a check."""

from dataclasses import replace

from tests.support.fakes import ScriptedClient
from tests.support.running import run
from ttsgraph.graphs import topologies
from ttsgraph.graphs.roles import Ballot, chosen, get_role
from ttsgraph.models.client import Request
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.prompts import Prompt

RIGHT = {"strong": 0.9, "weak": 0.4, "poor": 0.3}
POOL = ModelPool(
    [ModelSpec(m, m, 1e8, 1e8, 2, 8, Price(0.1, 0.1), accuracy=x) for m, x in RIGHT.items()]
)
Q = Question("q", "When are refunds paid?", "five days")
CHAT = Prompt("Answer.")


def test_a_judge_gives_the_answer_that_its_model_chooses():
    def reply(request: Request) -> str:
        chooses = "Solution 1" in request.messages[-1].content
        return "The second is right.\nBest: 2" if chooses else f"answer {request.replica}"

    client = ScriptedClient(reply)
    graph = topologies.parallel(["weak"] * 3, "weak", "judge")
    found = run(graph, client, Q, get_task("similarity"), POOL, CHAT)
    assert (found.text, found.usage.calls) == ("answer 1", 4)
    shown = client.requests[-1].messages[-1].content
    assert all(part in shown for part in (Q.text, "Solution 3", "Best: <number>"))


def test_a_judge_is_understood_however_it_names_one_and_else_the_most_frequent_answer_is_taken():
    for said in (
        "Best: 2",
        "Best: _2_",
        "It is best 1 times out of 3.\nBest: 2",
        "After all:\n**2**",
        "Not 1 but 2.",
        "I prefer the second one.",
        "<think>Best: 1</think>\n2",
        '{"choice": 2, "reason": "3 of 4 agree"}',
    ):
        assert chosen(get_task("exact"), said, ["a", "b", "a"]) == "b", said
    for said in ("Five days.", "Best: 7", "Best: 1 or 2", "<think>Best: 1", "Step 1 is wrong."):
        assert chosen(get_task("exact"), said, ["a", "b", "b"]) == "b"
    assert chosen(get_task("exact"), "best solution: **1**", ["a", "b"]) == "a"
    assert chosen(get_task("exact"), "Best: 12", ["a"] * 11 + ["b"]) == "b"


def test_a_verifier_takes_what_keeps_the_schema():
    def decided(task: Task, answers: list[str]) -> str:
        return get_role("verifier").choose(Ballot(task, Q, answers, [None] * len(answers)))

    task = get_task("json", {"schema": {"type": "object", "required": ["days"]}})
    answers = ["no idea", '{"weeks": 1}', '{"weeks": 1}', '{"days": 5}']
    assert decided(task, answers) == '{"days": 5}'
    assert decided(task, answers[:3]) == '{"weeks": 1}'  # none passes, so all may vote
    assert decided(get_task("number"), ["soon", "5", "6", "6"]) == "6"


def test_a_weighted_vote_goes_by_how_often_models_are_right_alone():
    answers = {"weak": "5", "poor": "5", "strong": "6"}

    def voted(role: str, answers: dict[str, str], pool: ModelPool = POOL) -> str | None:
        client = ScriptedClient(lambda request: answers[request.model])
        graph = topologies.parallel(list(answers), "weak", role)
        return run(graph, client, Q, get_task("number"), pool, CHAT).text

    assert voted("voter", answers) == "5"
    assert voted("weighted", answers) == "6"
    unknown = ModelPool(tuple(replace(spec, accuracy=None) for spec in POOL.values()))
    assert voted("weighted", answers, unknown) == "5"
    # What could not be read weighs nothing.
    assert voted("weighted", answers | {"strong": "I do not know"}) == "5"
