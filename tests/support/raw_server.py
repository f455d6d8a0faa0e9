"""A server that sends whatever bytes it is told to."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.stub_server import StubServer, serve


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A well-formed response with this body, and more headers."""
    usual = ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([f"HTTP/1.1 {status}", *usual, *headers]).encode() + b"\r\n\r\n" + body


@contextmanager
def raw_server(reply: Callable[[int], bytes]) -> Iterator[str]:
    """A base URL at which request k, from 1, is answered with `reply(k)`."""
    numbers = itertools.count(1)
    stub = StubServer(())
    stub.lists = stub.misbehave = lambda *asked: reply(next(numbers))  # type: ignore[method-assign]
    with serve(stub) as url:
        yield url
