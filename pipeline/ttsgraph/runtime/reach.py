"""Whether each model answers: one short call with its own key and parameters, and in the server's
own words why it does not.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

import openai

from ttsgraph.base.errors import EndpointError
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.learning import refusal_of, said_in
from ttsgraph.endpoints.openai_client import Endpoint, OpenAIClient, Retries, probe
from ttsgraph.endpoints.transport import reason_of
from ttsgraph.models.client import Message, Request, Sampling
from ttsgraph.models.dialect import HABITS, Habits
from ttsgraph.pool.spec import ModelSpec
from ttsgraph.runtime.clients import endpoint_of
from ttsgraph.settings.profile import Profile

MOST_TOKENS = 32
"""Of an answer that nobody reads."""

LONGEST_S = 60.0
SHOWN = 8
"""Names of an endpoint's list that are shown."""

_NO_MODEL = re.compile(
    r"(model|deployment).{0,80}(not (found|exist|available|a valid)|n't"
    r" exist|unknown|invalid|not_found|no longer)"
    r"|(invalid|unknown|no such|not a valid|no endpoints found"
    r" for).{0,30}(model|deployment)|DeploymentNotFound",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a profile needs: whether it is there, what was found, and what to do if not."""

    subject: str
    ok: bool
    found: str
    advice: str = ""


def finding(subject: str, ok: bool, found: str, advice: str) -> Finding:
    """A finding that gives its advice only where something is missing."""
    return Finding(subject, ok, found, "" if ok else advice)


def reach(profile: Profile, state: Path) -> list[Finding]:
    """Ask each model at each base_url, and the agent's; what they refuse is kept for runs."""
    return asyncio.run(_reach_all(profile, state))


async def _reach_all(profile: Profile, state: Path) -> list[Finding]:
    habits = Fresh(state / HABITS)
    calls = []
    for spec in profile.model_pool().values() if profile.pool else ():
        model = profile.pool[spec.model]
        if _asks_otherwise(spec):
            endpoint = endpoint_of(spec.model, model, profile.engine.seeds)
            request = _request(profile, spec)
            for url in model.base_urls:
                at = replace(endpoint, base_urls=(url,))
                calls.append(_reach(f"model {spec.name}", at, request, profile, habits))
    agent = profile.agent
    if agent.kind == "llm" and agent.base_url is not None and agent.model is not None:
        endpoint = Endpoint((agent.base_url,), agent.model, agent.api_key_env)
        asked = probe(agent.model)
        calls.append(_reach(f"agent {agent.model}", endpoint, asked, profile, Habits()))
    return list(await asyncio.gather(*calls))


class Fresh(Habits):
    """Finds out again what is known, and keeps what is found."""

    def get(self, name: str) -> None:
        """Nothing is known."""


def _asks_otherwise(spec: ModelSpec) -> bool:
    """Whether its endpoint may take other parameters than from the other members of its model."""
    return (
        spec.variant is None
        or spec.variant.reasoning_effort is not None
        or spec.variant.extra_body is not None
    )


def _request(profile: Profile, spec: ModelSpec) -> Request:
    """A call as the profile's first task would make it, but short."""
    task = next(iter(profile.tasks.values()), None)
    sampling = spec.sampling(Sampling() if task is None else task.sampling.sampling())
    messages = (Message("system", "Answer with one word."), Message("user", "Say OK."))
    return Request(
        spec.model,
        "probe",
        messages,
        replace(sampling, max_tokens=min(MOST_TOKENS, sampling.max_tokens)),
    )


async def _reach(
    subject: str, endpoint: Endpoint, request: Request, profile: Profile, habits: Habits
) -> Finding:
    try:
        retries = Retries(0, timeout_s=min(LONGEST_S, profile.engine.timeout_s))
        client = OpenAIClient({request.model: endpoint}, retries, FailurePolicy(), habits)
    except EndpointError as error:  # a key that is not set, or can't be sent
        return Finding(subject, False, str(error), f"export {endpoint.api_key_env}=...")
    try:
        async with asyncio.timeout(retries.timeout_s):
            return await _asked(subject, client, endpoint, request)
    except TimeoutError:
        found = f"{endpoint.base_urls[0]} does not answer within {retries.timeout_s:g} s"
        return Finding(subject, False, found, "see what its server does")
    finally:
        await client.aclose()


async def _asked(
    subject: str, client: OpenAIClient, endpoint: Endpoint, request: Request
) -> Finding:
    started = time.monotonic()
    url = endpoint.base_urls[0]
    try:
        answer = await client.once(url, request)
    except Exception as error:  # whatever a server that is none of models makes of it
        return Finding(subject, False, *await _why(error, client, endpoint, request.model))
    client.keep(request)
    listed = await _listed(client, url, request.model)
    seconds = time.monotonic() - started
    names = {endpoint.served_as, f"{endpoint.served_as}:latest"}
    if listed and endpoint.lists_models and not names & listed:
        found = f"{url} answers, but it does not list {endpoint.served_as!r} ({_names(listed)})"
        advice = "correct served_as, or say `listed: false` if this name is right"
        return Finding(subject, False, found, advice)
    how = client.manner(request).words
    asked = f"; asked {how}" if how else ""
    tokens = f"{answer.prompt_tokens} tokens read and {answer.completion_tokens} written"
    if answer.reasoning_tokens:
        tokens += f", {answer.reasoning_tokens} of them reasoning"
    found = f"{url} answers after {seconds:.1f} s, {tokens}{asked}"
    return Finding(subject, True, found)


async def _why(
    error: Exception, client: OpenAIClient, endpoint: Endpoint, model: str
) -> tuple[str, str]:
    """What is wrong, with the server's own words, and what to do about it."""
    url = endpoint.base_urls[0]
    said = said_in(error)
    words = f" ({said})" if said else ""
    if not isinstance(error, openai.APIStatusError):
        if isinstance(error, openai.APIConnectionError):
            found = f"no server at {url}: the connection is refused or broken"
            return found, "start the server, or correct base_url"
        found = f"{url} answers, but not as an OpenAI-compatible server: {reason_of(error)}"
        return found, "correct base_url; it mostly ends in /v1"
    status = error.status_code
    found = f"{url} can't answer now"
    advice = "try again later"
    if status in (401, 403):
        named = endpoint.api_key_env
        found = f"{url} refuses {f'the key in {named}' if named else 'a request without a key'}"
        advice = f"correct {named}" if named else "name the key's variable: api_key_env"
    elif status in (400, 404, 422) and _NO_MODEL.search(said):
        names = _names(await _listed(client, url, model) or set())
        found = f"{url} has no model {endpoint.served_as!r}"
        advice = f"correct served_as; the server has {names}"
    elif status in (404, 405) or 300 <= status < 400:
        found = f"nothing at {url}/chat/completions"
        advice = "correct base_url; it mostly ends in /v1"
    elif status == 402 or (status == 429 and "quota" in said.lower()):
        found = f"{url} wants to be paid first"
        advice = "see the account that the key is of"
    elif refusal_of(error) is not None:
        found = f"{url} refuses the request"
        advice = "see left_out, tokens_key and extra_body in docs/own-models.md"
    return f"{found}: HTTP {status}{words}", advice


async def _listed(client: OpenAIClient, url: str, model: str) -> set[str] | None:
    try:
        return await client.listed(url, model)
    except EndpointError:
        return None


def _names(listed: set[str]) -> str:
    shown = ", ".join(sorted(listed)[:SHOWN]) or "none in its list"
    return shown + (f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else "")
