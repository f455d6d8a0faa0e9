"""The kinds of questions ttsgraph knows. A kind of your own is one file that registers a Task, and
its name in the first import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttsgraph.base.errors import SettingsError
from ttsgraph.tasks import choice, command, humaneval, math, words  # noqa: F401
from ttsgraph.tasks.base import (
    TASKS,
    AskingTask,
    CodeTask,
    Question,
    Task,
    can_vote,
    register_task,
)
from ttsgraph.tasks.programs import missing_layers

__all__ = [
    "TASKS",
    "AskingTask",
    "Question",
    "Task",
    "can_vote",
    "get_grader",
    "get_task",
    "missing_isolation",
    "register_task",
]


def get_task(kind: str, grading: Mapping[str, Any] | None = None) -> Task:
    """The task of this kind, with these settings if any. Raises SettingsError that lists the known
    kinds, or names the setting that is wrong.
    """
    try:
        task = TASKS[kind]
    except KeyError:
        raise SettingsError(
            f"unknown task kind {kind!r}; known kinds: {', '.join(TASKS)}"
        ) from None
    if not grading:
        return task
    if (configured := getattr(task, "configured", None)) is None:
        raise SettingsError(
            f"kind {kind!r} has no settings: expected no grading, found {', '.join(grading)}"
        )
    return configured(grading)


def get_grader(kind: str, accept_weaker: bool, grading: Mapping[str, Any] | None = None) -> Task:
    """The task of this kind, ready to grade. Raises as `get_task`, and IsolationError where a code
    task can't be isolated.
    """
    task = get_task(kind, grading)
    return task.confined(accept_weaker) if isinstance(task, CodeTask) else task


def missing_isolation(kind: str) -> dict[str, str]:
    """The layers of isolation that this kind of task needs and this machine does not give, each
    with the reason.
    """
    return missing_layers() if isinstance(get_task(kind), CodeTask) else {}
