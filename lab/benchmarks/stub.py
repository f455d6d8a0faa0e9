"""Stub of an OpenAI-compatible server with a fixed latency, in a separate process.

Its answer is constant or, with `echo`, the name in the request's messages, such as `request-17`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lab.benchmarks.endpoint import Connection, completion, reply, serve, started

_NAMES = re.compile(rb"request-\d+")
_ANSWER = reply(completion("The answer is 7"))


class _Stub(Connection):
    """Connection that answers each request after `delay_s`."""

    def __init__(self, delay_s: float, echo: bool) -> None:
        super().__init__()
        self.delay_s = delay_s
        self.echo = echo

    def asked(self, body: bytes) -> None:
        self.send_later(self.delay_s, _echo(body) if self.echo else _ANSWER)


def _echo(body: bytes) -> bytes:
    names = {name.decode() for name in _NAMES.findall(body)}
    text = names.pop() if len(names) == 1 else f"expected one name, found {len(names)}"
    return reply(completion(text))


@contextmanager
def stub_server(delay_s: float, echo: bool = False) -> Iterator[str]:
    """Run a stub server during the context; yield its base URL."""
    with started("lab.benchmarks.stub", delay_s, *(["echo"] if echo else [])) as url:
        yield url


if __name__ == "__main__":
    asyncio.run(serve(lambda: _Stub(float(sys.argv[1]), "echo" in sys.argv)))
