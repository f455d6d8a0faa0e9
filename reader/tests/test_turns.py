"""A reply is read from its own turn: after its thoughts, and before another question or turn."""

from __future__ import annotations

from functools import partial

import pytest
from rows import rows

from finalanswer import answer_in, form_in, label_in, last_value, letter_in

TURNS = rows("turns.txt")
ANOTHER, THOUGHTS = ([text for text, of in TURNS if of == kind] for kind in ("another", "thoughts"))


# Of each kind: how it is read, replies that give the right one, what it is, and another reply.
KINDS = {
    "number": (answer_in, ("The answer is 3.", "So \\boxed{3}.", "3", "#### 3"), "3", "Answer: 10"),
    "letter": (letter_in, ("The answer is (C).", "C", "Answer: C"), "C", "The answer is B."),
    "label": (partial(label_in, choices=("yes", "no")), ("Answer: no", "no"), "no", "Answer: yes"),
    "words": (form_in, ("Paris", "Answer: Paris"), "paris", "Answer: Rome"),
    "json": (last_value, ('{"a": 1}',), {"a": 1}, '{"a": 2}'),
}


@pytest.mark.parametrize("another", ANOTHER)
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_answer_counts_where_a_model_goes_on_with_a_question_of_its_own(kind, another):
    read, replies, right, other = KINDS[kind]
    for reply in replies:
        assert read(f"{reply}\n\n{another.format(other)}") == right, reply


@pytest.mark.parametrize("thoughts", THOUGHTS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_reply_thinks_is_not_read(kind, thoughts):
    read, replies, right, other = KINDS[kind]
    for reply in replies:
        assert read(thoughts.format(other) + reply) == right, reply


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_that_is_repeated_before_the_answer_is_part_of_the_reply(kind):
    read, replies, right, _ = KINDS[kind]
    for reply in replies:
        if reply != "Paris":  # nothing says that these words, and not the question, are the answer
            assert read(f"Let us see.\nQuestion: what is it?\n\n{reply}") == right, reply
