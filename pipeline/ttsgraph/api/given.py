"""Inputs of a search in Python: models, questions, grading and budget, from which a profile is
built; and a team of models, to be compared with what the search finds for its cost.

A team is a graph file, or a list of proposers and an aggregator, as in a mixture of agents:

    proposers: [small, small, large]
    aggregator: large
    layers: 2                           # a layer of proposers, then the aggregator

Proposers in the first layer answer independently. In further layers, the same proposers read all
answers of the previous layer. The aggregator reads the answers of the last layer of proposers.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field

from ttsgraph.base.errors import InputError, SettingsError
from ttsgraph.base.files import write_text
from ttsgraph.base.parsing import ClosedModel, load, parse
from ttsgraph.base.state import STATE
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import FUSER, check_roles, get_role
from ttsgraph.graphs.topologies import layered
from ttsgraph.scaffold.add import TEMPLATES, budget_of, task_entry
from ttsgraph.scaffold.cells import json_lines
from ttsgraph.scaffold.questions import QuestionSource, look_at
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.trials import Case
from ttsgraph.tasks.base import Task, register_task

Models = Sequence[str | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]
TASK = "task"
"""Name of the only task of a profile that is built from inputs in Python."""

TEAM = "team"
"""Label of a team that isn't read from a file."""


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
    file = _kept(json_lines(looked.rows), state)
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
                " 'a', 'base_url': 'http://127.0.0.1:8000/v1', 'price': 0.1}}, or for all models"
            )
        pool[entry.pop("name")] = entry
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


class Team(ClosedModel):
    """Preset of a team, with the models' names in the profile's pool."""

    proposers: Annotated[tuple[str, ...], Field(min_length=1)]
    """models called in parallel; a model listed twice is called twice"""
    aggregator: str | None = None
    """model that combines the proposers' answers; optional if the role calls no model (voter)"""
    layers: int = Field(default=2, ge=2)
    """number of layers, including the aggregator"""
    role: str = FUSER
    """role of the aggregator: fuser, judge, voter, ..."""


def preset_case(given: Any, profile: Profile) -> Case:
    """Return the test case of a team, given as a graph, as a Team's keys, or as a file with either.

    Raises InputError if the file can't be read, or the team is invalid.
    """
    label, where = TEAM, TEAM
    if isinstance(given, str | Path):
        path, label, where = Path(given), Path(given).stem, str(given)
        if not path.is_file():
            raise InputError(f"{path}: expected a file with a team, found none")
        given = CollaborationGraph.read(path) if path.suffix == ".json" else load(Team, path)
    team = parse(Team, given, TEAM) if isinstance(given, Mapping) else given
    if isinstance(team, Team):
        if team.aggregator is None and get_role(team.role).calls_model:
            raise SettingsError(f"{where}: expected an aggregator, or `role: voter`, found neither")
        levels = [list(team.proposers)] * (team.layers - 1)
        graph = layered(levels, team.aggregator or team.proposers[0], team.role)
    else:
        graph = team
    for node in graph.nodes:
        _ = profile.model_pool()[node.model]
    check_roles(graph)
    return Case(graph, {"arm": TEAM, "label": label})
