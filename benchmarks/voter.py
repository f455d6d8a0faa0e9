"""A stub endpoint that is slow and often wrong as language models are, and faulty if it is told so,
in a process of its own. It imports little, so that ten of them start quickly.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys

DELAY_S = 4.0
"""The median of what an answer takes."""

HANGS_S = 30.0
"""Until an answer that hangs ends, without one."""


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


if __name__ == "__main__":
    asyncio.run(_stub(int(sys.argv[1]), float(sys.argv[2])))
