"""What makes two searches the same: their settings, but for how models are served, and their code.
A search that is started again asks for both, and so do the study and the worlds; the record of a
version has the settings. When a stage runs again is DVC's to say, by dvc.yaml.
"""

import hashlib
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ttsgraph.pool.engine import RETIRED, EngineSettings
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.settings.plugins import digests as plugin_digests
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.task import TaskSettings
from ttsgraph.tasks.base import AskingTask

LEFT_OUT = {
    *("description", "limits", "workers"),  # never decide a result
    *("evaluate", "deploy", "research", "newcomers"),  # only what comes after a search looks at
}
"""Sections of a profile that decide nothing of a search."""

ENGINE = ("kind", "seeds", "max_model_len", "max_unscored", "extra_args")
"""What of the engine decides a result; the rest is how models are served."""

SERVE = ("max_model_len", "extra_args")
"""The same, of one model that is served here."""

REACHED = {"base_url", "api_key_env", "api_key_header", "query", "tokens_key", "listed", "serve"}
"""Where and how a model is reached, which may change without the model."""

ASKED = {"api_key_env", "timeout_s", "max_retries"}
"""The same, of the agent's model; and its base_url, which is left empty."""

PACKAGES = ("ttsgraph", "ttsgraph_flows", "codecheck", "finalanswer")
CODE = (".py", ".j2")


def settings_identity(profile: Profile, task: str | None = None) -> dict[str, Any]:
    """The settings that a found graph depends on, as plain data; with this task alone, or all. What
    was measured of lengths is a result itself, and left out.
    """
    data = profile.model_dump(mode="json", exclude=LEFT_OUT)
    data["engine"] = {key: (RETIRED | data["engine"])[key] for key in ENGINE}
    data["pool"] = {name: _model(model, profile.engine) for name, model in profile.pool.items()}
    data["agent"] = {key: value for key, value in data["agent"].items() if key not in ASKED}
    data["agent"]["base_url"] = None  # of agents without one, what it always was
    names = [*profile.tasks] if task is None else [task]
    data["tasks"] = {name: _task(profile.task(name)) for name in names}
    if profile.plugins:
        data["plugin_files"] = plugin_digests(profile.plugins)
    return data


def settings_sha256(profile: Profile, task: str | None = None) -> str:
    """SHA-256 of `settings_identity`."""
    return digest(settings_identity(profile, task))


@cache
def code_digest(*packages: str) -> str:
    """SHA-256 of the product's packages that are there, and of others: of each module, and of each
    template, which prompts are made of.
    """
    found = hashlib.sha256()
    for spec in filter(None, map(find_spec, (*PACKAGES, *packages))):
        folder = Path(spec.origin or "").parent
        for path in sorted(path for path in folder.rglob("*") if path.suffix in CODE):
            found.update(f"{spec.name}/{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return found.hexdigest()


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
