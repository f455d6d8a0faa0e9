"""Record the draws that draws.yaml lists, from running endpoints.

    python -m lab.coder.record --url qwen2.5-coder-0.5b=http://127.0.0.1:8101/v1

A recorded call is not made again, so the command can be stopped and run again at any time.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from itertools import groupby
from pathlib import Path

from lab.coder.draws import Draw, Plan, draws_of, questions_of, read_plan
from ttsgraph.base.ending import say
from ttsgraph.base.errors import CallFailed, NoAnswer, PromptRefused
from ttsgraph.base.state import STATE
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Client, roomier
from ttsgraph.models.recording import Call
from ttsgraph.runtime.clients import connect, open_cache
from ttsgraph.settings.profile import Profile
from ttsgraph_flows.ending import command

PATIENCE_S = 3600
"""Timeout of one attempt. It is long because the server may be paused to time other processes."""


@asynccontextmanager
async def caching_client(
    profile: Profile, urls: Mapping[str, str], state: Path, concurrency: int
) -> AsyncIterator[tuple[Client, CallCache]]:
    """Yield a client of the endpoints at these URLs, and an open call cache for it."""
    pool = {
        name: model.model_copy(update={"base_url": urls[name]})
        for name, model in profile.pool.items()
        if name in urls
    }
    reachable = profile.model_copy(update={"pool": pool})
    policy = FailurePolicy(concurrency, PATIENCE_S, 0.1, timeout_s=PATIENCE_S)
    with closing(open_cache(state)) as cache:
        async with connect(reachable, {}, policy, state) as client:
            yield client, cache


async def record(
    plan: Plan, profile: Profile, urls: Mapping[str, str], state: Path, concurrency: int
) -> None:
    """Make the plan's missing calls, line by line, for the models that have a URL. Raises
    RunStopped if an endpoint fails for too long.
    """
    async with caching_client(profile, urls, state, concurrency) as (client, cache):
        cached = CachedClient(client, cache)
        for line in plan.draws:
            if line.member.partition(":")[0] not in urls:
                continue
            questions = questions_of(profile, line.task, plan.seed)
            draws = list(draws_of(profile, line, questions))
            failed = await _all(cached, draws, concurrency)
            what = f"{line.task} {line.member} x {line.replicas}"
            say(f"{what}: {len(draws) - failed} of {len(draws)} calls recorded")


async def _all(client: Client, draws: Sequence[Draw], concurrency: int) -> int:
    """Make all draws in order, for `concurrency` questions in parallel; return the number of
    failures.

    A question's replicas run in sequence, so that a server with a prompt cache reads the prompt
    once.
    """
    waiting = groupby(draws, key=lambda draw: draw.question.id)
    failed = 0

    async def work() -> None:
        nonlocal failed
        while (found := next(waiting, None)) is not None:
            for draw in list(found[1]):
                try:
                    await client.complete(draw.request)
                except (CallFailed, NoAnswer) as failure:
                    say(f"{draw.question.id} {draw.member} {draw.replica}: {failure}")
                    failed += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())
    return failed


def recorded(
    plan: Plan, profile: Profile, task: str, state: Path
) -> tuple[dict[str, Call], dict[str, int]]:
    """Return the recorded calls of a task's draws by key, including the repeats of calls whose
    answers were cut off, and the number of recorded draws of each member.
    """
    calls: dict[str, Call] = {}
    counts: dict[str, int] = {}
    questions = questions_of(profile, task, plan.seed)
    with closing(open_cache(state)) as cache:
        for line in plan.draws:
            if line.task != task:
                continue
            draws = list(draws_of(profile, line, questions))
            counts[line.member] = 0
            for request in (draw.request for draw in draws):
                found = cache.get(request.key())
                counts[line.member] += found is not None
                if found is not None:
                    refused = PromptRefused(found.text) if found.refused else None
                    calls[request.key()] = Call(request.model, refused or found)
                if found is not None and found.cut:
                    request = roomier(request)
                    again = cache.get(request.key())
                    calls |= {request.key(): Call(request.model, again)} if again else {}
    return calls, counts


def record_missing(url: list[str], state: Path, concurrency: int) -> None:
    """Record, from running endpoints, the draws in draws.yaml that the call cache lacks."""
    plan, profile = read_plan()
    urls = dict(pair.split("=", 1) for pair in url)
    asyncio.run(record(plan, profile, urls, state, concurrency))


if __name__ == "__main__":
    command(
        record_missing,
        url={"nargs": "*", "default": [], "help": "MODEL=URL of a running endpoint"},
        state={"type": Path, "default": STATE, "help": "folder of the call cache"},
        concurrency={"type": int, "default": 16},
    )
