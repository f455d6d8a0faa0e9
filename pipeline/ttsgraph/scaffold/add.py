"""`ttsgraph init` and `add`: create a project, and add models and questions to its profile.

Before anything is written, everything is checked, and each model is called to test it.
"""

import asyncio
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import DataError, EndpointError, InputError, SettingsError
from ttsgraph.base.files import locked, write_text
from ttsgraph.base.parsing import parse
from ttsgraph.base.secrets import refuse_secrets
from ttsgraph.base.state import STATE
from ttsgraph.graphs.roles import ASSISTANT, get_role
from ttsgraph.models.client import Message
from ttsgraph.runtime.limits import counted, project_account
from ttsgraph.scaffold import providers
from ttsgraph.scaffold.cells import json_lines
from ttsgraph.scaffold.providers import ProbedModel, Provider
from ttsgraph.scaffold.questions import GradedQuestions, QuestionSource, look_at
from ttsgraph.scaffold.settings_text import SettingsText
from ttsgraph.settings.plugins import PLUGINS
from ttsgraph.settings.profile import Params, Profile, load_profile
from ttsgraph.stages.project import questions_by_split
from ttsgraph.tasks import get_task
from ttsgraph.tasks.prompts import Prompt

INPUTS = Path("inputs")
PROFILE = "mine"
TEMPLATES = Path(__file__).with_name("project")
WRITTEN = {
    "params.yaml": "params.yaml",
    f"profiles/{PROFILE}.yaml": "profile.yaml",
    "dvc.yaml": "stages.yaml",
    ".gitignore": "gitignore",
    f"{PLUGINS}/README.md": "plugins.md",
}
"""Templates of a project's files, by path. No template is named dvc.yaml, because DVC would take it
for a pipeline.
"""

SHARES = {"train": 0.4, "val": 0.2}
"""Share of the questions in each split, up to the split's limit in MOST. The test split gets the
rest, up to its limit in MOST.
"""

MOST = {"train": 750, "val": 150, "test": 200}
LEAST = 10
"""Minimum number of questions: fewer can't be split into meaningful parts."""

PROBES = 3
"""Number of questions that a reasoning model is tested with."""

SAMPLE = "sample"
"""Name of the task with generated sums, for trying a project, if no questions are given."""

SUMS = GradedQuestions(
    tuple(
        {"question": f"What is {7 * k + 12} + {3 * k + 5}?", "answer": str(10 * k + 17)}
        for k in range(40)
    ),
    "number",
)

CALLS = 4
"""Default budget per question, in calls of the most expensive model."""

SECONDS = 10
"""Minimum of a question's default time limit, which is set only if all models are free."""

RUBRIC = "Full marks for an answer that says the same as the reference, in any words, else none."

_METRICS = {"$": "dollars", "s": "runtime"}
_BUDGET = re.compile(r"\s*(\$?)\s*(\d*\.?\d+(?:[eE][-+]?\d+)?)\s*(s|units)?\s*")


@dataclass(frozen=True, slots=True)
class Additions:
    """Models of a provider, questions with their task's name, and a budget, to be added to a
    project.
    """

    provider: Provider | None = None
    questions: QuestionSource | None = None
    name: str | None = None
    budget: str | None = None


