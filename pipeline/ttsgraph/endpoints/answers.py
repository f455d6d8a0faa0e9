"""What an endpoint's response says: an answer, or the fault of a provider that reports its trouble
inside HTTP 200.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ttsgraph.endpoints.endpoints import Fault, fault_of_status
from ttsgraph.models.client import Completion, Message, Sampling, cut_at_stop, whole_text
from ttsgraph.models.reasoning import finer_usage, parted

LONGEST_TOKEN = 128
"""Characters; the longest tokens of today's vocabularies are runs of so many blanks."""

MOST_TOKENS = 10**8
"""Of one call: more than any model's context. A count beyond it is a defect of the endpoint, and no
price can be had from it.
"""

TURN_TOKENS = 4
_PIECE = re.compile(r"[^\W\d_]{1,5}|\d{1,3}|[^\w\s]|_")

STOPPED = frozenset(
    {"stop", "length", "eos", "eos_token", "stop_sequence", "end_turn", "max_tokens"}
)
"""The values of finish_reason with which an answer may be empty: OpenAI's first, then how other
servers say the same.
"""

_CALLED = frozenset({"tool_calls", "function_call"})
"""Nothing was there to be called, so the text beside it, if any, is the answer."""

_REFUSED = frozenset({"content_filter", "refusal", "safety", "recitation", "sensitive"})
"""Another attempt would be refused as well."""


def read_answer(body: bytes, latency_s: float, sampling: Sampling) -> Completion:
    """Read a response's body, whatever it holds. Raises Fault as `completion_of`, and for what is
    no JSON.
    """
    return completion_of(json_of(body), latency_s, sampling)


