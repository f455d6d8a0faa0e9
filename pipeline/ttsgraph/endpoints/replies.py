"""Parsing of endpoints' replies by an accumulator of deltas; a complete reply is a single delta."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ttsgraph.endpoints.endpoints import Fault, fault_of_status
from ttsgraph.endpoints.refusals import SILENT, Refusal, is_filter, meaning_of
from ttsgraph.models.actions import CALLS, text_of
from ttsgraph.models.client import (
    Completion,
    Message,
    OnPiece,
    Request,
    cut_at_stop,
    estimate_tokens,
    whole_text,
)
from ttsgraph.models.reasoning import END_MARKS, begun, content_of, without_end, without_thoughts

LONGEST_TOKEN = 128
"""Maximum length of a token in characters; the longest tokens of current vocabularies are runs of
spaces.
"""

MOST_TOKENS = 10**8
"""Maximum token count of one call: larger than any model's context, so a higher count is an error.
"""

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

_COUNTS = ("prompt_tokens", "completion_tokens")

NOT_JSON = "expected JSON, but the reply is not JSON"
_NO_CHOICES = "expected an answer with choices, found none"


class ValueReader:
    """Splitter of a body into JSON values, each passed to `take` as soon as it has arrived: the
    data of server-sent events, or the whole body. `done`: the events have ended.

    Comments and events that aren't JSON are skipped; blank lines between events may be missing.
    """

    def __init__(self, take: Callable[[Any], object]) -> None:
        self.done = False
        self._take = take
        self._found = False
        self._rest: list[bytes] = []
        self._data = b""
        self._others: list[bytes] = []

    def add(self, piece: bytes) -> None:
        """Add the next piece of the body."""
        self._rest.append(piece)
        if b"\n" in piece:  # joining a long line again at each piece would take quadratic time
            *lines, rest = b"".join(self._rest).split(b"\n")
            self._rest = [rest]
            for line in lines:
                self._add_line(line)

    def end(self) -> None:
        """Read the rest of the body. Raises Fault if the body contains no value at all."""
        self._add_line(b"".join(self._rest))
        if not self._found:
            try:
                value = _parsed(b"\n".join(self._others))
            except (ValueError, RecursionError):
                raise Fault(NOT_JSON) from None
            self._take(value)

    def _add_line(self, line: bytes) -> None:
        line = line.strip()
        if not line.startswith(b"data:"):
            self._others += [] if line.startswith(b":") else [line]  # without comments
            self._data = self._data if line else b""  # a blank line ends an event
            return
        self._data += line.removeprefix(b"data:").strip()
        self.done = self.done or self._data == b"[DONE]"
        try:
            value = _parsed(self._data)
        except (ValueError, RecursionError):
            return  # an event may span several lines
        self._data = b""
        if not self.done:
            self._found = True
            self._take(value)


def _parsed(data: bytes) -> Any:
    """Parse JSON, with U+FFFD in place of bytes that aren't UTF-8."""
    return json.loads(data.decode("utf-8-sig", "replace"))


