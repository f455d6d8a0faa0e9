"""`ttsgraph new-model`: from the URL of an endpoint to a model of a profile's pool."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import EndpointError, InputError, SettingsError
from ttsgraph.endpoints.openai_client import Endpoint
from ttsgraph.runtime.doctor import count_parameters
from ttsgraph.scaffold.check import try_out
from ttsgraph.scaffold.listing import TIMEOUT_S, Listed, models_at
from ttsgraph.scaffold.names import require_name
from ttsgraph.scaffold.profile_text import ProfileText
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.questions import questions_of, questions_path
from ttsgraph.tasks.sources import load_questions, split_questions

COUNTED = ("total", "non_embedding", "layers", "hidden")
WHOLE = ("layers", "hidden")
SHOWN = 12
"""Names of an endpoint's list that are shown."""

FACTS: Mapping[str, str] = {
    "total": "parameters in all, such as 8.03e9",
    "non_embedding": "parameters without embeddings, such as 6.98e9",
    "layers": "layers",
    "hidden": "hidden size",
    "price_prompt": "dollars per million tokens of a prompt (0 where nothing is paid)",
    "price_completion": "dollars per million tokens of an answer",
}
"""What has to be known of a model beside its address; the first four, for a FLOPs budget alone, are
in its configuration.
"""

COMMENTS = {
    "": "Made by `ttsgraph new-model`; every value may be changed.",
    "family": "models of one family are compared by size",
    "total": "parameters, layers and hidden size: what a call costs in FLOPs (Theorem 1)",
    "price": "dollars per million tokens",
    "base_url": "an OpenAI-compatible endpoint; several in brackets share the load",
    "served_as": "the model's name there",
    "listed": "false: the endpoint does not list this name",
    "api_key_env": (
        "the environment variable with the endpoint's key; a key itself does not belong here"
    ),
    "revision": (
        "what tells this version's answers from another's in the call cache; pin it where you can"
    ),
}

AskPerson = Callable[[str, str], str]
"""Asks a person for a fact, by its name and in words."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: name, endpoint, and the facts that are known already; `ask` finds out the
    others, if there is anybody.
    """

    name: str
    url: str
    facts: Mapping[str, float]
    served_as: str | None = None
    family: str | None = None
    api_key_env: str | None = None
    hub: str | None = None
    revision: str | None = None
    ask: AskPerson | None = None
    api_key_header: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def endpoint(self) -> Endpoint:
        """Where it is reached."""
        key = self.api_key_header
        query = tuple(self.query.items())
        return Endpoint(
            (self.url,), self.served_as or "", self.api_key_env, key_header=key, query=query
        )

    @property
    def has_key(self) -> bool:
        """Whether the endpoint's key is there, if it wants one."""
        return self.api_key_env is None or bool(os.environ.get(self.api_key_env, "").strip())


async def new_model(wanted: Wanted, profile_name: str, task: str | None = None) -> list[str]:
    """Add a model to a profile's pool, once it has been asked five questions of a task (by default
    the profile's first); returns what came of it in lines for people.

    Without its key it is not asked. Raises InputError, in one line that says what to do, and writes
    nothing, when the endpoint does not answer or lacks the model, a fact is missing, or the profile
    can't be used.
    """
    require_name(wanted.name, "a model")
    profile = load_profile(profile_name)
    text = ProfileText(profile_name)
    if profile.engine.kind == "simulated":
        raise SettingsError(
            f"profile {profile_name!r}: expected an engine that asks real models, found simulated;"
            " copy another one"
        )
    chosen = task or next(iter(profile.tasks), None)
    if chosen is not None:
        profile.task(chosen)
    served, listed = find_served(wanted)
    counted = COUNTED if profile.budget.metric == "flops" else ()
    facts = _facts(wanted, counted, served, listed or Listed())
    prices = (listed or Listed()).price or {}
    entry: dict[str, Any] = {"family": wanted.family} if wanted.family else {}
    if counted and wanted.family is None:
        entry["family"] = wanted.name.split("-")[0]
    entry |= {
        name: int(facts[name]) if name in WHOLE else facts[name]
        for name in COUNTED
        if name in facts
    }
    entry["price"] = dict(prices) | {
        "prompt": facts["price_prompt"],
        "completion": facts["price_completion"],
    }
    entry |= {"base_url": wanted.url, "served_as": served}
    more = ("api_key_env", "api_key_header", "query", "revision")
    entry |= {key: value for key in more if (value := getattr(wanted, key))}
    if listed is None:
        entry["listed"] = False
    written, with_model = text.with_entry("pool", wanted.name, entry, COMMENTS)
    if not wanted.has_key:
        hint = "is not set; export it, `ttsgraph doctor` tries it then"
        lines = [f"{wanted.name} was not tried: {wanted.api_key_env} {hint}"]
    elif chosen is None:
        hint = "the profile has no task yet: `ttsgraph new-task` adds one"
        lines = [f"{wanted.name} was not tried: {hint}"]
    else:
        shots, questions = _questions(with_model, profile_name, chosen)
        _, lines = await try_out(with_model, chosen, wanted.name, shots, questions)
    text.write(written)
    return [*lines, f"profiles/{profile_name}.yaml has the model {wanted.name} now"]


