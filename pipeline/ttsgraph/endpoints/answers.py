"""What an endpoint's response says, whole or piece by piece: a text, or choices where the request
has a form, or the fault of a provider that reports its trouble inside HTTP 200.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ttsgraph.endpoints.endpoints import Fault, fault_of_status, refused
from ttsgraph.endpoints.refusals import is_name, refusal_in
from ttsgraph.models.actions import CALLS, text_of
from ttsgraph.models.client import Completion, Message, OnPiece, Sampling, cut_at_stop, whole_text
from ttsgraph.models.reasoning import Thoughts, beside, parted

LONGEST_TOKEN = 128
"""Characters; the longest tokens of today's vocabularies are runs of so many blanks."""

MOST_TOKENS = 10**8
"""Of one call: more than any model's context, so a count beyond it is a defect."""

TURN_TOKENS = 4
"""Of a message or an answer beside its text."""

_PIECE = re.compile(
    r"[A-Z]?[a-z]{1,5}|[A-Z]{1,2}|\s(?=\d)|\d|[\u00c0-\u2dff]{1,2}|[^\W\d_]|[^\w\s]|_"
)

STOPPED = frozenset(
    {"stop", "length", "eos", "eos_token", "stop_sequence", "end_turn", "max_tokens"}
)
"""Values of finish_reason with which an answer may be empty, in several servers' words."""

_UNSAID = (None, "", "tool_calls", "function_call")
"""Nothing was there to be called, so the text next to it, if any, is the answer."""

_COUNTS = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
"""OpenAI's names, and Anthropic's."""

_TEXTS = ("role", "content", "refusal")
_REFUSED = "expected an answer, found a refusal"
_NO_CHOICES = "expected an answer with choices, found none"
_NO_MESSAGES = "expected choices with messages, found something else"
_NO_TEXT = "expected an answer as text, found something else"
_NO_COUNTS = f"expected token usage of 0 to {MOST_TOKENS:,}, found something else"


def read_answer(body: bytes, latency_s: float, sampling: Sampling) -> Completion:
    """A response's body as one text, cut at the first stop sequence, which some servers ignore.
    Raises Fault for no JSON, an error in its place, no choice, and far more than was asked for.
    """
    return _completion_of(_json_of(body), latency_s, sampling)


