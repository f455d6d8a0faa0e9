"""A reply is read from its own turn: after its thoughts, and before another question or turn."""

from __future__ import annotations

import pytest

from finalanswer import answer_in, form_in, label_in, last_value, letter_in

ANOTHER = (
    "Problem: What is 5 + 5?\n{}",
    "Problem 2: 5 + 5?\n{}",
    "### Question\nWhat is 5 + 5?\n\n{}",
    "### Problem 12\n5 + 5?\n{}",
    "**Question:** 5 + 5?\n{}",
    "Question: 5 + 5? {}",
    "Q2: 5 + 5\n{}",
    "Exercise: 5 + 5\n{}",
    "### Instruction:\n5 + 5\n### Response:\n{}",
    "User: what is 5 + 5?\nAssistant: {}",
    "Human: 5 + 5\n\n{}",
    "<|im_end|>\n<|im_start|>user\n5 + 5?<|im_end|>\n<|im_start|>assistant\n{}",
    "<|eot_id|>{}",
    "<|endoftext|>Human: 5 + 5?\n{}",
    "<end_of_turn>\n<start_of_turn>user\n{}",
    "</s><s>[INST] 5 + 5 [/INST] {}",
    "[INST] 5 + 5 [/INST] {}",
)
THOUGHTS = (
    "<think>{}</think>\n",
    "<reasoning>\n{}\n</reasoning>\n",
    "{}\n</think>\n\n",
    "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
    # gpt-oss where a server leaves the marks of its channels out.
    "analysisThe user asks for it. {}assistantfinal",
    "analysisLet me see: {}assistantcommentaryOne moment.assistantfinal",
)
# Of each kind: how it is read, replies that give the right one, what it is, and another reply.
KINDS = {
    "number": (answer_in, ("The answer is 3.", "So \\boxed{3}.", "3", "#### 3"), "3", "Answer: 10"),
    "letter": (letter_in, ("The answer is (C).", "C", "Answer: C"), "C", "The answer is B."),
    "label": (
        lambda reply: label_in(reply, ("yes", "no")),
        ("Answer: no", "no"),
        "no",
        "Answer: yes",
    ),
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
