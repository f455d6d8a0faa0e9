"""What Python code gives a search, as a profile: models, questions, how answers are graded, and a
budget.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import InputError, SettingsError
from ttsgraph.base.files import write_text
from ttsgraph.base.parsing import Closed, parse
from ttsgraph.base.state import STATE
from ttsgraph.scaffold.entries import kind_of, split_sizes, task_entry
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Task, register_task
from ttsgraph.tasks.sources import TABLES, JsonlSource, Source, load_questions, load_rows

Models = Sequence[str | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]
TASK = "task"
"""What the one task of such a profile is called."""

EXAMPLES = {"base_url": "'http://127.0.0.1:8000/v1'", "price": "{'prompt': 0.1, 'completion': 0.3}"}
"""What each model has to have, as an example."""

_METRICS = {"$": "dollars", "s": "runtime"}
_BUDGET = re.compile(r"\s*(\$?)\s*((?:[0-9]|\.[0-9])[0-9_.,]*(?:[eE][-+]?\d+)?)\s*(s|units)?\s*")


def profile_of(
    models: Models,
    questions: Path,
    grade: str | Task | None,
    budget: str | float | Mapping[str, Any],
    grading: Mapping[str, Any] | None = None,
    shared: Mapping[str, Any] | None = None,
    sections: Mapping[str, Any] | None = None,
) -> Profile:
    """A profile with one task; `shared` is of all models, `sections` replace. Raises InputError."""
    if grade is not None and not isinstance(grade, str):
        register_task(grade)
        grade = grade.name
    kind, options = kind_of(questions, grade, grading)
    source = JsonlSource(kind="jsonl", path=questions)
    more = dict(sections or {})
    sizes = split_sizes(len(load_questions(get_task(kind, options), source, 0)))
    task = task_entry(kind, options, questions, sizes) | more.pop("task", {})
    data = {
        "engine": {"kind": "external"},
        "pool": pool_of(models, shared or {}),
        "tasks": {TASK: task},
        "roles": ["assistant", "fuser", "voter"],
        "budget": budget_of(budget),
        **{section: {} for section in ("pilot", "init", "search", "agent")},
    } | more
    return parse(Profile, data, "search")


def pool_of(models: Models, shared: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The pool; names alone take what is `shared`. Raises SettingsError naming what is missing."""
    if isinstance(models, Mapping):
        models = [{"name": name, **entry} for name, entry in models.items()]
    pool: dict[str, dict[str, Any]] = {}
    for model in models:
        entry = {"name": model} if isinstance(model, str) else dict(model)
        if "name" not in entry:
            raise SettingsError(f"models: expected a name of each model, found {entry}")
        name = entry.pop("name")
        pool[name] = {**shared, **entry}
        for key, example in EXAMPLES.items():
            if key not in pool[name]:
                raise SettingsError(
                    f"models: expected {key} of {name!r}: {{'name': {name!r}, {key!r}: {example}}},"
                    f" or {key}= for all"
                )
    if not pool:
        raise SettingsError("models: expected at least one")
    return pool


def budget_of(budget: str | float | Mapping[str, Any]) -> dict[str, Any]:
    """ "$0.002" dollars, "3 s", "12 units" (cheapest calls) per question, or a profile's own keys
    as they are. Raises SettingsError.
    """
    if isinstance(budget, Mapping):
        return dict(budget)
    found = _BUDGET.fullmatch(str(budget))
    if found is None or (found[1] and found[3]):
        raise SettingsError(
            f"budget: expected '$0.002', '3 s' or '12 units' per question, found {budget!r}"
        )
    return {
        "metric": _METRICS.get(found[1] or found[3], "flops"),
        "limit": float(found[2].replace(",", "").replace("_", "")),
    }


def questions_file(questions: Any, state: Path = STATE) -> Path:
    """The questions as a JSONL file, below `state` unless they are one: of a path to a JSONL, CSV
    or parquet file, rows, a DataFrame, or a mapping like a profile's `source`. Raises InputError.
    """
    if isinstance(questions, str | Path) and Path(questions).suffix.lower() not in TABLES:
        return Path(questions)
    rows = _rows(questions)
    text = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
    path = state / "questions" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
    write_text(path, text)
    return path


class _From(Closed):
    source: Source


def _rows(questions: Any) -> list[dict[str, Any]]:
    if isinstance(questions, str | Path):
        questions = {"kind": "jsonl", "path": str(questions)}
    if isinstance(questions, Mapping):
        source = parse(_From, {"source": questions}, "questions").source
        return [row for _, row in load_rows(source, 0)]
    if hasattr(questions, "to_dict"):  # a DataFrame
        questions = questions.astype(object).where(questions.notna(), None).to_dict("records")
    rows = list(questions)
    if odd := next((row for row in rows if not isinstance(row, Mapping)), None):
        raise InputError(
            f"questions: expected rows with a question and an answer, found {odd!r}"[:120]
        )
    return [{str(key): value for key, value in row.items()} for row in rows]
