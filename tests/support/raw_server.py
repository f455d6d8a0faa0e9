"""A server that sends whatever bytes it is told to."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A well-formed response with this body, and more headers."""
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def raw_server(reply: Callable[[int], bytes]) -> Iterator[str]:
    """A base URL at which request k, from 1, is answered with `reply(k)`."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    count = 0

    def answer() -> None:
        nonlocal count
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            count += 1
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                _read_request(connection)
                connection.sendall(reply(count))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def _read_request(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    while len(body) < sum(lengths):
        body += connection.recv(65536)
