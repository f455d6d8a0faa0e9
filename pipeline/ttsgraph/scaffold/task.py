"""`ttsgraph new-task`: from a file of questions to a task of a profile."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import DataError, InputError, SettingsError
from ttsgraph.scaffold.check import try_out
from ttsgraph.scaffold.kinds import AskChoice, grading_of, kind_of
from ttsgraph.scaffold.names import require_name
from ttsgraph.scaffold.profile_text import ProfileText
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.prompts import Style
from ttsgraph.tasks.sources import TABLES, JsonlSource, load_questions, split_questions

INPUTS = Path("inputs")
SHARES = {"train": 0.4, "val": 0.2}
"""Of the questions, up to the sizes below; the rest is for the test."""

MOST = {"train": 750, "val": 150, "test": 200}
SHOTS = 4
LEAST = 10
"""Questions, without worked examples: fewer can't be split into parts that say anything."""

COMMENTS = {
    "": "Made by `ttsgraph new-task`; every value may be changed.",
    "kind": "how answers are read and graded: a file in pipeline/ttsgraph/tasks/",
    "grading": "settings of the kind (docs/own-task.md)",
    "source": (
        "one JSON object a line; `inputs/` is watched, so a changed file reruns what depends on it"
    ),
    "splits": "questions to search with, to choose by, and to test with; they never overlap",
    "prompt": (
        "chat: instruction and question; few_shot: worked examples, for base models; `instruction:`"
        " replaces the kind's"
    ),
    "sampling": "how answers are drawn; `stop:` ends them at given texts",
    "lengths": (
        "average tokens of a prompt and of an answer, as measured on five questions; budgets go by"
        " them"
    ),
}


async def new_task(
    name: str,
    file: Path,
    profile_name: str,
    kind: str | None = None,
    style: Style = "chat",
    max_tokens: int = 512,
    grading: Mapping[str, Any] | None = None,
    ask: AskChoice | None = None,
) -> list[str]:
    """Add a task to a profile, once its cheapest model, if it has one, has been asked five of the
    questions; returns what came of it in lines for people.

    A file from elsewhere is copied to inputs/<name>.jsonl. Without a kind, `ask` asks for one where
    the rows leave a choice. Raises InputError, in one line that says what to do, and writes
    nothing, when the file or the profile can't be used or the questions could not be asked.
    """
    require_name(name, "a task")
    profile = load_profile(profile_name)
    text = ProfileText(profile_name)
    if profile.engine.kind == "simulated":
        raise SettingsError(
            f"profile {profile_name!r}: simulated models answer made-up questions only; choose one"
            " with language models"
        )
    chosen = kind_of(file, kind, ask)
    get_task(chosen)  # names an unknown one first
    options = dict(grading or {}) or grading_of(file, chosen)
    questions = load_questions(get_task(chosen, options), JsonlSource(kind="jsonl", path=file), 0)
    source = _place_of(name, file)
    sizes = split_sizes(len(questions), SHOTS if style == "few_shot" else 0)
    entry: dict[str, Any] = {
        "kind": chosen,
        **({"grading": options} if options else {}),
        "source": {"kind": "jsonl", "path": source.as_posix()},
        "splits": sizes,
        "prompt": {"style": style},
        "sampling": {"temperature": 0.9, "max_tokens": max_tokens},
    }
    _, with_task = text.with_entry("tasks", name, entry, COMMENTS)
    splits = split_questions(questions, with_task.task(name).splits.sizes(), 0)
    lines = [
        f"{name} was not tried, as the pool has no model yet whose key is there: `ttsgraph"
        " new-model` adds one"
    ]
    if (model := _cheapest(profile)) is not None:
        feedback, lines = await try_out(
            with_task, name, model, splits["shots"], [*splits["train"], *splits["val"]]
        )
        usage = feedback.usage
        entry["lengths"] = {
            "prompt_tokens": math.ceil(usage.prompt_tokens / usage.calls),
            "generated_tokens": max(1, math.ceil(usage.completion_tokens / usage.calls)),
        }
    written, _ = text.with_entry("tasks", name, entry, COMMENTS)
    if source != file:
        source.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, source)
    text.write(written)
    return [
        *lines,
        f"profiles/{profile_name}.yaml has the task {name} now, its questions are in {source}",
    ]


def split_sizes(count: int, shots: int = 0) -> dict[str, int]:
    """How many questions go to each split. Raises DataError when there are too few."""
    left = count - shots
    if left < LEAST:
        examples = f" and {shots} worked examples" if shots else ""
        raise DataError(
            f"expected at least {LEAST} different questions{examples}, found {count}; add some"
        )
    sizes = {split: min(MOST[split], int(share * left)) for split, share in SHARES.items()}
    return {"shots": shots, **sizes, "test": min(MOST["test"], left - sum(sizes.values()))}


def _place_of(name: str, file: Path) -> Path:
    """Where the questions belong: below inputs/, under the task's name if they come from
    elsewhere.
    """
    if file.resolve().is_relative_to(INPUTS.resolve()):
        return INPUTS / file.resolve().relative_to(INPUTS.resolve())
    kept = file.suffix if file.suffix.lower() in TABLES else ".jsonl"
    place = INPUTS / f"{name}{kept}{'.gz' if file.suffix == '.gz' else ''}"
    if place.exists() and place.read_bytes() != file.read_bytes():
        raise InputError(
            f"{place}: expected no other file there, to copy {file} to; remove it, or choose"
            " another name"
        )
    return place


def _cheapest(profile: Profile) -> str | None:
    """The first model that can be asked, smallest first: one that wants no key, or whose key is
    there.
    """
    specs = profile.model_pool().by_size if profile.pool else ()
    keys = {name: model.api_key_env for name, model in profile.pool.items()}
    return next(
        (
            s.name
            for s in specs
            if (key := keys[s.model]) is None or os.environ.get(key, "").strip()
        ),
        None,
    )
