"""Models of a provider, listed by the endpoint or named by the user, and their prices."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from ttsgraph.base.errors import EndpointError, InputError
from ttsgraph.base.parsing import parse
from ttsgraph.base.secrets import redact
from ttsgraph.endpoints.endpoint import Endpoint, path_advice, trouble
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.endpoints.openai_client import UNLISTED
from ttsgraph.endpoints.transport import ask_once, listed_by, plain_name
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

Offer = tuple[dict[str, Any], str]
"""Entry of a model in a profile's pool, and the source of its price."""


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

    def entry(self, served_as: str) -> dict[str, Any]:
        """Return the entry of a model in a profile's pool, without its price."""
        key = {"api_key_env": self.key_env} if self.key_env else {}
        return {**self.settings, "base_url": self.url, "served_as": served_as, **key}


def candidates(
    provider: Provider, held: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Offer], list[str]]:
    """Return the chosen or listed models under new names for the pool; and a line for each model
    that is left out: it is in the pool already, or, if it wasn't named, its price is unknown.

    `held` has the entries of the pool by name. Raises InputError for a model that isn't listed, or
    a price that is unknown.
    """
    listed = _listed(provider)
    pool: dict[str, Offer] = {}
    lines = []
    unpriced: dict[str, str] = {}
    unused = set(provider.prices) - {""}
    for served_as in _chosen(provider, listed):
        if own := [
            name for name, entry in held.items() if _is_held(served_as, provider, name, entry)
        ]:
            lines.append(
                f"{served_as} is in the pool already, as {own[0]}; to change it, or to ask it in"
                " other ways too (`variants`), edit its entry in the profile"
            )
            continue
        short = served_as.rsplit("/", 1)[-1]
        first = name = re.sub(r"[^A-Za-z0-9._-]+", "-", short).strip("._-") or "model"
        numbers = count(2)
        while name in pool or name in held:
            name = f"{first}-{next(numbers)}"
        own = [each for each in (name, served_as, short) if each in provider.prices]
        unused -= set(own)
        at = plain_name(served_as)
        price, source = provider.prices.get(own[0] if own else ""), "as given"
        if price is None:
            price, source = listed.get(at), "as its endpoint lists it"
        if price is None:
            price = known_price(served_as, provider.url)
            source = "as the package genai-prices knows it"
        if price is None:
            unpriced[served_as] = (
                f"{served_as}: expected its price; set it with --price {short}=0.1,0.3 ({DOLLARS})"
            )
            continue
        unlisted = {} if at in listed else {"listed": False}
        pool[name] = provider.entry(served_as) | unlisted | {"price": dict(price)}, source
    if unused:
        known = ", ".join([*pool, *unpriced]) or "in the pool already"
        raise InputError(
            f"--price {min(unused)}: expected the name of one of the models, which are {known}"
        )
    if unpriced and (provider.models or not pool):
        raise InputError(next(iter(unpriced.values())))
    return pool, lines + [f"left out: {each}" for each in unpriced.values()]


def _is_held(served_as: str, provider: Provider, name: str, held: Mapping[str, Any]) -> bool:
    """Return True if an entry of the pool is this model of the provider."""
    urls = held.get("base_url") or []
    at_url = provider.url == urls or (isinstance(urls, list) and provider.url in urls)
    return at_url and held.get("served_as", name) == served_as


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


def models_at(endpoint: Endpoint) -> dict[str, ListPrice | None]:
    """Return the models that an endpoint lists, each with its listed price or None; empty if the
    endpoint has no list. Raises EndpointError if no OpenAI-compatible server answers.
    """
    url = endpoint.base_urls[0]
    try:
        listed = ask_once(TIMEOUT_S, partial(listed_by, to=endpoint.target(url, "/models")))
    except Fault as fault:
        if fault.status in UNLISTED:
            return {}
        found, advice = trouble(fault, endpoint, url, path="/models")
        raise EndpointError(f"{found}; {advice}") from fault
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


def _chosen(provider: Provider, listed: Mapping[str, Any]) -> Sequence[str]:
    """Return the listed names of the chosen models, or of all chat models if there are only a few.
    Raises InputError if a chosen model isn't listed, or if a choice is needed.
    """
    url = provider.url
    if provider.models and not listed:
        return provider.models
    chat = [name for name in listed if not any(part in name.lower() for part in NOT_CHAT)]
    shown = ", ".join(chat[:SHOWN]) + (" ..." if len(chat) > SHOWN else "")
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


def read_price(option: str) -> tuple[str, ListPrice]:
    """Return the model ("" for all) and its price in a string MODEL=PROMPT,ANSWER, in which the
    model and the second number may be missing. Raises InputError for any other string.
    """
    model, _, text = option.rpartition("=")
    try:
        prompt, *rest = map(float, text.split(","))
        (completion,) = rest or [prompt]
        if not (0 <= prompt < math.inf and 0 <= completion < math.inf):
            raise ValueError
    except ValueError:
        raise InputError(
            f"--price {option}: expected a price such as 0.1,0.3 (dollars per million tokens of"
            " prompts and answers, 0 or more)"
        ) from None
    return model, {"prompt": prompt, "completion": completion}


def known_price(model: str, url: str) -> ListPrice | None:
    """Return a model's price in dollars per million tokens according to genai-prices, or None if
    the package doesn't know it, or if the server is local.
    """
    if (urlsplit(url).hostname or "") in ("127.0.0.1", "localhost", "::1"):
        return None
    from genai_prices import Usage, calc_price

    for name, at in ((model, url), (model.rsplit("/", 1)[-1], None)):
        try:
            found = calc_price(
                Usage(input_tokens=1000, output_tokens=1000), name, provider_api_url=at
            )
        except (LookupError, ValueError):
            continue
        prices = {"prompt": found.input_price, "completion": found.output_price}
        return {key: float(thousand) * 1000 for key, thousand in prices.items()}
    return None
