"""Models of a provider, listed by the endpoint or named by the user: their prices, and test calls.

A test call shows whether a model answers, how long its answers are, and what it refuses. A
reasoning model gets several questions, because its token use depends on the question.
"""

import asyncio
import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import fmean
from typing import Any
from urllib.parse import urlsplit

from ttsgraph.base.errors import CallFailed, EndpointError, InputError, NoAnswer, RunStopped
from ttsgraph.base.parsing import parse
from ttsgraph.base.secrets import redact
from ttsgraph.endpoints import openai_client
from ttsgraph.endpoints.endpoint import list_models, path_advice, plain_name
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import OpenAIClient
from ttsgraph.models.client import ROOM, Completion, Message, Request, Sampling
from ttsgraph.models.dialect import TOKENS_KEYS
from ttsgraph.pool.settings import ModelSettings, price_of
from ttsgraph.pool.spec import Price, variant_name
from ttsgraph.runtime.clients import endpoint_of

SHOWN = 12
"""Maximum number of names that a message lists. If an endpoint lists at most this number of chat
models, all of them are used unless the user chooses some.
"""

NOT_CHAT = ("embed", "rerank", "moderation", "whisper", "tts-", "dall-e", "guard", "image")
PRICE = "dollars per million tokens of prompts and of answers"
TIMEOUT_S = 15.0

FAILURES = (CallFailed, EndpointError, NoAnswer, RunStopped)
TEMPERATURE = 0.9
PLENTY = 8192
LEAST_ROOM = 512
TRIES = FailurePolicy(down_s=60, max_failed=1.0, first_wait_s=1.0, timeout_s=300)
"""Retries for a server that is busy, or that has to load the model first."""

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
        known = (name for name in held if _is_held(served_as, provider, name, held[name]))
        if own := next(known, None):
            lines.append(
                f"{served_as} is in the pool already, as {own}; edit its entry in the profile to"
                " change it, or to ask it in other ways too (`variants`)"
            )
            continue
        short = served_as.rsplit("/", 1)[-1]
        first = name = re.sub(r"[^A-Za-z0-9._-]+", "-", short).strip("._-") or "model"
        numbers = count(2)
        while name in pool or name in held:
            name = f"{first}-{next(numbers)}"
        named = [each for each in (name, served_as, short) if each in provider.prices]
        unused -= set(named)
        price, source = provider.prices.get(named[0] if named else ""), "as given"
        if price is None:
            price, source = listed.get(plain_name(served_as)), "as its endpoint lists it"
        if price is None:
            price = known_price(served_as, provider.url)
            source = "as the package genai-prices knows it"
        if price is None:
            unpriced[served_as] = (
                f"{served_as}: expected its price; set it with --price {short}=0.1,0.3 ({PRICE};"
                " 0 if free)"
            )
            continue
        pool[name] = provider.entry(served_as) | {"price": dict(price)}, source
    if unused:
        models = ", ".join([*pool, *unpriced]) or "in the pool already"
        raise InputError(f"--price {min(unused)}: expected one of the models, which are {models}")
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
            f"{redact(url)}: expected a URL without a password; name a variable by --key-env"
        )
    listed = list_models(endpoint_of("", settings), url, TIMEOUT_S) or {}
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
            f"--price {option}: expected {PRICE}, 0 or more, such as 0.1,0.3"
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


@dataclass(frozen=True, slots=True)
class ProbedModel:
    """Model that answered its test calls.

    `entry` is its entry in a profile's pool; `calls` has all its test calls, and `answers` those
    with the settings of a search, one per question; `line` is a summary to print.
    """

    name: str
    entry: Mapping[str, Any]
    calls: tuple[Completion, ...]
    answers: tuple[Completion, ...]
    line: str

    @property
    def price(self) -> Price:
        """Price in dollars per million tokens."""
        return price_of(self.entry["price"])

    @property
    def dollars(self) -> float:
        """Mean cost in dollars of a call with the settings of a search."""
        return fmean(map(self.price.of, self.answers))

    @property
    def lengths(self) -> dict[str, dict[str, float]]:
        """The `Lengths` of the model and its variants, by name, as estimated from its answers."""
        written = fmean(answer.completion_tokens for answer in self.answers)
        thought = fmean(answer.reasoning_tokens for answer in self.answers)
        lengths = {
            "prompt_tokens": fmean(answer.prompt_tokens for answer in self.answers),
            "generated_tokens": max(1.0, written),
            "read_tokens": max(1.0, written - thought),
            "more_tokens": 0.0,
        }
        variants = self.entry.get("variants") or {}
        names = [self.name, *(variant_name(self.name, variant) for variant in variants)]
        return dict.fromkeys(names, lengths)

    @property
    def speed(self) -> list[float]:
        """Seconds per prompt token and per answer token, estimated from the fastest answer."""
        quickest = min(self.calls, key=lambda call: call.latency_s / max(1, call.completion_tokens))
        each_s = quickest.latency_s / max(1, quickest.completion_tokens)
        return [float(f"{each:.3g}") for each in (each_s / 1000 + 1e-9, each_s + 1e-9)]