def _json_of(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Fault("expected JSON, found something else") from None


def _completion_of(data: Any, latency_s: float, sampling: Sampling) -> Completion:
    """As `read_answer`; a fault has the tokens that the answer is told to have taken."""
    try:
        choice = first_choice(data)
        if choice is None or not isinstance(message := choice.get("message"), dict):
            raise _without_choices(data)
        text, reasoning = parted(message)
        if message.get("refusal"):
            raise refused(_REFUSED, str(message["refusal"]))
        if text is not None and not isinstance(text, str):
            raise Fault(_NO_TEXT)
        text = whole_text(text or "")
        reason = choice.get("finish_reason")
        _check_finish(reason, bool(text))
        _check_letters(len(text), sampling)
        shown = cut_at_stop(text, sampling.stop)
        bound = sampling.max_tokens if _is_cut(reason) and shown == text else None
        return _completed(shown, whole_text(reasoning), data.get("usage"), latency_s, bound)
    except Fault as fault:
        with suppress(Fault):
            fault.tokens = _counts(data.get("usage") if isinstance(data, dict) else None)
        raise


def first_choice(data: Any) -> dict[str, Any] | None:
    """A response's first choice, None without. Raises Fault for an error in its place."""
    if not isinstance(data, dict):
        return None
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    choice = first if isinstance(first, dict) else None
    if error := data.get("error") or (choice or {}).get("error"):
        if refusal_in(error):
            said = error.get("message") if isinstance(error, Mapping) else error
            raise refused("an error inside HTTP 200", str(said or ""))
        code = error.get("code") if isinstance(error, Mapping) else None
        if isinstance(code, int) and 400 <= code < 600:  # the status that it should have had
            raise fault_of_status(code, f"an error inside HTTP 200 (code {code})")
        raise Fault("an error inside HTTP 200")
    return choice


def _without_choices(data: Any) -> Fault:
    """What is wrong with a response that has none."""
    said = refusal_in(data)
    return refused(_NO_CHOICES, said) if said else Fault(_NO_CHOICES)


def _check_finish(reason: Any, has_text: bool) -> None:
    """Raises Fault unless an answer that ended so is the model's own, whole or cut."""
    said = reason.lower() if isinstance(reason, str) else reason
    if said in _UNSAID:
        if not has_text:
            raise Fault(
                "expected an answer, found an empty one without finish_reason stop or length"
            )
    elif not isinstance(said, str) or said not in STOPPED:
        named = isinstance(said, str) and said.isidentifier() and len(said) <= 40
        shown = said if named else "something else"
        kind = f"expected finish_reason stop or length, found {shown}"
        raise refused(kind, f"finish_reason {said}") if is_name(said) else Fault(kind)


def _is_cut(reason: Any) -> bool:
    return isinstance(reason, str) and reason.lower() in ("length", "max_tokens")


def _check_letters(count: int, sampling: Sampling) -> None:
    """Raises Fault for so many characters, if they are far more than what was asked for."""
    if count > 1000 + LONGEST_TOKEN * sampling.max_tokens:
        raise Fault(
            f"expected an answer of at most {sampling.max_tokens} tokens, found {count} characters"
        )


def _completed(
    text: str, reasoning: str, usage: Any, latency_s: float, bound: int | None = None
) -> Completion:
    """A completion with what the endpoint counted, else an estimate from its text or the bound that
    cut it; untold reasoning is its share of the letters. Raises Fault as `_counts`.
    """
    counts = _counts(usage)
    cut = bound is not None
    if counts is None:
        thought = _tokens_in(reasoning)
        written = bound or TURN_TOKENS + _tokens_in(text) + thought
        thought = min(thought, written)
        found = Completion(text, 0, written, latency_s, cut=cut, estimated=True)
        return replace(found, reasoning=reasoning, reasoning_tokens=thought)
    prompt, written = counts
    known = _detail(usage.get("prompt_tokens_details"), "cached_tokens") or _detail(
        usage, "prompt_cache_hit_tokens"
    )
    thought = _detail(usage.get("completion_tokens_details"), "reasoning_tokens")
    if thought and _detail(usage, "total_tokens") == prompt + written + thought:
        written += thought  # xAI counts them apart
        if written > MOST_TOKENS:
            raise Fault(_NO_COUNTS)
    if not thought and reasoning:
        thought = round(written * len(reasoning) / (len(reasoning) + len(text)))
    return Completion(
        text,
        prompt,
        written,
        latency_s,
        reasoning=reasoning,
        reasoning_tokens=min(thought, written),
        known_tokens=min(known, prompt),
        cut=cut,
    )


def _counts(usage: Any) -> tuple[int, int] | None:
    """Prompt and completion tokens; None where they aren't told. Raises Fault for odd ones."""
    told = usage if isinstance(usage, Mapping) else {}
    pairs = ((told.get(prompt), told.get(written)) for prompt, written in _COUNTS)
    told_both: tuple[Any, Any] = next((pair for pair in pairs if None not in pair), (0, 0))
    prompt, written = told_both
    if prompt == 0:
        return None
    if not (_is_count(prompt) and _is_count(written)):
        raise Fault(_NO_COUNTS)
    return int(prompt), int(written)


def _is_count(number: Any) -> bool:
    whole = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
    return whole and not isinstance(number, bool) and 0 <= number <= MOST_TOKENS


def _detail(counts: Any, name: str) -> int:
    number = counts.get(name) if isinstance(counts, Mapping) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


def _tokens_in(text: str) -> int:
    """Tokens of a text without its tokenizer, rather too many: one for each six letters of a word
    begun, two capitals, two letters of other alphabets, digit, blank before a number, other sign.
    """
    return len(_PIECE.findall(text))


def with_prompt(completion: Completion, messages: Sequence[Message]) -> Completion:
    """The same, its prompt counted here where the endpoint told no counts."""
    if not completion.estimated:
        return completion
    count = sum(TURN_TOKENS + _tokens_in(message.whole or message.content) for message in messages)
    return replace(completion, prompt_tokens=count)


async def read_stream(
    chunks: AsyncIterator[Any], sampling: Sampling, started: float, on_piece: OnPiece
) -> Completion:
    """The completion that these chunks, plain data, make; `on_piece` gets the text up to the first
    stop sequence as it comes. Raises Fault as `read_answer`.
    """
    text = StoppedText(sampling.stop)
    thoughts = Thoughts()
    told = half = refusal = ""
    usage = reason = None
    async for chunk in chunks:
        choice = first_choice(chunk) or {}
        usage = (chunk.get("usage") if isinstance(chunk, dict) else None) or usage
        reason = choice.get("finish_reason") or reason
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict) or not isinstance(delta.get("content") or "", str):
            raise Fault(_NO_TEXT)
        refusal += str(delta.get("refusal") or "")
        told += beside(delta)
        content = half + (delta.get("content") or "")
        # Of a surrogate pair, the other half may yet come.
        half = content[-1:] if "\ud800" <= content[-1:] <= "\udbff" else ""
        if piece := text.add(thoughts.add(whole_text(content.removesuffix(half)))):
            _check_letters(len(text.shown), sampling)
            on_piece({"delta": {"content": piece}})
    if piece := text.add(thoughts.add(whole_text(half)) + thoughts.rest()) + text.rest():
        on_piece({"delta": {"content": piece}})
    if refusal:
        raise refused(_REFUSED, refusal)
    _check_finish(reason, bool(text.shown) or text.stopped)
    if reason is None and _counts(usage) is None:  # it broke off
        raise Fault("expected the answer's token usage, found none")
    bound = sampling.max_tokens if _is_cut(reason) and not text.stopped else None
    reasoning = whole_text(told) + thoughts.reasoning
    return _completed(text.shown, reasoning, usage, time.monotonic() - started, bound)


