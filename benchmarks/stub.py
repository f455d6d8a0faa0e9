"""A stub OpenAI-compatible server with a fixed latency, in a process of its own, so that it takes
no time from what is measured.

It speaks just enough HTTP/1.1 to be quick: keep-alive, one request after the other on a connection,
bodies with a length. Its answer is always the same, or as an echo the one name like `request-17`
that all messages of a request contain.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

MODEL = "stub"
_ANSWER = {
    "id": "stub",
    "object": "chat.completion",
    "created": 0,
    "model": MODEL,
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "The answer is 7"},
        }
    ],
    "usage": {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55},
}


_NAMES = re.compile(rb"request-\d+")


def _reply(data: object) -> bytes:
    body = json.dumps(data).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


class _Connection(asyncio.Protocol):
    """Answers each request of one connection after `delay_s`."""

    completion = _reply(_ANSWER)
    models = _reply(
        {
            "object": "list",
            "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "stub"}],
        }
    )

    def __init__(self, delay_s: float, echo: bool) -> None:
        self.delay_s = delay_s
        self.echo = echo
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
            self.transport.write(self.models)
        else:
            asyncio.get_running_loop().call_later(
                self.delay_s, self._answer, _echo(rest) if self.echo else self.completion
            )

    def _answer(self, completion: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(completion)


def _echo(body: bytes) -> bytes:
    names = {name.decode() for name in _NAMES.findall(body)}
    said = names.pop() if len(names) == 1 else f"expected one name but found {len(names)}"
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": said},
    }
    return _reply(_ANSWER | {"choices": [choice]})


async def _serve(delay_s: float, echo: bool) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: _Connection(delay_s, echo), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until whoever started it closes the pipe, or dies


@contextmanager
def stub_server(delay_s: float, echo: bool = False) -> Iterator[str]:
    """A stub server while the context lasts; yields its base URL."""
    command = [sys.executable, "-m", "benchmarks.stub", str(delay_s), *(["echo"] if echo else [])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.communicate()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]), "echo" in sys.argv))
