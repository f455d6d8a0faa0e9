"""`ttsgraph new-model`: from the URL of an endpoint to a model of a profile's pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.doctor import count_parameters
from pipeline.errors import EndpointError, InputError, SettingsError
from pipeline.models.openai_client import Endpoint
from pipeline.models.transport import connect_once
from pipeline.scaffold.check import Tried, try_out
from pipeline.scaffold.names import require_name
from pipeline.scaffold.profile_text import ProfileText
from pipeline.schemas import Questions, read_table
from pipeline.secrets import redact
from pipeline.settings import Profile, load_profile
from pipeline.tasks.base import Question
from pipeline.tasks.questions import questions_of, questions_path
from pipeline.tasks.sources import load_questions, split_questions

TIMEOUT_S = 15.0
COUNTED = ("total", "non_embedding", "layers", "hidden")
FACTS: Mapping[str, str] = {
    "total": "parameters in all, such as 8.03e9",
    "non_embedding": "parameters without embeddings, such as 6.98e9",
    "layers": "layers",
    "hidden": "hidden size",
    "price_prompt": "dollars per million tokens of a prompt (0 where nothing is paid)",
    "price_completion": "dollars per million tokens of an answer",
}
"""What has to be known of a model beside its address; the first four are in its configuration."""

COMMENTS = {
    "": "Made by `ttsgraph new-model`; every value may be changed.",
    "family": "models of one family are compared by size",
    "total": "parameters, layers and hidden size: what a call costs in FLOPs (Theorem 1)",
    "price": "dollars per million tokens",
    "base_url": "an OpenAI-compatible endpoint; several in brackets share the load",
    "served_as": "the model's name there",
    "api_key_env": "the environment variable with the endpoint's key; a key itself does not belong here",
    "revision": "what tells this version's answers from another's in the call cache; pin it where you can",
}

Ask = Callable[[str, str], str]
"""Asks a person for a fact, by its name and in words."""


@dataclass(frozen=True, slots=True)
class NewModel:
    """A model that was tried and written: its settings, and what came of the trial."""

    name: str
    entry: Mapping[str, Any]
    tried: Tried


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: name, endpoint, and the facts that are known already; `ask` finds out the others, if there is anybody."""

    name: str
    url: str
    facts: Mapping[str, float]
    served_as: str | None = None
    family: str | None = None
    api_key_env: str | None = None
    hub: str | None = None
    revision: str | None = None
    ask: Ask | None = None


async def new_model(wanted: Wanted, profile_name: str, task: str | None = None) -> NewModel:
    """Add a model to a profile's pool, once it has been asked five questions of a task (by default the profile's first).

    Raises InputError, in one line that says what to do, and writes nothing, when the endpoint does not answer or lacks the model,
    a fact is missing, or the profile can't be used.
    """
    require_name(wanted.name, "a model")
    profile, text = load_profile(profile_name), ProfileText(profile_name)
    if profile.engine.kind != "external":
        raise SettingsError(
            f"profile {profile_name!r}: expected engine.kind external, to reach models by URL, found {profile.engine.kind}; "
            "copy the profile and change its engine, or give the model's weights by hand"
        )
    chosen = task or next(iter(profile.tasks))
    profile.task(chosen)
    served, root = find_served(wanted)
    facts = _facts(wanted, root or served)
    entry: dict[str, Any] = {
        "family": wanted.family or wanted.name.split("-")[0],
        "total": facts["total"],
        "non_embedding": facts["non_embedding"],
        "layers": int(facts["layers"]),
        "hidden": int(facts["hidden"]),
        "price": {"prompt": facts["price_prompt"], "completion": facts["price_completion"]},
        "base_url": wanted.url,
        "served_as": served,
    }
    entry |= {key: value for key in ("api_key_env", "revision") if (value := getattr(wanted, key)) is not None}
    written, with_model = text.with_entry("pool", wanted.name, entry, COMMENTS)
    shots, questions = _questions(with_model, profile_name, chosen)
    tried = await try_out(with_model, chosen, wanted.name, shots, questions)
    text.write(written)
    return NewModel(wanted.name, entry, tried)


