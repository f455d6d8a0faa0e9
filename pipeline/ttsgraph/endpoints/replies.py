"""Parsing of endpoints' replies by an accumulator of deltas; a complete reply is a single delta."""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from types import NoneType
from typing import Any

from ttsgraph.endpoints.faults import REFUSALS, Fault, bare, refusal
from ttsgraph.models.actions import CALLS, delta_of, text_of
from ttsgraph.models.client import Completion, OnPiece, Request, cut_at_stop, whole_text
from ttsgraph.models.client import estimate_tokens as estimate
from ttsgraph.models.reasoning import END_MARKS, begun, content_of, without_end, without_thoughts

LONGEST_TOKEN = 128
"""Maximum length of a token in characters; the longest tokens of current vocabularies are runs of
spaces.
"""

MOST_TOKENS = 10**8
"""Maximum token count of one call: larger than any model's context, so a higher count is an error.
"""

INVALID = -1
"""Stand-in for a token count that can't be right."""

TURN_TOKENS = 4
"""Estimated number of tokens that a message or an answer takes in addition to its text."""

_ENDINGS = {
    "cut": re.compile("length|max[a-z]*tokens|tokenlimit|errorlimit|contextwindow|truncat"),
    "failed": re.compile("error|abort|cancel|timeout|failed|overloaded|insufficientsystemresource"),
    "ended": re.compile("^(stop|eos|endturn|complete)"),
}
"""Meanings of a finish_reason and the patterns, the first of which is found in it, after it is
reduced to lower-case letters: the answer is cut, the server could not finish it, or it may be
empty. An answer with text is one with any other value.
"""

Take = Callable[[Any], object]
"""Function that receives the values of a body."""

_USED = ("prompt_tokens", "completion_tokens")
"""Names of the counts without which the usage in a reply is ignored."""

_Counts = tuple[int, int, int, int]
"""Token counts: prompt, completion, reasoning, and prompt tokens in the endpoint's cache."""

_NO_CHOICES = "expected an answer with choices, found none"


class ValueReader:
    """Splitter of a body into JSON values, each passed to `take` as soon as it has arrived: the
    data of server-sent events, or the whole body. `done`: the events have ended.

    Comments and events that aren't JSON are skipped; blank lines between events may be missing.
    """

    def __init__(self, take: Take) -> None:
        self.done = False
        self._take = take
        self._found = False
        self._rest = bytearray()
        self._data = b""
        self._others: list[bytes] = []

    def add(self, piece: bytes) -> None:
        """Add the next piece of the body."""
        self._rest += piece
        if b"\n" in piece:  # splitting a long line again at each piece would take quadratic time
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                self._add_line(line)

    def end(self) -> None:
        """Read the rest of the body. Raises Fault if the body contains no value at all."""
        self._add_line(self._rest)
        if not self._found and not self._add_value(b"\n".join(self._others)):
            raise Fault("expected JSON, but the reply is not JSON")

    def _add_line(self, raw: bytearray) -> None:
        line = bytes(raw.strip())
        if not line.startswith(b"data:"):
            self._others += [] if line.startswith(b":") else [line]  # without comments
            self._data = self._data if line else b""  # a blank line ends an event
        elif not self.done:
            self._data += line.removeprefix(b"data:").strip()
            self.done = self._data == b"[DONE]"
            if self._add_value(self._data):  # an event may span several lines
                self._data = b""

    def _add_value(self, data: bytes) -> bool:
        """Pass on a value, with U+FFFD in place of bytes that aren't UTF-8; return False if the
        data isn't JSON.
        """
        try:
            value = json.loads(data.removeprefix(BOM_UTF8).decode(errors="replace"))
        except (ValueError, RecursionError):
            return False
        self._found = True
        self._take(value)
        return True


