"""Models of providers, listed by the endpoints or named by the user, and their prices."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any
from urllib.parse import urlsplit

from ttsgraph.base.errors import EndpointError, InputError
from ttsgraph.base.parsing import parse
from ttsgraph.base.secrets import redact
from ttsgraph.endpoints.endpoint import Endpoint, path_advice, trouble, users
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.endpoints.openai_client import UNLISTED
from ttsgraph.endpoints.replies import NOT_JSON
from ttsgraph.endpoints.transport import (
    NO_CONNECTION,
    NO_PROXY,
    Http,
    Target,
    ask_once,
    listed_by,
    plain_name,
)
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.runtime.clients import endpoint_of
from ttsgraph.scaffold.questions import Ask

SHOWN = 12
"""Maximum number of names that a message lists. If an endpoint lists at most this number of chat
models, all of them are used unless the user chooses some.
"""

NOT_CHAT = ("embed", "rerank", "moderation", "whisper", "tts-", "dall-e", "guard", "image")
DOLLARS = "dollars per million tokens of prompts and answers; 0 if free"
TIMEOUT_S = 15.0
AWAY = (502, 503, 504)
"""HTTP statuses with which a proxy says that there is no server behind it."""

SENT = ("extra_body", "query", "system_role", "variants")
"""Settings of a model that change its requests."""

ListPrice = Mapping[str, float]
"""Dollars per million tokens, under the keys that profiles use: `prompt`, `completion`, `cached`
and `reasoning`.
"""

_A_TOKEN = {
    "prompt": ("prompt", "input_cost_per_token"),
    "completion": ("completion", "output_cost_per_token"),
    "cached": ("input_cache_read", "cache_read_input_token_cost"),
    "reasoning": ("internal_reasoning", "output_cost_per_reasoning_token"),
}
"""Keys under which OpenRouter and LiteLLM list prices, in dollars per token."""

_A_MILLION = {
    "prompt": ("input", "input_tokens"),
    "completion": ("output", "output_tokens"),
    "cached": ("cached_input", "cache_read_tokens"),
}
"""Keys under which Together and DeepInfra list prices, in dollars per million tokens."""


@dataclass(frozen=True, slots=True)
class Provider:
    """Endpoint from the command line: the environment variable with its key, its models (default:
    all; names may contain *), a price for all of them, prices by model, and further settings of the
    models, as in a profile's pool.
    """

    url: str
    key_env: str | None = None
    models: tuple[str, ...] = ()
    price: ListPrice | None = None
    prices: Mapping[str, ListPrice] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def entry(self, served_as: str, listed: bool = True) -> dict[str, Any]:
        """Return the entry of a model in a profile's pool, without its price."""
        return {
            **{key: value for key, value in self.settings.items() if key != "variants"},
            "base_url": self.url,
            "served_as": served_as,
            **({"api_key_env": self.key_env} if self.key_env else {}),
            **({} if listed else {"listed": False}),
        }


@dataclass(frozen=True, slots=True)
class Offer:
    """Model of a provider: its name at the endpoint, its entry in a profile's pool, its price, and
    that price's source.
    """

    provider: Provider
    served_as: str
    entry: Mapping[str, Any]
    price: ListPrice | None
    priced: str = "as its endpoint lists it"

    @property
    def short(self) -> str:
        """Name without the provider's prefix."""
        return self.served_as.rsplit("/", 1)[-1]


