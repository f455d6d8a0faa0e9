"""What a question itself lets anybody check of a program, and a verifier that goes by it."""

import asyncio

import pytest

from ttsgraph.base.errors import CallFailed
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer
from ttsgraph.graphs import topologies
from ttsgraph.graphs.roles import get_role, unfit
from ttsgraph.models.client import Client, Completion, Request, Sampling
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.service.run import ServedRun
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks import TASKS, get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt

HUMANEVAL = get_task("humaneval")
ROW = {
    "task_id": "Sum/0",
    "prompt": (
        'def add_all(xs: list) -> int:\n    """Sum.\n\n    >>> add_all([1, 2])\n    3\n    """\n'
    ),
    "entry_point": "add_all",
    "canonical_solution": "    return sum(xs)\n",
    "test": "def check(candidate):\n    assert candidate([1, 2, 3]) == 6\n",
}
RIGHT = "def add_all(xs):\n    return sum(xs)"
WRONG = "def add_all(xs):\n    return 6"  # which the tests that grade let pass
SILENT = ROW | {"prompt": 'def add_all(xs: list) -> int:\n    """Sum."""\n'}


HIDDEN = "def add_all(xs):\n    return 3"  # passes the example, not the tests that grade


def question(**change: object) -> Question:
    return HUMANEVAL.parse(ROW | change, "q.jsonl:1")


def silent(**change: object) -> Question:
    return HUMANEVAL.parse(SILENT | change, "q.jsonl:1")


CHECK = "def check(candidate):\n    assert candidate([4]) == 4"


@pytest.mark.parametrize(
    ("asked", "carries", "passing", "failing"),
    [
        # The examples of a docstring are public, the tests that grade are not.
        (question(), True, [RIGHT, HIDDEN], [WRONG]),
        # A row may bring public tests of its own.
        (silent(public_tests="assert add_all([4]) == 4"), True, [RIGHT], [WRONG]),
        (silent(public_tests=["assert add_all([4]) == 4"] * 2), True, [RIGHT], [WRONG]),
        (silent(public_tests=CHECK), True, [RIGHT], [WRONG]),
        # Without any, what holds code passes.
        (silent(), False, [RIGHT, WRONG], [""]),
        # A question that came as text alone has its examples.
        (Question("asked", ROW["prompt"], ""), True, [RIGHT], [WRONG]),
        (Question("asked", "Say hello.", ""), False, [RIGHT], []),
    ],
)
def test_what_a_question_lets_anybody_check(
    asked: Question, carries: bool, passing: list[str], failing: list[str]
):
    assert HUMANEVAL.carries_check(asked) is carries
    assert all(HUMANEVAL.passes_on(asked, text) for text in passing)
    assert not any(HUMANEVAL.passes_on(asked, text) for text in failing)


POOL = ModelPool(
    tuple(ModelSpec(n, n, 1e8, 1e8, 2, 8, Price(0.1, 0.1)) for n in ("right", "wrong", "twice"))
)
CODE = {"right": RIGHT, "wrong": WRONG, "twice": WRONG}


class Writes(Client):
    async def complete(self, request: Request) -> Completion:
        return Completion(CODE[request.model], 10, 3, 0.5)


def runner(role: str) -> GraphRunner:
    graph = topologies.parallel(["wrong", "twice", "right"], "right", role)
    return GraphRunner(graph, HUMANEVAL, Prompt("Write."), Sampling(), POOL, Writes())


def test_a_verifier_runs_what_the_question_carries_in_a_search_and_in_service():
    assert asyncio.run(runner("voter").answer(question())).text == WRONG
    found = asyncio.run(runner("verifier").answer(question()))
    assert (found.text, found.usage.calls) == (RIGHT, 3)

    async def served() -> NodeAnswer:
        made = runner("verifier")
        return await ServedRun(made, question(), ServiceSettings()).answer()

    assert asyncio.run(served()).text == RIGHT


def test_a_check_that_could_not_be_made_leaves_the_question_unanswered_not_wrong(monkeypatch):
    def fails(*_: object) -> bool:
        raise CallFailed("can't start a process for a program: no memory")

    monkeypatch.setattr("ttsgraph.tasks.humaneval._passed", fails)
    found = asyncio.run(runner("verifier").answer(question()))
    assert found.text is None
    assert "start a process for a program" in found.error


def test_a_verifier_is_offered_where_there_is_something_to_check():
    verifier = get_role("verifier")
    assert unfit(verifier, HUMANEVAL, [silent(), question()]) == ""
    none = "none of the 2 questions carries the public tests of its question"
    assert unfit(verifier, HUMANEVAL, [silent()] * 2) == none
    assert unfit(verifier, get_task("number")) == "kind number has no public check"
    schema = {"schema": {"type": "object"}}
    assert unfit(verifier, get_task("json", schema)) == ""
    assert "as it is set up here" in unfit(verifier, get_task("json"))
    for kind in TASKS.values():
        assert unfit(get_role("assistant"), kind) == ""
