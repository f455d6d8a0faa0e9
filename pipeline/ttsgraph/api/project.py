"""`ttsgraph run`: a whole search in a project's folder, without the stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ttsgraph.api.result import Result, result_of
from ttsgraph.api.whole import search_whole
from ttsgraph.base.files import json_text, write_text
from ttsgraph.evaluation.progress import Publish
from ttsgraph.settings.profile import Params, load_profile
from ttsgraph.stages.project import questions_by_split

SCORES = "scores.json"
"""File for `dvc metrics show` with a task's scores: the graph in use, and the one that was
found.
"""

FOUND = "found"
"""Folder with the result of `ttsgraph run`, below results/<profile>/<task>/."""


async def run(
    params: Params,
    task: str,
    publish: Publish,
    say: Callable[[str], None],
    method: str | None = None,
    limit: float | None = None,
) -> tuple[Result, Path]:
    """Search a task of the project and save the result below results/.

    `limit`: dollars that the project may spend in total, over all starts. Raises InputError,
    RunStopped.
    """
    profile = load_profile(params.profile)
    if limit is not None:
        limits = profile.limits.model_copy(update={"dollars": limit})
        profile = profile.model_copy(update={"limits": limits})
    splits = questions_by_split(profile, task, params.seed)
    searched = await search_whole(
        profile, task, splits, params.seed, method or params.methods[0], publish=publish, say=say
    )
    result = result_of(searched, params.profile)
    table = result.compare()
    found = table.rows[0]
    used = next(row for row in table.rows if row["graph"] == table.used)
    shown = ("accuracy", "cost")
    scores = {"seed": params.seed} | {name: used[name] for name in shown}
    scores |= {f"found_{name}": found[name] for name in shown}
    folder = Path("results") / params.profile / task
    write_text(folder / SCORES, json_text(scores))
    return result, result.save(folder / FOUND)