@dataclass(slots=True)
class ReplyReader:
    """Accumulator of the reply to one request. `on_piece` receives each part that can be shown;
    `shown` is the text that it has received.

    The text is cut at the first stop sequence, because some servers ignore stop sequences. A
    request with a form gets the choice, as the endpoint sent it.
    """

    request: Request
    on_piece: OnPiece | None = None
    shown: str = ""
    _text: str = ""  # with its reasoning, as it arrived
    _reasoning: str = ""
    _refusal: str = ""
    _calls: list[dict[str, Any]] = field(default_factory=list)
    _growing: dict[int, dict[str, Any]] = field(default_factory=dict)
    _reason: Any = None
    _usage: dict[str, Any] = field(default_factory=dict)
    _other: Any = None  # a body without choices
    _contents: set[type] = field(default_factory=set)  # their types, in choices so far
    _has_message: bool = False
    _held: str = ""
    _answers: bool = False  # the reasoning is over

    def add(self, data: Any) -> None:
        """Add a body or chunk. Raises Fault if it is an error or malformed."""
        parts = data if isinstance(data, dict) else {}
        found = parts.get("choices")
        listed = found if isinstance(found, list) else []
        choices = [each for each in listed if isinstance(each, dict)]
        for place in (parts, *choices):  # Moonshot puts usage into a stream's choices
            usage = place.get("usage")
            if isinstance(usage, dict) and any(map(usage.get, _USED)):
                self._usage = usage
            if error := place.get("error"):
                _check_error(error)
        if choices:
            self._add_choice(choices[0])
        else:
            self._other = self._other or data

    def _add_choice(self, choice: dict[str, Any]) -> None:
        self._has_message = self._has_message or "message" in choice
        delta = choice.get("message") or choice.get("delta")
        if delta is None:  # the format of /v1/completions, or no text, not even an empty one
            delta = {"content": choice.get("text", False)}
        if not isinstance(delta, dict):
            raise Fault(_NO_CHOICES)
        self._reason = choice.get("finish_reason") or self._reason
        content, thought = content_of(delta)
        new = content if isinstance(content, str) else ""
        self._contents.add(type(content))
        self._text += new
        self._reasoning += thought
        if isinstance(refused := delta.get("refusal"), str):
            self._refusal += refused
        self._add_calls(delta.get(CALLS))
        most = self.request.sampling.max_tokens
        if len(self._text) > 1000 + LONGEST_TOKEN * most:
            raise Fault(f"expected an answer of at most {most} tokens, found a longer one")
        if self.on_piece is not None and (text := self._next_text(new)):
            begins = self.request.form is not None and self.shown == text
            self.on_piece({"delta": ({"role": "assistant"} if begins else {}) | {"content": text}})

    def _add_calls(self, parts: Any) -> None:
        """Add parts of tool calls, in normal form; skip malformed ones."""
        for place, part in enumerate(parts if isinstance(parts, list) else ()):
            function = part.get("function") if isinstance(part, dict) else None
            if not isinstance(function, dict):
                continue
            index = part["index"] if isinstance(part.get("index"), int) else place
            call = self._growing.get(index)
            named = part.get("id") and function.get("name")
            # Gemini gives all calls of a stream index 0: a new id and name start another call.
            if call is None or (named and call.get("id") not in (None, part["id"])):
                call = self._growing[index] = {"function": {"name": "", "arguments": ""}}
                self._calls.append(call)
            call |= {name: part[name] for name in ("id", "type") if part.get(name)}
            for name in ("name", "arguments"):
                call["function"][name] += _as_text(function.get(name))

    def _next_text(self, new: str) -> str:
        """Return the next part of the text that can be shown, without reasoning and without a
        possible start of a stop sequence.
        """
        if self._answers:
            self._held += new
        elif not begun(self._text):
            self._held = without_thoughts(self._text)[0]
            self._answers = self._held != ""
        found = _withheld(self._stop).search(self._held)
        end = found.start() if found else len(self._held)
        piece = whole_text(self._held[:end])
        self._held = self._held[end:]
        self.shown += piece
        return piece

    @property
    def _stop(self) -> tuple[str, ...]:
        return self.request.sampling.stop if self.request.form is None else ()

    @property
    def tokens(self) -> tuple[int, int] | None:
        """Token counts of prompt and completion, or None if they are unknown or invalid."""
        with suppress(Fault):
            counts = _tokens(self._usage)
            return counts and counts[:2]
        return None

    def completion(self, latency_s: float) -> Completion:
        """Return the completion once everything has arrived. Raises Fault if the reply is
        unusable.
        """
        if not self._contents:
            raise refusal(_NO_CHOICES, self._other)
        counts = _tokens(self._usage)
        text, thoughts, cut = self._parted()
        if not self._has_message and self._reason is None and counts is None:
            raise Fault("expected a finish_reason or token usage, but the stream ended first")
        whole = None if self.request.form is None else self._whole(text)
        if self._refusal and whole is None:
            kind = "expected an answer, found a refusal"
            raise Fault(kind, meaning="filter", words=self._refusal)
        if self.on_piece is not None and (rest := self._rest(text, whole)):
            self.on_piece({"delta": rest})
        if whole is not None:
            text, cut = whole_text(text_of(whole["message"])), False
        prompt, written, thought, known = counts or self._estimated(text, thoughts, cut)
        if counts and thoughts and not thought:  # the reasoning's share of the characters
            thought = round(written * len(thoughts) / (len(thoughts) + len(text)))
        return Completion(
            text,
            prompt,
            written,
            latency_s,
            reasoning=thoughts,
            reasoning_tokens=min(thought, written),
            known_tokens=min(known, prompt),
            choice=json.dumps(whole) if whole else "",
            cut=cut,
            estimated=counts is None,
        )

    def _parted(self) -> tuple[str, str, bool]:
        """Return the answer, its reasoning, and whether it is cut. Raises Fault if the choice is
        not a model's answer.
        """
        self._calls = [call for call in self._calls if call["function"]["name"]]
        ending = _ending(str(self._reason)[:80])
        text, within = without_thoughts(without_end(whole_text(self._text)))
        separate = whole_text(self._reasoning)
        thoughts = "\n".join(filter(None, (separate, within)))
        acts = self._calls or self._refusal
        if separate and not (self._text.strip() or ending == "cut" or acts):
            # Some servers, such as vLLM with its parsers, send the whole answer as reasoning if the
            # model did not reason.
            text, thoughts = separate, ""
        answer = cut_at_stop(text, self._stop)
        if not acts and ending != "cut":
            reason = str(self._reason)
            shown = reason[:40].lower() if reason.isidentifier() else "an unknown value"
            kind = f"expected finish_reason stop or length, found {shown}"
            if ending == "filter":
                raise Fault(kind, meaning="filter", words=f"finish_reason {reason.lower()}")
            if ending == "failed":
                raise Fault(kind)
            # Content may be of other types, such as references.
            if not answer and (self._contents - {str, NoneType} or ending != "ended"):
                raise Fault(f"expected a text answer, found none, with finish_reason {shown}")
        return answer, thoughts, ending == "cut" and answer == text

    def _whole(self, text: str) -> dict[str, Any]:
        """Return the choice with this text as plain data."""
        # Next to calls, some servers send null and others an empty text: clients get what was sent.
        empty = "" if str in self._contents or not (self._calls or self._refusal) else None
        message: dict[str, Any] = {"role": "assistant", "content": text or empty}
        message["refusal"] = self._refusal or None
        message |= {CALLS: self._calls} if self._calls else {}
        return {"index": 0, "message": message, "finish_reason": self._reason, "logprobs": None}

    def _rest(self, text: str, whole: dict[str, Any] | None) -> dict[str, Any]:
        """Return the part of a finished choice that was not shown, as a delta: the rest of its text
        and, for a request with a form, what isn't text in the `whole` choice.
        """
        delta = delta_of(whole["message"]) if whole else {}
        if delta and not self.shown:
            return delta
        grown = text.startswith(self.shown) and not self._refusal
        delta["content"] = text.removeprefix(self.shown) if grown else ""
        return {name: delta[name] for name in ("content", "refusal", CALLS) if delta.get(name)}

    def _estimated(self, text: str, thoughts: str, cut: bool) -> _Counts:
        """Return token counts estimated from the texts; a cut answer has as many as its bound."""
        messages, most = self.request.messages, self.request.sampling.max_tokens
        read = sum(TURN_TOKENS + estimate(each.whole or each.content) for each in messages)
        thought = estimate(thoughts)
        return read, most if cut else TURN_TOKENS + estimate(text) + thought, thought, 0


