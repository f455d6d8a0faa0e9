"""Two advisers and a fuser while every endpoint fails in a fifth of its answers, by the default
settings; and whether the dollars are those of the endpoints' books.

Turns with and without errors alternate. Endpoints take as long as language models do (a median of
SLOW_S, with a long tail), and fail immediately. The books have every call that did not fail.
"""

from __future__ import annotations

import asyncio
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

SLOW_S = 3.0
SECONDS = 25.0
MANY = 160
TURNS = 2
FAILS = 0.2
BOOKS = b"the books, please"
TOKENS = 55
"""Of an answer of a stub, read and written."""

PRICE = 0.1
"""Dollars per million tokens, as `profile_on` has it."""

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

    def asked(self, body: bytes) -> None:
        if BOOKS in body:
            self.send(reply(completion(str(_Troubled.billed))))
        elif self.rng.random() < self.share:
            self.send(reply({}, b"500 Internal Server Error"))
        else:
            _Troubled.billed += 1
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
def side(load: Load, spread: float, share: float = 0.0) -> Iterator[Side]:
    """A server whose endpoints fail in this share of their answers."""
    with ExitStack() as held:
        urls = [
            held.enter_context(started("lab.benchmarks.trouble", k, load.delay_s, spread, share))
            for k in range(3)
        ]
        profile = profile_on({f"model-{k}": url for k, url in enumerate(urls)}, 4 * load.clients)
        first, second, last = profile.pool
        version = Deployed("math", parallel([first, second], last), profile)
        url, _ = held.enter_context(launched(version, {}))
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


def measure() -> list[Ratio]:
    """Compare requests lost, the 99th percentile and the dollars with and without errors."""
    load = Load(MANY, SLOW_S)
    with side(load, 0.5) as calm, side(load, 0.5, FAILS) as troubled:
        details = compared(calm, troubled, SECONDS, SECONDS)
    slower = round(troubled.quantile(99) / calm.quantile(99), 3)
    off = round(_off(details), 5)
    return [
        Ratio("requests lost to a fifth of errors", troubled.lost, "at most", 0, details),
        Ratio("99th percentile with them over without", slower, "at most", MOST_FAILING, details),
        Ratio("dollars off the books, a fifth failing", off, "at most", MOST_OFF, details),
    ]


def _connect(seed: int, delay_s: float, spread: float, share: float) -> Any:
    rng = random.Random(seed)
    return lambda: _Troubled(rng, delay_s, spread, share)


if __name__ == "__main__":
    asyncio.run(serve(_connect(int(sys.argv[1]), *map(float, sys.argv[2:]))))
