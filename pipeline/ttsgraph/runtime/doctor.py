"""Check of a profile's requirements on this machine and at its endpoints, with remedies.

The check sends each model one short request, or two if its endpoint does not list it, and
changes nothing except the stored dialects of endpoints.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.state import STATE
from ttsgraph.endpoints.endpoint import Endpoint, probe
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import OpenAIClient
from ttsgraph.models.client import Message, Request, Sampling
from ttsgraph.models.dialect import HABITS, DialectStore
from ttsgraph.runtime.clients import agent_endpoint, endpoint_of
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


def examine(profile: Profile, state: Path = STATE) -> list[Finding]:
    """Return a finding for each requirement, in the order in which a run would need it."""
    here = examine_servers(profile, state) if profile.hosted else ()
    reached = asyncio.run(_reach_all(profile, state))
    return [*here, *reached, *_sources(profile), *_isolation(profile)]


def in_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield findings as text, one line each."""
    for one in findings:
        todo = f"; {one.advice}" if one.advice and not one.ok else ""
        yield f"{'ok     ' if one.ok else 'MISSING'}  {one.subject}: {one.found}{todo}"


def _sources(profile: Profile) -> Iterator[Finding]:
    for task, settings in profile.tasks.items():
        subject, source = f"questions of {task}", settings.source
        for part in source.parts if source.kind == "mixture" else (source,):
            if part.kind == "jsonl":
                advice = "put the file there, or correct source.path"
                yield Finding(subject, part.path.exists(), str(part.path), advice)
            elif part.kind == "hf":
                place = hub_home() / "hub" / f"datasets--{part.path.replace('/', '--')}"
                advice = (
                    "the sample stage downloads it if there is a network; or run `hf download"
                    f" --repo-type dataset {part.path}`"
                )
                yield Finding(subject, place.exists(), str(place), advice)


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
    habits = DialectStore(state / HABITS)
    policy = FailurePolicy(timeout_s=min(LONGEST_S, profile.engine.timeout_s))
    calls = []
    for name, model in profile.pool.items():
        endpoint = endpoint_of(name, model, profile.engine.seeds)
        request = Request(name, "probe", ASKED, Sampling(max_tokens=MOST_TOKENS))
        for url in model.base_urls:
            at = replace(endpoint, base_urls=(url,))
            calls.append(_reach(f"model {name}", at, request, policy, habits))
    agent = profile.agent
    if agent.base_url is not None and agent.model is not None:
        endpoint, asked = agent_endpoint(agent), probe(agent.model)
        calls.append(_reach(f"agent {agent.model}", endpoint, asked, policy, DialectStore()))
    return list(await asyncio.gather(*calls))


async def _reach(
    subject: str, endpoint: Endpoint, request: Request, policy: FailurePolicy, habits: DialectStore
) -> Finding:
    """Check one model at one base URL as a run does, send it a test request, and return the
    finding. The dialect is learned again, and replaces the stored one.
    """
    url = endpoint.base_urls[0]
    try:
        async with aclosing(OpenAIClient({request.model: endpoint}, policy)) as client:
            await client.check()
            answer = await client.once(url, request)
    except EndpointError as error:
        found, *advice = error.args
        return Finding(subject, False, found.removeprefix(f"model {request.model!r}: "), *advice)
    except Exception as error:  # the server may be anything, so any error is possible
        return Finding(subject, False, *endpoint.trouble(error, url))
    how = client.manner(request)
    habits.keep(how.name, how.dialect)
    tokens = f"{answer.prompt_tokens} prompt and {answer.completion_tokens} answer tokens"
    asked = f"; requests are sent {how.dialect.words}" if how.dialect.words else ""
    return Finding(subject, True, f"{url} answered in {answer.latency_s:.1f} s, {tokens}{asked}")
