"""Models of a provider, listed by the endpoint or named by the user, and their prices."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any
from urllib.parse import urlsplit

from ttsgraph.base.errors import EndpointError, InputError
from ttsgraph.base.parsing import parse
from ttsgraph.base.secrets import redact
from ttsgraph.endpoints.endpoint import Endpoint, list_models, path_advice, plain_name
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.runtime.clients import endpoint_of

SHOWN = 12
"""Maximum number of names that a message lists. If an endpoint lists at most this number of chat
models, all of them are used unless the user chooses some.
"""

NOT_CHAT = ("embed", "rerank", "moderation", "whisper", "tts-", "dall-e", "guard", "image")
DOLLARS = "dollars per million tokens of prompts and answers; 0 if free"
TIMEOUT_S = 15.0

ListPrice = Mapping[str, float]
"""Dollars per million tokens of `prompt` and `completion`."""


@dataclass(frozen=True, slots=True)
class Provider:
    """Endpoint from the command line: the environment variable with its key, its models (default:
    all; names may contain *), their prices by name ("" for all), and further settings of the
    models, as in a profile's pool.
    """

    url: str
    key_env: str | None = None
    models: tuple[str, ...] = ()
    prices: Mapping[str, ListPrice] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def entry(self, served_as: str, listed: bool = True) -> dict[str, Any]:
        """Return the entry of a model in a profile's pool, without its price."""
        return {
            **self.settings,
            "base_url": self.url,
            "served_as": served_as,
            **({"api_key_env": self.key_env} if self.key_env else {}),
            **({} if listed else {"listed": False}),
        }


def candidates(
    provider: Provider, held: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, tuple[dict[str, Any], str]], list[str]]:
    """Return the entries of the chosen or listed models, with the source of their prices, under new
    names for the pool; and a line for each model that is left out: it is in the pool already, or,
    if it wasn't named, its price is unknown.

    `held` has the entries of the pool by name. Raises InputError for a model that isn't listed, or
    a price that is unknown.
    """
    listed = _listed(provider)
    pool: dict[str, tuple[dict[str, Any], str]] = {}
    lines = []
    unpriced = []
    unused = set(provider.prices) - {""}
    for served_as in _chosen(provider, listed):
        plain = plain_name(served_as)
        if own := [n for n, entry in held.items() if _is_held(served_as, provider.url, n, entry)]:
            lines.append(
                f"{served_as} is in the pool already, as {own[0]}; to change it, or to ask it in"
                " other ways too (`variants`), edit its entry in the profile"
            )
            continue
        short = served_as.rsplit("/", 1)[-1]
        first = re.sub(r"[^A-Za-z0-9._-]+", "-", short).strip("._-") or "model"
        names = chain((first,), (f"{first}-{k}" for k in count(2)))
        name = next(each for each in names if each not in (*pool, *held))
        own = [each for each in (name, served_as, short) if each in provider.prices]
        unused -= set(own)
        given = provider.prices.get(own[0] if own else "")
        if price := _priced(served_as, provider.url, given, listed.get(plain)):
            entry = provider.entry(served_as, plain in listed)
            pool[name] = entry | {"price": dict(price[0])}, price[1]
        else:
            unpriced.append(
                f"{served_as}: expected its price; set it with --price {short}=0.1,0.3 ({DOLLARS})"
            )
    if unused:
        known = [*pool, *(each.partition(": expected")[0] for each in unpriced)]
        raise InputError(
            f"--price {min(unused)}: expected the name of one of the models, which are"
            f" {', '.join(known) or 'in the pool already'}"
        )
    if unpriced and (provider.models or not pool):
        raise InputError(unpriced[0])
    return pool, lines + [f"left out: {each}" for each in unpriced]


def _is_held(served_as: str, url: str, name: str, held: Mapping[str, Any]) -> bool:
    """Return True if an entry of the pool is this model at this URL."""
    urls = held.get("base_url") or []
    return held.get("served_as", name) == served_as and url in (
        [urls] if isinstance(urls, str) else urls
    )


