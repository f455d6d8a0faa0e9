"""What strangers can do to the server without a key, and odd answers to its own."""

import json
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from tests.support.processes import wait_until
from tests.support.service import ALONE, VOTED, ask, chat, deployed, post


def connect(url):
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def sent(url, raw):
    """All that comes back for these bytes, until the server closes."""
    with connect(url) as connection:
        connection.sendall(raw)
        said = b""
        while piece := connection.recv(65536):
            said += piece
        return said


END = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
HEALTH = b"GET /healthz" + END


def test_a_path_makes_no_line_of_its_own_and_no_long_line_in_the_log(pool, caplog):
    caplog.set_level(logging.INFO, "ttsgraph.service.app")
    starts = [
        b"GET /long%0a2026-01-01%20INFO%20forged%1b[2J%E2%80%A8",
        b"A" * 30_000 + b" /long",
        b"GET /long" + b"%0a" * 9_000,
    ]
    with deployed(pool) as url:
        for start in starts:
            sent(url, start + END)
    lines = [r.getMessage() for r in caplog.records if "/long" in r.getMessage()]
    assert len(lines) == len(starts)
    assert all(line.isprintable() and len(line) < 1000 for line in lines)
    assert "%0A2026" in lines[0]


BODY = json.dumps(chat()).encode()
CHAT = b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
FRAMINGS = {
    "a length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + CHAT,
    "two lengths": b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n{}{}{",
    "two encodings": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a chunk's size that is none": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
}


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_a_request_whose_end_is_in_doubt_is_refused_and_nothing_after_it_is_read(pool):
    with deployed(pool) as url:
        for kind, framing in FRAMINGS.items():
            said = sent(url, HEAD + framing + b"\r\n" + HEALTH)
            assert said.split()[1] in (b"400", b"501"), kind
            assert said.count(b"HTTP/1.1") == 1, kind
    assert pool.bodies == []


def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(pool):
    with deployed(pool) as url, connect(url) as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
        assert connection.recv(65536).split()[1] == b"413"


def test_headers_of_a_client_do_not_reach_the_models(pool):
    with deployed(pool, ALONE) as url:
        found = post(url, chat(), traceparent="x" * 9000, tracestate="y" * 9000)
        assert found.status_code == 200
    assert not {"traceparent", "tracestate"} & pool.headers[0].keys()


HALVES = {
    "nothing": b"",
    "half a head": b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "half a body": HEAD + b"Content-Length: 99\r\nExpect: 100-continue\r\n\r\n",
}


def half_asked(url: str, half: str) -> socket.socket:
    """A connection that has sent so much, and of a body what the server has begun to wait for."""
    connection = connect(url)
    connection.sendall(HALVES[half])
    if half == "half a body":
        assert b" 100 " in connection.recv(100)
        connection.sendall(b"{")
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed it, once what it said is read."""
    connection.settimeout(0.01)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("half", HALVES)
def test_a_flood_of_half_requests_keeps_nobody_from_an_answer(pool, half):
    with deployed(pool, VOTED, MAX_CONNECTIONS=20) as url, ExitStack() as flood:
        for _ in range(60):
            flood.enter_context(half_asked(url, half))
            assert b" 200 OK" in sent(url, HEALTH)
        assert post(url, chat()).status_code == 200


def test_what_does_not_arrive_in_time_is_not_waited_for(pool):
    with deployed(pool, RECEIVE_S=0.2) as url, ExitStack() as opened:
        silent = [opened.enter_context(half_asked(url, half)) for half in HALVES]
        whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        silent.append(opened.enter_context(connect(url)))
        silent[-1].sendall(whole + HALVES["half a body"] + b"{")
        for connection in silent:
            wait_until(partial(is_closed, connection))


@pytest.mark.parametrize("limit", ["MAX_CONNECTIONS", "MAX_CONNECTIONS_PER_CLIENT"])
def test_where_all_connections_have_requests_under_way_a_new_one_is_told_to_come_back(pool, limit):
    with deployed(pool, ALONE, **{limit: 2}) as url:  # the stub's own server has this limit too
        pool.holds = lambda body: True
        with ThreadPoolExecutor() as threads:
            threads.map(ask, [url] * 2)
            wait_until(lambda: pool.holding == 2)
            refused = sent(url, HEALTH)
            pool.release()
        assert b" 503 " in refused
        assert b" 200 OK" in sent(url, HEALTH)


def test_a_request_under_way_outlives_the_time_that_one_has_to_arrive(pool):
    with deployed(pool, RECEIVE_S=0.1) as url, connect(url) as connection:
        pool.holds = lambda body: True
        more = f"Content-Length: {len(BODY)}\r\nConnection: close\r\n\r\n"
        connection.sendall(HEAD + more.encode() + BODY)
        wait_until(lambda: pool.holding == 2)
        assert b" 200 OK" in sent(url, HEALTH)
        threading.Timer(0.3, pool.release).start()
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_client_that_reads_no_answers_is_disconnected(pool):
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    with deployed(pool, RECEIVE_S=0.2) as url, connect(url) as connection:
        connection.settimeout(0.1)

        def is_gone():
            try:
                connection.sendall(request)
            except ConnectionError:
                return True
            except TimeoutError:
                pass
            return False

        connection.sendall(request * 3000)  # more answers than the system's buffers hold
        wait_until(is_gone)
        assert b" 200 OK" in sent(url, HEALTH)
