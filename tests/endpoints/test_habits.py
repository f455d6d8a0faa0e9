"""Habits of endpoints that public trackers tell of (tests/support/providers.yaml): each on a real
socket, and what is right.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import asking
from tests.support.answers import PROVIDERS, answer_of, error, table
from tests.support.asking import ask, ask_stub, request, sums
from tests.support.refusing import REFUSALS
from tests.support.stub_server import Answer, StubServer, serve
from ttsgraph.base.errors import (
    CallFailed,
    ContextOverflow,
    EndpointError,
    PromptRefused,
    RunStopped,
)
from ttsgraph.endpoints.endpoints import OPENS_AFTER, FailurePolicy
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Completion, with_room
from ttsgraph.models.reasoning import END_MARKS

QUICK = FailurePolicy(first_wait_s=0.001, timeout_s=5)
TOOLS = json.dumps({"tools": [{"type": "function", "function": {"name": "look"}}]})


def asked(answer: Answer, streamed: bool = False, **wanted: Any) -> tuple[Any, list[Any], int]:
    """The outcome of a call that is always answered so, its pieces, and how often it was made."""
    pieces: list[Any] = []
    shown = pieces.append if streamed else None
    made = request("Q: 20 + 22", **{"max_tokens": 64} | wanted)
    (found,), stub = ask_stub(answer, made, policy=QUICK, on_piece=shown)
    return found, pieces, len(stub.requests)


TEXTS = table("texts") | {
    f"{mark} left at its end": answer_of({"content": f"42{mark}"}) for mark in END_MARKS
} | {
    f"finish_reason {name}": answer_of(finish=name) for name in PROVIDERS["finishes"]
} | {
    f"thoughts in {text}": answer_of({"content": text}) for text in PROVIDERS["thoughts"]
}  # fmt: skip


@pytest.mark.parametrize("habit", TEXTS)
def test_an_answer_in_any_habit_is_its_text(habit: str) -> None:
    found, _, count = asked(TEXTS[habit])
    assert isinstance(found, Completion), found
    assert (found.text, count) == ("42", 1)
    assert found.cut == any(name in habit.lower() for name in ("length", "max_"))
    assert ("thoughts in" not in habit) or found.reasoning == "20 + 22"


STREAMS = table("streams")


@pytest.mark.parametrize("habit", STREAMS)
def test_a_stream_in_any_habit_is_shown_as_the_text_that_it_is_read_as(habit: str) -> None:
    found, pieces, _ = asked(STREAMS[habit], streamed=True)
    assert isinstance(found, Completion), found
    shown = "".join(piece["delta"].get("content") or "" for piece in pieces)
    assert found.text == shown == ("answer: 42" if "word" in habit else "42")
    assert (found.prompt_tokens, found.completion_tokens, found.estimated) == (9, 5, False)


CALLS = table("calls")


@pytest.mark.parametrize("habit", CALLS)
def test_calls_of_tools_in_any_habit_stay_apart_and_whole(habit: str) -> None:
    arguments = PROVIDERS["calls"][habit]["arguments"]
    found, pieces, _ = asked(CALLS[habit], "stream" in PROVIDERS["calls"][habit], form=TOOLS)
    assert isinstance(found, Completion), found
    choice = json.loads(found.choice)
    told = [each["function"]["arguments"] for each in choice["message"]["tool_calls"]]
    assert told == arguments
    shown = [each["index"] for piece in pieces for each in piece["delta"].get("tool_calls", ())]
    assert shown == list(range(len(arguments)))[: len(shown)]


@pytest.mark.parametrize("content", ["", None])
def test_a_call_of_a_tool_keeps_the_content_beside_it(content: str | None) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message = {"role": "assistant", "content": content, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    answer = (200, {}, json.dumps({"choices": [choice]}))
    found, pieces, _ = asked(answer, streamed=True, form=TOOLS)
    whole = json.loads(found.choice)
    assert whole["message"]["content"] == pieces[0]["delta"].get("content") == content


def test_more_room_is_never_met_with_less() -> None:  # spiceai 7126, goclaw 245
    said = "Could not finish the message because max_tokens or model output limit was reached."
    higher = error(400, f"{said} Please try again with higher max_tokens.")
    more = {"when": lambda count, body: body["max_tokens"] < 4096, "begin": with_room}
    (found,), stub = ask_stub(higher, request("Q: 20 + 22", max_tokens=2048), **more)
    assert (found.text, [body["max_tokens"] for body in stub.requests]) == ("42", [2048, 8192])
    assert "temperature" in stub.requests[-1]


OUTCOMES = {"too long": ContextOverflow, "empty accounts": RunStopped, "refusals": PromptRefused}
"""What a call comes to that is answered as these tables of providers' words say."""

