"""`ttsgraph init --url`: what providers have, what each model costs, and how it wants to be asked:
each is asked one question.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any
from urllib.parse import urlsplit

from ttsgraph.base.errors import (
    CallFailed,
    ContextOverflow,
    EndpointError,
    InputError,
    RunStopped,
)
from ttsgraph.endpoints import learning
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient, Retries
from ttsgraph.models.client import ROOM, Completion, Message, Request, Sampling
from ttsgraph.models.dialect import TOKENS_KEYS, Dialect
from ttsgraph.pool.spec import Price
from ttsgraph.pool.variants import variant_name
from ttsgraph.scaffold.listing import ListPrice, models_at

MOST_MODELS = 12
"""Of a list, that are taken without a choice."""

NOT_CHAT = ("embed", "rerank", "moderation", "whisper", "tts-", "dall-e", "guard", "image")
PLENTY = 8192
LEAST_ROOM = 512
TRIES = Retries(8, 1.0, 300)
"""Patience with a server that loads a model first, or is busy."""

EFFORT = "low"

AskPrice = Callable[[str], float]
"""Asks a person for a price, by what it is of."""


@dataclass(frozen=True, slots=True)
class Provider:
    """An endpoint as it was given: its key's variable, its models (all that it lists if none), the
    price of all of them where one was given, and prices by model.
    """

    url: str
    key_env: str | None = None
    models: tuple[str, ...] = ()
    price: Mapping[str, float] | None = None
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A model that answered: its entry in a profile's pool, all calls that were made of it, the one
    that a search would make, what each member of the pool that it is reads and writes, and what was
    made of it in a line.
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
        """Seconds for each token of a prompt and of an answer, by its quickest answer: as good as
        all are of the latter.
        """
        quickest = min(self.calls, key=lambda call: call.latency_s / max(1, call.completion_tokens))
        each_s = quickest.latency_s / max(1, quickest.completion_tokens)
        return [float(f"{each:.3g}") for each in (each_s / 1000 + 1e-9, each_s + 1e-9)]


def candidates(
    providers: Sequence[Provider], ask: AskPrice | None = None
) -> dict[str, dict[str, Any]]:
    """Name in the pool -> entry of each model that was chosen, or is listed. Raises InputError that
    says what to do: a key that is not set, a model that is not there, a price that is not known.
    """
    chosen = [(provider, *model) for provider in providers for model in _chosen(provider)]
    pool: dict[str, dict[str, Any]] = {}
    owners = []
    for provider, served_as, listed, told in chosen:
        name = _name(served_as, provider.url, pool)
        pool[name] = {"base_url": provider.url, "served_as": served_as, "_told": told}
        pool[name] |= {"api_key_env": provider.key_env} if provider.key_env else {}
        pool[name] |= {} if listed else {"listed": False}
        owners.append((provider, {name, served_as, served_as.rsplit("/", 1)[-1]}))
    for priced in (name for provider in providers for name in provider.prices):
        if not any(priced in names for _, names in owners):
            raise InputError(
                f"--price {priced}: expected one of {', '.join(pool)}, found none of that name"
            )
    for entry, (provider, names) in zip(pool.values(), owners, strict=True):
        given = _given(provider, names, owners)
        price, where = _price(given, provider, entry["served_as"], entry.pop("_told"), ask)
        entry |= {"price": dict(price), "_where": where}
    return pool


def _chosen(provider: Provider) -> list[tuple[str, bool, ListPrice | None]]:
    """A provider's models that were chosen, or are listed: name there, whether it lists them, and
    the price in its list. Raises InputError.
    """
    if provider.key_env and not os.environ.get(provider.key_env, "").strip():
        raise InputError(
            f"{provider.url}: expected its key in the environment variable"
            f" {provider.key_env}, which is not set; export it and start again"
        )
    try:
        listed = models_at(Endpoint((provider.url,), "", provider.key_env), True)
    except EndpointError:
        if not provider.models:
            raise
        listed = None  # whether those that were chosen are there is found out by asking them
    names = provider.models or tuple(_chat_models(provider.url, list(listed or ())))
    if listed is None:
        return [(name, False, None) for name in names]
    for name in names:
        if name not in listed:
            raise InputError(
                f"{provider.url}: expected model {name!r}, but the server has"
                f" {', '.join(list(listed)[:MOST_MODELS]) or 'none'}"
            )
    return [(name, True, listed[name].price) for name in names]


def _given(
    provider: Provider, names: set[str], owners: Sequence[tuple[Provider, set[str]]]
) -> Mapping[str, float] | None:
    """The price that was given for a model: behind its own URL, or behind another one that has no
    model of that name.
    """
    own = [price for name, price in provider.prices.items() if name in names]
    other = [
        price
        for near in {id(each): each for each, _ in owners}.values()
        for name, price in near.prices.items()
        if name in names and not any(name in had for each, had in owners if each is near)
    ]
    return next(iter([*own, *other]), provider.price)


def _chat_models(url: str, listed: Sequence[str]) -> list[str]:
    chat = [name for name in listed if not any(part in name.lower() for part in NOT_CHAT)]
    if not chat:
        raise EndpointError(
            f"{url}: expected a list of models, found none; name those to use with --model,"
            " or correct the URL (it mostly ends in /v1)"
        )
    if len(chat) > MOST_MODELS:
        raise InputError(
            f"{url}: expected --model for each model to use, as the server has {len(chat)}:"
            f" {', '.join(chat[:MOST_MODELS])} ..."
        )
    return chat


def _name(served_as: str, url: str, pool: Mapping[str, Any]) -> str:
    """A name of its own, from what the endpoint calls it."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", served_as.rsplit("/", 1)[-1]).strip("._-") or "model"
    host = (urlsplit(url).hostname or "other").replace(".", "-")
    others = (f"{name}-{host}-{number}" for number in count(2))
    return next(each for each in chain((name, f"{name}-{host}"), others) if each not in pool)


