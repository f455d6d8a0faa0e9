"""Two advisers and a fuser while one adviser hangs, and while every endpoint fails in a fifth of
its answers, by the default settings; and whether the dollars are those of the endpoints' books.

Turns with and without trouble follow one another. What hangs has answered FIRST calls before, and
each endpoint of the first pair takes QUICK_S for an answer; those of the second take as long as
language models do (a median of SLOW_S, with a long tail), and fail at once. The books have every
call that did not fail, also those that were given up: whoever bills by the token bills those.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from lab.benchmarks.endpoint import Connection, completion, reply, serve, started
from lab.benchmarks.measured import Ratio
from lab.benchmarks.pool import profile_on
from lab.benchmarks.service import Load, Timed, launched, served
from ttsgraph.deployment.bundle import Deployed
from ttsgraph.graphs.topologies import parallel

QUICK_S = 0.25
SLOW_S = 3.0
CROWD = 64
MANY = 160
TURNS = 2
FIRST = 100
TIMEOUT_S = 8.0
FAILS = 0.2
BOOKS = b"the books, please"
TOKENS = 55
"""Of an answer of a stub, read and written."""

PRICE = 0.1
"""Dollars per million tokens, as `profile_on` has it."""

MOST_HANGING = 1.15
MOST_FAILING = 1.5
MOST_OFF = 0.001


class _Troubled(Connection):
    """One connection of an endpoint with books; all share what has been `billed`, in calls."""

    billed = 0

    def __init__(self, rng: random.Random, delay_s: float, spread: float, share: float) -> None:
        super().__init__()
        self.rng = rng
        self.delay_s = delay_s
        self.spread = spread
        self.share = share
        self.answers = math.inf

    def asked(self, body: bytes) -> None:
        if BOOKS in body:
            self.send(reply(completion(str(_Troubled.billed))))
        elif self.rng.random() < self.share:
            self.send(reply({}, b"500 Internal Server Error"))
        else:
            _Troubled.billed += 1
            if _Troubled.billed <= self.answers:
                name = re.findall(rb"request-\d+", body)[-1].decode()
                seconds = self.delay_s * self.rng.lognormvariate(0, self.spread)
                self.send_later(seconds, reply(completion(name)))


@dataclass
class Side:
    """A server, and its endpoints."""

    url: str
    endpoints: list[str]
    load: Load
    found: Timed = field(default_factory=list)

    def turn(self, seconds: float) -> None:
        """Ask for so long."""
        self.found += asyncio.run(served(self.url, self.load, seconds))

    @property
    def lost(self) -> int:
        """Requests without an answer."""
        return sum("lost" in what or "error" in what for _, what in self.found)

    def quantile(self, percent: int) -> float:
        """Seconds."""
        times = sorted(seconds for seconds, _ in self.found)
        return statistics.quantiles(times, n=100)[percent - 1]

    async def books(self) -> tuple[float, float]:
        """Dollars that the server counted, and those of its endpoints' books."""
        async with aiohttp.ClientSession() as session:
            async with session.get(self.url.removesuffix("/v1") + "/metrics") as response:
                lines = (await response.text()).splitlines()
            counted = sum(
                float(line.split()[1])
                for line in lines
                if line.startswith("ttsgraph_dollars_total")
            )
            asked: dict[str, Any] = {"messages": [{"role": "user", "content": BOOKS.decode()}]}
            billed = 0
            for url in self.endpoints:
                async with session.post(f"{url}/chat/completions", json=asked) as response:
                    said = await response.json()
                billed += int(said["choices"][0]["message"]["content"])
        return counted, billed * TOKENS * PRICE / 1e6


@contextmanager
def side(load: Load, spread: float, share: float = 0.0, hangs: bool = False) -> Iterator[Side]:
    """A server whose endpoints fail in this share of their answers, and whose first one hangs."""
    with ExitStack() as held:
        urls = [
            held.enter_context(
                started(
                    "lab.benchmarks.trouble",
                    *(k, load.delay_s, spread, share),
                    FIRST if hangs and k == 0 else math.inf,
                )
            )
            for k in range(3)
        ]
        profile = profile_on({f"model-{k}": url for k, url in enumerate(urls)}, 4 * load.clients)
        first, second, last = profile.pool
        version = Deployed("math", parallel([first, second], last), profile)
        settings = {"fallback": True, "timeout_s": TIMEOUT_S} if hangs else {}
        url, _ = held.enter_context(launched(version, settings))
        yield Side(url, urls, load)


def compared(calm: Side, troubled: Side, calm_s: float, troubled_s: float) -> dict[str, Any]:
    """What came of turns of both."""
    for _ in range(TURNS):
        calm.turn(calm_s)
        troubled.turn(troubled_s)
    return {
        "clients": calm.load.clients,
        "requests without and with it": [len(calm.found), len(troubled.found)],
        "lost": [calm.lost, troubled.lost],
        "median, s": [round(calm.quantile(50), 3), round(troubled.quantile(50), 3)],
        "99 %, s": [round(calm.quantile(99), 3), round(troubled.quantile(99), 3)],
        "dollars, and the books'": [asyncio.run(one.books()) for one in (calm, troubled)],
    }


def _off(details: dict[str, Any]) -> float:
    return max(abs(counted / billed - 1) for counted, billed in details["dollars, and the books'"])


def hanging(calm_s: float = 12.0, hanging_s: float = 40.0) -> list[Ratio]:
    """Answers lost to an adviser that hangs, the median with it over without, and the dollars."""
    load = Load(CROWD, QUICK_S)
    with side(load, 0.0) as calm, side(load, 0.0, hangs=True) as troubled:
        details = compared(calm, troubled, calm_s, hanging_s)
    slower = round(troubled.quantile(50) / calm.quantile(50), 3)
    off = round(_off(details), 5)
    return [
        Ratio("requests lost to an adviser that hangs", troubled.lost, "at most", 0, details),
        Ratio("median with it over without", slower, "at most", MOST_HANGING, details),
        Ratio("dollars off the books, an adviser hanging", off, "at most", MOST_OFF, details),
    ]


def failing(seconds: float = 25.0) -> list[Ratio]:
    """The same of the 99th percentile where each endpoint fails in a fifth of its answers."""
    load = Load(MANY, SLOW_S)
    with side(load, 0.5) as calm, side(load, 0.5, FAILS) as troubled:
        details = compared(calm, troubled, seconds, seconds)
    slower = round(troubled.quantile(99) / calm.quantile(99), 3)
    off = round(_off(details), 5)
    return [
        Ratio("requests lost to a fifth of errors", troubled.lost, "at most", 0, details),
        Ratio("99th percentile with them over without", slower, "at most", MOST_FAILING, details),
        Ratio("dollars off the books, a fifth failing", off, "at most", MOST_OFF, details),
    ]


def measure() -> list[Ratio]:
    """Both."""
    return hanging() + failing()


def _connect(seed: int, delay_s: float, spread: float, share: float, answers: float) -> Any:
    rng = random.Random(seed)

    def connection() -> _Troubled:
        made = _Troubled(rng, delay_s, spread, share)
        made.answers = answers
        return made

    return connection


if __name__ == "__main__":
    asyncio.run(serve(_connect(int(sys.argv[1]), *map(float, sys.argv[2:]))))