ANSWERS = {(kind, name): answer for kind in OUTCOMES for name, answer in table(kind).items()}


@pytest.mark.parametrize(("kind", "provider"), ANSWERS)
@pytest.mark.parametrize("streamed", [False, True])
def test_what_a_provider_says_in_any_words_is_known_and_asked_once(kind, provider, streamed):
    answer = ANSWERS[kind, provider]
    found, _, count = asked(answer, streamed and answer[0] != 200)
    assert isinstance(found, OUTCOMES[kind]), found
    assert count == 1
    if kind == "refusals":
        assert PROVIDERS[kind][provider]["says"] in found.said
    elif kind == "empty accounts":
        told = json.loads(answer[2])
        assert (told.get("error", {}).get("message") or "insufficient balance") in str(found)


def test_a_limit_of_requests_is_no_empty_account() -> None:
    found, _, count = asked(error(429, "You exceeded your current quota", type="requests"))
    assert isinstance(found, CallFailed)
    assert count == 9


KEYS = [
    (error(400, "API key not valid. sesame-sesame"), 1),
    (error(200, "API key not valid. sesame-sesame", code="401"), 1),
    (error(403, "API key not valid. sesame-sesame"), 1),
    (error(403, "Not with sesame-sesame"), 2),
]
"""Refusals of a key, and how many requests it takes to know."""


@pytest.mark.parametrize(("answer", "count"), KEYS)
def test_a_key_that_is_refused_ends_the_run_and_is_named(monkeypatch, answer, count):
    monkeypatch.setenv("SOME_API_KEY", "sesame-sesame")
    (found,), stub = ask_stub(answer, request(), api_key_env="SOME_API_KEY")
    assert isinstance(found, EndpointError)
    assert "refuses the key in SOME_API_KEY" in str(found)
    assert "sesame" not in str(found)
    assert len(stub.requests) == count


def test_a_prompt_that_is_forbidden_is_no_fault_of_the_key() -> None:
    about = {"when": lambda count, body: "1 + 1" in str(body)}
    (found,), _ = ask_stub(error(403, "No"), request(), **about)
    assert isinstance(found, CallFailed)


def test_refusals_are_no_trouble_of_their_server():
    later = {"when": lambda count, body: count > 1}
    patience = replace(asking.ONCE, concurrency=4, down_s=0.1, max_failed=0.1, least_calls=2)
    found, _ = ask_stub(REFUSALS["Azure"], *sums(3 * OPENS_AFTER), policy=patience, **later)
    assert sum(isinstance(one, Completion) for one in found) == 1
    assert sum(isinstance(one, PromptRefused) for one in found) == 3 * OPENS_AFTER - 1


def test_it_is_stored_so_that_no_later_start_asks_again(tmp_path: Path):
    stub = StubServer(("served",))
    stub.misbehave = lambda count, body: REFUSALS["Azure"]
    said = set()
    with serve(stub) as url:
        for _ in range(2):
            cache = CallCache(tmp_path)
            found = ask(url, *sums(2) * 2, around=lambda c, kept=cache: CachedClient(c, kept))
            said |= {str(one) for one in found}
            assert all(isinstance(one, PromptRefused) for one in found)
            cache.close()
    assert len(stub.requests) == 2
    assert len(said) == 1