def _price(
    given: Mapping[str, float] | None,
    provider: Provider,
    served_as: str,
    told: ListPrice | None,
    ask: AskPrice | None,
) -> tuple[Mapping[str, float], str]:
    """A model's price and where it is from: an option, the endpoint, a list of known models, or a
    person.
    """
    short = served_as.rsplit("/", 1)[-1]
    if given is not None:
        return given, "as given"
    if told is not None:
        return told, "as its endpoint lists it"
    if (known := known_price(served_as, provider.url)) is not None:
        return known, "as the package genai-prices knows it"
    if ask is None:
        raise InputError(
            f"{served_as}: expected its price, which {provider.url} does not list: --price"
            f" {short}=0.1,0.3 (dollars per million tokens of prompts and answers; 0 where nothing"
            " is paid), or --price-prompt and --price-completion after its --url"
        )
    parts = {
        part: ask(f"{short}: dollars per million tokens of {words}")
        for part, words in (("prompt", "prompts"), ("completion", "answers"))
    }
    return parts, "as given"


def known_price(model: str, url: str) -> dict[str, float] | None:
    """$ per million tokens as a package keeps them of well-known models; None of others, and of
    models that are served on this machine.
    """
    if (urlsplit(url).hostname or "") in ("127.0.0.1", "localhost", "::1"):
        return None
    from genai_prices import Usage, calc_price

    for name, at in ((model, url), (model.rsplit("/", 1)[-1], None)):
        try:
            thousand = calc_price(
                Usage(input_tokens=1000, output_tokens=1000), name, provider_api_url=at
            )
        except (LookupError, ValueError):
            continue
        return {
            "prompt": float(thousand.input_price) * 1000,
            "completion": float(thousand.output_price) * 1000,
        }
    return None