def _listed(provider: Provider) -> dict[str, ListPrice | None]:
    """Return the models that a provider lists, each with its listed price or None; empty if it has
    no list.

    Raises InputError if its URL is invalid, and EndpointError if its key isn't set or the endpoint
    doesn't respond as expected.
    """
    url = provider.url
    if not re.match(r"https?://[^/]", url):
        raise InputError(f"--url: expected a URL such as https://models.example/v1, found {url!r}")
    settings = parse(ModelSettings, provider.entry("") | {"price": 0}, redact(url))
    if "@" in urlsplit(url).netloc:
        raise InputError(
            f"{redact(url)}: expected a URL without a password, because profiles are shared; put"
            " the password into an environment variable, and name that with --key-env"
        )
    return models_at(endpoint_of("", settings))


def _chosen(provider: Provider, listed: Mapping[str, Any]) -> Sequence[str]:
    """Return the listed names of the chosen models, or of all chat models if there are only a few.
    Raises InputError if a chosen model isn't listed, or if a choice is needed.
    """
    url = provider.url
    chat = [name for name in listed if not any(part in name.lower() for part in NOT_CHAT)]
    shown = ", ".join(chat[:SHOWN]) + (" ..." if len(chat) > SHOWN else "")
    if provider.models and not listed:
        return provider.models
    found: list[str] = []
    for wanted in provider.models:
        same = [wanted] if wanted in listed else fnmatch.filter(chat, wanted)
        short = (wanted, f"{wanted}:latest")
        same = same or [name for name in listed if name.rsplit("/", 1)[-1] in short]
        if not same:
            raise InputError(
                f"{url}: --model: expected model {wanted!r}, but the server lists {shown}"
            )
        found += same
    if not chat and not found:
        raise EndpointError(
            f"{url} lists no chat models; name those to use with --model, or {path_advice(url)}"
        )
    if len(chat) > SHOWN and not found:
        raise InputError(
            f"{url} lists {len(chat)} models: {shown}; choose some, such as --model"
            f" '{','.join(chat[:2])}'; * matches any text"
        )
    return list(dict.fromkeys(found or chat))


def _priced(
    model: str, url: str, given: ListPrice | None, listed: ListPrice | None
) -> tuple[ListPrice, str] | None:
    """Return a model's price and the price's source, or None if its price is unknown."""
    if given is not None:
        return given, "as given"
    if listed is not None:
        return listed, "as its endpoint lists it"
    known = known_price(model, url)
    return None if known is None else (known, "as the package genai-prices knows it")


def read_price(where: str, text: str) -> dict[str, float]:
    """Return the price in a string: one number for prompts and one for answers, or one for both.
    Raises InputError for any other string.
    """
    try:
        prompt, *rest = map(float, text.split(","))
        (completion,) = rest or [prompt]
        if not (0 <= prompt < math.inf and 0 <= completion < math.inf):
            raise ValueError
    except ValueError:
        raise InputError(
            f"{where}: expected a price such as 0.1,0.3 (dollars per million tokens of prompts and"
            f" answers, 0 or more), found {text!r}"
        ) from None
    return {"prompt": prompt, "completion": completion}


def known_price(model: str, url: str) -> ListPrice | None:
    """Return a model's price in dollars per million tokens according to genai-prices, or None if
    the package doesn't know it, or if the server is local.
    """
    if (urlsplit(url).hostname or "") in ("127.0.0.1", "localhost", "::1"):
        return None
    from genai_prices import Usage, calc_price

    usage = Usage(input_tokens=1000, output_tokens=1000)
    for name, at in ((model, url), (model.rsplit("/", 1)[-1], None)):
        try:
            thousand = calc_price(usage, name, provider_api_url=at)
        except (LookupError, ValueError):
            continue
        return {
            "prompt": float(thousand.input_price) * 1000,
            "completion": float(thousand.output_price) * 1000,
        }
    return None


def models_at(endpoint: Endpoint) -> dict[str, ListPrice | None]:
    """Return the models that an endpoint lists, each with its listed price or None; empty if the
    endpoint has no list. Raises EndpointError if no OpenAI-compatible server answers.
    """
    listed = list_models(endpoint, endpoint.base_urls[0], TIMEOUT_S) or {}
    return {name: price_in(entry) for name, entry in listed.items()}


def price_in(entry: Mapping[str, Any]) -> ListPrice | None:
    """Return the price in an entry of a model list as OpenRouter writes it (in dollars per token),
    or None if there is no such price, or it depends on the request (-1).
    """
    try:
        found = {
            key: round(float(entry["pricing"][key]) * 1e6, 9) for key in ("prompt", "completion")
        }
    except (KeyError, TypeError, ValueError):
        return None
    return found if min(found.values()) >= 0 else None
