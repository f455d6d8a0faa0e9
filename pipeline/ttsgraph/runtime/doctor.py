"""Check of a profile's requirements on this machine and at its endpoints, with remedies.

The check sends each model one short request, and changes nothing except the stored dialects of
endpoints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.state import STATE
from ttsgraph.endpoints.endpoint import Endpoint, names_of, probe, trouble
from ttsgraph.endpoints.endpoints import FailurePolicy, Fault
from ttsgraph.endpoints.openai_client import OpenAIClient, Retries
from ttsgraph.models.client import Message, Request, Sampling
from ttsgraph.models.dialect import HABITS, DialectStore
from ttsgraph.runtime.clients import endpoint_of
from ttsgraph.serving.memory import hub_home
from ttsgraph.serving.needs import Finding, examine_servers
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import CodeTask
from ttsgraph.tasks.programs import missing_layers

ASKED = (Message("system", "Answer with one word."), Message("user", "Say OK."))
MOST_TOKENS = 32
"""Token bound of a test answer."""

LONGEST_S = 60.0


def examine(profile: Profile, state: Path = STATE, python: str | None = None) -> list[Finding]:
    """Return a finding for each requirement, in the order in which a run would need it."""
    servers = examine_servers(profile, state, python or profile.engine.python)
    reached = asyncio.run(_reach_all(profile, state))
    findings = (servers if profile.hosted else (), reached, _sources(profile), _isolation(profile))
    return [*chain(*findings)]


def in_lines(
    findings: Sequence[Finding], estimates: Sequence[Mapping[str, Any]], unknown: Sequence[str]
) -> Iterator[str]:
    """Yield findings, estimates of runs, and reasons for missing estimates, one line each."""
    for one in findings:
        todo = f"; {one.advice}" if one.advice and not one.ok else ""
        yield f"{'ok     ' if one.ok else 'MISSING'}  {one.subject}: {one.found}{todo}"
    for why in unknown:
        yield f"unknown  cost of a run: {why}"
    for run in estimates:
        hours = "unknown" if run["seconds"] is None else f"{run['seconds'] / 3600:.1f} h"
        agent = run["agent"]
        more = f" and ${agent['dollars']:,.2f} for the agent" if agent["calls"] else ""
        yield (
            f"about    {run['task']}: {run['calls']['total']:,} calls,"
            f" ${run['dollars']:,.2f}{more}, time {hours};"
            f" about ${run['expected']['dollars']:,.2f} of it for ttsgraph run"
        )


def _sources(profile: Profile) -> Iterator[Finding]:
    for task, settings in profile.tasks.items():
        source = settings.source
        for part in source.parts if source.kind == "mixture" else (source,):
            if part.kind == "jsonl":
                place = part.path
                advice = "put the file there, or correct source.path"
            elif part.kind == "hf":
                place = hub_home() / "hub" / f"datasets--{part.path.replace('/', '--')}"
                advice = (
                    "the sample stage downloads it if there is a network; or run `hf download"
                    f" --repo-type dataset {part.path}`"
                )
            else:
                continue
            yield Finding(f"questions of {task}", place.exists(), str(place), advice)


def _isolation(profile: Profile) -> Iterator[Finding]:
    """Yield a finding about the isolation of model-written programs, if a task runs any."""
    if not any(isinstance(get_task(each.kind), CodeTask) for each in profile.tasks.values()):
        return
    missing = missing_layers()
    found = "; ".join(f"{layer}: {why}" for layer, why in missing.items())
    advice = (
        "use Linux 5.13 or later with Landlock, and install libseccomp (libseccomp2); or, to accept"
        " resource limits only, set sandbox.accept_weaker: true"
    )
    yield Finding("isolation of programs", not missing, found or "files and system calls", advice)


async def _reach_all(profile: Profile, state: Path) -> list[Finding]:
    """Send a test request to each model at each base_url, and to the agent; store the learned
    dialects for later runs.
    """
    habits = RelearnedDialects(state / HABITS)
    task = next(iter(profile.tasks.values()), None)
    drawn = Sampling() if task is None else task.sampling.sampling()
    calls = []
    for spec in profile.model_pool().values() if profile.pool else ():
        other = spec.variant
        if other is not None and other.reasoning_effort is None and other.extra_body is None:
            continue  # the variant shares its model's dialect
        model = profile.pool[spec.model]
        endpoint = endpoint_of(spec.model, model, profile.engine.seeds)
        sampling = spec.sampling(drawn)
        short = replace(sampling, max_tokens=min(MOST_TOKENS, sampling.max_tokens))
        request = Request(spec.model, "probe", ASKED, short)
        for url in model.base_urls:
            at = replace(endpoint, base_urls=(url,))
            calls.append(_reach(f"model {spec.name}", at, request, profile, habits))
    agent = profile.agent
    if agent.kind == "llm" and agent.base_url is not None and agent.model is not None:
        endpoint = Endpoint((agent.base_url,), agent.model, agent.api_key_env)
        asked = probe(agent.model)
        calls.append(_reach(f"agent {agent.model}", endpoint, asked, profile, DialectStore()))
    return list(await asyncio.gather(*calls))


class RelearnedDialects(DialectStore):
    """Store of dialects that returns none, so that each is learned again and the new one kept."""

    def get(self, name: str) -> None:
        """Return None, so that every dialect is learned again."""


async def _reach(
    subject: str, endpoint: Endpoint, request: Request, profile: Profile, habits: DialectStore
) -> Finding:
    """Send a test request to one model at one base URL, and return the finding."""
    url = endpoint.base_urls[0]
    retries = Retries(0, timeout_s=min(LONGEST_S, profile.engine.timeout_s))
    listed = None
    try:
        client = OpenAIClient({request.model: endpoint}, retries, FailurePolicy(), habits)
    except EndpointError as error:  # the key is not set or can't be sent
        return Finding(subject, False, str(error))
    async with aclosing(client):
        try:
            try:
                listed = await client.listed(url, request.model)
            except EndpointError as error:
                # If the server can be reached, the request below gives a better diagnosis.
                if isinstance(error.__cause__, Fault) and error.__cause__.unreached:
                    raise error.__cause__ from None
            answer = await client.once(url, request)
        except Exception as error:  # the server may be anything, so any error is possible
            return Finding(subject, False, *trouble(error, endpoint, url, listed or ()))
        client.keep(request)
        how = client.manner(request).words
    if listed and endpoint.lists_models and not endpoint.serves(listed):
        found = f"{url} answers, but doesn't list {endpoint.served_as!r} ({names_of(listed)})"
        advice = "correct served_as, or set `listed: false` if the name is right"
        return Finding(subject, False, found, advice)
    tokens = f"{answer.prompt_tokens} prompt and {answer.completion_tokens} answer tokens"
    if answer.reasoning_tokens:
        tokens += f", {answer.reasoning_tokens} of them for reasoning"
    asked = f"; requests are sent {how}" if how else ""
    return Finding(subject, True, f"{url} answered in {answer.latency_s:.1f} s, {tokens}{asked}")