class StoppedText:
    """A growing text, shown up to the first stop; what may begin one is held back."""

    def __init__(self, stop: Sequence[str]) -> None:
        self.shown = ""
        self.stopped = False
        self._stop = frozenset(stop)
        self._held = ""
        # A stop sequence within a longer one that may yet come does not end the text before that
        # one is ruled out: of all that begins one, the first counts.
        begun = [
            re.escape(each[:length]) + (r"\Z" if length < len(each) else "")
            for each in stop
            for length in range(len(each), 0, -1)
        ]
        self._begun = re.compile("|".join(begun) or r"\Z")

    def add(self, piece: str) -> str:
        """Add a piece; returns what can be shown now."""
        if self.stopped:
            return ""
        self._held += piece
        found = self._begun.search(self._held)
        self.stopped = found is not None and found[0] in self._stop
        return self._show(found.start() if found else len(self._held))

    def rest(self) -> str:
        """Nothing more comes: what was held back, if the text did not stop."""
        return "" if self.stopped else self._show(len(cut_at_stop(self._held, tuple(self._stop))))

    def _show(self, count: int) -> str:
        piece = self._held[:count]
        self._held = self._held[count:]
        self.shown += piece
        return piece


def read_choices(body: bytes, latency_s: float, sampling: Sampling) -> Completion:
    """An answer to a request with a form: its choices as the endpoint gives them, which may refuse,
    and call tools; reasoning is left out. Raises Fault where none can be used.
    """
    data = _json_of(body)
    if first_choice(data) is None:
        raise _without_choices(data)
    thoughts = []
    choices = []
    for index, choice in enumerate(data["choices"]):
        message = choice.get("message") if isinstance(choice, Mapping) else None
        if not isinstance(message, Mapping):
            raise Fault(_NO_MESSAGES)
        text, thought = parted(message)
        shown = {"role": "assistant", "content": text, "refusal": message.get("refusal")}
        if calls := message.get(CALLS):
            shown[CALLS] = calls
        told = {"finish_reason": choice.get("finish_reason"), "logprobs": choice.get("logprobs")}
        choices.append({"index": index, "message": shown, **told})
        thoughts.append(thought)
    reasoning = "\n".join(filter(None, thoughts))
    return _chosen(choices, reasoning, data.get("usage"), latency_s, sampling)


async def read_choice_stream(
    chunks: AsyncIterator[Any],
    sampling: Sampling,
    started: float,
    on_piece: OnPiece,
) -> Completion:
    """The same in pieces, each of which `on_piece` gets as it comes. Raises Fault as that."""
    parts: dict[int, _Growing] = {}
    usage = None
    async for chunk in chunks:
        first_choice(chunk)  # for the error that may stand in its place
        if not isinstance(chunk, Mapping):
            continue
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():
            if (piece := _piece(choice, parts)) is not None:
                _check_letters(parts[piece["index"]].letters, sampling)
                on_piece(piece)
    for index, growing in parts.items():
        if rest := growing.thoughts.rest():
            growing.add({"content": rest}, None)
            on_piece({"index": index, "delta": {"content": rest}, "logprobs": None})
    choices = [growing.whole(index) for index, growing in sorted(parts.items())]
    if not choices:
        raise Fault(_NO_CHOICES)
    thoughts = "\n".join(part.thoughts.reasoning for part in parts.values()).strip()
    return _chosen(choices, thoughts, usage, time.monotonic() - started, sampling)


