"""A program is run once on the same tests, in this process and the next."""

from pathlib import Path

import pytest

from ttsgraph.base.errors import CallFailed
from ttsgraph.tasks import get_task, programs
from ttsgraph.tasks.humaneval import HumanEvalTask
from ttsgraph.tasks.programs import Verdicts

ROW = {
    "task_id": "Sum/0",
    "prompt": 'def add_all(xs):\n    """Sum.\n\n    >>> add_all([1])\n    1\n    """\n',
    "entry_point": "add_all",
    "canonical_solution": "    return sum(xs)\n",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == 3\n",
}
QUESTION = get_task("humaneval").parse(ROW, "here")
RIGHT = "    return sum(xs)"
WRONG = "    return xs[0]"


def at(path: Path) -> HumanEvalTask:
    return HumanEvalTask(accept_weaker=True, verdicts=Verdicts(path))


def test_a_program_is_run_once_for_each_set_of_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    run = programs.passes

    def counted(program, limits, accept_weaker):
        ran.append(program.tests)
        return run(program, limits, accept_weaker)

    monkeypatch.setattr(programs, "passes", counted)
    for _ in range(2):
        task = at(tmp_path / "verdicts.db")
        assert [task.grade(QUESTION, text) for text in (RIGHT, WRONG)] == [True, False]
        assert [task.passes_on(QUESTION, text) for text in (RIGHT, WRONG)] == [True, True]
    assert len(ran) == 4  # two programs, on hidden tests and on the docstring's example


def test_a_checker_that_fails_leaves_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(program, limits, accept_weaker):
        raise CallFailed("no process can be had")

    with monkeypatch.context() as patched:
        patched.setattr(programs, "passes", fails)
        with pytest.raises(CallFailed, match="no process"):
            at(tmp_path / "verdicts.db").grade(QUESTION, RIGHT)
    assert at(tmp_path / "verdicts.db").grade(QUESTION, RIGHT)
