"""Connections that say nothing, or half a thing: others are answered, and these end."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack

import pytest

from tests.service.test_strangers import HEALTH, connect, sent
from tests.support.processes import wait_until
from tests.support.service import VOTED, ask, chat, deployed, post

HALVES = {
    "nothing": b"",
    "half a head": b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "half a body": b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    b"Content-Type: application/json\r\nContent-Length: 99\r\nExpect: 100-continue\r\n\r\n",
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
    with (
        deployed(pool, VOTED, max_connections=20) as url,
        ExitStack() as flood,
    ):
        for _ in range(60):
            flood.enter_context(half_asked(url, half))
            assert b" 200 OK" in sent(url, HEALTH)
        assert post(url, chat()).status_code == 200


@pytest.mark.parametrize("half", HALVES)
def test_what_does_not_arrive_in_time_is_not_waited_for(pool, half):
    with deployed(pool, receive_s=0.2) as url, half_asked(url, half) as connection:
        wait_until(lambda: is_closed(connection))


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_client"])
def test_where_all_connections_have_requests_under_way_a_new_one_is_told_to_come_back(pool, limit):
    with deployed(pool, **{limit: 2}) as url:
        pool.holds = lambda body: True
        asking = [threading.Thread(target=ask, args=(url,)) for _ in range(2)]
        for each in asking:
            each.start()
        wait_until(lambda: pool.holding == 4)
        assert b" 503 " in sent(url, HEALTH)
        pool.release()
        for each in asking:
            each.join()
        assert b" 200 OK" in sent(url, HEALTH)


def test_a_request_under_way_outlives_the_time_that_one_has_to_arrive(pool):
    with deployed(pool, receive_s=0.1) as url, connect(url) as connection:
        pool.holds = lambda body: True
        body = json.dumps(chat()).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        kind = "Content-Type: application/json\r\nConnection: close\r\n\r\n"
        connection.sendall(f"{head}{kind}".encode() + body)
        wait_until(lambda: pool.holding == 2)
        assert b" 200 OK" in sent(url, HEALTH)
        threading.Timer(0.3, pool.release).start()
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_client_that_reads_no_answers_is_disconnected(pool):
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    with deployed(pool, receive_s=0.2) as url, connect(url) as connection:
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
