"""`ttsgraph init --url`: what providers have, what each model costs, and how it wants to be asked:
each is asked one question.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ttsgraph.base.errors import CallFailed, ContextOverflow, EndpointError, InputError
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient, Retries
from ttsgraph.endpoints.wire import probe
from ttsgraph.models.client import ROOM, Completion, Message, Request, Sampling
from ttsgraph.models.dialect import TOKENS_KEYS, Dialect
from ttsgraph.pool.variants import variant_name
from ttsgraph.scaffold.listing import ListPrice, models_at
from ttsgraph.scaffold.names import require_name

MOST_MODELS = 12
"""Of a list, that are taken without a choice."""

NOT_CHAT = ("embed", "rerank", "moderation", "whisper", "tts-", "dall-e", "guard", "image")
PLENTY = 8192
LEAST_ROOM = 512
TRIES = Retries(2, 0.5, 120)
EFFORT = "low"

AskPrice = Callable[[str], float]
"""Asks a person for a price, by what it is of."""


@dataclass(frozen=True, slots=True)
class Provider:
    """An endpoint as it was given: its key's variable, its models (all that it lists if none), and
    the price of all of them where one was given.
    """

    url: str
    key_env: str | None = None
    models: tuple[str, ...] = ()
    price: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A model that answered: its entry in a profile's pool, what it takes for an answer, and what
    was made of it in a line.
    """

    name: str
    entry: Mapping[str, Any]
    completion: Completion
    line: str

    @property
    def reasons(self) -> bool:
        """Whether it thinks before it answers."""
        told = self.completion
        return bool(told.reasoning or told.reasoning_tokens) or (told.cut and not told.text)

    def dollars(self, room: int) -> float:
        """Of a call like the one that was made, its answer within so many tokens."""
        price = self.entry["price"]
        written = min(self.completion.completion_tokens, room)
        read = self.completion.prompt_tokens
        return float(read * price["prompt"] + written * price["completion"]) / 1e6


def candidates(
    providers: Sequence[Provider],
    prices: Mapping[str, Mapping[str, float]],
    ask: AskPrice | None = None,
) -> dict[str, dict[str, Any]]:
    """Name in the pool -> entry of each model that was chosen, or is listed. Raises InputError that
    says what to do: a key that is not set, a model that is not there, a price that is not known.
    """
    pool: dict[str, dict[str, Any]] = {}
    for provider in providers:
        if provider.key_env and not os.environ.get(provider.key_env, "").strip():
            raise InputError(
                f"{provider.url}: expected its key in the environment variable"
                f" {provider.key_env}, which is not set; export it and start again"
            )
        listed = models_at(Endpoint((provider.url,), "", provider.key_env), True)
        chosen = provider.models or tuple(_chat_models(provider.url, list(listed or ())))
        for served_as in chosen:
            if listed is not None and served_as not in listed:
                raise InputError(
                    f"{provider.url}: expected model {served_as!r}, but the server has"
                    f" {', '.join(list(listed)[:MOST_MODELS]) or 'none'}"
                )
            told = listed[served_as].price if listed is not None else None
            name = _name(served_as, provider.url, pool)
            price, where = _price(provider, served_as, prices, told, ask)
            pool[name] = {"price": dict(price), "base_url": provider.url, "served_as": served_as}
            pool[name] |= {"api_key_env": provider.key_env} if provider.key_env else {}
            pool[name] |= {} if listed is not None else {"listed": False}
            pool[name]["_where"] = where
    if unknown := [name for name in prices if not _names(pool, name)]:
        raise InputError(
            f"--price {unknown[0]}: expected one of {', '.join(pool)}, found none of that name"
        )
    return pool


def _names(pool: Mapping[str, Mapping[str, Any]], name: str) -> bool:
    return name in pool or any(entry["served_as"] == name for entry in pool.values())


def _chat_models(url: str, listed: Sequence[str]) -> list[str]:
    chat = [name for name in listed if not any(part in name.lower() for part in NOT_CHAT)]
    if not chat:
        raise EndpointError(
            f"{url}: expected a list of models, found none; name those to use with --model"
        )
    if len(chat) > MOST_MODELS:
        raise InputError(
            f"{url}: expected --model for each model to use, as the server has {len(chat)}:"
            f" {', '.join(chat[:MOST_MODELS])} ..."
        )
    return chat


