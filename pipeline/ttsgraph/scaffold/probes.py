"""Test calls of a model: whether it answers, how long its answers are, and what it refuses. A
reasoning model gets several questions, because its token use depends on the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from ttsgraph.base.errors import CallFailed, EndpointError, NoAnswer, RunStopped
from ttsgraph.base.parsing import parse
from ttsgraph.endpoints import openai_client
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
    pool: Mapping[str, Mapping[str, Any]],
    prompts: Sequence[tuple[Message, ...]],
    priced: Mapping[str, str],
) -> tuple[list[ProbedModel], list[str]]:
    """Send the first prompt to each model in the pool, and the others to reasoning models. Return
    the models that answered, and a line for each model that didn't. `priced` names the source of
    each model's price.
    """
    endpoints = {
        name: replace(endpoint_of(name, parse(ModelSettings, entry, name)), lists_models=False)
        for name, entry in pool.items()
    }
    client = OpenAIClient(endpoints, TRIES, FailurePolicy(down_s=60, max_failed=1.0))
    sampling = Sampling(TEMPERATURE, 1.0, LEAST_ROOM)
    openai_client.log.disabled = True  # each model's line already names what it refuses
    works = []
    for name, entry in pool.items():
        source = priced.get(name, "as the profile says")
        requests = [Request(name, "probe", prompt, sampling) for prompt in prompts]
        works.append(_described(client, entry, source, requests))
    try:
        results = await asyncio.gather(*works)
    finally:
        openai_client.log.disabled = False
        await client.aclose()
    failed = [each for each in results if isinstance(each, str)]
    return [each for each in results if isinstance(each, ProbedModel)], failed


async def _described(
    client: OpenAIClient, given: Mapping[str, Any], priced: str, requests: Sequence[Request]
) -> ProbedModel | str:
    """Return a model with what its answers show, or a line with the reason for skipping it."""
    request, *others = requests
    name = request.model
    entry = dict(given)
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
    if dialect.bound == "max_completion_tokens":
        entry["tokens_key"] = dialect.bound
    if left_out := sorted(dialect.left_out - set(TOKENS_KEYS)):
        entry["left_out"] = left_out
    if not dialect.system:
        entry["system_role"] = False
    parts = [f"${price.prompt:g} and ${price.completion:g} per million tokens ({priced})"]
    if _reasons(answers[0]):
        least, *_, most = sorted(2 * [answer.completion_tokens for answer in answers])
        span = f"{least}" if least == most else f"{least} to {most}"
        parts.append(f"reasons before it answers ({span} tokens)")
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
    room = LEAST_ROOM
    while room < PLENTY and room < ROOM * longest:
        room *= 2
    return room
