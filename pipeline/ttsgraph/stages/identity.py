"""What results depend on beside their inputs: settings, but for how models are served, and code.
One place for all that asks whether a result is still right: DVC (through files that
`ttsgraph_flows/identity.py` writes), a search that is started again, the study, the worlds, and the
record of a version.
"""

import hashlib
import json
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ttsgraph.base.code import Code, own_code
from ttsgraph.pool.engine import EngineSettings
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.settings.plugins import digests as plugin_digests
from ttsgraph.settings.profile import Params, Profile
from ttsgraph.settings.task import TaskSettings
from ttsgraph.stages.plan import StagePlan
from ttsgraph.tasks.base import TASKS, AskingTask

LIBRARIES = {
    name.replace("-", "_"): name
    for name in (
        *("datasets", "jinja2", "jsonschema", "math-verify", "numpy", "reasoning-gym", "regex"),
        *("rouge-score", "scipy", "torch", "transformers"),
    )
}
"""What is imported -> the library whose version may decide a result: grading, sampling, prompts."""

SERVING = ("description", "limits", "workers")
"""Sections of a profile that never decide a result."""

ENGINE = ("kind", "seeds", "max_model_len", "max_unscored", "extra_args")
"""What of the engine decides a result; the rest is how models are served."""

SERVE = ("max_model_len", "extra_args")
"""The same, of one model that is served here."""

REACHED = {"base_url", "api_key_env", "api_key_header", "query", "tokens_key", "listed", "serve"}
"""Where and how a model is reached, which may change without the model."""

ASKED = {"api_key_env", "timeout_s", "max_retries"}
"""The same, of the agent's model; and its base_url, which is left empty."""


version = cache(metadata.version)


def settings_identity(
    profile: Profile, task: str | None = None, sections: Collection[str] = ()
) -> dict[str, Any]:
    """The settings that results depend on, as plain data; of these sections, or of all, and of this
    task alone, or of all. A section may be a part, as `search.way`, or of tasks, as `tasks.source`.
    What was measured of lengths is a result itself, and left out.
    """
    sections = sections or set(Profile.model_fields) - {*SERVING, "newcomers"}
    whole = {section.partition(".")[0] for section in sections}
    # A section that is left out where it is empty has nothing to say.
    data = _identities(profile, task, profile.model_dump(mode="json", include=whole))
    sections = {section for section in sections if section.partition(".")[0] in data}
    parts: dict[str, Any] = {}
    for section in sorted(sections):
        name, dot, part = section.partition(".")
        if not dot:
            parts[name] = data[name]
        elif name not in sections:
            of_tasks = (
                {known: settings[part] for known, settings in data[name].items()}
                if name == "tasks"
                else data[name].get(part)  # a key may be left out at its default
            )
            parts[section] = of_tasks
    if profile.plugins:
        parts["plugin_files"] = plugin_digests(profile.plugins)
    return parts


def _identities(profile: Profile, task: str | None, data: dict[str, Any]) -> dict[str, Any]:
    """Sections of a profile as plain data, without what is not of a result's identity."""
    if "engine" in data:
        data["engine"] = {key: data["engine"][key] for key in ENGINE}
    for section, models in (("pool", profile.pool), ("newcomers", profile.newcomers)):
        if section in data:
            data[section] = {name: _model(model, profile.engine) for name, model in models.items()}
    if "agent" in data:
        data["agent"] = {key: value for key, value in data["agent"].items() if key not in ASKED}
        data["agent"]["base_url"] = None  # of agents without one, what it always was
    if "tasks" in data:
        names = [*profile.tasks] if task is None else [task]
        data["tasks"] = {name: _task(profile.task(name)) for name in names}
    return data


def settings_digest(
    profile: Profile, task: str | None = None, sections: Collection[str] = ()
) -> str:
    """SHA-256 of `settings_identity`."""
    return digest(settings_identity(profile, task, sections))


def code_digest(*roots: str, memory: Path | None = None) -> str:
    """SHA-256 of the code that these modules run, as this process has it; `memory` as of Code."""
    code = own_code(memory)
    found = code.digest(*roots)
    code.remember()
    return found


def stage_identity(
    plan: StagePlan, params: Params, profile: Profile, task: str | None, code: Code
) -> dict[str, Any]:
    """What a stage's result depends on beside its inputs, as plain data: settings, the digest of
    each file of its code, but for those of other kinds of tasks, and the versions of LIBRARIES.
    """
    settings = settings_identity(profile, task, plan.settings) if plan.settings else {}
    files = code.digests(plan.module, without=other_kinds(profile, task))
    of_run = params.model_dump(mode="json", include=set(plan.params))
    return {
        "stage": plan.name,
        "params": of_run,
        "settings": settings,
        "code": files,
        "libraries": _versions(code.libraries(files)),
    }


def other_kinds(profile: Profile, task: str | None) -> set[str]:
    """The modules of the kinds of tasks that a task is not of; none without a task."""
    if task is None:
        return set()
    own = {each.__module__ for each in type(profile.task(task).task).__mro__}
    return {type(TASKS[name]).__module__ for name in TASKS} - own


def _versions(imported: set[str]) -> dict[str, str]:
    found = {}
    for name in sorted(imported & LIBRARIES.keys()):
        with suppress(metadata.PackageNotFoundError):
            found[LIBRARIES[name]] = version(LIBRARIES[name])
    return found


def digest(data: Any) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _task(task: TaskSettings) -> dict[str, Any]:
    """A task's settings, without how the judges of its kind are reached."""
    data = task.model_dump(mode="json", exclude={"accuracies", "refused"})
    data["lengths"].pop("measured", None)
    if isinstance(task.task, AskingTask):
        data["grading"]["models"] = {
            name: {key: value for key, value in model.items() if key not in REACHED}
            for name, model in data["grading"]["models"].items()
        }
    return data


def _model(model: ModelSettings, engine: EngineSettings) -> dict[str, Any]:
    data = model.model_dump(mode="json", exclude=REACHED)
    serve = model.serve.model_dump(mode="json", include=set(SERVE))
    return data | {"serve": serve, "identity": model.identity(engine)}
