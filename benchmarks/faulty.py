"""A vote of five under 200 clients, with and without faults on one voter's endpoint: whether a
request is lost, how many answers are degraded, and what the slowest take.

Each voter has an endpoint of its own, a stub that takes as long as language models do (a median of
DELAY_S, with a long tail) and is right in 0.6 of its answers. Of the fifth's answers, SHARE go
wrong: a third each with HTTP 500, with a broken connection, and with no answer for half a minute.
Turns with and without faults follow one another, as other work on the machine disturbs both alike.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import aiohttp

from benchmarks.measured import Ratio
from benchmarks.service import ROOT, service
from ttsgraph.base.parsing import parse
from ttsgraph.deployment.bundle import Deployed
from ttsgraph.graphs.topologies import parallel
from ttsgraph.settings.profile import Profile, load_profile

CLIENTS = 200
VOTERS = 5
SHARE = 0.3
DELAY_S = 4.0
HANGS_S = 30.0
TURNS = 2
TURN_S = 60.0
CARE = {"hedge": 0.95, "deadline_s": 60.0}
MOST_DEGRADED = 0.01
MOST_SLOWER = 1.5

Answered = list[tuple[float, dict[str, Any] | None]]
"""Seconds, and what `ttsgraph` says of the answer; None where there was none."""


class _Voter(asyncio.Protocol):
    """One connection of a stub that is slow, often wrong, and in `share` of its answers faulty."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self.rng = rng
        self.share = share
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        fields = head.lower().partition(b"content-length:")[2]
        if not found or len(rest) < (int(fields.split(b"\r\n", 1)[0]) if fields else 0):
            return
        self.received = b""
        if head.startswith(b"GET"):
            self._send(b"200 OK", {"object": "list", "data": [{"id": "stub", "object": "model"}]})
            return
        loop = asyncio.get_running_loop()
        if self.rng.random() < self.share:
            kind = self.rng.randrange(3)
            if kind == 0:
                self._send(b"500 Internal Server Error", {})
            elif kind == 1:
                self.transport.abort()
            else:
                loop.call_later(HANGS_S, self.transport.abort)
            return
        text = "7" if self.rng.random() < 0.6 else str(self.rng.randrange(3))
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": text},
        }
        usage = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "stub"}
        answer |= {"choices": [choice], "usage": usage}
        seconds = DELAY_S * self.rng.lognormvariate(0, 0.5)
        loop.call_later(seconds, self._send, b"200 OK", answer)

    def _send(self, status: bytes, data: object) -> None:
        body = json.dumps(data).encode()
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        if not self.transport.is_closing():
            self.transport.write(head % (status, len(body)) + body)


async def _stub(seed: int, share: float) -> None:
    rng = random.Random(seed)
    server = await asyncio.get_running_loop().create_server(
        lambda: _Voter(rng, share), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until whoever started it closes the pipe


@contextmanager
def voter(seed: int, share: float) -> Iterator[str]:
    """One endpoint; yields its base URL."""
    command = [sys.executable, "-m", "benchmarks.faulty", str(seed), str(share)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.communicate()


def version(urls: list[str]) -> Deployed:
    """A vote of models with an endpoint each."""
    data = load_profile("laptop", ROOT / "profiles").model_dump(mode="json", exclude_none=True)
    facts = {
        "family": "stub",
        "total": 1e9,
        "non_embedding": 1e9,
        "layers": 16,
        "hidden": 2048,
        "price": 0.1,
        "served_as": "stub",
    }
    data["engine"] = {"kind": "external", "concurrency": 4 * CLIENTS}
    data["pool"] = {f"voter-{k}": facts | {"base_url": url} for k, url in enumerate(urls)}
    data["tasks"]["math"]["prompt"] = {"style": "chat"}
    names = list(data["pool"])
    graph = parallel(names, names[0], "voter")
    return Deployed("math", graph, parse(Profile, data, "benchmark"))


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
    params = {"service": {"steady": CARE}}
    with ExitStack() as held:
        services = []
        for share in (0.0, SHARE):
            urls = [held.enter_context(voter(k, 0.0)) for k in range(VOTERS - 1)]
            urls.append(held.enter_context(voter(VOTERS - 1, share)))
            services.append(held.enter_context(service(version(urls), params)))
        turns = [[asyncio.run(asked(url, TURN_S)) for url in services] for _ in range(TURNS)]
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
        "answers that made a call twice": [
            sum("hedged" in (told or {}) for _, told in one) for one in (calm, faulty)
        ],
    }
    return [
        Ratio("requests lost to faults on one of five voters", lost, "at most", 0, details),
        Ratio("answers they degrade", round(degraded, 4), "at most", MOST_DEGRADED, details),
        Ratio("99th percentile with them over without", slower, "at most", MOST_SLOWER, details),
    ]


if __name__ == "__main__":
    asyncio.run(_stub(int(sys.argv[1]), float(sys.argv[2])))
