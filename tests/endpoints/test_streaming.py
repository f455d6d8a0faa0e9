"""Text that comes in pieces is cut where the whole text would be."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttsgraph.endpoints.answers import StoppedText, read_stream
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.models.client import Sampling


@given(
    st.lists(st.text("ab\n", max_size=4)),
    st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3),
)
def test_pieces_add_up_to_the_text_before_the_first_stop_sequence(pieces, stop):
    text = StoppedText(tuple(stop))
    shown = [text.add(piece) for piece in pieces]
    shown.append(text.rest())
    whole = "".join(pieces)
    cut = min((at for at in map(whole.find, stop) if at >= 0), default=len(whole))
    assert "".join(shown) == text.shown == whole[:cut]


def test_text_that_can_begin_no_stop_sequence_is_shown_at_once():
    text = StoppedText(("\ndef ",))
    assert text.add("one") == "one"
    assert text.add(" two\nd") == " two"
    assert text.add("one") == "\ndone"


def chunk(content=None, usage=None):
    return {"choices": [] if content is None else [{"delta": {"content": content}}], "usage": usage}


def read(*chunks, max_tokens=64):
    async def stream():
        for each in chunks:
            yield each

    pieces = []
    completion = asyncio.run(
        read_stream(stream(), Sampling(max_tokens=max_tokens), 0.0, pieces.append)
    )
    return completion, [piece["delta"]["content"] for piece in pieces]


def test_a_stream_is_its_text_and_its_usage():
    used = {"prompt_tokens": 5, "completion_tokens": 2}
    completion, pieces = read(chunk(""), chunk("a"), chunk("b"), chunk(usage=used))
    assert (completion.text, completion.prompt_tokens, completion.completion_tokens) == ("ab", 5, 2)
    assert pieces == ["a", "b"]


def test_a_stream_without_usage_or_without_end_is_a_fault():
    with pytest.raises(Fault, match="token usage, found none"):
        read(chunk("a"))
    with pytest.raises(Fault, match="at most 1 tokens"):
        read(*[chunk("word " * 100)] * 10, max_tokens=1)


def test_the_halves_of_a_character_are_joined_and_a_lone_half_is_replaced():
    used = {"prompt_tokens": 1, "completion_tokens": 1}
    completion, pieces = read(
        chunk("a\ud83d"), chunk("\ude00b\ud83d"), chunk("c\ud83d"), chunk(usage=used)
    )
    assert completion.text == "".join(pieces) == "a\U0001f600b\ufffdc\ufffd"


@pytest.mark.parametrize("reason", ["content_filter", "error", "abort"])
def test_a_stream_that_the_provider_ends_is_a_fault(reason):
    used = {"prompt_tokens": 1, "completion_tokens": 1}
    ended = {"choices": [{"delta": {}, "finish_reason": reason}], "usage": used}
    with pytest.raises(Fault, match=f"found {reason}"):
        read(chunk("half an ans"), ended)
