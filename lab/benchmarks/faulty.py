"""A vote of five under 200 clients, with and without faults on one voter's endpoint: whether a
request is lost, how many answers are degraded, and what the slowest take.

Each voter has an endpoint of its own, a stub that takes as long as language models do (a median of
DELAY_S, with a long tail) and is right in 0.6 of its answers. Of the fifth's answers, SHARE go
wrong: a third each with HTTP 500, with a broken connection, and with no answer for half a minute.
Turns with and without faults follow one another, as other work on the machine disturbs both alike.

At that pace 200 clients ask some 35 questions a second, for which a service uses a fifth of a core
(`of a core` in the details): what is compared is what calls take, and not a machine that has too
much to do.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from contextlib import ExitStack
from typing import Any

import aiohttp

from lab.benchmarks.endpoint import started
from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import profile_on
from lab.benchmarks.service import launched, processor_s
from lab.benchmarks.voter import DELAY_S
from ttsgraph.deployment.bundle import Deployed
from ttsgraph.graphs.topologies import parallel

VOTER = "lab.benchmarks.voter"
CLIENTS = 200
VOTERS = 5
SHARE = 0.3
TURNS = 2
TURN_S = 60.0
CARE = {"hedge": 0.95, "deadline_s": 60.0}
MOST_DEGRADED = 0.01
MOST_SLOWER = 1.5

Answered = list[tuple[float, dict[str, Any] | None]]
"""Seconds, and what `ttsgraph` says of the answer; None where there was none."""


def version(urls: list[str]) -> Deployed:
    """A vote of models with an endpoint each."""
    profile = profile_on({f"voter-{k}": url for k, url in enumerate(urls)}, 4 * CLIENTS)
    names = list(profile.pool)
    return Deployed("math", parallel(names, names[0], "voter"), profile)


async def asked(url: str, seconds: float) -> Answered:
    """What 200 clients get, each with one question after the other."""
    found: Answered = []
    end = time.perf_counter() + seconds

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        await asyncio.sleep(DELAY_S * number / CLIENTS)
        body = {"model": "math@bundle", "messages": [{"role": "user", "content": "3 + 4"}]}
        while (started := time.perf_counter()) < end:
            async with session.post(f"{url}/chat/completions", json=body) as response:
                answer = await response.json()
            told = answer["ttsgraph"] if response.status == 200 else None
            found.append((time.perf_counter() - started, told))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session, number) for number in range(CLIENTS)))
    return found


def p99(answers: Answered) -> float:
    """Seconds that one answer in a hundred takes longer than."""
    return statistics.quantiles([seconds for seconds, _ in answers], n=100)[98]


def measure() -> list[Ratio]:
    """Requests lost, answers degraded, and the 99th percentile over that without faults."""
    settings = {"steady": CARE}
    with ExitStack() as held:
        services: list[tuple[str, int]] = []
        for share in (0.0, SHARE):
            urls = [held.enter_context(started(VOTER, k, 0.0)) for k in range(VOTERS - 1)]
            urls.append(held.enter_context(started(VOTER, VOTERS - 1, share)))
            services.append(held.enter_context(launched(version(urls), settings)))
        before = [processor_s(pid) for _, pid in services]
        began = time.perf_counter()
        turns = [[asyncio.run(asked(url, TURN_S)) for url, _ in services] for _ in range(TURNS)]
        seconds = (time.perf_counter() - began) / len(services)  # each has its turns
        used = [processor_s(pid) - at for (_, pid), at in zip(services, before, strict=True)]
    calm, faulty = (list(itertools.chain(*side)) for side in zip(*turns, strict=True))
    lost = sum(told is None for _, told in faulty)
    degraded = sum(told is not None and told["degraded"] for _, told in faulty) / len(faulty)
    slower = round(p99(faulty) / p99(calm), 3)
    medians = [round(statistics.median(seconds for seconds, _ in one), 2) for one in (calm, faulty)]
    details = {
        "clients": CLIENTS,
        "faults on one of five": SHARE,
        "requests without and with faults": [len(calm), len(faulty)],
        "median, s": medians,
        "99 %, s": [round(p99(calm), 2), round(p99(faulty), 2)],
        "of a core": [round(each / seconds, 2) for each in used],
        "answers that made a call twice": [
            sum("hedged" in (told or {}) for _, told in one) for one in (calm, faulty)
        ],
    }
    return [
        Ratio("requests lost to faults on one of five voters", lost, "at most", 0, details),
        Ratio("answers they degrade", round(degraded, 4), "at most", MOST_DEGRADED, details),
        Ratio("99th percentile with them over without", slower, "at most", MOST_SLOWER, details),
    ]
