"""The kinds of questions ttsgraph knows. A kind of your own is one class (see base.Task) and one call of register_task."""

from __future__ import annotations

from pipeline.errors import SettingsError
from pipeline.tasks.base import CodeTask, Question, Task
from pipeline.tasks.humaneval import HumanEvalTask
from pipeline.tasks.math import MathTask
from pipeline.tasks.mmlu import MmluTask
from pipeline.tasks.sandbox import missing_layers

__all__ = [
    "TASKS",
    "HumanEvalTask",
    "MathTask",
    "MmluTask",
    "Question",
    "Task",
    "get_grader",
    "get_task",
    "missing_isolation",
    "register_task",
]

TASKS: dict[str, Task] = {}


def register_task(task: Task) -> None:
    """Make a task known by its name; a later task of the same name replaces the earlier."""
    TASKS[task.name] = task


def get_task(kind: str) -> Task:
    """The task of this kind. Raises SettingsError that lists the known ones."""
    try:
        return TASKS[kind]
    except KeyError:
        raise SettingsError(f"unknown task kind {kind!r}; known kinds: {', '.join(TASKS)}") from None


def get_grader(kind: str, accept_weaker: bool) -> Task:
    """The task of this kind, ready to grade. Raises SettingsError, and IsolationError where a code task can't be isolated."""
    task = get_task(kind)
    return task.confined(accept_weaker) if isinstance(task, CodeTask) else task


def missing_isolation(kind: str) -> dict[str, str]:
    """The layers of isolation that this kind of task needs and this machine does not give, each with the reason."""
    return missing_layers() if isinstance(get_task(kind), CodeTask) else {}


for _task in (MathTask(), MmluTask(), HumanEvalTask()):
    register_task(_task)