def candidates(
    providers: Sequence[Provider],
    ask: Ask | None = None,
    held: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[dict[str, Offer], list[str]]:
    """Return the chosen or listed models with their prices, under new names for the pool, and a
    line for each model that is left out: it is in the pool already, or, if it wasn't named, its
    price is unknown.

    `held` has the entries of the pool by name; `ask` prompts the user for models and prices. Raises
    InputError for a model that isn't listed, or a price that is unknown.
    """
    held = held or {}
    pool: dict[str, Offer] = {}
    lines = []
    for one in [each for provider in providers for each in _chosen(provider, ask)]:
        if own_names := [name for name, entry in held.items() if _is_held(one, name, entry)]:
            lines.append(
                f"{one.served_as} is in the pool already, as {own_names[0]}; to change it, edit its"
                " entry in the profile"
            )
            continue
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", one.short).strip("._-") or "model"
        host = (urlsplit(one.provider.url).hostname or "other").replace(".", "-")
        names = chain((name, f"{name}-{host}"), (f"{name}-{host}-{k}" for k in count(2)))
        pool[next(each for each in names if each not in (*pool, *held))] = one
    given = _given_prices(providers, pool) if pool else {}
    known = {name: _priced(one, given.get(name)) for name, one in pool.items()}
    some_priced = any(one.price is not None for one in known.values())
    for name, one in list(known.items()):
        if one.price is not None:
            continue
        option = f"--price {one.short}=0.1,0.3"
        if some_priced and not one.provider.models:
            lines.append(f"{one.served_as} is left out: its price is unknown; set {option}")
            del known[name]
        elif ask is None:
            raise InputError(
                f"{one.served_as}: expected its price, which {one.provider.url} doesn't list; set"
                f" it with {option} ({DOLLARS}), or with --price-prompt and --price-completion"
                " after its --url"
            )
        else:
            answer = ask(f"{one.short}: its price, such as 0.1,0.3 ({DOLLARS})")
            known[name] = replace(one, price=read_price(one.short, answer), priced="as given")
    return known, lines


def _is_held(one: Offer, name: str, entry: Mapping[str, Any]) -> bool:
    """Return True if an entry of the pool sends the same requests: to this model, at the same URL,
    with the settings among SENT that the user gave.
    """
    urls = entry.get("base_url") or []
    given = one.provider.settings
    wanted = {"served_as": one.served_as} | {key: given[key] for key in SENT if key in given}
    own = {"served_as": name, **entry}
    return one.provider.url in ([urls] if isinstance(urls, str) else urls) and all(
        own.get(key) == value for key, value in wanted.items()
    )


def _chosen(provider: Provider, ask: Ask | None) -> list[Offer]:
    """Return a provider's chosen models, or all listed ones if none are chosen.

    Raises InputError if its URL is invalid or a chosen model isn't listed, and EndpointError if its
    key isn't set or the endpoint doesn't respond as expected.
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
    try:
        listed = models_at(endpoint_of("", settings)) or {}
    except EndpointError as error:
        fault = error.__cause__
        if not provider.models or not isinstance(fault, Fault):
            raise
        away = fault.status in AWAY or fault.kind in (NO_CONNECTION, NO_PROXY, NOT_JSON)
        if away or users(fault):
            raise
        listed = {}  # a call will show whether the chosen models exist
    names = provider.models if provider.models and not listed else None
    return [
        Offer(provider, name, provider.entry(name, plain in listed), listed.get(plain))
        for name in names or _chat_models(provider, list(listed), ask)
        for plain in [plain_name(name)]
    ]


def _given_prices(providers: Sequence[Provider], pool: Mapping[str, Offer]) -> dict[str, ListPrice]:
    """Return the prices that the user gave, by model name in the pool.

    A price for a named model applies to models of that name at the preceding URL or, if there are
    none, to those at other URLs that have no such price. Raises InputError if no model has the
    name.
    """
    given = {name: one.provider.price for name, one in pool.items() if one.provider.price}
    others: dict[str, ListPrice] = {}
    for provider in providers:
        for what, price in provider.prices.items():
            named = [name for name, one in pool.items() if what in (name, one.served_as, one.short)]
            if not named:
                raise InputError(
                    f"--price {what}: expected the name of one of the models, which are"
                    f" {', '.join(pool)}"
                )
            here = [name for name in named if pool[name].provider is provider]
            others |= {name: price for name in here or named if here or name not in others}
    return {**given, **others}


def _chat_models(provider: Provider, listed: Sequence[str], ask: Ask | None) -> list[str]:
    """Return the listed names of the chosen models, or of all chat models if there are only a few.

    Raises InputError if a chosen model isn't listed, or if a choice is needed but can't be asked
    for.
    """
    url = provider.url
    chat = [name for name in listed if not any(part in name.lower() for part in NOT_CHAT)]
    shown = ", ".join(chat[:SHOWN]) + (" ..." if len(chat) > SHOWN else "")
    if provider.models:
        found: dict[str, None] = {}
        for wanted in provider.models:
            same = [wanted] if wanted in listed else fnmatch.filter(chat, wanted)
            short = (wanted, f"{wanted}:latest")
            same = same or [name for name in listed if name.rsplit("/", 1)[-1] in short]
            if not same:
                raise InputError(
                    f"{url}: --model: expected model {wanted!r}, but the server lists {shown}"
                )
            found |= dict.fromkeys(same)
        return list(found)
    if 1 <= len(chat) <= SHOWN:
        return chat
    lists = f"{url} lists {len(chat)} models: {shown}" if chat else f"{url} lists no chat models"
    if ask is not None:
        names = ask(f"{lists}; names of the models to use, separated by commas")
        return [name.strip() for name in names.split(",") if name.strip()]
    if not chat:
        raise EndpointError(f"{lists}; name those to use with --model, or {path_advice(url)}")
    example = ",".join(chat[:2])
    raise InputError(f"{lists}; choose some, such as --model '{example}'; * matches any text")


def _priced(one: Offer, given: ListPrice | None) -> Offer:
    """Return a model with its price: the given one, else the listed one, else one that genai-prices
    knows, else None.
    """
    if given is not None:
        return replace(one, price=given, priced="as given")
    if one.price is not None:
        return one
    known = known_price(one.served_as, one.provider.url)
    return replace(one, price=known, priced="as the package genai-prices knows it")


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


def known_price(model: str, url: str) -> dict[str, float] | None:
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


def models_at(endpoint: Endpoint) -> dict[str, ListPrice | None] | None:
    """Return the models that an endpoint lists, each with its listed price or None; return None if
    the endpoint has no list. Raises EndpointError if no OpenAI-compatible server answers.
    """
    url = endpoint.base_urls[0]
    to = endpoint.target(url, "/models")
    info = endpoint.target(url, "/model/info")

    async def asked(http: Http) -> dict[str, ListPrice | None]:
        entries = await listed_by(http, to)
        prices = {name: price_in(entry) for name, entry in entries.items()}
        if any(prices.values()) or not entries or endpoint.key_header is not None:
            return prices
        more = await _litellm_prices(http, info)
        return {name: more.get(name) for name in prices}

    try:
        return ask_once(TIMEOUT_S, asked)
    except Fault as fault:
        if fault.status in UNLISTED:
            return None
        found, advice = trouble(fault, endpoint, url, path="/models")
        raise EndpointError(f"{found}; {advice}") from fault


def price_in(entry: Mapping[str, Any]) -> ListPrice | None:
    """Return the price in an entry of a model list, in any server's format, or None if the
    entry has no price.
    """
    inner = entry.get("metadata")
    prices = entry.get("pricing") or (inner.get("pricing") if isinstance(inner, Mapping) else None)
    prices = prices if isinstance(prices, Mapping) else entry
    for names, factor in ((_A_TOKEN, 1e6), (_A_MILLION, 1.0)):
        found = {
            ours: _dollars(prices.get(theirs)) * factor
            for ours, several in names.items()
            for theirs in several
            if _dollars(prices.get(theirs)) >= 0
        }
        if {"prompt", "completion"} <= set(found):
            return {n: round(v, 9) for n, v in found.items() if v or n in ("prompt", "completion")}
    return None


def _dollars(value: Any) -> float:
    """Return a price that is listed as a number or a string, or -1 for any other value. A price
    below 0 means that there is no fixed price (OpenRouter lists -1 if it depends on the request).
    """
    try:
        return float(value) if isinstance(value, str | int | float) else -1.0
    except ValueError:
        return -1.0


async def _litellm_prices(http: Http, to: Target) -> dict[str, ListPrice]:
    """Return the prices that a LiteLLM proxy reports outside its list of models; empty for other
    servers.
    """
    try:
        data = await http.get(to)
    except Fault:  # not a LiteLLM proxy
        return {}
    rows = data.get("data") if isinstance(data, dict) else None
    found = {}
    for row in rows if isinstance(rows, list) else []:
        info = row.get("model_info") if isinstance(row, dict) else None
        if isinstance(info, Mapping) and (price := price_in(info)) is not None:
            found[redact(str(row.get("model_name")))] = price
    return found
