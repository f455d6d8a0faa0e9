"""A reply in pieces is read as it is whole, and shown as it comes."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.answers import values_of
from tests.support.asking import request
from ttsgraph.endpoints.faults import Fault
from ttsgraph.endpoints.replies import ReplyReader
from ttsgraph.models.client import Completion
from ttsgraph.models.reasoning import THOUGHT_MARKS

USED = {"prompt_tokens": 5, "completion_tokens": 2}


def chunk(content=None, usage=None, **more):
    choices = [] if content is None else [{"delta": {"content": content}, **more}]
    return {"choices": choices, "usage": usage}


def read(*chunks, form=None, **sampling) -> tuple[Completion, list[str]]:
    pieces: list[dict] = []
    reply = ReplyReader(request(form=form, **{"max_tokens": 64} | sampling), pieces.append)
    for each in chunks:
        reply.add(each)
    return reply.completion(0.1), [piece["delta"].get("content", "") for piece in pieces]


def whole(text, **wanted) -> Completion:
    choice = {"index": 0, "finish_reason": "stop", "message": {"content": text}}
    return read({"choices": [choice], "usage": USED}, **wanted)[0]


WORDS = ["a", "b", "ab", " ", "\n", "ba"]
ENDS = [part for mark in THOUGHT_MARKS for part in mark]
PIECE = st.sampled_from([*WORDS, *ENDS, *(m[:3] for m in ENDS), *(m[3:] for m in ENDS)])
STOP = st.lists(st.sampled_from(["a", "ab", "b\n", "aab"]), max_size=3)


@settings(deadline=None)
@given(st.lists(PIECE, max_size=6), STOP, st.sampled_from([None, "{}"]))
def test_a_reply_in_pieces_is_the_same_as_whole(pieces, stop, form):
    ended = [chunk("", finish_reason="stop"), chunk(usage=USED)]
    found, _ = read(*map(chunk, pieces), *ended, stop=tuple(stop), form=form)
    assert found == whole("".join(pieces), stop=tuple(stop), form=form)


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS)), STOP)
def test_pieces_add_up_to_the_text_before_the_first_stop_sequence(pieces, stop):
    ended = [chunk("", finish_reason="stop"), chunk(usage=USED)]
    found, shown = read(*map(chunk, pieces), *ended, stop=tuple(stop))
    text = "".join(pieces)
    cut = min((at for at in map(text.find, stop) if at >= 0), default=len(text))
    assert "".join(shown) == found.text == text[:cut]


def test_text_that_can_begin_no_stop_sequence_is_shown_at_once():
    chunks = [chunk("one"), chunk(" two\nd"), chunk("one", finish_reason="stop")]
    _, shown = read(*chunks, stop=("\ndef ",))
    assert shown == ["one", " two", "\ndone"]


def test_a_stream_without_usage_or_without_end_is_a_fault():
    with pytest.raises(Fault, match="token usage, but the stream ended"):
        read(chunk("a"))
    with pytest.raises(Fault, match="at most 1 tokens"):
        read(*[chunk("word " * 100)] * 10, max_tokens=1)


def test_the_halves_of_a_character_are_joined_and_a_lone_half_is_replaced():
    halves = chunk("a\ud83d"), chunk("\ude00b\ud83d"), chunk("c\ud83d"), chunk(usage=USED)
    found, shown = read(*halves)
    assert found.text == "".join(shown) == "a\U0001f600b\ufffdc\ufffd"


LINES = b'data: {"a": 1}|data: 2|data: [1,|data: 3]|: ping|event: x|{"b": 4}'.split(b"|")


@given(st.lists(st.sampled_from([*LINES, b"\n", b"\r", b"\r\n"])), st.sets(st.integers(0, 99)))
def test_where_a_body_is_cut_into_pieces_makes_no_difference(parts, cuts):
    body = b"".join(parts)
    places = [0, *sorted(cuts), len(body)]
    pieces = [body[a:b] for a, b in pairwise(places)]
    assert outcome(*pieces) == outcome(body)


def outcome(*pieces):
    try:
        return values_of(*pieces)
    except Fault as fault:
        return fault.kind