def _name(served_as: str, url: str, pool: Mapping[str, Any]) -> str:
    """A name of its own, from what the endpoint calls it."""
    name = served_as.rsplit("/", 1)[-1].replace(":", "-")
    require_name(name, "a model")
    if name not in pool:
        return name
    host = (urlsplit(url).hostname or "other").replace(".", "-")
    name = f"{name}-{host}"
    number = 2
    while (made := name if number == 2 else f"{name}-{number}") in pool:
        number += 1
    return made


def _price(
    provider: Provider,
    served_as: str,
    prices: Mapping[str, Mapping[str, float]],
    told: ListPrice | None,
    ask: AskPrice | None,
) -> tuple[Mapping[str, float], str]:
    """A model's price and where it is from: an option, the endpoint, a list of known models, or a
    person.
    """
    short = served_as.rsplit("/", 1)[-1]
    for given in (prices.get(served_as), prices.get(short), provider.price):
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
    found = []
    lines = []
    client = OpenAIClient(endpoints, TRIES, FailurePolicy(down_s=60, max_failed=1.0))
    try:
        for name, entry in pool.items():
            request = Request(name, "probe", messages, Sampling(temperature, 1.0, LEAST_ROOM))
            try:
                completion = await client.complete(request)
                if completion.cut:
                    more = Sampling(temperature, 1.0, LEAST_ROOM * ROOM * ROOM)
                    completion = await client.complete(Request(name, "probe", messages, more))
            except (CallFailed, ContextOverflow) as error:
                lines.append(f"{name} is left out, as it did not answer: {error}")
                continue
            found.append(await _described(client, name, entry, request, completion))
    finally:
        await client.aclose()
    if not found:
        raise EndpointError(f"expected a model that answers, found none: {'; '.join(lines)}")
    return found, lines


async def _described(
    client: OpenAIClient,
    name: str,
    entry: Mapping[str, Any],
    request: Request,
    completion: Completion,
) -> AskedModel:
    """What an answer says of a model."""
    dialect = client.manner(request)
    price = entry["price"]
    told = {key: value for key, value in entry.items() if key != "_where"} | _asked(dialect)
    parts = [f"${price['prompt']:g} and ${price['completion']:g} a million tokens"]
    parts[0] += f" ({entry['_where']})"
    model = AskedModel(name, told, completion, "")
    if model.reasons:
        parts.append(f"thinks before it answers ({completion.completion_tokens} tokens)")
        if await _takes_effort(client, name):
            told["variants"] = {EFFORT: {"reasoning_effort": EFFORT}}
            parts.append(f"{name}:{EFFORT} thinks less")
    if dialect.words:
        parts.append(f"asked {dialect.words}")
    if completion.estimated:
        parts.append("tells no token counts: its costs are estimated")
    return AskedModel(name, told, completion, f"{name}: {'; '.join(parts)}")


async def _takes_effort(client: OpenAIClient, name: str) -> bool:
    """Whether a model can be told to think less."""
    plain = probe(name)
    sampling = Sampling(
        None,
        max_tokens=LEAST_ROOM,
        reasoning_effort=EFFORT,
        left_out=plain.sampling.left_out,
    )
    request = Request(name, "probe", plain.messages, sampling)
    try:
        await client.complete(request)
    except (CallFailed, ContextOverflow):
        return False
    return "reasoning_effort" not in client.manner(request).left_out


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


def lengths(model: AskedModel) -> list[tuple[str, dict[str, float]]]:
    """What the model, and each variant of it, reads and writes, by the one call that was made of it
    (`Lengths`): costs go by it until a search has measured more.
    """
    told = model.completion
    seen = max(1, told.completion_tokens - told.reasoning_tokens)
    known = {
        "prompt_tokens": float(told.prompt_tokens),
        "generated_tokens": float(max(1, told.completion_tokens)),
        "read_tokens": float(seen),
        "more_tokens": 0.0,
    }
    variants = [variant_name(model.name, name) for name in model.entry.get("variants", {})]
    return [(name, known) for name in (model.name, *variants)]


def room_for(found: Sequence[AskedModel]) -> int:
    """Tokens that answers get: more where models think before they answer."""
    longest = max((each.completion.completion_tokens for each in found if each.reasons), default=0)
    room = LEAST_ROOM
    while longest and room < PLENTY and room < ROOM * longest:
        room *= 2
    return room
