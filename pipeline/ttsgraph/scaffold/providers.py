"""`ttsgraph init --url`: what providers have, what each model costs, and how it wants to be asked:
each is asked one question.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from typing import Any
from urllib.parse import urlsplit

from ttsgraph.base.errors import CallFailed, EndpointError, InputError, NoAnswer, RunStopped
from ttsgraph.base.secrets import redact
from ttsgraph.endpoints import learning
from ttsgraph.endpoints.endpoint import Endpoint, path_advice, plain, trouble, users
from ttsgraph.endpoints.endpoints import FailurePolicy, Fault
from ttsgraph.endpoints.openai_client import UNLISTED, OpenAIClient, Retries
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
from ttsgraph.models.client import ROOM, Completion, Message, Request, Sampling
from ttsgraph.models.dialect import TOKENS_KEYS
from ttsgraph.pool.spec import Price, variant_name
from ttsgraph.scaffold.entries import has_key
from ttsgraph.scaffold.question_file import Ask

SHOWN = 12
"""Names of an endpoint's list that are shown, and of a list that are taken without a choice."""

NOT_CHAT = ("embed", "rerank", "moderation", "whisper", "tts-", "dall-e", "guard", "image")
PLENTY = 8192
LEAST_ROOM = 512
TRIES = Retries(8, 1.0, 300)
"""Patience with a server that loads a model first, or is busy."""

EFFORT = "low"
LESS = 0.7
"""Share of the tokens below which less effort is a member of its own: one that an endpoint ignores
takes as many, give or take what draws differ by.
"""

TIMEOUT_S = 15.0
ListPrice = Mapping[str, float]
"""$ per million tokens by `prompt`, `completion`, `cached`, `reasoning`, as in a profile."""

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
class Provider:
    """An endpoint as given: its key's variable, its models (or all), its price, prices by model."""

    url: str
    key_env: str | None = None
    models: tuple[str, ...] = ()
    price: Mapping[str, float] | None = None
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A model that answered: its entry in a profile's pool, all calls made of it, the one that a
    search would make, its members' lengths, and what was made of it in a line.
    """

    name: str
    entry: Mapping[str, Any]
    calls: tuple[Completion, ...]
    completion: Completion
    lengths: Mapping[str, Mapping[str, float]]
    line: str

    @property
    def price(self) -> Price:
        """Dollars per million tokens."""
        return Price(**self.entry["price"])

    @property
    def speed(self) -> list[float]:
        """Seconds per token of a prompt and of an answer, by its quickest answer."""
        quickest = min(self.calls, key=lambda call: call.latency_s / max(1, call.completion_tokens))
        each_s = quickest.latency_s / max(1, quickest.completion_tokens)
        return [float(f"{each:.3g}") for each in (each_s / 1000 + 1e-9, each_s + 1e-9)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A provider's model, whether it is listed, its price if known, and where that is from."""

    provider: Provider
    served_as: str
    listed: bool
    price: ListPrice | None
    priced: str = "as its endpoint lists it"

    @property
    def short(self) -> str:
        """What people call it."""
        return self.served_as.rsplit("/", 1)[-1]

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry in a profile's pool."""
        key_env = self.provider.key_env
        return {
            "base_url": self.provider.url,
            "served_as": self.served_as,
            **({"api_key_env": key_env} if key_env else {}),
            **({} if self.listed else {"listed": False}),
            "price": dict(self.price or {}),
        }


def candidates(providers: Sequence[Provider], ask: Ask | None = None) -> dict[str, Candidate]:
    """By name in the pool, each chosen or listed model with its price; `ask` asks for what is not
    told. Raises InputError: a key not set, a model not there, a price not known.
    """
    pool: dict[str, Candidate] = {}
    for one in [each for provider in providers for each in _chosen(provider, ask)]:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", one.short).strip("._-") or "model"
        host = (urlsplit(one.provider.url).hostname or "other").replace(".", "-")
        names = chain((name, f"{name}-{host}"), (f"{name}-{host}-{k}" for k in count(2)))
        pool[next(each for each in names if each not in pool)] = one
    given = _given_prices(providers, pool)
    return {
        name: _priced(one, given.get(name, one.provider.price), ask) for name, one in pool.items()
    }


def _chosen(provider: Provider, ask: Ask | None) -> list[Candidate]:
    """A provider's models that were chosen, or are listed. Raises InputError."""
    url = provider.url
    if "@" in urlsplit(url).netloc:
        raise InputError(
            f"{plain(url)}: expected a URL without a password, as profiles are shared; put it into"
            " a variable that --key-env names"
        )
    if not has_key(provider.key_env):
        raise InputError(
            f"{url}: expected its key in the environment variable"
            f" {provider.key_env}, which is not set; export it and start again"
        )
    try:
        listed = models_at(Endpoint((url,), "", provider.key_env)) or None  # an empty list is none
    except EndpointError as error:
        fault = error.__cause__
        if not provider.models or not isinstance(fault, Fault):
            raise
        if users(fault) or fault.kind in (NO_CONNECTION, NO_PROXY, NOT_JSON):
            raise
        listed = None  # whether those that were chosen are there is found out by asking them
    names = provider.models or _chat_models(url, list(listed or ()), ask)
    if listed is None:
        return [Candidate(provider, name, False, None) for name in names]
    for name in map(plain_name, names):
        if name not in listed:
            raise InputError(
                f"{url}: expected model {name!r}, but the server has"
                f" {', '.join(list(listed)[:SHOWN])}"
            )
    return [Candidate(provider, name, True, listed[plain_name(name)]) for name in names]


