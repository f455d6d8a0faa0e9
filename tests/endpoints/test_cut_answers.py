"""Answers that the bound on their tokens cut, and endpoints that tell no token counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.asking import ask
from tests.support.stub_server import StubServer, serve
from ttsgraph.endpoints.replies import read_reply
from ttsgraph.models.client import ROOM, Completion, Message, Request, Sampling, with_room

ASKED = Request("m", "r1", (Message("user", "Q: 20 + 22"),), Sampling(max_tokens=100))


class Reasoning(StubServer):
    def __init__(self, thinks: int, tells: bool = True) -> None:
        super().__init__(("m",), skill=1.0)
        self.thinks = thinks
        self.tells = tells

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        told = super().completion(body, count)
        if self.thinks >= body["max_tokens"]:
            told["choices"][0] |= {"finish_reason": "length", "message": {"content": ""}}
            told["usage"]["completion_tokens"] = body["max_tokens"]
        return told if self.tells else told | {"usage": None}


def asked(stub: StubServer) -> Completion:
    with serve(stub) as url:
        (found,) = ask(url, ASKED, served_as="m", begin=with_room)
    return found


@pytest.mark.parametrize(
    ("thinks", "text", "bounds", "tokens"),
    [
        (10, "42", [100], 2),
        (150, "42", [100, 100 * ROOM], 100 + 2),
        (10_000, "", [100, 100 * ROOM], 100 + 100 * ROOM),
    ],
)
def test_a_cut_answer_is_asked_for_once_more_with_room_and_both_are_paid(
    thinks: int, text: str, bounds: list[int], tokens: int
) -> None:
    stub = Reasoning(thinks)
    found = asked(stub)
    assert (found.text, found.cut, found.completion_tokens) == (text, not text, tokens)
    assert [body["max_tokens"] for body in stub.requests] == bounds


@pytest.mark.parametrize(("thinks", "least"), [(0, 1), (150, 101)])
def test_tokens_that_nobody_tells_are_estimated_but_all_of_a_cut_answer(
    thinks: int, least: int
) -> None:
    found = asked(Reasoning(thinks, tells=False))
    assert (found.text, found.estimated) == ("42", True)
    assert found.prompt_tokens > 0
    assert least <= found.completion_tokens < least + 10


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Which of the following statements is right?", 8),
        ("THE RIGHT ANSWER IS B", 5),
        ("3.14159, 27182 and 16180", 21),
        ("合同自双方签字之日起生效", 7),
        ("Договор вступает в силу с момента подписания", 11),
        ("x = np.arange(12).reshape(3, 4)", 16),
    ],
)
def test_no_fewer_tokens_are_estimated_than_tokenizers_make(text: str, tokens: int) -> None:
    """What that of Gemma 3 makes of each."""
    body = {"choices": [{"finish_reason": "stop", "message": {"content": text}}]}
    found = read_reply(json.dumps(body).encode(), 0.1, Sampling())
    assert tokens <= found.completion_tokens <= 2.5 * tokens + 4
