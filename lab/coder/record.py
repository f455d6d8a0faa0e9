"""Records the draws of draws.yaml from endpoints that are up.

    python -m lab.coder.record --url qwen2.5-coder-0.5b=http://127.0.0.1:8101/v1

A call that is recorded is not made again, so it can be stopped and started at any time.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from lab.coder.draws import Draw, Plan, draws_of, questions_of, read_plan
from ttsgraph.base.ending import say
from ttsgraph.base.errors import CallFailed, NoAnswer, PromptRefused
from ttsgraph.base.state import STATE
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import Retries
from ttsgraph.models.cache import CachedClient
from ttsgraph.models.client import Client, Completion, roomier
from ttsgraph.models.recording import Call
from ttsgraph.runtime.clients import connect, open_cache
from ttsgraph.settings.profile import Profile
from ttsgraph_flows.ending import EXIT_CODES, guarded

PATIENCE_S = 3600
"""Of one attempt: the server may be halted for quiet timings of others."""

EVERY_S = 60
"""Between two lines of progress."""


class Progress:
    """Says now and then how far a line of the plan is, how fast, and when it will be done."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = self._made = self._tokens = self._failed = 0
        self._began = self._said = time.monotonic()

    def add(self, found: Completion | None) -> None:
        """A call came back; None for one that failed."""
        self._done += 1
        if found is None:
            self._failed += 1
        elif not found.cached:
            self._made += 1
            self._tokens += found.completion_tokens
        if time.monotonic() - self._said >= EVERY_S or self._done == self._total:
            self._said = time.monotonic()
            say(self._line(self._said - self._began))

    def _line(self, taken_s: float) -> str:
        rate = self._made / taken_s if taken_s else 0.0
        left = (self._total - self._done) / rate / 60 if rate else 0.0
        return (
            f"{datetime.now(UTC):%H:%M:%S} {self._what}: {self._done} of {self._total} calls,"
            f" {rate:.2f} calls and {self._tokens / max(taken_s, 1e-9):.0f} tokens a second,"
            f" {left:.0f} minutes left" + (f", {self._failed} failed" if self._failed else "")
        )


async def record(
    plan: Plan, profile: Profile, urls: Mapping[str, str], state: Path, concurrency: int
) -> None:
    """Make the calls that are not recorded yet of the models that have a URL, line by line. Raises
    RunStopped where an endpoint is given up.
    """
    pool = {
        name: model.model_copy(update={"base_url": urls[name]})
        for name, model in profile.pool.items()
        if name in urls
    }
    asked = profile.model_copy(update={"pool": pool})
    retries = Retries(timeout_s=PATIENCE_S)
    policy = FailurePolicy(concurrency, PATIENCE_S, 0.1)
    with closing(open_cache(state)) as cache:
        async with connect(asked, {}, retries, policy, state) as client:
            cached = CachedClient(client, cache)
            for line in plan.draws:
                if line.member.partition(":")[0] not in urls:
                    continue
                questions = questions_of(profile, line.task, plan.seed)
                draws = list(draws_of(profile, line, questions))
                progress = Progress(f"{line.task} {line.member} x {line.replicas}", len(draws))
                await _all(cached, draws, progress, concurrency)


async def _all(client: Client, draws: Sequence[Draw], progress: Progress, concurrency: int) -> None:
    """All draws, of so many questions at once, begun in their order.

    A question's replicas follow one another: a server that finds a prompt in the place that has
    just answered it reads it once.
    """
    waiting = groupby(draws, key=lambda draw: draw.question.id)

    async def work() -> None:
        while (found := next(waiting, None)) is not None:
            for draw in list(found[1]):
                try:
                    progress.add(await client.complete(draw.request))
                except (CallFailed, NoAnswer) as failure:
                    say(f"{draw.question.id} {draw.member} {draw.replica}: {failure}")
                    progress.add(None)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())


def recorded(
    plan: Plan, profile: Profile, task: str, state: Path
) -> tuple[dict[str, Call], dict[str, int]]:
    """What is recorded of a task's draws: calls by key, those that asked again for a cut answer
    among them, and how many draws there are of each member.
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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], epilog=EXIT_CODES)
    parser.add_argument("--url", nargs="*", default=[], help="MODEL=URL of an endpoint that is up")
    parser.add_argument("--state", type=Path, default=STATE, help="where calls are kept")
    parser.add_argument("--concurrency", type=int, default=16)
    options = parser.parse_args()

    def run() -> None:
        plan, profile = read_plan()
        urls = dict(pair.split("=", 1) for pair in options.url)
        asyncio.run(record(plan, profile, urls, options.state, options.concurrency))

    guarded(run)


if __name__ == "__main__":
    main()