class ReplyReader:
    """Accumulator of the reply to one request. `on_piece` receives each part that can be shown;
    `shown` is True once it has received one.

    The text is cut at the first stop sequence, because some servers ignore stop sequences. A
    request with a form gets choices, as the endpoint sent them.
    """

    def __init__(self, request: Request, on_piece: OnPiece | None = None) -> None:
        self.shown = False
        self._request = request
        self._form = request.form is not None
        self._stop = () if self._form else request.sampling.stop
        self._on_piece = on_piece
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] = {}
        self._other: Any = None
        self._whole = False

    def add(self, data: Any) -> None:
        """Add a body or chunk. Raises Fault if it is an error or malformed."""
        parts = data if isinstance(data, dict) else {}
        found = parts.get("choices")
        listed = found if isinstance(found, list) else []
        choices = [each for each in listed if isinstance(each, dict)]
        if not choices:
            self._other = self._other or data
        for place in (parts, *choices):  # Moonshot puts usage into a stream's choices
            usage = place.get("usage")
            if isinstance(usage, dict) and any(map(usage.get, _COUNTS)):
                self._usage = usage
            _check_error(place.get("error"))
        for choice in choices if self._form else choices[:1]:
            self._add_choice(choice)

    def _add_choice(self, choice: dict[str, Any]) -> None:
        self._whole = self._whole or "message" in choice
        delta = choice.get("message") or choice.get("delta")
        if delta is None and "text" in choice:  # the format of /v1/completions
            delta = {"content": choice["text"]}
        index = _detail(choice, "index") if self._form else 0
        if not isinstance(delta, dict | None):
            raise Fault(_NO_CHOICES)
        first = index not in self._choices
        growing = self._choices.setdefault(index, _Choice())
        more = growing.add(delta, choice)
        if first:
            more |= {"role": "assistant"} | ({"content": ""} if growing.said else {})
        most = self._request.sampling.max_tokens
        if len(growing.raw) > 1000 + LONGEST_TOKEN * most:
            raise Fault(f"expected an answer of at most {most} tokens, found a longer one")
        if self._on_piece is not None:
            self._show(index, growing.next_text(self._stop), more, choice.get("logprobs"))

    def _show(
        self, index: int, text: str, more: dict[str, Any] | None = None, logprobs: Any = None
    ) -> None:
        """Pass a further part of a choice to `on_piece`, unless it is empty; for a request without
        a form, that is text.
        """
        delta = (more or {}) if self._form else {}
        delta |= {"content": text} if text else {}
        logprobs = logprobs if self._form else None
        if self._on_piece is not None and (delta or logprobs is not None):
            self.shown = True
            self._on_piece({"index": index, "delta": delta, "logprobs": logprobs})

    @property
    def tokens(self) -> tuple[int, int] | None:
        """Token counts of prompt and completion, or None if they are unknown or invalid."""
        with suppress(Fault):
            return _counts(self._usage)
        return None

    def completion(self, latency_s: float) -> Completion:
        """Return the completion once everything has arrived. Raises Fault if the reply is
        unusable.
        """
        if not self._choices:
            raise Fault(_NO_CHOICES, refusal=meaning_of(self._other))
        usage = self._usage
        counts = _counts(usage)
        choices = sorted(self._choices.items())
        for index, choice in choices:
            choice.finish(self._stop)
            if not self._whole and choice.reason is None and counts is None:
                raise Fault("expected a finish_reason or token usage, but the stream ended first")
            if choice.text.startswith(choice.seen) and not choice.refusal:
                self._show(index, choice.text.removeprefix(choice.seen))
        first = choices[0][1]
        if first.refusal and not self._form:
            refusal = Refusal("filter", first.refusal)
            raise Fault("expected an answer, found a refusal", refusal=refusal)
        whole = [choice.whole(index) for index, choice in choices] if self._form else []
        text = whole_text(text_of(whole[0]["message"])) if whole else first.text
        cut = first.cut and not whole
        thoughts = "\n".join(choice.reasoning for _, choice in choices if choice.reasoning)
        known = thought = 0
        if counts is None:  # estimate tokens from the texts, or the bound that cut the answer
            thought = estimate_tokens(thoughts)
            prompt = estimated_prompt(self._request.messages)
            written = TURN_TOKENS + estimate_tokens(text) + thought
            written = self._request.sampling.max_tokens if cut else written
        else:
            prompt, written = counts
            known = _detail(usage, "prompt_tokens_details", "cached_tokens")
            known = known or _detail(usage, "prompt_cache_hit_tokens")  # DeepSeek's name
            thought = _detail(usage, "completion_tokens_details", "reasoning_tokens")
            # xAI and Gemini count reasoning separately, Gemini in the total only.
            beyond = max(0, _detail(usage, "total_tokens") - prompt - written)
            thought, written = max(thought, beyond), written + beyond
            if not thought and thoughts:  # not reported: the reasoning's share of the characters
                thought = round(written * len(thoughts) / (len(thoughts) + len(text)))
        return Completion(
            text,
            prompt,
            written,
            latency_s,
            reasoning=thoughts,
            reasoning_tokens=min(thought, written),
            known_tokens=min(known, prompt),
            choices=json.dumps(whole) if whole else "",
            cut=cut,
            estimated=counts is None,
        )


