"""A server that sends whatever bytes it is told to."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.support.stub_server import listening


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A well-formed response with this body, and more headers."""
    usual = ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([f"HTTP/1.1 {status}", *usual, *headers]).encode() + b"\r\n\r\n" + body


@contextmanager
def raw_server(reply: Callable[[int], bytes]) -> Iterator[str]:
    """A base URL at which request k, from 1, is answered with `reply(k)`."""
    numbers = itertools.count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with contextlib.suppress(OSError):
                self.wfile.write(reply(next(numbers)))
            self.close_connection = True

        def do_GET(self) -> None:
            self.do_POST()

    with listening(Handler) as port:
        yield f"http://127.0.0.1:{port}/v1"
