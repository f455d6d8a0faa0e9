"""Requests as a server wants them: what its first call is refused is left out and kept."""

import json
import logging

import pytest

from tests.support.answers import PROVIDERS, answer_of
from tests.support.asking import ask
from tests.support.habits import refusing, vllm_refusal
from tests.support.stub_server import StubServer, serve
from ttsgraph.endpoints import learning
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.endpoints.replies import read_reply
from ttsgraph.models.cache import CallCache
from ttsgraph.models.client import Completion, Message, Request, Sampling
from ttsgraph.models.dialect import ANY, Dialect, DialectStore

NAMES = ("served",)


def request(replica: int = 0, **sampling) -> Request:
    messages = (Message("system", "Add them."), Message("user", "Q: 1 + 1"))
    return Request(
        "m", "r", messages, Sampling(**{"temperature": 0.7, "max_tokens": 9} | sampling), replica
    )


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Refusals are known by their haste, also on a machine that is busy."""
    monkeypatch.setattr(learning, "REFUSED_WITHIN_S", 60)


def test_what_is_refused_is_left_out_after_the_first_call_and_named(tmp_path, caplog):
    stub = StubServer(NAMES, skill=1.0)
    stub.misbehave = refusing(("temperature", "max_tokens"), system=True)
    kept = tmp_path / "endpoints.json"
    with serve(stub) as url, caplog.at_level(logging.WARNING):
        answers = ask(url, *(request(k) for k in range(20)), habits=DialectStore(kept))
        assert [answer.text for answer in answers] == ["2"] * 20
        # The first call is refused three times, the others wait for it.
        assert len(stub.requests) == 20 + 3
        body = stub.requests[-1]
        assert "temperature" not in body
        assert (body["max_completion_tokens"], body["top_p"]) == (9, 1.0)
        assert body["messages"] == [{"role": "user", "content": "Add them.\n\nQ: 1 + 1"}]
        assert "without temperature; max_completion_tokens for max_tokens" in caplog.text
        ask(url, request(21), habits=DialectStore(kept))
        assert len(stub.requests) == 24  # another process asks rightly at once
        stub.misbehave = refusing(("temperature",), model="served")
        ask(url, request(22), habits=DialectStore(kept), served_as="other")
    assert "temperature" in stub.requests[-1]  # of another model nothing is known


@pytest.mark.parametrize("entry", PROVIDERS["parameters"], ids=str)
def test_servers_say_in_many_ways_what_they_refuse(entry, tmp_path):
    stub = StubServer(NAMES, skill=1.0)
    habits = DialectStore(tmp_path / "endpoints.json")
    stub.misbehave = lambda count, body: answer_of(**entry) if count == 1 else None
    with serve(stub) as url:
        (answer,) = ask(url, request(stop=("\n",)), habits=habits, seeds=True)
        assert isinstance(answer, Completion), answer
        left_out = entry.get("left_out")
        expected = Dialect(left_out=frozenset({left_out})) if left_out else Dialect(system=False)
        assert habits.get(f"{url} served") == expected


@pytest.mark.parametrize(
    "said", ["<html><h1>400 Bad Request</h1></html>", '{"error": "Bad request"}']
)
@pytest.mark.parametrize("refused", ["temperature", "top_p", "max_tokens"])
def test_what_is_refused_without_a_word_is_found_by_asking_with_less(refused, said):
    stub = StubServer(NAMES, skill=1.0)
    stub.misbehave = lambda count, body: (400, {}, said) if refused in body else None
    with serve(stub) as url:
        found = ask(url, *[request()] * 3)
    assert all(isinstance(each, Completion) for each in found), found
    assert refused not in stub.requests[-1]
    assert len(stub.requests) <= 7


def test_a_profile_says_how_a_model_wants_to_be_asked():
    stub = StubServer(NAMES, skill=1.0)
    given = Dialect("max_completion_tokens", frozenset({"temperature", "top_p"}), system=False)
    with serve(stub) as url:
        extra = json.dumps({"thinking": {"type": "disabled"}})
        ask(url, request(extra_body='{"verbosity": "low"}'), dialect=given, extra_body=extra)
    body = stub.requests[0]
    assert set(body) == {"model", "messages", "max_completion_tokens", "thinking", "verbosity"}
    assert body["messages"][0]["role"] == "user"


@pytest.mark.parametrize(
    ("said", "room", "sent", "kept"),
    [
        ("max_tokens is too large: 8192. It supports at most {cap} completion tokens", 0, 5000, 5000),
        ("max_tokens must be at most 1000", 0, 1024, 1024),
        ("maximum context length is {cap}, you requested {asked} + 9", 9, 4050, 4050),
        ("maximum context length is {cap}, you requested {asked} + 7000", 7000, 875, None),
    ],
)  # fmt: skip
def test_a_bound_that_is_too_high_for_a_model_is_lowered(said, room, sent, kept, tmp_path):
    cap = 8100 if room else sent

    def misbehave(count, body):
        asked = body["max_tokens"]
        return vllm_refusal(said.format(cap=cap, asked=asked)) if asked + room > cap else None

    stub = StubServer(NAMES, skill=1.0)
    stub.misbehave = misbehave
    habits = DialectStore(tmp_path / "endpoints.json")
    messages = (Message("user", "1 + 1" + " " * 4 * room),)
    with serve(stub) as url:
        (answer,) = ask(url, Request("m", "r", messages, Sampling(0.7, 1.0, 8192)), habits=habits)
        assert isinstance(answer, Completion), answer
        assert stub.requests[-1]["max_tokens"] == sent
        assert (habits.get(f"{url} served") or ANY).most_tokens == kept


@pytest.mark.parametrize("where", PROVIDERS["thinking"])
@pytest.mark.parametrize("told", [True, False])
def test_what_a_model_thinks_is_paid_for_and_kept_apart(where, told, tmp_path):
    details = {"completion_tokens_details": {"reasoning_tokens": 40}} if told else {}
    usage = {"prompt_tokens": 100, "completion_tokens": 42} | details
    stub = StubServer(NAMES)
    stub.misbehave = lambda count, body: answer_of(PROVIDERS["thinking"][where], usage=usage)
    with serve(stub) as url:
        (answer,) = ask(url, request())
    assert (answer.text, answer.reasoning) == ("42", "Let me add.")
    assert answer.completion_tokens == 42
    assert answer.reasoning_tokens == (40 if told else round(42 * 11 / 13))
    store = CallCache(tmp_path)
    store.put(request().key(), answer)
    assert store.get(request().key()) == answer
    store.close()


def test_tokens_that_are_counted_beside_the_completion_are_added_within_bounds():
    def answer(reasoning):
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12 + reasoning}
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return read_reply(answer_of(usage=usage)[2].encode(), 1.0, Sampling())

    assert (answer(40).completion_tokens, answer(40).reasoning_tokens) == (42, 40)
    with pytest.raises(Fault, match="token usage of 0 to"):
        answer(10**30)
