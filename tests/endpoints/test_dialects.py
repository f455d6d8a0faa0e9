"""Requests as a server wants them: what its first call is refused is left out and kept."""

import json
import logging
from typing import Any

import pytest

from tests.support import asking
from tests.support.answers import PROVIDERS, answer_of, error, read_reply
from tests.support.asking import ask, ask_stub
from tests.support.habits import refusing, vllm_refusal
from tests.support.refusing import REFUSALS
from tests.support.stub_server import Answer, StubServer, serve
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.models.client import ROOM, Completion, Request, with_room
from ttsgraph.models.dialect import ANY, Dialect, DialectStore


def request(replica: int = 0, **sampling) -> Request:
    usual = {"system": "Add them.", "temperature": 0.7, "max_tokens": 9}
    return asking.request("Q: 1 + 1", replica, **usual | sampling)


def test_what_is_refused_is_left_out_after_the_first_call_and_named(tmp_path, caplog):
    stub = StubServer(("served",), skill=1.0)
    stub.misbehave = refusing(("temperature", "max_tokens"), system=True)
    kept = tmp_path / "endpoints.json"
    with serve(stub) as url, caplog.at_level(logging.WARNING):
        answers = ask(url, *(request(k) for k in range(20)), habits=DialectStore(kept))
        assert [answer.text for answer in answers] == ["2"] * 20
        assert len(stub.requests) <= 20 * 4
        body = stub.requests[-1]
        assert "temperature" not in body
        assert (body["max_completion_tokens"], body["top_p"]) == (9, 1.0)
        assert body["messages"] == [{"role": "user", "content": "Add them.\n\nQ: 1 + 1"}]
        told = "without temperature; with max_completion_tokens instead of max_tokens"
        assert told in caplog.text
        made = len(stub.requests)
        ask(url, request(21), habits=DialectStore(kept))
        assert len(stub.requests) == made + 1  # another process asks rightly at once
        stub.misbehave = refusing(("temperature",), model="served")
        ask(url, request(22), habits=DialectStore(kept), served_as="other")
    assert "temperature" in stub.requests[-1]  # of another model nothing is known


@pytest.mark.parametrize("entry", PROVIDERS["parameters"], ids=str)
def test_servers_say_in_many_ways_what_they_refuse(entry, tmp_path):
    habits = DialectStore(tmp_path / "endpoints.json")
    more = {"when": lambda count, body: count == 1, "habits": habits, "seeds": True}
    (answer,), stub = ask_stub(answer_of(**entry), request(stop=("\n",)), **more)
    assert isinstance(answer, Completion), answer
    left_out = entry.get("left_out")
    expected = Dialect(left_out=frozenset({left_out})) if left_out else Dialect(system=False)
    assert habits.get(f"{stub.url} served") == expected


@pytest.mark.parametrize("refused", ["temperature", "max_tokens", '"system"'])
def test_what_is_refused_without_a_word_is_found_by_asking_with_less(refused):
    page = 400, {}, "<html><h1>400 Bad Request</h1></html>"
    when = {"when": lambda count, body: refused in json.dumps(body)}
    found, stub = ask_stub(page, *[request()] * 3, **when)
    assert all(isinstance(each, Completion) for each in found), found
    assert refused not in json.dumps(stub.requests[-1])
    assert not {"max_tokens", "max_completion_tokens"}.isdisjoint(stub.requests[-1])
    assert len(stub.requests) <= 3 * 5


FIRST = [error(503), error(429), answer_of(text="{}"), REFUSALS["Azure"]]


@pytest.mark.parametrize("first", FIRST, ids=str)
def test_a_first_attempt_that_is_not_about_the_form_teaches_nothing(first):
    def misbehave(count, body):
        return first if count == 1 else error(400, "Bad request") if "top_p" in body else None

    policy = FailurePolicy(max_retries=3, first_wait_s=0.001)
    found, _ = ask_stub(misbehave, *[request()] * 3, policy=policy)
    answered = [each for each in found if isinstance(each, Completion)]
    assert len(answered) == 3 - (first == REFUSALS["Azure"]), found


def test_a_profile_says_how_a_model_wants_to_be_asked():
    given = Dialect(frozenset({"temperature", "top_p", "max_tokens"}), system=False)
    asked = request(extra_body='{"verbosity": "low"}')
    of_endpoint = {"dialect": given, "extra_body": '{"thinking": {"type": "disabled"}}'}
    _, stub = ask_stub(None, asked, **of_endpoint)
    body = stub.requests[0]
    assert set(body) == {"model", "messages", "max_completion_tokens", "thinking", "verbosity"}
    assert body["messages"][0]["role"] == "user"


