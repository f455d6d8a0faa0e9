"""Identity of a search: its code, and its settings except how models are served. The study's stored
results are keyed by both. Workers refuse to run if their code differs from the searching process's
code, a re-search checks whether the settings changed since the last search, and a version's record
has the hash of the settings. This identity doesn't determine whether a stage runs again; DVC does,
based on dvc.yaml.
"""

import hashlib
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ttsgraph.base.parsing import ClosedModel
from ttsgraph.settings.plugins import digests as plugin_digests
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.settings.task import TaskSettings
from ttsgraph.tasks.base import AskingTask

LEFT_OUT = {
    *("limits", "workers"),  # these never influence a result
    *("evaluate", "deploy", "research", "newcomers"),  # these are used only after a search
}
"""Sections of a profile that don't influence a search."""

ENGINE = ("kind", "seeds", "max_model_len", "max_unscored", "extra_args")
"""Engine settings that influence a result; the others are about serving."""

SERVE = {"max_model_len", "extra_args"}
"""Settings of a locally served model that influence a result."""

REACHED = {"base_url", "api_key_env", "api_key_header", "serve"}
"""Settings for reaching a model, such as its address and credentials. They may change while the
model stays the same.
"""

ASKED = {"api_key_env", "timeout_s", "max_retries"}
"""Settings of the agent's model that don't influence a result. The key `base_url` is kept, but
without its value.
"""

PACKAGES = ("ttsgraph", "ttsgraph_flows", "codecheck", "finalanswer")
CODE = (".py", ".j2")


def settings_identity(profile: Profile, task: str | None = None) -> dict[str, Any]:
    """Return the settings that a found graph depends on, as plain data, for one task or for all
    tasks. Measured lengths are left out, because they are a result.
    """
    data = profile.model_dump(mode="json", exclude=LEFT_OUT)
    # Constants and the like that were settings keep the hashes of old records valid.
    for name, section in profile:
        if name in data and isinstance(section, ClosedModel):
            data[name] |= section.constants()
    data["init"]["contest"] |= ContestSettings.constants()
    tasks = profile.simulation.tasks.items()
    data["simulation"] = {"tasks": {kind: each.model_dump(mode="json") for kind, each in tasks}}
    data["engine"] = {key: data["engine"][key] for key in ENGINE}
    data["pool"] = {
        name: model.model_dump(mode="json", exclude=REACHED)
        | {"serve": model.serve.model_dump(mode="json", include=SERVE), "identity": model.identity}
        for name, model in profile.pool.items()
    }
    data["agent"] = {key: value for key, value in data["agent"].items() if key not in ASKED}
    data["agent"] |= {name: getattr(profile.agent, name) for name in ("kind", "max_tokens")}
    data["agent"]["base_url"] = None
    names = [*profile.tasks] if task is None else [task]
    data["tasks"] = {name: _task(profile.task(name)) for name in names}
    if profile.plugins:
        data["plugin_files"] = plugin_digests(profile.plugins)
    return data


def settings_sha256(profile: Profile, task: str | None = None) -> str:
    """Return the SHA-256 of `settings_identity`."""
    return digest(settings_identity(profile, task))


@cache
def code_digest(*packages: str) -> str:
    """Return the SHA-256 of the code (modules and templates) of the product's installed packages
    and of further `packages`.
    """
    found = hashlib.sha256()
    for spec in filter(None, map(find_spec, (*PACKAGES, *packages))):
        folder = Path(spec.origin or "").parent
        for path in sorted(path for path in folder.rglob("*") if path.suffix in CODE):
            found.update(f"{spec.name}/{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def digest(data: Any) -> str:
    """Return the SHA-256 of plain data, independent of the order of keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _task(task: TaskSettings) -> dict[str, Any]:
    """Return the settings of a task, without measurements and without its judges' addresses."""
    data = task.model_dump(mode="json", exclude={"accuracies", "refused"})
    data["lengths"].pop("measured", None)
    if isinstance(task.task, AskingTask):
        data["grading"]["models"] = {
            name: {key: value for key, value in model.items() if key not in REACHED}
            for name, model in data["grading"]["models"].items()
        }
    return data