def find_served(wanted: Wanted) -> tuple[str, Listed | None]:
    """The model's name at the endpoint, and what its list says of it; None where there is no list.
    Raises EndpointError.
    """
    found_there = models_at(wanted.endpoint, wanted.has_key)
    names = [name for name in (wanted.served_as, wanted.name) if name is not None]
    if found_there is None:
        return names[0], None
    found = next(
        (name for name in names for name in (name, f"{name}:latest") if name in found_there), None
    )
    if found is None and wanted.served_as is None and len(found_there) == 1:
        found = next(iter(found_there))
    if found is None:
        shown = ", ".join(list(found_there)[:SHOWN]) or "none"
        more = f" and {len(found_there) - SHOWN} more" if len(found_there) > SHOWN else ""
        raise EndpointError(
            f"{wanted.url}: expected model {names[0]!r}, but the server has {shown}{more}; choose"
            " with --served-as"
        )
    return found, found_there[found]


def _facts(wanted: Wanted, counted: Sequence[str], served: str, listed: Listed) -> dict[str, float]:
    """What is known: what was given, what the endpoint lists, `counted` facts of the model's
    configuration on the hub, and what a person answers. Raises InputError.
    """
    facts = dict(wanted.facts)
    why = ""
    facts = {f"price_{name}": value for name, value in (listed.price or {}).items()} | facts
    repository = wanted.hub or (listed.root if listed.root and _repository(listed.root) else served)
    if any(name not in facts for name in counted) and _repository(repository):
        try:
            facts = configured(repository, wanted.revision) | facts
        except InputError as error:
            why = f" ({error})"
    missing = [
        name for name in FACTS if name not in facts and (name not in COUNTED or name in counted)
    ]
    if missing and wanted.ask is None:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise InputError(
            f"{wanted.name}: expected {options}, which its endpoint does not tell{why}; its model"
            " card has them"
        )
    for name in missing:
        assert wanted.ask is not None
        try:
            facts[name] = float(wanted.ask(name, FACTS[name]))
        except ValueError:
            raise InputError(
                f"{name.replace('_', ' ')}: expected a number; nothing was written, start again"
            ) from None
    return facts


def configured(repository: str, revision: str | None = None) -> dict[str, float]:
    """Parameters, layers and hidden size of a repository's configuration on the hub. Raises
    EndpointError when it can't be had.
    """
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise EndpointError(
            "the hub can't be asked without the package huggingface_hub: pip install"
            " 'ttsgraph[tasks]'"
        ) from None
    try:
        path = Path(
            hf_hub_download(repository, "config.json", revision=revision, etag_timeout=TIMEOUT_S)
        )
    except Exception as error:  # the library raises many kinds: offline, gated, renamed
        raise EndpointError(
            f"{repository} on the hub:"
            f" {(str(error).strip().splitlines() or [type(error).__name__])[0]}"
        ) from None
    return {name: float(value) for name, value in count_parameters([path])[0].items()}


def _repository(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith(("/", "."))


def _questions(
    profile: Profile, profile_name: str, task: str
) -> tuple[list[Question], list[Question]]:
    """Worked examples and questions to try a model on: those of the sample stage, else the source's
    first.
    """
    settings = profile.task(task)
    path = questions_path(profile_name, task)
    if path.exists():
        from ttsgraph.stages.schemas import Questions, read_table  # of the stages alone

        splits = questions_of(read_table(Questions, path, "sample"))
    else:
        loaded = load_questions(settings.task, settings.source, 0)
        splits = split_questions(loaded, settings.splits.sizes(), 0)
    return splits["shots"], [*splits["train"], *splits["val"]]
