"""What an endpoint tells of its models before any is asked: their names, origins and prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import openai

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.secrets import redact
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.endpoints.openai_client import Endpoint
from ttsgraph.endpoints.transport import ask_once, listed_by, reason_of

TIMEOUT_S = 15.0
_UNLISTED = (403, 404, 405, 501)
"""How servers say that they list no models, or not to this key."""

ListPrice = Mapping[str, float]
"""$ per million tokens, by `prompt`, `completion`, `cached` and `reasoning`, as a profile has it.
"""

_A_TOKEN = {
    "prompt": ("prompt", "input_cost_per_token"),
    "completion": ("completion", "output_cost_per_token"),
    "cached": ("input_cache_read", "cache_read_input_token_cost"),
    "reasoning": ("internal_reasoning", "output_cost_per_reasoning_token"),
}
"""$ per token under OpenRouter's names, and LiteLLM's."""

_A_MILLION = {
    "prompt": ("input", "input_tokens"),
    "completion": ("output", "output_tokens"),
    "cached": ("cached_input", "cache_read_tokens"),
}
"""$ per million tokens under Together's names, and DeepInfra's."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One model of an endpoint's list: the repository of the hub that it is from, and its price."""

    root: str | None = None
    price: ListPrice | None = None


def models_at(endpoint: Endpoint, with_key: bool = True) -> dict[str, Listed] | None:
    """The models that an endpoint lists, by name; None where it has no list.

    `with_key` says whether the endpoint's key is sent. Raises EndpointError, in one line that says
    what to do, when nothing there answers as an OpenAI-compatible server.
    """
    url = endpoint.base_urls[0]
    key = endpoint.api_key() if with_key else "none"
    header: dict[str, str | openai.Omit] = {}
    if endpoint.key_header is not None:
        header = {"Authorization": openai.Omit(), endpoint.key_header: key}

    async def asked(client: openai.AsyncOpenAI) -> tuple[dict[str, Any], dict[str, ListPrice]]:
        found = await listed_by(client.with_options(max_retries=1), header, dict(endpoint.query))
        entries = {redact(name): entry for name, entry in found.items()}
        unpriced = entries and not _priced(entries) and endpoint.key_header is None
        return entries, await _litellm_prices(client) if unpriced else {}

    try:
        entries, told = ask_once(url, key, TIMEOUT_S, asked)
    except openai.APIStatusError as error:
        if error.status_code in _UNLISTED:
            return None
        raise _no_list(endpoint, error) from None
    except Exception as error:  # whatever a server that is none of models makes of it
        raise _no_list(endpoint, error) from None
    return {
        name: Listed(_text(entry.get("root")), told.get(name) or price_in(entry))
        for name, entry in entries.items()
    }


def _no_list(endpoint: Endpoint, error: Exception) -> EndpointError:
    if isinstance(error.__cause__, Fault):  # which the package takes for a broken connection
        error = error.__cause__
    known = isinstance(error, openai.APIError | Fault | TimeoutError)
    told = reason_of(error) if known else redact(str(error))
    reason = told.splitlines()[0] if told else type(error).__name__
    hint = "start the server, or correct the URL (it mostly ends in /v1)"
    if getattr(error, "status_code", None) in (401, 403):
        hint = "name the variable that holds its key with --key-env"
    return EndpointError(
        f"{endpoint.base_urls[0]}/models: expected an OpenAI-compatible server's list of models,"
        f" but: {reason}; {hint}"
    )


def price_in(entry: Mapping[str, Any]) -> ListPrice | None:
    """The price in one entry of a list, in one of the shapes that servers give it."""
    inner = entry.get("metadata")
    told = entry.get("pricing") or (inner.get("pricing") if isinstance(inner, Mapping) else None)
    told = told if isinstance(told, Mapping) else entry
    for names, factor in ((_A_TOKEN, 1e6), (_A_MILLION, 1.0)):
        found = {
            ours: _dollars(told.get(theirs)) * factor
            for ours, several in names.items()
            for theirs in several
            if _dollars(told.get(theirs)) >= 0
        }
        if {"prompt", "completion"} <= set(found):
            optional = {n for n in ("cached", "reasoning") if not found.get(n)}
            return {ours: round(v, 9) for ours, v in found.items() if ours not in optional}
    return None


def _dollars(value: Any) -> float:
    """A price as a number or as text; below 0 for what is none (OpenRouter's -1 is "it
    depends").
    """
    try:
        return float(value) if isinstance(value, str | int | float) else -1.0
    except ValueError:
        return -1.0


def _priced(entries: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(price_in(entry) is not None for entry in entries.values())


async def _litellm_prices(client: openai.AsyncOpenAI) -> dict[str, ListPrice]:
    """Prices as LiteLLM's proxy tells them next to its list; none of any other server."""
    try:
        data: Any = await client.get("/model/info", cast_to=object)
    except Exception:  # it is no such proxy
        return {}
    rows = data.get("data") if isinstance(data, dict) else None
    found = {}
    for row in rows if isinstance(rows, list) else []:
        told = row.get("model_info") if isinstance(row, dict) else None
        if isinstance(told, Mapping) and (price := price_in(told)) is not None:
            found[redact(str(row.get("model_name")))] = price
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
