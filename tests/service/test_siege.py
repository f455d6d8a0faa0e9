"""More connections than the server has files, by strangers without a key: whoever comes then is
answered, and the log stays small.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.service.test_doors import HEALTH, sent
from tests.support.project import HANGS_S, ROOT
from tests.support.service import wait_for

FILES = 1024
CONNECTIONS = 1100
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SENT = {
    "nothing": b"",
    "half a header": b"GET /healthz HTTP/1.1\r\nX-Slow: ",
    "a body that does not come": POST + b"Content-Length: 1000\r\n\r\n{",
    "a body without end": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    "a request, and nothing more": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a path that logs": b"GET /a%0aforged HTTP/1.1\r\nHost: x\r\n\r\n",
}


@dataclass(frozen=True)
class Besieged:
    """A server in a process of its own."""

    url: str
    log: Path


@pytest.fixture
def besieged(pool, tmp_path):
    """One with FILES files."""
    pool.reset()
    environment = os.environ | {"TTSGRAPH_API_KEY": "a-key-of-this-test"}
    command = [sys.executable, "-m", "tests.support.besieged", str(FILES), pool.url]
    log = tmp_path / "log"
    with (
        log.open("wb") as told,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=told, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            port = re.search(r":(\d+)/v1", said)
            assert port is not None, said + log.read_text()
            yield Besieged(f"http://127.0.0.1:{port[1]}", log)
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANGS_S) == 0
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def files():
    """Enough for the strangers' side."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * CONNECTIONS:
        pytest.skip(f"expected {2 * CONNECTIONS} open files to be allowed, found {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CONNECTIONS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", SENT)
def test_many_connections_of_strangers_stop_nobody(besieged, kind):
    address = ("127.0.0.1", int(besieged.url.rpartition(":")[2]))
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(address, timeout=30))
            with suppress(ConnectionError):
                connection.sendall(SENT[kind])
        wait_for(lambda: b"200 OK" in sent(besieged.url, HEALTH), 60)
    assert b"200 OK" in sent(besieged.url, HEALTH)
    # A line for each whole request, as of any other, and once what the trouble is.
    assert besieged.log.stat().st_size < 400 * CONNECTIONS
    assert "Traceback" not in besieged.log.read_text()
