"""What traces add to the time of a served answer: the same server with and without them, in turns.

Every request is traced, to a receiver on this machine that takes all and reads none. The two
servers answer the same questions alternately, so that other work on the machine disturbs both
alike; which comes first alternates too. Their processor time is compared as well, which the median
of an answer hardly shows where a pool is slower than its server.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp

from lab.benchmarks.measured import Ratio
from lab.benchmarks.service import ALONE_DELAY_S, deployed, launched, processor_s
from lab.benchmarks.stub import stub_server

MOST = 1.03
ROUNDS = 150
CROWD = 16
FIRST = 20
"""Rounds of each client that are not counted: connections are made, and code is first run."""

Ask = Callable[[int, str], Awaitable[None]]
"""Asks the server of a side something."""


@contextmanager
def receiver() -> Iterator[tuple[str, list[int]]]:
    """An address that takes traces, and the sizes of what it got, in bytes."""
    sizes: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sizes.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", sizes
    finally:
        server.shutdown()
        server.server_close()


async def of_servers(urls: tuple[str, str], clients: int, rounds: int) -> list[list[float]]:
    """Seconds of each answer of the one and the other server, to so many clients at once."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(side: int, text: str) -> None:
            body = {"model": "math@bundle", "messages": [{"role": "user", "content": text}]}
            async with session.post(f"{urls[side]}/chat/completions", json=body) as response:
                await response.read()
                assert response.status == 200, await response.text()

        return await alternately(ask, clients, rounds)


async def alternately(
    ask: Ask, clients: int, rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Seconds of each answer of side 0 and of side 1."""
    found: list[list[float]] = [[], []]
    names = itertools.count()

    async def client() -> None:
        for number in range(rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                started = clock()
                await ask(side, f"request-{next(names)}")
                if number >= FIRST:
                    found[side].append(clock() - started)

    await asyncio.gather(*(client() for _ in range(clients)))
    return found


def ratio_of(clients: int, times: Sequence[Sequence[float]], more: Mapping[str, Any]) -> Ratio:
    """The median time of an answer with traces over that without, in seconds of each answer."""
    traced, plain = (statistics.median(side) for side in times)
    details = {
        "clients": clients,
        "requests": [len(side) for side in times],
        "a call of the stub, s": ALONE_DELAY_S,
        "median with and without traces, s": [round(traced, 5), round(plain, 5)],
    }
    whom = "one client" if clients == 1 else f"{clients} clients"
    name = f"median time of an answer with traces over that without, {whom}"
    return Ratio(name, round(traced / plain, 4), "at most", MOST, {**details, **more})


def measure() -> list[Ratio]:
    """The median time of an answer with traces over that without, for one client and for many."""
    ratios = []
    with stub_server(ALONE_DELAY_S, echo=True) as pool, receiver() as (endpoint, sizes):
        version = deployed(pool)
        with (
            launched(version, {"traces": {"endpoint": endpoint}}) as (traced, one),
            launched(version, {}) as (plain, other),
        ):
            for clients in (1, CROWD):
                before = processor_s(one), processor_s(other)
                times = asyncio.run(of_servers((traced, plain), clients, ROUNDS))
                used = processor_s(one) - before[0], processor_s(other) - before[1]
                more = {
                    "processor time with and without, s": [round(s, 2) for s in used],
                    "bytes of traces": sum(sizes),
                }
                ratios.append(ratio_of(clients, times, more))
                assert sizes, "expected traces, found none"
    return ratios