def init(folder: Path, wanted: Additions) -> list[str]:
    """Create a project in a new folder, with the given models and questions (generated sums if no
    questions are given); return lines to print.

    Raises InputError, without writing anything, if the folder is a file or isn't empty, or if the
    additions are invalid as in `add`.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        found = "files in it" if folder.is_dir() else "a file"
        more = ", or run `ttsgraph add` in it" if (folder / "params.yaml").exists() else ""
        raise InputError(
            f"{folder}: expected a new folder, found {found}; choose another name{more}"
        )
    files = {Path(path): (TEMPLATES / name).read_text() for path, name in WRITTEN.items()}
    return _Project(folder, PROFILE, files).add(wanted)


def add(profile: str, wanted: Additions) -> list[str]:
    """Add models and questions to a profile of the project in this folder; return lines to print.

    Raises InputError, without writing anything, if an endpoint doesn't respond, or if models,
    questions and budget don't fit together.
    """
    if load_profile(profile).engine.kind == "simulated":
        raise SettingsError(
            f"profile {profile!r}: expected language models, found simulated ones; choose another"
        )
    if wanted.provider is None and wanted.questions is None:
        raise InputError("expected --url (for models), --questions or both, found neither")
    with locked(STATE / "spent"):  # a run in progress holds the same lock
        return _Project(Path(), profile, {}).add(wanted)


class _Project:
    """Settings of a project, to which entries are added. `files` maps the paths of the files to
    write to their content; it is empty unless the project is new.
    """

    def __init__(self, folder: Path, profile: str, files: dict[Path, str]) -> None:
        self.folder = folder
        self.files = files
        self.is_new = bool(files)
        paths = Path("profiles") / f"{profile}.yaml", Path("params.yaml")
        self.profile, self.params = (SettingsText(path, files.get(path)) for path in paths)
        self.is_default = self.params.data["profile"] == profile

    def add(self, wanted: Additions) -> list[str]:
        """Check the additions, call each model, and write all files; return lines to print. Raises
        InputError if the additions are invalid, or if no model answers.
        """
        lines: list[str] = []
        looked, name = SUMS if self.is_new else None, SAMPLE
        if wanted.questions is not None:
            looked, name = look_at(wanted.questions), task_name(wanted)
        if looked is not None:
            self.profile.require_free("tasks", name)
            lines += [*looked.lines, split_words(len(looked.rows))]
        held = self.profile.plain["pool"]
        offers: dict[str, providers.Offer] = {}
        left_out: list[str] = []
        if wanted.provider is not None:
            offers, left_out = providers.candidates(wanted.provider, held)
            if not offers and looked is None:
                raise InputError("; ".join(left_out))
        reached = {name: (e, "as the profile says") for name, e in held.items() if _is_reached(e)}
        asked = offers if looked is None else offers | reached
        found, failed = asyncio.run(providers.ask_each(asked, self.first_prompts(looked)))
        added = [each for each in found if each.name in offers]
        if failed and not (added if offers else found):
            others = f"; {len(failed) - 1} more failed" if len(failed) > 1 else ""
            raise EndpointError(f"expected a model that answers, found none: {failed[0]}{others}")
        words = []
        if wanted.budget is not None or (added and not held):
            budget, said = budget_for(wanted.budget, found)
            self.profile.data["budget"].update(budget)
            words = [said]
        self.add_models(added)
        if looked is not None:
            self.add_task(name, looked, found)
        self.write(found)
        return [*lines, *(each.line for each in added), *left_out, *failed, *words]

    def first_prompts(self, looked: GradedQuestions | None) -> list[tuple[Message, ...]]:
        """Return the prompts of the test calls: the first questions, as put to an assistant."""
        profile = parse(Profile, self.profile.plain, str(self.profile.path))
        if looked is None and profile.tasks:
            task = next(iter(profile.tasks))
            kind = profile.task(task).task
            questions = questions_by_split(profile, task, 0)["train"][:PROBES]
        else:
            looked = looked or SUMS
            kind = get_task(looked.kind, looked.grading)
            questions = [kind.parse(row, "question") for row in looked.rows[:PROBES]]
        speak = get_role(ASSISTANT).speak
        assert speak is not None
        return [speak(kind, Prompt(kind.instruction), question, []) for question in questions]

    def add_models(self, added: Sequence[ProbedModel]) -> None:
        """Add models to the pool, and their token counts to all tasks with measured lengths."""
        timed = self.profile.data["budget"]["metric"] == "runtime"
        for each in added:
            speed = {"speed": each.speed} if timed else {}
            self.profile.add("pool", each.name, {**each.entry, **speed})
            for task in self.profile.data["tasks"].values():
                if (measured := (task.get("lengths") or {}).get("measured")) is not None:
                    measured.update(self.profile.node(each.lengths))

    def add_task(self, name: str, looked: GradedQuestions, found: Sequence[ProbedModel]) -> None:
        """Add the questions as a task of the profile, with the token counts of the test calls, and
        their file to the files to write. Raises InputError if there is a different file already.
        """
        path, room = INPUTS / f"{name}.jsonl", providers.room_for(found)
        held, text = self.folder / path, json_lines(looked.rows)
        if held.exists() and held.read_text() != text:
            raise InputError(
                f"{path}: expected no file there, found other questions; choose another --name"
            )
        self.files[path] = text
        entry = task_entry(looked, path, room)
        if looked.kind == "judge" and "models" not in looked.grading and found:
            judge = max(found, key=lambda model: model.dollars)
            asked = {key: value for key, value in judge.entry.items() if key != "variants"}
            usual = {"rubric": RUBRIC, "models": {judge.name: asked}, "max_tokens": room}
            entry["grading"] = {**usual, **looked.grading}
        if found:
            lengths = {name: each for model in found for name, each in model.lengths.items()}
            most = max(lengths.values(), key=lambda each: sum(each.values()))
            members = parse(Profile, self.profile.plain, str(self.profile.path)).model_pool()
            entry["lengths"] = {"measured": dict.fromkeys(members, most) | lengths}
        self.profile.add("tasks", name, entry)
        if self.is_default:
            tasks = [each for each in self.params.data["tasks"] if each not in (SAMPLE, name)]
            self.params.data["tasks"][:] = [*tasks, name]

    def write(self, found: Sequence[ProbedModel]) -> None:
        """Write all files, and add the cost of the test calls to the project's account. Raises
        SettingsError if the settings are invalid, and DataError if a settings file has changed in
        the meantime.
        """
        for text, kind in ((self.profile, Profile), (self.params, Params)):
            refuse_secrets(text.plain, str(text.path))
            parse(kind, text.plain, str(text.path))
            if not self.is_new:
                text.require_unchanged()
            self.files[text.path] = text.text
        for path, content in self.files.items():
            write_text(self.folder / path, content)
        spent = (counted(call, each.price.of(call)) for each in found for call in each.calls)
        account = project_account(self.folder / STATE)
        account.write(sum(spent, account.read()))


def _is_reached(entry: Mapping[str, Any]) -> bool:
    """Return True if this entry of a pool has an endpoint whose key (if it needs one) is set."""
    key = entry.get("api_key_env")
    return bool(entry.get("base_url")) and (key is None or bool(os.environ.get(key)))


def task_name(wanted: Additions) -> str:
    """Return the task's name for new questions: the given one, or one made from the file's name.
    Raises InputError if the given one isn't a valid folder name.
    """
    if wanted.name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", wanted.name):
        raise InputError(
            f"--name: expected a letter or digit, then also '.', '_' or '-', found {wanted.name!r}"
        )
    file = "" if wanted.questions is None else wanted.questions.path.name.split(".")[0]
    return wanted.name or re.sub(r"[^A-Za-z0-9._-]+", "-", file).strip("-._") or "questions"


def task_entry(looked: GradedQuestions, path: Path, max_tokens: int = 512) -> dict[str, Any]:
    """Return a task's entry for a profile. Raises DataError if there are too few questions."""
    return {
        "kind": looked.kind,
        **({"grading": dict(looked.grading)} if looked.grading else {}),
        "source": {"kind": "jsonl", "path": path.as_posix()},
        "splits": split_sizes(len(looked.rows)),
        "prompt": {"style": "chat"},
        "sampling": {"temperature": providers.TEMPERATURE, "max_tokens": max_tokens},
    }


