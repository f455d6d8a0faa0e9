"""Test call of a model: whether it answers, how long its answer is, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttsgraph.base.errors import CallFailed, EndpointError, NoAnswer, RunStopped
from ttsgraph.base.parsing import parse
from ttsgraph.endpoints import learning
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import OpenAIClient, Retries
from ttsgraph.models.client import ROOM, Completion, Message, Request, Sampling
from ttsgraph.models.dialect import TOKENS_KEYS
from ttsgraph.pool.settings import ModelSettings, price_of
from ttsgraph.pool.spec import Price, variant_name
from ttsgraph.runtime.clients import endpoint_of

FAILURES = (CallFailed, EndpointError, NoAnswer, RunStopped)
TEMPERATURE = 0.9
PLENTY = 8192
LEAST_ROOM = 512
TRIES = Retries(8, 1.0, 300)
"""Retries for a server that is busy, or that has to load the model first."""


@dataclass(frozen=True, slots=True)
class ProbedModel:
    """Model that answered a test call.

    `entry` is its entry in a profile's pool; `calls` has all its test calls, the last of which has
    the settings of a search; `line` is a summary to print.
    """

    name: str
    entry: Mapping[str, Any]
    calls: tuple[Completion, ...]
    line: str

    @property
    def price(self) -> Price:
        """Price in dollars per million tokens."""
        return price_of(self.entry["price"])

    @property
    def dollars(self) -> float:
        """Cost in dollars of a call with the settings of a search."""
        return self.price.of(self.calls[-1])

    @property
    def reasons(self) -> bool:
        """True if the model reasons before it answers."""
        answer = self.calls[-1]
        silent = answer.cut and not answer.text
        return bool(answer.reasoning or answer.reasoning_tokens or silent)

    @property
    def lengths(self) -> dict[str, dict[str, float]]:
        """The `Lengths` of the model and its variants, by name, as estimated from one answer."""
        answer = self.calls[-1]
        read = answer.completion_tokens - answer.reasoning_tokens
        lengths = {
            "prompt_tokens": float(answer.prompt_tokens),
            "generated_tokens": max(1.0, answer.completion_tokens),
            "read_tokens": max(1.0, read),
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
    pool: Mapping[str, Mapping[str, Any]], prompt: tuple[Message, ...], priced: Mapping[str, str]
) -> tuple[list[ProbedModel], list[str]]:
    """Send a prompt to each model in the pool. Return the models that answered, and a line for each
    model that didn't. `priced` names the source of each model's price.
    """
    endpoints = {
        name: replace(endpoint_of(name, parse(ModelSettings, entry, name)), lists_models=False)
        for name, entry in pool.items()
    }
    client = OpenAIClient(endpoints, TRIES, FailurePolicy(down_s=60, max_failed=1.0))
    sampling = Sampling(TEMPERATURE, 1.0, LEAST_ROOM)
    learning.log.disabled = True  # each model's line already names what it refuses
    works = []
    for name, entry in pool.items():
        source = priced.get(name, "as the profile says")
        works.append(_described(client, entry, source, Request(name, "probe", prompt, sampling)))
    try:
        results = await asyncio.gather(*works)
    finally:
        learning.log.disabled = False
        await client.aclose()
    failed = [each for each in results if isinstance(each, str)]
    return [each for each in results if isinstance(each, ProbedModel)], failed


async def _described(
    client: OpenAIClient, given: Mapping[str, Any], priced: str, request: Request
) -> ProbedModel | str:
    """Return a model with what its answer shows, or a line with the reason for skipping it."""
    name = request.model
    entry = dict(given)
    price = price_of(entry["price"])
    calls = []
    try:
        calls.append(await client.complete(request))
        if calls[0].cut:
            roomy = replace(request.sampling, max_tokens=LEAST_ROOM * ROOM * ROOM)
            request = replace(request, sampling=roomy)
            calls.append(await client.complete(request))
        if not (price.prompt or price.completion):  # time a free model without its cold start
            calls.append(await client.complete(request))
    except FAILURES as error:
        return f"{name} didn't answer and is skipped: {error}"
    answer = calls[-1]
    dialect = client.manner(request)
    if dialect.bound == "max_completion_tokens":
        entry["tokens_key"] = dialect.bound
    if left_out := sorted(dialect.left_out - set(TOKENS_KEYS)):
        entry["left_out"] = left_out
    if not dialect.system:
        entry["system_role"] = False
    made = ProbedModel(name, entry, tuple(calls), "")
    parts = [f"${price.prompt:g} and ${price.completion:g} per million tokens ({priced})"]
    if made.reasons:
        parts.append(f"reasons before it answers ({answer.completion_tokens} tokens)")
    if dialect.words:
        parts.append(f"called {dialect.words}")
    if answer.estimated:
        parts.append("reports no token counts: its costs are estimated")
    return replace(made, line=f"{name}: {'; '.join(parts)}")


def room_for(found: Sequence[ProbedModel]) -> int:
    """Return the limit on an answer's tokens, which is higher if models wrote long answers, and the
    highest if one reasons.
    """
    if any(each.reasons for each in found):
        return PLENTY
    longest = max((each.calls[-1].completion_tokens for each in found), default=0)
    room = LEAST_ROOM
    while room < PLENTY and room < ROOM * longest:
        room *= 2
    return room
