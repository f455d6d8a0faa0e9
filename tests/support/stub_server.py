"""A small OpenAI-compatible server on a real socket that answers sums, or misbehaves."""

import hashlib
import json
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], str] | bytes
"""Status, headers and a text, or bytes that are sent as they are."""

Misbehave = Callable[[int, dict[str, Any]], Answer | None]


class StubServer:
    """What the server is asked, and how it answers.

    Tests replace two methods: `lists(path, headers)` answers a GET; `misbehave(count, body)` may
    return an answer in place of a completion, or raise ConnectionResetError to break the
    connection. `url` is where it is served.
    """

    url: str

    def __init__(self, models: tuple[str, ...], skill: float = 0.5, delay_s: float = 0.0) -> None:
        self.models = models
        self.skill = skill
        self.delay_s = delay_s
        self.paths: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = self.now = 0
        self.lock = threading.Lock()

    def misbehave(self, count: int, body: dict[str, Any]) -> Answer | None:
        return None

    def lists(self, path: str, headers: dict[str, str]) -> Answer:
        entry = {"object": "model", "created": 0, "owned_by": "stub"}
        data = [{"id": model} | entry for model in self.models]
        return 200, {}, json.dumps({"object": "list", "data": data})

    def answer(self, body: dict[str, Any]) -> Answer:
        with self.lock:
            self.requests.append(body)
            count = len(self.requests)
            self.now += 1
            self.most_at_once = max(self.most_at_once, self.now)
        try:
            time.sleep(self.delay_s)
            if (other := self.misbehave(count, body)) is not None:
                return other
            return 200, {}, json.dumps(self.completion(body, count))
        finally:
            with self.lock:
                self.now -= 1

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        text = body["messages"][-1]["content"]
        question = text.rsplit("Q: ", 1)[-1].splitlines()[0]
        numbers = [int(n) for n in re.findall(r"\d+", question)]
        # A client that sends seeds gets the same answer to the same call, whenever it asks.
        seed = hashlib.sha256(f"{body.get('seed', count)}{text}".encode()).digest()[0] / 256
        reply = str(sum(numbers)) if seed < self.skill else str(sum(numbers) + 1)
        return answered(reply, body["model"], count, len(text.split()), 2)


def answered(
    text: str, model: str = "m", count: int = 0, prompt_tokens: int = 1, written: int = 1
) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": written}
    usage["total_tokens"] = prompt_tokens + written
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    frame = {"id": f"stub-{count}", "object": "chat.completion", "created": 0, "model": model}
    return frame | {"choices": [choice], "usage": usage}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # clients may leave at any time
            super().handle_error(request, client_address)


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[int]:
    """Handle requests at this port, a free one if none is given; yields the port."""
    server = Server(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serve(stub: StubServer, port: int = 0) -> Iterator[str]:
    """Serve a stub on this port, a free one if none is given; yields its base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Else a body waits 40 ms for the acknowledgement of its headers.
        disable_nagle_algorithm = True

        def _headers(self) -> dict[str, str]:
            return {name.lower(): value for name, value in self.headers.items()}

        def do_GET(self) -> None:
            self._send(stub.lists(self.path, self._headers()))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stub.paths.append(self.path)
            stub.headers.append(self._headers())
            try:
                self._send(stub.answer(body))
            except ConnectionResetError:
                # Closing with unsent data thrown away is what makes it a reset and not an end.
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.close_connection = True

        def _send(self, answer: Answer) -> None:
            if isinstance(answer, bytes):
                self.close_connection = True
                self.wfile.write(answer)
                return
            status, headers, text = answer
            data = text.encode()
            self.send_response(status)
            usual = {"Content-Type": "application/json", "Content-Length": str(len(data))}
            for name, value in (usual | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    with listening(Handler, port) as taken:
        stub.url = f"http://127.0.0.1:{taken}/v1"
        yield stub.url