def _given_prices(
    providers: Sequence[Provider], pool: Mapping[str, Candidate]
) -> dict[str, Mapping[str, float]]:
    """By name in the pool, the price that was given for a model: behind its own URL, or behind
    another one that has no model of that name. Raises InputError for a price of none.
    """
    given: dict[str, Mapping[str, float]] = {}
    for provider in providers:
        for what, price in provider.prices.items():
            named = [name for name, one in pool.items() if what in (name, one.served_as, one.short)]
            if not named:
                raise InputError(
                    f"--price {what}: expected one of {', '.join(pool)}, found none of that name"
                )
            here = [name for name in named if pool[name].provider is provider]
            given |= {name: price for name in here or named if here or name not in given}
    return given


def _chat_models(url: str, listed: Sequence[str], ask: Ask | None) -> list[str]:
    chat = [name for name in listed if not any(part in name.lower() for part in NOT_CHAT)]
    if ask is not None and not 1 <= len(chat) <= SHOWN:
        listed_here = f"lists {len(chat)} models: {', '.join(chat[:SHOWN])} ..." if chat else ""
        words = f"{url} {listed_here or 'lists no models'}; which of them, with commas between"
        return [name.strip() for name in ask(words).split(",") if name.strip()]
    if not chat:
        raise EndpointError(
            f"{url}: expected a list of models, found none; name those to use with --model, or"
            f" {path_advice(url)}"
        )
    if len(chat) > SHOWN:
        raise InputError(
            f"{url}: expected --model for each model to use, as the server has {len(chat)}:"
            f" {', '.join(chat[:SHOWN])} ..."
        )
    return chat


def _priced(one: Candidate, given: Mapping[str, float] | None, ask: Ask | None) -> Candidate:
    """A model with its price: given, listed, known, or asked for. Raises InputError."""
    url = one.provider.url
    if given is not None:
        return replace(one, price=given, priced="as given")
    if one.price is not None:
        return one
    if (known := known_price(one.served_as, url)) is not None:
        return replace(one, price=known, priced="as the package genai-prices knows it")
    words = "dollars per million tokens of prompts and answers; 0 where nothing is paid"
    if ask is not None:
        told = ask(f"{one.short}: its price, such as 0.1,0.3 ({words})")
        return replace(one, price=read_price(one.short, told), priced="as given")
    raise InputError(
        f"{one.served_as}: expected its price, which {url} does not list: --price"
        f" {one.short}=0.1,0.3 ({words}), or --price-prompt and --price-completion after its --url"
    )


def read_price(where: str, text: str) -> dict[str, float]:
    """A price as it is typed: of prompts and answers, or one of both. Raises InputError."""
    try:
        prompt, *rest = map(float, text.split(","))
        (completion,) = rest or [prompt]
    except ValueError:
        raise InputError(
            f"{where}: expected a price such as 0.1,0.3 (dollars per million tokens of prompts and"
            f" answers), found {text!r}"
        ) from None
    price = {"prompt": prompt, "completion": completion}
    if not all(0 <= value < math.inf for value in price.values()):
        raise InputError(f"{where}: expected dollars per million tokens, 0 or more, found {text}")
    return price


def known_price(model: str, url: str) -> dict[str, float] | None:
    """$ per million tokens that genai-prices knows; None of others, and of local servers."""
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


def models_at(endpoint: Endpoint, with_key: bool = True) -> dict[str, ListPrice | None] | None:
    """Each model that an endpoint lists, with its price if told; None without a list; `with_key`:
    the key is sent. Raises EndpointError when no OpenAI-compatible server is there.
    """
    url = endpoint.base_urls[0]
    to = endpoint.target(url, "/models", with_key)
    info = endpoint.target(url, "/model/info", with_key)

    async def asked(http: Http) -> tuple[dict[str, Any], dict[str, ListPrice]]:
        entries = await listed_by(http, to)
        priced = any(price_in(entry) is not None for entry in entries.values())
        ask_more = entries and not priced and endpoint.key_header is None
        return entries, await _litellm_prices(http, info) if ask_more else {}

    try:
        entries, told = ask_once(TIMEOUT_S, asked)
    except Fault as fault:
        if fault.status in UNLISTED:
            return None
        found, advice = trouble(fault, endpoint, url, path="/models")
        raise EndpointError(f"{found}; {advice}") from fault
    return {name: told.get(name) or price_in(entry) for name, entry in entries.items()}


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
    """A price as number or text; below 0 for none (OpenRouter's -1: "it depends")."""
    try:
        return float(value) if isinstance(value, str | int | float) else -1.0
    except ValueError:
        return -1.0


