"""Build a profile from a search's inputs in Python: models, questions, grading and budget."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ttsgraph.base.errors import InputError, SettingsError
from ttsgraph.base.files import write_text
from ttsgraph.base.parsing import parse
from ttsgraph.base.state import STATE
from ttsgraph.scaffold.add import TEMPLATES, budget_of, task_entry
from ttsgraph.scaffold.cells import json_lines
from ttsgraph.scaffold.questions import QuestionSource, look_at
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks.base import Task, register_task

Models = Sequence[str | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]
TASK = "task"
"""Name of the only task of a profile that is built from inputs in Python."""


def profile_of(
    models: Models,
    questions: Path,
    grade: str | Task | None,
    budget: str | float | Mapping[str, Any],
    grading: Mapping[str, Any] | None = None,
    shared: Mapping[str, Any] | None = None,
    sections: Mapping[str, Any] | None = None,
    state: Path = STATE,
) -> Profile:
    """Return a profile with one task, whose questions are stored below `state`.

    `shared` settings apply to all models that don't set their own; `sections` replace sections of
    the profile. Raises InputError if an input is invalid.
    """
    if grade is not None and not isinstance(grade, str):
        register_task(grade)
        grade = grade.name
    looked = look_at(QuestionSource(questions, grade, grading or {}))
    more = dict(sections or {})
    file = _kept(looked.text, state)
    task = task_entry(looked, file) | more.pop("task", {})
    given = {"pool": pool_of(models, shared or {}), "tasks": {TASK: task}}
    data = yaml.safe_load((TEMPLATES / "profile.yaml").read_text())
    return parse(Profile, data | given | {"budget": budget_of(budget)} | more, "search")


def pool_of(models: Models, shared: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the entries of a pool by name; a model's own settings take precedence over the
    `shared` ones. Raises SettingsError naming a model's missing key, if there is one.
    """
    if isinstance(models, Mapping):
        models = [{"name": name, **entry} for name, entry in models.items()]
    pool: dict[str, dict[str, Any]] = {}
    for model in models:
        entry = {**shared, **({"name": model} if isinstance(model, str) else model)}
        if absent := [key for key in ("name", "base_url", "price") if key not in entry]:
            raise SettingsError(
                f"models: expected {absent[0]!r} for {entry.get('name', entry)!r}, as in {{'name':"
                " 'a', 'base_url': 'http://127.0.0.1:8000/v1', 'price': {'prompt': 0.1,"
                " 'completion': 0.3}}, or as an argument for all models"
            )
        pool[entry.pop("name")] = entry
    if not pool:
        raise SettingsError("models: expected at least one model, found none")
    return pool


def questions_file(questions: Any, state: Path = STATE) -> Path:
    """Return the path of a file with the questions: the given file, or a JSONL file written below
    `state`.

    `questions` are a path, rows or a DataFrame. Raises InputError if they can't be read as rows.
    """
    if isinstance(questions, str | Path):
        return Path(questions)
    if hasattr(questions, "to_dict"):  # a DataFrame has this method
        questions = questions.astype(object).where(questions.notna(), None).to_dict("records")
    rows = list(questions)
    if odd := next((row for row in rows if not isinstance(row, Mapping)), None):
        raise InputError(
            f"questions: expected rows with a question and an answer, found {odd!r}"[:120]
        )
    return _kept(json_lines({str(key): row[key] for key in row} for row in rows), state)


def _kept(text: str, state: Path) -> Path:
    """Write JSON lines to a file below `state` that is named after their hash; return its path."""
    path = state / "questions" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
    write_text(path, text)
    return path