async def ask_each(
    pool: Mapping[str, Mapping[str, Any]],
    messages: tuple[Message, ...],
    temperature: float,
) -> tuple[list[AskedModel], list[str]]:
    """Ask each model one question, as a search would; those that answered, and lines for people
    about the others. Raises EndpointError where none answered.
    """
    endpoints = {
        name: Endpoint(
            (entry["base_url"],), entry["served_as"], entry.get("api_key_env"), lists_models=False
        )
        for name, entry in pool.items()
    }
    client = OpenAIClient(endpoints, TRIES, FailurePolicy(down_s=60, max_failed=1.0))
    sampling = Sampling(temperature, 1.0, LEAST_ROOM)
    learning.log.disabled = True  # each model's line says what it refuses
    try:
        told = await asyncio.gather(
            *(
                _described(client, entry, Request(name, "probe", messages, sampling))
                for name, entry in pool.items()
            )
        )
    finally:
        learning.log.disabled = False
        await client.aclose()
    found = [each for each in told if isinstance(each, AskedModel)]
    lines = [each for each in told if isinstance(each, str)]
    if not found:
        others = f"; nor did {len(lines) - 1} others" if len(lines) > 1 else ""
        raise EndpointError(f"expected a model that answers, found none: {lines[0]}{others}")
    return found, lines


async def _described(
    client: OpenAIClient, entry: Mapping[str, Any], request: Request
) -> AskedModel | str:
    """What its answers say of a model, or why it is left out."""
    name = request.model
    calls = []
    try:
        calls.append(await client.complete(request))
        if calls[0].cut:
            roomy = replace(request.sampling, max_tokens=LEAST_ROOM * ROOM * ROOM)
            request = replace(request, sampling=roomy)
            calls.append(await client.complete(request))
        completion = calls[-1]
        if not any(entry["price"].values()):  # its speed counts, which a cold start does not show
            calls.append(await client.complete(request))
    except (CallFailed, ContextOverflow, RunStopped) as error:
        hint = ""
        if getattr(error.__cause__, "status", None) in (401, 403) and "api_key_env" not in entry:
            hint = "; --key-env names the variable with its key"
        return f"{name} is left out, as it did not answer: {error}{hint}"
    dialect = client.manner(request)
    price = entry["price"]
    told = {key: value for key, value in entry.items() if key != "_where"} | _asked(dialect)
    parts = [f"${price['prompt']:g} and ${price['completion']:g} a million tokens"]
    parts[0] += f" ({entry['_where']})"
    lengths = {name: _lengths(completion)}
    if _reasons(completion):
        parts.append(f"thinks before it answers ({completion.completion_tokens} tokens)")
        if (less := await _with_less_effort(client, request)) is not None:
            calls.append(less)
            told["variants"] = {EFFORT: {"reasoning_effort": EFFORT}}
            lengths[variant_name(name, EFFORT)] = _lengths(less)
            parts.append(f"{name}:{EFFORT} thinks less ({less.completion_tokens})")
    if dialect.words:
        parts.append(f"asked {dialect.words}")
    if completion.estimated:
        parts.append("tells no token counts: its costs are estimated")
    return AskedModel(name, told, tuple(calls), completion, lengths, f"{name}: {'; '.join(parts)}")


def _reasons(told: Completion) -> bool:
    """Whether a model thinks before it answers."""
    return bool(told.reasoning or told.reasoning_tokens) or (told.cut and not told.text)


async def _with_less_effort(client: OpenAIClient, request: Request) -> Completion | None:
    """The same with less effort; None of a model that can't be told to think less."""
    known = tuple(client.manner(request).left_out - set(TOKENS_KEYS))
    sampling = replace(request.sampling, reasoning_effort=EFFORT, left_out=known)
    request = replace(request, sampling=sampling)
    try:
        found = await client.complete(request)
    except (CallFailed, ContextOverflow, RunStopped):
        return None
    return None if "reasoning_effort" in client.manner(request).left_out else found


def _asked(dialect: Dialect) -> dict[str, Any]:
    """What a profile says of how a model wants to be asked."""
    told: dict[str, Any] = {}
    if dialect.bound == "max_completion_tokens":
        told["tokens_key"] = dialect.bound
    if left_out := sorted(dialect.left_out - set(TOKENS_KEYS)):
        told["left_out"] = left_out
    if not dialect.system:
        told["system_role"] = False
    return told


def _lengths(told: Completion) -> dict[str, float]:
    """What a member reads and writes, by the one call that was made of it (`Lengths`): costs go by
    it until a search has measured more.
    """
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