@lru_cache(maxsize=64)
def _ending(reason: str) -> str:
    """Return the meaning of a finish_reason, or of several joined by colons: "filter", one in
    _ENDINGS, or "" if it has none.
    """
    if set(REFUSALS["filter"]["codes"].split()).intersection(map(bare, reason.split(":"))):
        return "filter"
    name = re.sub(r"[^a-z]", "", reason.lower())
    return next((meaning for meaning, words in _ENDINGS.items() if words.search(name)), "")


@lru_cache(maxsize=64)
def _withheld(stop: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of what can't be shown: a stop sequence, and, at the end, a possible start
    of one or of an end mark, or half of a surrogate pair.
    """
    starts = [re.escape(mark[:n]) for mark in (*stop, *END_MARKS) for n in range(1, len(mark) + 1)]
    ends = "|".join([*starts, r"[\ud800-\udbff]"])
    return re.compile("|".join([*map(re.escape, stop), rf"(?:{ends})\Z"]))


def _as_text(value: Any) -> str:
    """Return a part of a tool call as text; llama.cpp and TGI have sent arguments as an object."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _check_error(error: Any) -> None:
    """Raise Fault if a reply contains an error instead of an answer. If the error names a status,
    that status classifies the fault.
    """
    if isinstance(error, dict) and not any(error.values()):
        return
    code = str(error.get("code")) if isinstance(error, dict) else ""
    status = int(code) if re.fullmatch("[45][0-9]{2}", code) else None
    kind = "an error inside HTTP 200" + (f" (code {status})" if status else "")
    # The fault gets no status, because the request was answered and may be billed.
    raise refusal(kind, {"error": error}, status)


def _tokens(usage: dict[str, Any]) -> _Counts | None:
    """Return the token counts of a reply, or None if it doesn't report the counts of prompt
    (which is never 0) and completion. Raises Fault if one of these two is invalid; no answer is
    lost for the others.
    """
    prompt, written = map(_count, map(usage.get, _USED))
    if INVALID in (prompt, written):
        raise Fault(f"expected token usage of 0 to {MOST_TOKENS:,}, found an invalid count")
    if not prompt or written is None:
        return None
    known = _detail(usage.get("prompt_tokens_details"), "cached_tokens")
    known = known or _detail(usage, "prompt_cache_hit_tokens")  # DeepSeek's name
    thought = _detail(usage.get("completion_tokens_details"), "reasoning_tokens")
    # xAI and Gemini count reasoning separately, Gemini in the total only.
    beyond = max(0, _detail(usage, "total_tokens") - prompt - written)
    return prompt, written + beyond, max(thought, beyond), known


def _count(value: Any) -> int | None:
    """Return a count, None if it isn't reported, or INVALID."""
    if value is None:
        return None
    try:
        found = INVALID if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return INVALID
    return found if 0 <= found <= MOST_TOKENS else INVALID


def _detail(counts: Any, name: str) -> int:
    """Return one of these counts, or 0 if it isn't reported or is invalid."""
    return max(0, _count(counts.get(name)) or 0) if isinstance(counts, dict) else 0