async def _litellm_prices(http: Http, to: Target) -> dict[str, ListPrice]:
    """Prices as LiteLLM's proxy tells them next to its list; none of any other server."""
    try:
        data = await http.get(to)
    except Fault:  # it is no such proxy
        return {}
    rows = data.get("data") if isinstance(data, dict) else None
    found = {}
    for row in rows if isinstance(rows, list) else []:
        told = row.get("model_info") if isinstance(row, dict) else None
        if isinstance(told, Mapping) and (price := price_in(told)) is not None:
            found[redact(str(row.get("model_name")))] = price
    return found


async def ask_each(
    pool: Mapping[str, Candidate], messages: tuple[Message, ...], temperature: float
) -> tuple[list[AskedModel], list[str]]:
    """Ask each model once: who answered, and lines about others. Raises EndpointError for none."""
    endpoints = {
        name: Endpoint((one.provider.url,), one.served_as, one.provider.key_env, lists_models=False)
        for name, one in pool.items()
    }
    client = OpenAIClient(endpoints, TRIES, FailurePolicy(down_s=60, max_failed=1.0))
    sampling = Sampling(temperature, 1.0, LEAST_ROOM)
    learning.log.disabled = True  # each model's line says what it refuses
    try:
        requests = (Request(name, "probe", messages, sampling) for name in pool)
        told = await asyncio.gather(*map(partial(_described, client), pool.values(), requests))
    finally:
        learning.log.disabled = False
        await client.aclose()
    found = [each for each in told if isinstance(each, AskedModel)]
    lines = [each for each in told if isinstance(each, str)]
    if not found:
        others = f"; nor did {len(lines) - 1} others" if len(lines) > 1 else ""
        raise EndpointError(f"expected a model that answers, found none: {lines[0]}{others}")
    return found, lines


async def _described(client: OpenAIClient, one: Candidate, request: Request) -> AskedModel | str:
    """What its answers say of a model, or why it is left out."""
    name = request.model
    entry = one.entry
    price = entry["price"]
    calls = []
    try:
        calls.append(await client.complete(request))
        if calls[0].cut:
            roomy = replace(request.sampling, max_tokens=LEAST_ROOM * ROOM * ROOM)
            request = replace(request, sampling=roomy)
            calls.append(await client.complete(request))
        completion = calls[-1]
        if not any(price.values()):  # its speed counts, which a cold start does not show
            calls.append(await client.complete(request))
    except (CallFailed, EndpointError, NoAnswer, RunStopped) as error:
        return f"{name} is left out, as it did not answer: {error}"
    dialect = client.manner(request)
    if dialect.bound == "max_completion_tokens":
        entry["tokens_key"] = dialect.bound
    if left_out := sorted(dialect.left_out - set(TOKENS_KEYS)):
        entry["left_out"] = left_out
    if not dialect.system:
        entry["system_role"] = False
    parts = [f"${price['prompt']:g} and ${price['completion']:g} a million tokens ({one.priced})"]
    lengths = {name: _lengths(completion)}
    silent = completion.cut and not completion.text
    if completion.reasoning or completion.reasoning_tokens or silent:
        parts.append(f"thinks before it answers ({completion.completion_tokens} tokens)")
        less = await _with_less_effort(client, request)
        if less is not None and less.completion_tokens < LESS * completion.completion_tokens:
            calls.append(less)
            entry["variants"] = {EFFORT: {"reasoning_effort": EFFORT}}
            lengths[variant_name(name, EFFORT)] = _lengths(less)
            parts.append(f"{name}:{EFFORT} thinks less ({less.completion_tokens})")
    if dialect.words:
        parts.append(f"asked {dialect.words}")
    if completion.estimated:
        parts.append("tells no token counts: its costs are estimated")
    return AskedModel(name, entry, tuple(calls), completion, lengths, f"{name}: {'; '.join(parts)}")


async def _with_less_effort(client: OpenAIClient, request: Request) -> Completion | None:
    """The same with less effort; None of a model that can't be told to think less."""
    known = tuple(client.manner(request).left_out - set(TOKENS_KEYS))
    sampling = replace(request.sampling, reasoning_effort=EFFORT, left_out=known)
    request = replace(request, sampling=sampling)
    try:
        found = await client.complete(request)
    except (CallFailed, EndpointError, NoAnswer, RunStopped):
        return None
    return None if "reasoning_effort" in client.manner(request).left_out else found


def _lengths(told: Completion) -> dict[str, float]:
    """What a member reads and writes by its one call (`Lengths`), until more is measured."""
    return {
        "prompt_tokens": float(told.prompt_tokens),
        "generated_tokens": float(max(1, told.completion_tokens)),
        "read_tokens": float(max(1, told.completion_tokens - told.reasoning_tokens)),
        "more_tokens": 0.0,
    }


def room_for(found: Sequence[AskedModel]) -> int:
    """Tokens that answers get: more where models think before they answer, or talk much."""
    longest = max(each.completion.completion_tokens for each in found)
    room = LEAST_ROOM
    while room < PLENTY and room < ROOM * longest:
        room *= 2
    return room
