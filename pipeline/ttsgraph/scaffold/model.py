"""`ttsgraph new-model`: from the URL of an endpoint to a model of a profile's pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttsgraph.base.errors import EndpointError, InputError, SettingsError
from ttsgraph.endpoints.openai_client import Endpoint
from ttsgraph.scaffold.profile_text import ProfileText, require_name
from ttsgraph.scaffold.providers import SHOWN, ListPrice, models_at
from ttsgraph.scaffold.task import has_key, questions_by_split, try_out
from ttsgraph.settings.profile import load_profile

COUNTED = ("total", "non_embedding", "layers", "hidden")
"""What a FLOPs budget has to know of a model."""

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


async def new_model(
    name: str,
    known: Mapping[str, Any],
    profile_name: str,
    task: str | None = None,
) -> list[str]:
    """Add a model to a profile's pool, once it has been asked five questions of a task (by default
    the profile's first); returns what came of it in lines for people.

    `known` are keys of a pool's entry, `base_url` among them. Without its key the model is not
    asked. Raises InputError, in one line that says what to do, and writes nothing, when the
    endpoint does not answer or lacks the model, a fact is missing, or the profile can't be used.
    """
    require_name(name, "a model")
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
    entry = _entry(name, known, profile.budget.metric == "flops")
    written, with_model = text.with_entry("pool", name, entry, COMMENTS)
    key = known.get("api_key_env")
    if not has_key(key):
        hint = f"{key} is not set; export it, `ttsgraph doctor` tries it then"
        lines = [f"{name} was not tried: {hint}"]
    elif chosen is None:
        hint = "the profile has no task yet: `ttsgraph new-task` adds one"
        lines = [f"{name} was not tried: {hint}"]
    else:
        splits = questions_by_split(with_model, chosen, 0)
        asked = [*splits["train"], *splits["val"]]
        _, lines = await try_out(with_model, chosen, name, splits["shots"], asked)
    text.write(written)
    return [*lines, f"profiles/{profile_name}.yaml has the model {name} now"]


def _entry(name: str, known: Mapping[str, Any], counted: bool) -> dict[str, Any]:
    """The pool's entry: what was given, and what the endpoint lists; sizes have to be there where
    FLOPs are `counted`. Raises InputError.
    """
    served_as, listed, price = _served(name, known)
    price = dict(price or {}) | known["price"]
    facts = {key: known[key] for key in ("family", *COUNTED) if key in known}
    missing = [key for key in COUNTED if counted and key not in facts]
    missing += [f"price_{part}" for part in ("prompt", "completion") if part not in price]
    if missing:
        shown = ", ".join(f"--{option.replace('_', '-')}" for option in missing)
        raise InputError(
            f"{name}: expected {shown}, which its endpoint does not tell; its model card has them"
        )
    if counted:
        facts = {"family": name.split("-")[0]} | facts
    address = {"base_url": known["base_url"], "served_as": served_as}
    more = ("api_key_env", "api_key_header", "query", "revision")
    address |= {key: known[key] for key in more if key in known}
    return facts | {"price": price} | address | ({} if listed else {"listed": False})


def _served(name: str, known: Mapping[str, Any]) -> tuple[str, bool, ListPrice | None]:
    """The model's name at the endpoint, whether that lists its models, and the price in the list.
    Raises EndpointError.
    """
    url = known["base_url"]
    key_env = known.get("api_key_env")
    query = tuple(known.get("query", {}).items())
    endpoint = Endpoint((url,), "", key_env, key_header=known.get("api_key_header"), query=query)
    there = models_at(endpoint, has_key(key_env))
    names = [known["served_as"], name] if "served_as" in known else [name]
    if there is None:
        return names[0], False, None
    found = next(
        (each for name in names for each in (name, f"{name}:latest") if each in there), None
    )
    if found is None and "served_as" not in known and len(there) == 1:
        found = next(iter(there))
    if found is None:
        shown = ", ".join(list(there)[:SHOWN]) or "none"
        more = f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""
        raise EndpointError(
            f"{url}: expected model {names[0]!r}, but the server has {shown}{more}; choose"
            " with --served-as"
        )
    return found, True, there[found]
