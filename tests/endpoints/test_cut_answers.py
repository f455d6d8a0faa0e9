"""Answers that the bound on their tokens cut, and endpoints that tell no token counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.answers import answer_of
from tests.support.asking import ask
from tests.support.stub_server import Answer, StubServer, serve
from ttsgraph.endpoints.replies import read_reply
from ttsgraph.models.client import ROOM, Completion, Message, Request, Sampling, with_room

ASKED = Request("m", "r1", (Message("user", "Q: 20 + 22"),), Sampling(max_tokens=100))


def asked(thinks: int, tells: bool = True) -> tuple[Completion, list[int]]:
    """The answer of a model that thinks so long, and the bounds that it was asked with."""

    def reasoning(count: int, body: dict[str, Any]) -> Answer:
        cut = thinks >= body["max_tokens"]
        usage = {"prompt_tokens": 4, "completion_tokens": body["max_tokens"] if cut else 2}
        said = {"content": "" if cut else "42"}
        return answer_of(said, "length" if cut else "stop", usage=usage if tells else None)

    stub = StubServer(("m",))
    stub.misbehave = reasoning
    with serve(stub) as url:
        (found,) = ask(url, ASKED, served_as="m", begin=with_room)
    return found, [body["max_tokens"] for body in stub.requests]


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
    found, asked_for = asked(thinks)
    assert (found.text, found.cut, found.completion_tokens) == (text, not text, tokens)
    assert asked_for == bounds


@pytest.mark.parametrize(("thinks", "least"), [(0, 1), (150, 101)])
def test_tokens_that_nobody_tells_are_estimated_but_all_of_a_cut_answer(
    thinks: int, least: int
) -> None:
    found, _ = asked(thinks, tells=False)
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
    raw = answer_of({"content": text}, usage=None)[2].encode()
    found = read_reply(raw, 0.1, Sampling())
    assert tokens <= found.completion_tokens <= 2.5 * tokens + 4
