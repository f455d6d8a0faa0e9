"""Test calls that measure a model's answer lengths and speed, and detect its request dialect. Each
model gets one question, a reasoning model a few.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
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

EFFORT = "low"
LESS = 0.7
"""Share of a model's usual tokens below which its variant with low effort is added to the pool. If
an endpoint ignores effort, the variant takes about the same number of tokens, apart from sampling
noise, and isn't added.
"""


@dataclass(frozen=True, slots=True)
class ProbedModel:
    """Model that answered its test calls.

    `entry` is its entry in a profile's pool; `calls` has all its test calls; `answers` has those
    with the settings of a search; `lengths` has the token counts of the model and its variants, by
    name; `line` is a summary to print.
    """

    name: str
    entry: Mapping[str, Any]
    calls: tuple[Completion, ...]
    answers: tuple[Completion, ...]
    lengths: Mapping[str, Mapping[str, float]]
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
    """Send the first prompt to each model in the pool, and the other prompts to reasoning models.

    Return the models that answered, and a line for each model that didn't. `priced` names the
    source of each model's price.
    """
    endpoints = {
        name: replace(endpoint_of(name, parse(ModelSettings, entry, name)), lists_models=False)
        for name, entry in pool.items()
    }
    client = OpenAIClient(endpoints, TRIES, FailurePolicy(down_s=60, max_failed=1.0))
    sampling = Sampling(TEMPERATURE, 1.0, LEAST_ROOM)
    learning.log.disabled = True  # each model's line already names what it refuses
    try:
        results = await asyncio.gather(
            *(
                _described(
                    client,
                    entry,
                    priced.get(name, "as the profile says"),
                    [Request(name, "probe", messages, sampling) for messages in prompts],
                )
                for name, entry in pool.items()
            )
        )
    finally:
        learning.log.disabled = False
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
        completion = calls[-1]
        if not (price.prompt or price.completion):  # time a free model without its cold start
            calls.append(await client.complete(request))
    except FAILURES as error:
        return f"{name} didn't answer and is skipped: {error}"
    dialect = client.manner(request)
    if dialect.bound == "max_completion_tokens":
        entry["tokens_key"] = dialect.bound
    if left_out := sorted(dialect.left_out - set(TOKENS_KEYS)):
        entry["left_out"] = left_out
    if not dialect.system:
        entry["system_role"] = False
    parts = [f"${price.prompt:g} and ${price.completion:g} per million tokens ({priced})"]
    answers = [completion]
    lengths: dict[str, dict[str, float]] = {}
    silent = completion.cut and not completion.text
    if completion.reasoning or completion.reasoning_tokens or silent:
        # The length of the reasoning depends on the question, so one answer isn't enough.
        answers += await _answered(client, others)
        calls += answers[1:]
        parts.append(f"reasons before it answers ({_span(answers)} tokens)")
        less = await _with_less_effort(client, [request, *others])
        if less and _mean_tokens(less) < LESS * _mean_tokens(answers):
            calls += less
            entry["variants"] = {EFFORT: {"reasoning_effort": EFFORT}}
            lengths[variant_name(name, EFFORT)] = _lengths(less)
            parts.append(f"{name}:{EFFORT} reasons less ({_span(less)})")
    lengths = {name: _lengths(answers)} | lengths
    if dialect.words:
        parts.append(f"called {dialect.words}")
    if completion.estimated:
        parts.append("reports no token counts: its costs are estimated")
    line = f"{name}: {'; '.join(parts)}"
    return ProbedModel(name, entry, tuple(calls), tuple(answers), lengths, line)


async def _answered(client: OpenAIClient, requests: Sequence[Request]) -> list[Completion]:
    """Return the answers to these requests, except those whose calls fail."""
    found = await asyncio.gather(*map(client.complete, requests), return_exceptions=True)
    return [each for each in found if isinstance(each, Completion)]


async def _with_less_effort(client: OpenAIClient, requests: Sequence[Request]) -> list[Completion]:
    """Return the answers to these requests with low effort, or an empty list if the model refuses
    the setting.
    """
    known = tuple(client.manner(requests[0]).left_out - set(TOKENS_KEYS))
    sampling = replace(requests[0].sampling, reasoning_effort=EFFORT, left_out=known)
    asked = [replace(request, sampling=sampling) for request in requests]
    found = await _answered(client, asked)
    return [] if "reasoning_effort" in client.manner(asked[0]).left_out else found


def _mean_tokens(answers: Sequence[Completion]) -> float:
    return fmean(answer.completion_tokens for answer in answers)


def _span(answers: Sequence[Completion]) -> str:
    """Return the lowest and highest token counts of these answers, as text."""
    least, *_, most = sorted(2 * [answer.completion_tokens for answer in answers])
    return f"{least}" if least == most else f"{least} to {most}"


def _lengths(answers: Sequence[Completion]) -> dict[str, float]:
    """Return the `Lengths` of a member of the pool, estimated from a few test calls."""
    written = _mean_tokens(answers)
    return {
        "prompt_tokens": fmean(answer.prompt_tokens for answer in answers),
        "generated_tokens": max(1.0, written),
        "read_tokens": max(1.0, written - fmean(answer.reasoning_tokens for answer in answers)),
        "more_tokens": 0.0,
    }


def room_for(found: Sequence[ProbedModel]) -> int:
    """Return the limit on an answer's tokens, which is higher if models wrote long answers."""
    lengths = (answer.completion_tokens for each in found for answer in each.answers)
    longest = max(lengths, default=0)
    room = LEAST_ROOM
    while room < PLENTY and room < ROOM * longest:
        room *= 2
    return room