def split_sizes(count: int) -> dict[str, int]:
    """Return the number of questions in each split. Raises DataError if there are too few."""
    if count < LEAST:
        raise DataError(f"expected at least {LEAST} different questions, found {count}; add more")
    sizes = {split: min(MOST[split], int(share * count)) for split, share in SHARES.items()}
    return {**sizes, "test": min(MOST["test"], count - sum(sizes.values()))}


def split_words(count: int) -> str:
    """Return a message that says how many questions are used, and for what. Raises DataError if
    there are too few.
    """
    sizes = split_sizes(count)
    used = sum(sizes.values())
    use = f"{used:,} of {count:,} questions are used" if used < count else f"{count:,} questions"
    return (
        f"{use}: {sizes['train']} for the search, {sizes['val']} for validation, {sizes['test']}"
        " for the test; set `splits` in the profile to change this"
    )


def budget_of(budget: str | float | Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a budget per question, given as "$0.002", "3 s", "12 units" or 12
    (calls of the cheapest model), or a mapping of settings. Raises SettingsError for any other
    value.
    """
    if isinstance(budget, Mapping):
        return dict(budget)
    found = _BUDGET.fullmatch(str(budget))
    limit = math.inf if found is None else float(found[2])
    if found is None or (found[1] and found[3]) or limit == math.inf:
        raise SettingsError(
            f"budget: expected '$0.002', '3 s' or '12 units' (per question), found {budget!r}"
        )
    return {"metric": _METRICS.get(found[1] or found[3], "flops"), "limit": limit}


def budget_for(budget: str | None, found: Sequence[ProbedModel]) -> tuple[dict[str, Any], str]:
    """Return the budget per question, as settings and as a message. Raises InputError if even the
    cheapest call exceeds it.
    """
    by_cost = sorted(found, key=lambda model: model.dollars)
    said = "" if budget else "; change it with --budget"
    if budget is None and by_cost[-1].dollars:
        budget = f"${CALLS * by_cost[-1].dollars:.2g}"
        said = f", {CALLS} calls of {by_cost[-1].name}{said}"
    elif budget is None:
        slowest_s = max(model.answers[0].latency_s for model in found)
        budget = f"{max(SECONDS, CALLS * slowest_s):.2g} s"
    elif (number := _BUDGET.fullmatch(budget)) and not (number[1] or number[3]):
        budget = f"${number[2]}"
    settings = budget_of(budget)
    if settings["metric"] != "dollars":
        return settings, f"a question may take {budget}{said}"
    few = [model for model in by_cost if model.dollars > settings["limit"]]
    if few and len(few) == len(found):
        raise InputError(
            f"--budget: expected enough for a call of {few[0].name}, the cheapest model"
            f" (${few[0].dollars:.2g}), found {budget}"
        )
    if few:
        said += f"; too expensive for it: {', '.join(model.name for model in few)}"
    return settings, f"a question may cost {budget}{said}"
