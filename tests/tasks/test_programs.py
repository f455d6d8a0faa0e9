"""What a question itself lets anybody check of a program, and a verifier that goes by it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from ttsgraph.base.errors import CallFailed
from ttsgraph.graphs.roles import get_role, unfit
from ttsgraph.tasks import TASKS, get_task, programs
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.humaneval import HumanEvalTask
from ttsgraph.tasks.programs import Verdicts

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
SILENT = {"prompt": 'def add_all(xs: list) -> int:\n    """Sum."""\n'}


HIDDEN = "def add_all(xs):\n    return 3"  # passes the example, not the tests that grade


def question(**change: object) -> Question:
    return HUMANEVAL.parse(ROW | change, "q.jsonl:1")


CHECK = "def check(candidate):\n    assert candidate([4]) == 4"


@pytest.mark.parametrize(
    ("asked", "carries", "passing", "failing"),
    [
        # The examples of a docstring are public, the tests that grade are not.
        (question(), True, [RIGHT, HIDDEN], [WRONG]),
        # A row may bring public tests of its own.
        (question(**SILENT, public_tests="assert add_all([4]) == 4"), True, [RIGHT], [WRONG]),
        (question(**SILENT, public_tests=["assert add_all([4]) == 4"] * 2), True, [RIGHT], [WRONG]),
        (question(**SILENT, public_tests=CHECK), True, [RIGHT], [WRONG]),
        # Without any, what holds code passes.
        (question(**SILENT), False, [RIGHT, WRONG], [""]),
        # A question that came as text alone has its examples.
        (Question("asked", ROW["prompt"], ""), True, [RIGHT], [WRONG]),
        (Question("asked", "Say hello.", ""), False, [RIGHT], []),
    ],
)
def test_what_a_question_lets_anybody_check(asked, carries, passing, failing):
    assert HUMANEVAL.carries_check(asked) is carries
    assert all(HUMANEVAL.passes_on(asked, text) for text in passing)
    assert not any(HUMANEVAL.passes_on(asked, text) for text in failing)


def test_a_verifier_is_offered_where_there_is_something_to_check():
    verifier = get_role("verifier")
    assert unfit(verifier, HUMANEVAL, [question(**SILENT), question()]) == ""
    none = "none of the 2 questions has a public check (the public tests of its question)"
    assert unfit(verifier, HUMANEVAL, [question(**SILENT)] * 2) == none
    assert unfit(verifier, get_task("number")) == "kind number has no public check"
    own: Any = SimpleNamespace(name="own", passes=bool, carries_check=lambda question: False)
    assert "1 questions has a public check" in unfit(verifier, own, [question(**SILENT)])
    schema = {"schema": {"type": "object"}}
    assert unfit(verifier, get_task("json", schema)) == ""
    assert "with its settings" in unfit(verifier, get_task("json"))
    for kind in TASKS.values():
        assert unfit(get_role("assistant"), kind) == ""


def at(folder: Path) -> HumanEvalTask:
    return HumanEvalTask(accept_weaker=True, verdicts=Verdicts(folder / "verdicts.db"))


def test_a_program_is_run_once_for_each_set_of_tests_and_a_failure_is_no_verdict(tmp_path):
    fails = patch.object(programs, "passes", side_effect=CallFailed("no process can be had"))
    with fails, pytest.raises(CallFailed, match="no process"):
        at(tmp_path).grade(question(), RIGHT)
    with patch.object(programs, "passes", wraps=programs.passes) as ran:
        for _ in range(2):
            task = at(tmp_path)
            assert [task.grade(question(), text) for text in (RIGHT, HIDDEN)] == [True, False]
            assert [task.passes_on(question(), text) for text in (RIGHT, HIDDEN)] == [True, True]
    assert ran.call_count == 4  # two programs, on hidden tests and on the docstring's example