async def ask_each(
    pool: Mapping[str, Offer], prompts: Sequence[tuple[Message, ...]]
) -> tuple[list[ProbedModel], list[str]]:
    """Send the first prompt to each model in the pool, and the others to reasoning models. Return
    the models that answered, and a line for each model that didn't.
    """
    endpoints = {
        name: endpoint_of(name, parse(ModelSettings, entry, name))
        for name, (entry, _) in pool.items()
    }
    client = OpenAIClient(endpoints, TRIES)
    sampling = Sampling(TEMPERATURE, 1.0, LEAST_ROOM)
    openai_client.log.disabled = True  # each model's line already names what it refuses
    works = []
    for name, offer in pool.items():
        requests = [Request(name, "probe", prompt, sampling) for prompt in prompts]
        works.append(_described(client, offer, requests))
    try:
        results = await asyncio.gather(*works)
    finally:
        openai_client.log.disabled = False
        await client.aclose()
    failed = [each for each in results if isinstance(each, str)]
    return [each for each in results if isinstance(each, ProbedModel)], failed


async def _described(
    client: OpenAIClient, offer: Offer, requests: Sequence[Request]
) -> ProbedModel | str:
    """Return a model with what its answers show, or a line with the reason for skipping it."""
    request, *others = requests
    name = request.model
    entry, source = {**offer[0]}, offer[1]
    price = price_of(entry["price"])
    calls = []
    try:
        calls.append(await client.complete(request))
        if calls[0].cut:
            roomy = replace(request.sampling, max_tokens=LEAST_ROOM * ROOM * ROOM)
            request, *others = (replace(each, sampling=roomy) for each in requests)
            calls.append(await client.complete(request))
        if not (price.prompt or price.completion):  # time a free model without its cold start
            calls.append(await client.complete(request))
    except FAILURES as error:
        return f"{name} didn't answer and is skipped: {error}"
    answers = [calls[-1]]
    if _reasons(answers[0]):
        more = await asyncio.gather(*map(client.complete, others), return_exceptions=True)
        answers += [each for each in more if isinstance(each, Completion)]
    calls += answers[1:]
    dialect = client.manner(request).dialect
    if left_out := sorted(dialect.left_out - set(TOKENS_KEYS)):
        entry["left_out"] = left_out
    parts = [f"${price.prompt:g} and ${price.completion:g} per million tokens ({source})"]
    if _reasons(answers[0]):
        most = max(answer.completion_tokens for answer in answers)
        parts.append(f"reasons before it answers (up to {most} tokens)")
    if dialect.words:
        parts.append(f"called {dialect.words}")
    if answers[0].estimated:
        parts.append("reports no token counts: its costs are estimated")
    line = f"{name}: {'; '.join(parts)}"
    return ProbedModel(name, entry, tuple(calls), tuple(answers), line)


def _reasons(answer: Completion) -> bool:
    """Return True if an answer shows that its model reasons before it answers."""
    silent = answer.cut and not answer.text
    return bool(answer.reasoning or answer.reasoning_tokens or silent)


def room_for(found: Sequence[ProbedModel]) -> int:
    """Return the limit on an answer's tokens, which is higher if models wrote long answers, and the
    highest if one reasons.
    """
    if any(_reasons(each.answers[0]) for each in found):
        return PLENTY
    written = (answer.completion_tokens for each in found for answer in each.answers)
    longest = max(written, default=0)
    rooms = (LEAST_ROOM << doublings for doublings in count())
    return next(room for room in rooms if room >= min(PLENTY, ROOM * longest))