def _piece(choice: Any, parts: dict[int, _Growing]) -> dict[str, Any] | None:
    """What a chunk adds to one choice, and can be shown; None where it only ends it."""
    if not isinstance(choice, Mapping) or not isinstance(delta := choice.get("delta") or {}, dict):
        raise Fault(_NO_MESSAGES)
    index = choice.get("index") or 0
    text = delta.get("content")
    if not isinstance(index, int):
        raise Fault(_NO_MESSAGES)
    if text is not None and not isinstance(text, str):
        raise Fault(_NO_TEXT)
    shown = {} if index in parts else {"role": "assistant"}
    shown |= {name: delta[name] for name in (*_TEXTS, CALLS) if name in delta}
    growing = parts.setdefault(index, _Growing())
    growing.reason = choice.get("finish_reason") or growing.reason
    if text:
        shown["content"] = growing.thoughts.add(text)
        if not shown["content"]:
            del shown["content"]
    logprobs = choice.get("logprobs")
    growing.add(shown, logprobs)
    if not shown and logprobs is None:
        return None
    return {"index": index, "delta": shown, "logprobs": logprobs}


@dataclass
class _Growing:
    """One choice of which pieces have come."""

    texts: dict[str, str] = field(default_factory=dict)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    logprobs: dict[str, list[Any]] = field(default_factory=dict)
    reason: Any = None
    letters: int = 0
    thoughts: Thoughts = field(default_factory=Thoughts)

    def add(self, delta: Mapping[str, Any], logprobs: Any) -> None:
        """Take in a piece. Raises Fault for one of another shape."""
        for name in ("content", "refusal"):
            if isinstance(piece := delta.get(name), str):
                self.texts[name] = self.texts.get(name, "") + piece
                self.letters += len(piece)
        for place, call in enumerate(delta.get(CALLS) or ()):
            if not isinstance(call, Mapping):
                raise Fault(_NO_MESSAGES)
            begun = {"function": {"name": "", "arguments": ""}}
            known = self.calls.setdefault(call.get("index", place), begun)
            known |= {name: call[name] for name in ("id", "type") if call.get(name)}
            function = call.get("function") or {}
            for name in ("name", "arguments"):
                if isinstance(said := function.get(name), str):
                    known["function"][name] += said
                    self.letters += len(said)
        if isinstance(logprobs, Mapping):
            for name, found in logprobs.items():
                self.logprobs.setdefault(name, []).extend(found or ())

    def whole(self, index: int) -> dict[str, Any]:
        """The choice."""
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        message |= self.texts
        if self.calls:
            message[CALLS] = [call for _, call in sorted(self.calls.items())]
        more = {"finish_reason": self.reason, "logprobs": self.logprobs or None}
        return {"index": index, "message": message, **more}


def _chosen(
    choices: list[dict[str, Any]], thoughts: str, usage: Any, latency_s: float, sampling: Sampling
) -> Completion:
    """A completion of these choices, checked, and with what the endpoint counted."""
    for choice in choices:
        message = choice["message"]
        content = message["content"]
        calls = message.get(CALLS) or ()
        if content is not None and not isinstance(content, str):
            raise Fault(_NO_TEXT)
        if not isinstance(calls, list | tuple) or not all(map(_is_call, calls)):
            raise Fault("expected calls of tools with a name and arguments, found something else")
        if not calls and not message.get("refusal"):
            _check_finish(choice["finish_reason"], bool(content))
        letters = len(content or "") + sum(len(call["function"]["arguments"]) for call in calls)
        _check_letters(letters, sampling)
    text = whole_text(text_of(choices[0]["message"]))
    found = _completed(text, whole_text(thoughts), usage, latency_s)
    return replace(found, choices=json.dumps(choices))


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    return isinstance(function, Mapping) and all(
        isinstance(function.get(name), str) for name in ("name", "arguments")
    )