def listed_models(url: str, api_key_env: str | None, served_as: str = "") -> dict[str, object]:
    """The endpoint's models by name, with the repository each is from where the endpoint tells it. Raises EndpointError."""
    key = Endpoint((url,), served_as, api_key_env).api_key()
    try:
        with connect_once(url, key, TIMEOUT_S, max_retries=1) as client:
            return {redact(model.id): getattr(model, "root", None) for model in client.models.list()}
    except Exception as error:  # whatever a server that is none of models makes of it
        reason = redact(str(error)).splitlines()[0] if str(error) else type(error).__name__
        hint = "start the server, or correct the URL (it mostly ends in /v1)" + ("" if api_key_env else "; --api-key-env for a key")
        raise EndpointError(f"{url}/models: expected an OpenAI-compatible server's list of models, but: {reason}; {hint}") from None


def find_served(wanted: Wanted) -> tuple[str, str | None]:
    """The model's name at the endpoint and, where the endpoint tells it, the hub's repository it is from. Raises EndpointError."""
    url = wanted.url
    listed = listed_models(url, wanted.api_key_env, wanted.served_as or "")
    names = [name for name in (wanted.served_as, wanted.name) if name is not None]
    found = next((name for name in names if name in listed), None)
    if found is None and wanted.served_as is None and len(listed) == 1:
        found = next(iter(listed))
    if found is None:
        raise EndpointError(
            f"{url}: expected model {names[0]!r}, but the server has {', '.join(listed) or 'none'}; choose with --served-as"
        )
    root = listed[found]
    return found, str(root) if isinstance(root, str) and _repository(root) else None


def _facts(wanted: Wanted, repository: str) -> dict[str, float]:
    """All facts: those given, those of the model's configuration on the hub, and what a person answers. Raises InputError."""
    facts, why = dict(wanted.facts), ""
    repository = wanted.hub or repository
    if any(name not in facts for name in COUNTED) and _repository(repository):
        try:
            facts = configured(repository, wanted.revision) | facts
        except InputError as error:
            why = f" ({error})"
    missing = [name for name in FACTS if name not in facts]
    if missing and wanted.ask is None:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise InputError(f"{wanted.name}: expected {options}, which its endpoint does not tell{why}; its model card has them")
    for name in missing:
        assert wanted.ask is not None
        try:
            facts[name] = float(wanted.ask(name, FACTS[name]))
        except ValueError:
            raise InputError(f"{name.replace('_', ' ')}: expected a number; nothing was written, start again") from None
    return facts


def configured(repository: str, revision: str | None = None) -> dict[str, float]:
    """Parameters, layers and hidden size of a repository's configuration on the hub. Raises EndpointError when it can't be had."""
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise EndpointError("the hub can't be asked without the package huggingface_hub: pip install 'ttsgraph[tasks]'") from None
    try:
        path = Path(hf_hub_download(repository, "config.json", revision=revision, etag_timeout=TIMEOUT_S))
    except Exception as error:  # the library raises many kinds: offline, gated, renamed
        raise EndpointError(f"{repository} on the hub: {(str(error).strip().splitlines() or [type(error).__name__])[0]}") from None
    return {name: float(value) for name, value in count_parameters([path])[0].items()}


def _repository(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith(("/", "."))


def _questions(profile: Profile, profile_name: str, task: str) -> tuple[list[Question], list[Question]]:
    """Worked examples and questions to try a model on: those of the sample stage, else the source's first."""
    settings = profile.task(task)
    path = questions_path(profile_name, task)
    if path.exists():
        splits = questions_of(read_table(Questions, path, "sample"))
    else:
        loaded = load_questions(settings.task, settings.source, 0)
        splits = split_questions(loaded, settings.splits.sizes(), 0)
    return splits["shots"], [*splits["train"], *splits["val"]]
