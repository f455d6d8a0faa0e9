"""`ttsgraph init` and `ttsgraph run`: a project in a folder of its own, and a whole search in it
without the stages.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import yaml

from ttsgraph.api.given import budget_of
from ttsgraph.api.result import Result, result_of
from ttsgraph.api.whole import search_whole
from ttsgraph.base.errors import InputError
from ttsgraph.base.files import json_text, write_text
from ttsgraph.base.parsing import parse
from ttsgraph.base.state import STATE
from ttsgraph.evaluation.progress import Publish, Spent
from ttsgraph.graphs.roles import ASSISTANT, get_role
from ttsgraph.models.client import Message
from ttsgraph.runtime.limits import PROJECT, Account, counted
from ttsgraph.scaffold.entries import (
    INPUTS,
    TEMPERATURE,
    split_sizes,
    task_entry,
)
from ttsgraph.scaffold.profile_text import flow
from ttsgraph.scaffold.providers import AskedModel, Provider, ask_each, candidates, room_for
from ttsgraph.scaffold.question_file import Ask, Looked, look_at
from ttsgraph.settings.plugins import PLUGINS
from ttsgraph.settings.profile import Params, Profile, load_profile
from ttsgraph.stages.project import questions_by_split
from ttsgraph.tasks import get_task
from ttsgraph.tasks.prompts import Prompt

PROFILE = "mine"
PROFILE_FILE = f"profiles/{PROFILE}.yaml"
SAMPLES = 40
"""Sums, to try a project on, where no questions are given."""

CALLS = 4
"""Of the dearest model, that a question may cost where no budget is given."""

SECONDS = 10
"""What a question may take at least where nothing is paid."""

RUBRIC = "Full marks for an answer that says the same as the reference, in any words, else none."

SCORES = "scores.json"
"""What `dvc metrics show` shows of a task: the graph in use, and the one that was found."""

FOUND = "found"
"""The folder of what `ttsgraph run` found, below results/<profile>/<task>/."""

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    keep_trailing_newline=True,
    trim_blocks=True,
)
_TEMPLATES.filters["flow"] = flow
WRITTEN = {
    "params.yaml": "params.yaml.j2",
    "dvc.yaml": "dvc.yaml.j2",
    ".gitignore": "gitignore.j2",
    PROFILE_FILE: "profile.yaml.j2",
    f"{PLUGINS}/README.md": "plugins.md.j2",
}
"""Files of a project, and the templates that they are made from."""


def init(
    folder: Path,
    providers: Sequence[Provider],
    budget: str | None,
    questions: Path | None = None,
    kind: str | None = None,
    named: tuple[str | None, str | None] = (None, None),
    ask: Ask | None = None,
) -> list[str]:
    """Write a project into a new folder: the providers' models, each asked once, and questions of a
    file, or sums; returns lines for people. Raises InputError, and writes nothing, for a folder
    with files in it, an endpoint that can't be asked, and models, questions and budget that don't
    go together.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: expected a new folder, found files in it; choose another name")
    if questions is None:
        name, looked = "sample", _sums()
    else:
        looked = look_at(questions, kind, named, ask)
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", questions.name.split(".")[0]).strip("-._")
        name = name or "questions"
    sizes = split_sizes(len(looked.rows))
    pool = candidates(providers, ask)
    messages = _messages(looked, f"{name}: question 1")
    found, left_out = asyncio.run(ask_each(pool, messages, TEMPERATURE))
    limit, words = _budget(budget, found)
    grading = dict(looked.grading)
    if looked.kind == "judge":
        grading = _judged(found)
        words += f"; {', '.join(grading['models'])} judges answers, which is paid apart"
    measured = {key: told for each in found for key, told in each.lengths.items()}
    file = INPUTS / f"{name}.jsonl"
    entry = task_entry(looked.kind, grading, file, sizes, max_tokens=room_for(found))
    entry["lengths"] = {"measured": measured}
    if limit["metric"] == "runtime":
        found = [replace(each, entry={**each.entry, "speed": each.speed}) for each in found]
    given = {
        "pool": {model.name: model.entry for model in found},
        "task": name,
        "entry": entry,
        "budget": limit,
    }
    files = {path: _TEMPLATES.get_template(name).render(given) for path, name in WRITTEN.items()}
    # What is wrong with it is said before anything is written.
    parse(Profile, yaml.safe_load(files[PROFILE_FILE]), PROFILE_FILE)
    parse(Params, yaml.safe_load(files["params.yaml"]), "params.yaml")
    for path, content in (files | {file.as_posix(): looked.text}).items():
        write_text(folder / path, content)
    Account(folder / STATE / "spent.json", PROJECT).write(_spent(found))
    return [*looked.lines, *(model.line for model in found), *left_out, words]


def _sums() -> Looked:
    rows = [
        {"question": f"What is {7 * k + 12} + {3 * k + 5}?", "answer": str(10 * k + 17)}
        for k in range(SAMPLES)
    ]
    return Looked(tuple(rows), "number", {}, ())


def _messages(looked: Looked, where: str) -> tuple[Message, ...]:
    """What each model is asked: the first question, as an assistant is."""
    task = get_task(looked.kind, looked.grading)
    first = task.parse(looked.rows[0], where)
    speak = get_role(ASSISTANT).speak
    assert speak is not None
    return speak(task, Prompt(task.instruction), first, [])


def _spent(found: Sequence[AskedModel]) -> Spent:
    asked = (counted(call, model.price.of(call)) for model in found for call in model.calls)
    return sum(asked, Spent())


def _judged(found: Sequence[AskedModel]) -> dict[str, Any]:
    """How a judge grades: the dearest model, by a rubric for answers with a reference."""
    judge = max(found, key=lambda model: model.price.of(model.completion))
    asked = {key: value for key, value in judge.entry.items() if key != "variants"}
    return {"rubric": RUBRIC, "models": {judge.name: asked}, "max_tokens": room_for(found)}


def _budget(budget: str | None, found: Sequence[AskedModel]) -> tuple[dict[str, object], str]:
    """What a question may cost, as settings and in words. Raises InputError where no call fits."""
    calls = {model.name: model.price.of(model.completion) for model in found}
    cheapest = min(calls, key=lambda name: calls[name])
    dearest = max(calls, key=lambda name: calls[name])
    if budget is None:
        most = calls[dearest]
        slowest_s = max(call.latency_s for model in found for call in model.calls[-1:])
        given = f"${CALLS * most:.2g}" if most else f"{max(SECONDS, CALLS * slowest_s):.2g} s"
    else:
        given = f"${budget}" if re.fullmatch(r"[0-9.]+(e-?\d+)?", budget) else budget
    settings = budget_of(given)
    limit = float(settings["limit"])
    if settings["metric"] != "dollars":
        return settings, f"a question may take {given}"
    if calls[cheapest] > limit:
        raise InputError(
            f"--budget: expected dollars for at least one call, found {given} where one of"
            f" {cheapest} took ${calls[cheapest]:.2g}"
        )
    own = "" if budget is not None else f", {CALLS} calls of {dearest}; --budget changes it"
    few = [name for name, dollars in calls.items() if dollars > limit]
    out = f"; too dear for it: {', '.join(few)}" if few else ""
    return settings, f"a question may cost ${limit:g}{own}{out}"


async def run(
    params: Params,
    task: str,
    publish: Publish,
    say: Callable[[str], None],
    method: str | None = None,
    limit: float | None = None,
) -> tuple[Result, Path]:
    """Search a task of the project and save what is found below results/. `limit` are dollars that
    the project may spend in all, over all its starts. Raises InputError, RunStopped.
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
