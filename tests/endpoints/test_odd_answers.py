"""Responses that no well-made endpoint gives: each is an answer or a fault of its attempt."""

import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.answers import PROVIDERS, USAGE, answer_of, read_reply
from tests.support.asking import ask, ask_stub, request
from tests.support.raw_server import http, raw_server
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import CallFailed, EndpointError
from ttsgraph.endpoints.endpoint import MAX_BODY_BYTES, list_models, retry_after
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.faults import Fault
from ttsgraph.endpoints.openai_client import Endpoint
from ttsgraph.endpoints.replies import MOST_TOKENS
from ttsgraph.models.client import Completion


def body(content="2", finish="stop", usage=USAGE) -> bytes:
    return answer_of({"content": content}, finish, usage)[2].encode()


def outcome(raw: bytes) -> Any:
    with raw_server(lambda count: raw) as url:
        return ask(url, request())[0]


BROKEN_HTTP = {
    "garbage status line": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "nothing": b"",
    "content length too long": b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + body(),
    "header of 100 KiB": http(body(), "X-Long: " + "x" * 100_000),
    "bad chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "chunks without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "charset that is no charset": http(b"{", "Content-Type: application/json; charset=base64", status="500 Oh"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN_HTTP)
def test_a_broken_response_is_a_fault_of_its_attempt_and_the_next_one_is_answered(kind):
    broken = BROKEN_HTTP[kind]
    with raw_server(lambda count: broken if count == 1 else http(body())) as url:
        policy = FailurePolicy(max_retries=2, first_wait_s=0.001, timeout_s=5)
        (answer,) = ask(url, request(), policy=policy)
    assert isinstance(answer, Completion), answer
    assert answer.text == "2"


BAD_BODIES = {
    name: (answer_of(**entry)[2].encode(), entry["named"])
    for name, entry in PROVIDERS["no answers"].items()
} | {
    "nested": (b"[" * 100_000, "JSON"),
    "usage of 10^400": (body(usage=USAGE | {"prompt_tokens": 10**400}), "token usage of 0 to"),
    "not utf-8": (b'{"choices": "\xff\xfe\x00"}', "JSON"),
}


@pytest.mark.parametrize("kind", BAD_BODIES)
def test_what_is_no_answer_is_a_named_fault(kind):
    raw, named = BAD_BODIES[kind]
    found = outcome(http(raw))
    assert isinstance(found, CallFailed)
    assert named in str(found)


@pytest.mark.parametrize(("content", "finish"), [("2", ["stop"]), ("", "stop"), (None, "length")])
def test_a_model_s_own_answer_is_one_also_when_it_is_empty(content, finish):
    assert read_reply(body(content, finish)).text == (content or "")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def near_answers(draw):
    """A good answer in which one thing, or a few, are something else."""
    data = json.loads(body())
    (choice,) = data["choices"]
    places = [(data, key) for key in ("choices", "usage", "error")]
    places += [(choice, key) for key in ("message", "finish_reason", "error")]
    places += [(choice["message"], key) for key in ("content", "refusal")]
    places += [(data["usage"], key) for key in USAGE]
    for owner, key in draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
        owner[key] = draw(JSON)
    return json.dumps(data).encode()


def events(*chunks: bytes) -> bytes:
    return b"".join(b"data: " + chunk + b"\n\n" for chunk in chunks)


@settings(max_examples=300, deadline=None)
@given(
    near_answers()
    | st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.lists(near_answers(), max_size=3).map(lambda chunks: events(*chunks))
)
def test_any_body_is_an_answer_or_a_named_fault(raw):
    try:
        found = read_reply(raw)
    except Fault:
        pass
    else:
        found.text.encode()
        assert 0 <= found.prompt_tokens <= MOST_TOKENS
        assert 0 <= found.completion_tokens <= MOST_TOKENS


def test_a_question_with_a_lone_surrogate_is_sent():
    (found,), stub = ask_stub(None, request("Q: 1 + \ud8001"))
    assert isinstance(found, Completion)
    assert stub.requests[0]["messages"][0]["content"] == "Q: 1 + \ufffd1"


WAITS = {"0.5": 0.5, "-7": 0.0, "1e9": 600.0, "inf": None, "Thu, 01 Jan 1970 00:00:30 GMT": None}
BOMB = gzip.compress(b" " * 2**26 + body(), 9)


class TestBounds:
    @pytest.mark.parametrize("status", ["200 OK", "400 Bad"])
    def test_an_answer_or_error_is_unpacked_no_further_than_its_bound(self, status):
        assert len(BOMB) < 2**17
        found = outcome(http(BOMB, "Content-Encoding: gzip", status=status))
        assert "at most 4 MiB" in str(found)

    @pytest.mark.parametrize(
        ("encoding", "sent", "text"),
        [
            ("gzip", gzip.compress(body()), "2"),
            ("deflate", zlib.compress(body()), "2"),
            ("br", b"\x8b\x02\x80", None),
            ("gzip", body(), None),
        ],
    )
    def test_a_packed_answer_is_read_or_a_fault(self, encoding, sent, text):
        found = outcome(http(sent, f"Content-Encoding: {encoding}"))
        assert getattr(found, "text", None) == text

    def test_a_redirect_is_not_followed_with_the_prompt(self):
        elsewhere = StubServer(("m",))
        with serve(elsewhere) as other:
            moved = f"Location: {other}/chat/completions"
            said = outcome(http(b"", moved, status="307 Temporary Redirect"))
        assert isinstance(said, EndpointError)
        assert "HTTP 307; correct base_url" in str(said)
        assert elsewhere.requests == []

    @pytest.mark.parametrize(("said", "seconds"), WAITS.items())
    def test_how_long_to_wait_is_a_number(self, said, seconds):
        assert retry_after({"retry-after": said}) == seconds


NO_LISTS = [
    *BROKEN_HTTP.values(),
    http(b"[" * 100_000),
    *map(http, (b'{"data": [{"id": 3}]}', b'{"data": [3]}', b'{"data": 3}', b"[[]]", b"<html>")),
]
LONG_LISTS = [
    http(BOMB, "Content-Encoding: gzip"),
    http(b'{"data": [' + b" " * MAX_BODY_BYTES + b"]}"),
]


@pytest.mark.parametrize("raw", [*NO_LISTS, *LONG_LISTS])
def test_a_list_of_models_that_is_none_or_too_long_is_named(raw):
    said = "at most 4 MiB" if raw in LONG_LISTS else ""
    with raw_server(lambda count: raw) as url, pytest.raises(EndpointError, match=f"{url}.*{said}"):
        list_models(Endpoint((url,), "m"), url, 5)


def test_a_list_that_never_ends_has_a_limit():
    async def drip(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.02)

    async def run():
        async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            with pytest.raises(EndpointError, match="does not answer in time"):
                await asyncio.to_thread(list_models, Endpoint((url,), "m"), url, 0.3)

    asyncio.run(run())