def json_of(body: bytes) -> Any:
    """A response's body. Raises Fault for what is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Fault("expected JSON, found something else") from None


def completion_of(data: Any, latency_s: float, sampling: Sampling) -> Completion:
    """Read an answer, cut at the first stop sequence, as some servers ignore those.

    Raises Fault for an error in an answer's place, for one without a choice or usage, as neither a
    grade nor a price can be had from it, and for one far longer than what was asked for.
    """
    try:
        return _completion_of(data, latency_s, sampling)
    except Fault as fault:
        usage = data.get("usage") if isinstance(data, dict) else None
        with suppress(Fault):
            fault.tokens = usage_of(usage) if counts_in(usage) else None
        raise


def _completion_of(data: Any, latency_s: float, sampling: Sampling) -> Completion:
    choice = first_choice(data)
    if choice is None or not isinstance(message := choice.get("message"), dict):
        raise Fault("expected an answer with choices, found none")
    text, reasoning = parted(message)
    if message.get("refusal"):
        raise Fault("expected an answer, found a refusal", retry=False)
    if text is not None and not isinstance(text, str):
        raise Fault("expected an answer as text, found something else")
    text = whole_text(text or "")
    check_finish(choice.get("finish_reason"), bool(text))
    check_letters(len(text), sampling)
    shown = cut_at_stop(text, sampling.stop)
    cut = is_cut(choice.get("finish_reason")) and shown == text
    return completed(shown, whole_text(reasoning), data.get("usage"), latency_s, cut)


def read_answers(body: bytes, latency_s: float, sampling: Sampling) -> tuple[list[Completion], int]:
    """The answers of a response with several choices, at least one, and how many choices it has.
    Raises Fault as `read_answer`.

    Choices that can't be used are left out. The prompt's tokens are all those of each answer; of
    the tokens that all took together, which is what endpoints tell, each has a share by its
    letters.
    """
    data = json_of(body)
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or len(choices) < 2:
        return [completion_of(data, latency_s, sampling)], 1
    found = list[Completion]()
    faults = list[Fault]()
    for choice in choices:
        try:
            found.append(completion_of(data | {"choices": [choice]}, latency_s, sampling))
        except Fault as fault:
            faults.append(fault)
    if not found:
        raise faults[0]
    return _shared_out(found), len(choices)


def _shared_out(found: list[Completion]) -> list[Completion]:
    """The same answers, each of which has the tokens of all, with a share of these by its letters;
    they sum up to all.
    """
    letters = [1 + len(one.text) + len(one.reasoning) for one in found]
    written = found[0].completion_tokens
    thought = max(one.reasoning_tokens for one in found)
    parts = []
    thoughts = []
    seen = 0
    for count in letters:
        before = seen
        seen = seen + count
        parts.append(written * seen // sum(letters) - written * before // sum(letters))
        thoughts.append(thought * seen // sum(letters) - thought * before // sum(letters))
    return [
        replace(one, completion_tokens=part, reasoning_tokens=min(part, share))
        for one, part, share in zip(found, parts, thoughts, strict=True)
    ]


def completed(
    text: str, reasoning: str, usage: Any, latency_s: float, cut: bool = False
) -> Completion:
    """A completion with what the endpoint counted; where it counted nothing, with what its text
    comes to, and nothing of the prompt. Raises Fault as `usage_of`.
    """
    if not counts_in(usage):
        thought = tokens_in(reasoning)
        written = tokens_in(text) + thought
        told = (latency_s, False, reasoning, thought)
        return Completion(text, 0, written, *told, cut=cut, estimated=True)
    prompt, written = usage_of(usage)
    written, known, thought = finer_usage(usage, prompt, written, text, reasoning)
    if written > MOST_TOKENS:
        raise Fault(f"expected token usage of 0 to {MOST_TOKENS:,}, found something else")
    return Completion(text, prompt, written, latency_s, False, reasoning, thought, known, cut=cut)


def first_choice(data: Any) -> dict[str, Any] | None:
    """The first choice of a response, or of a part of one; None when it has none. Raises Fault for
    an error in its place.
    """
    if not isinstance(data, dict):
        return None
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    choice = first if isinstance(first, dict) else None
    if error := data.get("error") or (choice or {}).get("error"):
        raise _reported(error)
    return choice


def _reported(error: Any) -> Fault:
    """The fault of a provider that reports an error inside HTTP 200, often with the status that it
    should have had.
    """
    code = error.get("code") if isinstance(error, Mapping) else None
    if isinstance(code, int) and 400 <= code < 600:
        return fault_of_status(code, f"an error inside HTTP 200 (code {code})")
    return Fault("an error inside HTTP 200")


def check_finish(reason: Any, has_text: bool) -> None:
    """Raises Fault unless an answer that ended for this reason is the model's own, whole or cut at
    its length.
    """
    said = reason.lower() if isinstance(reason, str) else reason
    if said is None or said == "" or (isinstance(said, str) and said in _CALLED):
        if not has_text:
            raise Fault(
                "expected an answer, found an empty one without finish_reason stop or length"
            )
    elif not isinstance(said, str) or said not in STOPPED:
        shown = (
            said
            if isinstance(said, str) and said.isidentifier() and len(said) <= 40
            else "something else"
        )
        raise Fault(
            f"expected finish_reason stop or length, found {shown}",
            retry=said not in _REFUSED if shown == said else True,
        )


def is_cut(reason: Any) -> bool:
    """Whether an answer ended for want of tokens."""
    return isinstance(reason, str) and reason.lower() in ("length", "max_tokens")


_COUNTS = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
"""OpenAI's names, and Anthropic's."""


def _counts(usage: Any) -> tuple[Any, Any]:
    told = usage if isinstance(usage, Mapping) else {}
    pairs = ((told.get(prompt), told.get(written)) for prompt, written in _COUNTS)
    return next((pair for pair in pairs if None not in pair), (None, None))


def counts_in(usage: Any) -> bool:
    """Whether an endpoint tells both counts. A prompt of no tokens is none that was counted."""
    return _counts(usage)[0] not in (None, 0)


def tokens_in(text: str) -> int:
    """About how many tokens a text is, without its model's tokenizer: one for every five letters of
    a word or three digits of a number begun, one for each other character.
    """
    return len(_PIECE.findall(text))


def with_prompt(completion: Completion, messages: Sequence[Message]) -> Completion:
    """The same, its prompt counted here where the endpoint told no counts."""
    if not completion.estimated:
        return completion
    count = sum(TURN_TOKENS + tokens_in(message.whole or message.content) for message in messages)
    return replace(completion, prompt_tokens=count)


def usage_of(usage: Any) -> tuple[int, int]:
    """Prompt and completion tokens. Raises Fault unless both are whole, and no more than a call can
    have.
    """
    prompt, completion = _counts(usage)
    if not all(_is_count(number) for number in (prompt, completion)):
        raise Fault(f"expected token usage of 0 to {MOST_TOKENS:,}, found something else")
    return int(prompt), int(completion)


def _is_count(number: Any) -> bool:
    whole = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
    return whole and not isinstance(number, bool) and 0 <= number <= MOST_TOKENS


def check_letters(count: int, sampling: Sampling) -> None:
    """Raises Fault for so many characters, if they are far more than what was asked for."""
    if count > 1000 + LONGEST_TOKEN * sampling.max_tokens:
        raise Fault(
            f"expected an answer of at most {sampling.max_tokens} tokens, found {count} characters"
        )
