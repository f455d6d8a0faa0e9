"""Parts of stub endpoints: a connection that reads requests, and a separate process that serves
them, so that a stub takes no time from the measured process.

The stubs speak a minimal HTTP/1.1: keep-alive, one request after another on a connection, and
bodies with a Content-Length. The module imports little, so that ten stubs start quickly.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODEL = "stub"


def reply(data: object, status: bytes = b"200 OK") -> bytes:
    """Return an HTTP response with this data as its JSON body."""
    body = json.dumps(data).encode()
    head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def completion(text: str) -> dict[str, Any]:
    """Return a chat completion with this text."""
    message = {"role": "assistant", "content": text}
    return {
        "id": "stub",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55},
    }


_LISTED = {"id": MODEL, "object": "model", "created": 0, "owned_by": "stub"}
_MODELS = reply({"object": "list", "data": [_LISTED]})


class Connection(asyncio.Protocol, ABC):
    """Connection to a stub: it answers a GET request with the list of models, and passes the body
    of any other request to `asked`.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        fields = head.lower().partition(b"content-length:")[2]
        length = int(fields.split(b"\r\n", 1)[0]) if fields else 0
        if len(rest) < length:
            return
        self.received = rest[length:]
        if head.startswith(b"GET"):
            self.send(_MODELS)
        else:
            self.asked(rest)

    @abstractmethod
    def asked(self, body: bytes) -> None:
        """Answer a request with this body."""

    def send(self, response: bytes) -> None:
        """Send a response, if the connection is still open."""
        if not self.transport.is_closing():
            self.transport.write(response)

    def send_later(self, seconds: float, response: bytes) -> None:
        """Send a response after this number of seconds."""
        asyncio.get_running_loop().call_later(seconds, self.send, response)


async def serve(connect: Callable[[], Connection]) -> None:
    """Serve on a free port, and print the port; end when the parent process closes the pipe or
    dies.
    """
    server = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def started(module: str, *arguments: object) -> Iterator[str]:
    """Run a stub in a separate process during the context; yield its base URL."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.communicate()
