"""The kinds of questions ttsgraph knows. A kind of your own is one file that registers a Task, and its name in the first import."""

from __future__ import annotations

from pipeline.errors import SettingsError
from pipeline.tasks import humaneval, math, mmlu  # noqa: F401 (each registers its kind)
from pipeline.tasks.base import TASKS, CodeTask, Question, Task, register_task
from pipeline.tasks.sandbox import missing_layers

__all__ = [
    "TASKS",
    "Question",
    "Task",
    "get_grader",
    "get_task",
    "missing_isolation",
    "register_task",
]


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