@dataclass(slots=True)
class _Choice:
    """Accumulator of one choice. `said`: it has text, though perhaps an empty one. `odd`: it has
    parts that aren't text. `seen` is the text that was returned for display.
    """

    raw: str = ""
    said: bool = False
    odd: bool = False
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    reason: Any = None
    cut: bool = False
    calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: dict[str, list[Any]] = field(default_factory=dict)
    seen: str = ""
    _at: dict[int, int] = field(default_factory=dict)
    _new: str = ""
    _held: str = ""
    _begun: bool = False

    def add(self, delta: dict[str, Any] | None, choice: dict[str, Any]) -> dict[str, Any]:
        """Add a delta, and return its parts other than text, for display."""
        self.odd = self.odd or delta is None
        delta = delta or {}
        content, thought = content_of(delta)
        if isinstance(content, str):
            self.said = True
        else:
            self.odd = self.odd or content is not None  # such as references
            content = ""
        self._new = content
        self.raw += content
        self.reasoning += thought
        self.reason = choice.get("finish_reason") or self.reason
        piece: dict[str, Any] = {}
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self.refusal += refusal
            piece["refusal"] = refusal
        if calls := self._add_calls(delta.get(CALLS)):
            piece[CALLS] = calls
        if isinstance(logprobs := choice.get("logprobs"), dict):
            for name, found in logprobs.items():
                if isinstance(found, list):
                    self.logprobs.setdefault(name, []).extend(found)
        return piece

    def _add_calls(self, calls: Any) -> list[dict[str, Any]]:
        """Add parts of tool calls, and return them in normal form; skip malformed ones."""
        pieces = []
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                continue
            index = call["index"] if isinstance(call.get("index"), int) else place
            at = self._at.get(index)
            named = call.get("id") and function.get("name")
            # Gemini gives all calls of a stream index 0: a new id and name start another call.
            if at is None or (named and self.calls[at].get("id") not in (None, call["id"])):
                at = self._at[index] = len(self.calls)
                self.calls.append({"function": {"name": "", "arguments": ""}})
            more = {name: call[name] for name in ("id", "type") if call.get(name)}
            parts = {name: _as_text(function.get(name)) for name in ("name", "arguments")}
            self.calls[at] |= more
            for name, text in parts.items():
                self.calls[at]["function"][name] += text
            shown = {name: text for name, text in parts.items() if text}
            pieces.append({"index": at, **more, "function": shown})
        return pieces

    def next_text(self, stop: tuple[str, ...]) -> str:
        """Return the next part of the text that can be shown, without reasoning and without a
        possible start of a stop sequence.
        """
        if self._begun:
            self._held += self._new
        elif not begun(self.raw):
            self._held = without_thoughts(self.raw)[0]
            self._begun = self._held != ""
        found = _withheld(stop).search(self._held)
        end = found.start() if found else len(self._held)
        piece = whole_text(self._held[:end])
        self._held = self._held[end:]
        self.seen += piece
        return piece

    def finish(self, stop: tuple[str, ...]) -> None:
        """Separate answer and reasoning once everything has arrived. Raises Fault if the choice is
        not a model's answer.
        """
        self.calls = [call for call in self.calls if call["function"]["name"]]
        ending = _ending(str(self.reason)[:80])
        text, within = without_thoughts(without_end(whole_text(self.raw)))
        separate = whole_text(self.reasoning)
        self.reasoning = "\n".join(filter(None, (separate, within)))
        acts = self.calls or self.refusal
        if separate and not (self.raw.strip() or ending == "cut" or acts):
            # Some servers, such as vLLM with its parsers, send the whole answer as reasoning if the
            # model did not reason.
            text, self.reasoning = separate, ""
        self.text = cut_at_stop(text, stop)
        self.cut = ending == "cut" and self.text == text
        if acts or ending == "cut":
            return
        reason = str(self.reason)
        shown = reason[:40].lower() if reason.isidentifier() else "an unknown value"
        if ending in ("filter", "failed"):
            refusal = Refusal("filter", f"finish_reason {reason.lower()}")
            raise Fault(
                f"expected finish_reason stop or length, found {shown}",
                refusal=refusal if ending == "filter" else SILENT,
            )
        if not self.text and (self.odd or ending != "ended"):
            raise Fault(f"expected a text answer, found none, with finish_reason {shown}")

    def whole(self, index: int) -> dict[str, Any]:
        """Return the choice as plain data."""
        # Beside calls, some servers send null and others an empty text: clients get what was sent.
        empty = "" if self.said or not (self.calls or self.refusal) else None
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.text or empty,
            "refusal": self.refusal or None,
        }
        message |= {CALLS: self.calls} if self.calls else {}
        ending = {"finish_reason": self.reason, "logprobs": self.logprobs or None}
        return {"index": index, "message": message, **ending}


@lru_cache(maxsize=64)
def _ending(reason: str) -> str:
    """Return the meaning of a finish_reason: "filter", one in _ENDINGS, or "" if it has none."""
    if is_filter(reason):
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
    if not (any(error.values()) if isinstance(error, dict) else error):
        return
    code = str(error.get("code")) if isinstance(error, dict) else ""
    status = int(code) if re.fullmatch("[45][0-9]{2}", code) else None
    kind = "an error inside HTTP 200" + (f" (code {status})" if status else "")
    refusal = meaning_of({"error": error}, status)
    # The fault gets no status, because the request was answered and may be billed.
    raise Fault(kind, refusal=refusal) if status is None else fault_of_status(status, kind, refusal)


def _counts(usage: dict[str, Any]) -> tuple[int, int] | None:
    """Return the token counts of prompt and completion, or None if they aren't reported. Raises
    Fault if they are invalid.
    """
    prompt, written = (_count(usage, name) for name in _COUNTS)
    return (prompt, written) if prompt and written is not None else None


def _count(usage: dict[str, Any], *path: str) -> int | None:
    """Return a count in the usage, or None if it isn't reported. Raises Fault if it is invalid."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return None
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool) and 0 <= int(value) <= MOST_TOKENS:
            return int(value)
    raise Fault(f"expected token usage of 0 to {MOST_TOKENS:,}, found an invalid count")


def _detail(usage: dict[str, Any], *path: str) -> int:
    """Return a count that no answer is lost for, or 0 if it isn't reported or is invalid."""
    with suppress(Fault):
        return _count(usage, *path) or 0
    return 0


def estimated_prompt(messages: Sequence[Message]) -> int:
    """Return the estimated number of tokens in a prompt."""
    return sum(TURN_TOKENS + estimate_tokens(each.whole or each.content) for each in messages)
