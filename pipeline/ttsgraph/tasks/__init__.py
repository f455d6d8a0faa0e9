"""Task kinds of ttsgraph. To add your own, register a Task in a separate module, and add the
module's name to the first import from `ttsgraph.tasks` below.
"""

from pathlib import Path

from ttsgraph.base.errors import SettingsError
from ttsgraph.tasks import choice, command, humaneval, math, words  # noqa: F401
from ttsgraph.tasks.base import TASKS as TASKS
from ttsgraph.tasks.base import CodeTask, Fields, Task
from ttsgraph.tasks.base import register_task as register_task
from ttsgraph.tasks.programs import missing_layers


def get_task(kind: str, grading: Fields | None = None) -> Task:
    """Return the task of this kind, configured with `grading` if given. Raises SettingsError if the
    kind is unknown (listing the known kinds) or a setting is wrong (naming it).
    """
    if kind not in TASKS:
        raise SettingsError(f"expected a kind among {', '.join(TASKS)}, found {kind!r}")
    task = TASKS[kind]
    if not grading:
        return task
    if (configured := getattr(task, "configured", None)) is None:
        raise SettingsError(
            f"kind {kind!r} has no settings: expected no grading, found {', '.join(grading)}"
        )
    return configured(grading)


def get_grader(
    kind: str, accept_weaker: bool, grading: Fields | None = None, verdicts: Path | None = None
) -> Task:
    """Return the task of this kind, ready to grade. Raises the same errors as `get_task`, and
    IsolationError if the programs of a code task can't be isolated.
    """
    task = get_task(kind, grading)
    return task.confined(accept_weaker, verdicts) if isinstance(task, CodeTask) else task


def missing_isolation(kind: str) -> dict[str, str]:
    """Return the layers of isolation that this task kind needs and this machine lacks, each with
    the reason.
    """
    return missing_layers() if isinstance(get_task(kind), CodeTask) else {}