@pytest.mark.parametrize(
    ("said", "room", "sent", "kept"),
    [
        ("max_tokens is too large: 8192. It supports at most {cap} completion tokens", 0, 5000, 5000),
        ("maximum context length is {cap}, you requested {asked} + 9", 9, 4050, None),
        ("maximum context length is {cap}, you requested {asked} + 7000", 7000, 875, None),
    ],
)  # fmt: skip
def test_a_bound_that_is_too_high_for_a_model_is_lowered(said, room, sent, kept, tmp_path):
    cap = 8100 if room else sent

    def misbehave(count, body):
        asked = body["max_tokens"]
        return vllm_refusal(said.format(cap=cap, asked=asked)) if asked + room > cap else None

    habits = DialectStore(tmp_path / "endpoints.json")
    long = asking.request("1 + 1" + " " * 4 * room, max_tokens=8192)
    (answer,), stub = ask_stub(misbehave, long, habits=habits)
    assert isinstance(answer, Completion), answer
    assert stub.requests[-1]["max_tokens"] == sent
    assert (habits.get(f"{stub.url} served") or ANY).most_tokens == kept


@pytest.mark.parametrize("where", PROVIDERS["thinking"])
@pytest.mark.parametrize("told", [True, False])
def test_what_a_model_thinks_is_paid_for_and_kept_apart(where, told):
    details = {"completion_tokens_details": {"reasoning_tokens": 40}} if told else {}
    usage = {"prompt_tokens": 100, "completion_tokens": 42} | details
    (answer,), _ = ask_stub(answer_of(PROVIDERS["thinking"][where], usage=usage), request())
    assert (answer.text, answer.reasoning) == ("42", "Let me add.")
    assert answer.completion_tokens == 42
    assert answer.reasoning_tokens == (40 if told else round(42 * 11 / 13))


@pytest.mark.parametrize("told", [True, False])  # xAI; any-llm 1290: in the total only
def test_tokens_that_are_counted_beside_the_completion_are_added_within_bounds(told):
    def counts(reasoning, total):
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": total}
        if told:
            usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        answer = read_reply(answer_of(usage=usage)[2].encode())
        return answer.completion_tokens, answer.reasoning_tokens

    assert counts(40, 52) == (42, 40)
    for absurd in (10**30, -1, True, "n/a", {}):  # loses no answer
        assert counts(absurd, absurd) == (2, 0)


def asked(thinks: int, tells: bool = True) -> tuple[Completion, list[int]]:
    """The answer of a model that thinks so long, and the bounds that it was asked with."""

    def reasoning(count: int, body: dict[str, Any]) -> Answer:
        cut = thinks >= body["max_tokens"]
        usage = {"prompt_tokens": 4, "completion_tokens": body["max_tokens"] if cut else 2}
        said = {"content": "" if cut else "42"}
        return answer_of(said, "length" if cut else "stop", usage=usage if tells else None)

    (found,), stub = ask_stub(reasoning, request(max_tokens=100), begin=with_room)
    return found, [body["max_tokens"] for body in stub.requests]


@pytest.mark.parametrize(
    ("thinks", "text", "bounds", "tokens"),
    [
        (10, "42", [100], 2),
        (150, "42", [100, 100 * ROOM], 100 + 2),
        (10_000, "", [100, 100 * ROOM], 100 + 100 * ROOM),
    ],
)
def test_a_cut_answer_is_asked_once_more_with_room_and_both_are_paid(thinks, text, bounds, tokens):
    found, asked_for = asked(thinks)
    assert (found.text, found.cut, found.completion_tokens) == (text, not text, tokens)
    assert asked_for == bounds


@pytest.mark.parametrize(("thinks", "least"), [(0, 1), (150, 101)])
def test_tokens_that_nobody_tells_are_estimated_but_all_of_a_cut_answer(thinks, least):
    found, _ = asked(thinks, tells=False)
    assert (found.text, found.estimated) == ("42", True)
    assert found.prompt_tokens > 0
    assert least <= found.completion_tokens < least + 10


OF_GEMMA_3 = {
    "Which of the following statements is right?": 8,
    "3.14159, 27182 and 16180": 21,
    "合同自双方签字之日起生效": 7,
}


@pytest.mark.parametrize(("text", "tokens"), OF_GEMMA_3.items())
def test_no_fewer_tokens_are_estimated_than_tokenizers_make(text: str, tokens: int) -> None:
    found = read_reply(answer_of({"content": text}, usage=None)[2].encode())
    assert tokens <= found.completion_tokens <= 2.5 * tokens + 4
