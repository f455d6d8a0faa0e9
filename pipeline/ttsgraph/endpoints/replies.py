"""Parsing of endpoints' replies by an accumulator of deltas; a complete reply is a single delta."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
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

_CUT = re.compile("length|max[a-z]*tokens|tokenlimit|errorlimit|contextwindow|truncat")
"""Pattern that is found in the finish_reason of a cut answer, reduced to lower-case letters. The
values come from OpenAI, TGI, Mistral and llama.cpp; Anthropic and Gemini; watsonx; and Cohere.
"""

_ENDED = {"stop", "eos", "eostoken", "stopsequence", "endturn", "complete", "completed"}
"""Values of finish_reason with which an answer may be empty, besides the values for a cut answer;
an answer with text needs none of them.
"""

FAILED = {
    *("error", "abort", "aborted", "cancelled", "canceled", "timeout", "failed"),
    *("networkerror", "servererror", "overloaded", "insufficientsystemresource"),
}
"""Values of finish_reason with which a server reports that it could not finish the answer."""

_LINES = re.compile(rb"\r\n|\n|\r(?!\Z)")
_BLANK = b" \t\xef\xbb\xbf"
"""Bytes around a field's name: blanks, and a byte order mark."""

_FIELDS = (b"", b"event", b"id", b"retry")
"""Field names of events other than data; a comment has the empty name."""

_COUNTS = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
"""Names of the token counts of prompt and completion: OpenAI's names, then Anthropic's."""

NOT_JSON = "expected JSON, but the reply is not JSON"
_NO_CHOICES = "expected an answer with choices, found none"
_NO_TEXT = "expected a text answer, found none"
_NO_CALLS = "expected tool calls with a name and arguments, but they are malformed"


async def values_in(pieces: AsyncIterator[bytes]) -> AsyncGenerator[Any]:
    """Yield the JSON values of server-sent events as they arrive, or the JSON value of a body
    without events.

    An empty piece ends the body. Comments and events that aren't JSON are skipped, and blank lines
    between events may be missing. Raises Fault if there is no value at all.
    """
    rest = data = b""
    others: list[bytes] = []
    found = done = False
    async for piece in pieces:
        rest += piece or b"\n"
        if piece and b"\n" not in piece and b"\r" not in piece:
            continue  # searching the whole line again at each piece would take quadratic time
        *lines, rest = _LINES.split(rest)
        for line in lines:
            name, _, value = line.partition(b":")
            name = name.strip(_BLANK)
            if name != b"data":
                others += [] if name in _FIELDS else [line]
                data = data if line.strip() else b""  # a blank line ends an event
                continue
            data += value.strip()
            if done := data == b"[DONE]":
                break
            with suppress(ValueError, RecursionError):  # an event may span several lines
                each = _parsed(data)
                data = b""
                found = True
                yield each
        if done:
            break
    if not found and (others or not done):
        try:
            yield _parsed(b"\n".join(others))
        except (ValueError, RecursionError):
            raise Fault(NOT_JSON) from None


def _parsed(data: bytes) -> Any:
    """Parse JSON, with U+FFFD in place of bytes that aren't UTF-8."""
    try:
        return json.loads(data)
    except UnicodeDecodeError:
        return json.loads(data.decode(errors="replace"))


class ReplyReader:
    """Accumulator of the reply to one request; `on_piece` receives each part that can be shown.

    The text is cut at the first stop sequence, because some servers ignore stop sequences. A
    request with a form gets choices, as the endpoint sent them.
    """

    def __init__(self, request: Request, on_piece: OnPiece | None = None) -> None:
        self._request = request
        self._most = request.sampling.max_tokens
        self._form = request.form is not None
        self._stop = () if self._form else request.sampling.stop
        self._on_piece = on_piece
        self._choices: dict[int, _Choice] = {}
        self._usage: Mapping[str, Any] = {}
        self._refusal = SILENT
        self._whole = False

    def add(self, data: Any) -> None:
        """Add a body or chunk. Raises Fault if it is an error or malformed."""
        parts = data if isinstance(data, Mapping) else {}
        found = parts.get("choices")
        choices = found if isinstance(found, list) else []
        if not choices and not self._refusal.meaning:
            self._refusal = meaning_of(data)
        self._count(parts)
        _check_error(parts, choices)
        for choice in choices if self._form else choices[:1]:
            if isinstance(choice, Mapping):
                self._count(choice)  # Moonshot puts usage into a stream's choices
                self._add_choice(choice)

    def _count(self, data: Mapping[str, Any]) -> None:
        """Keep the token usage, unless all its counts are missing or zero."""
        usage = data.get("usage")
        if isinstance(usage, Mapping) and any(map(usage.get, chain(*_COUNTS))):
            self._usage = usage

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        self._whole = self._whole or "message" in choice
        delta = choice.get("message") or choice.get("delta")
        if delta is None and "text" in choice:  # the format of /v1/completions
            delta = {"content": choice["text"]}
        index = (_number(choice.get("index")) or 0) if self._form else 0
        if not isinstance(delta, Mapping | None) or not isinstance(index, int):
            raise Fault(_NO_CHOICES)
        known = index in self._choices
        growing = self._choices.setdefault(index, _Choice(self._form))
        piece = growing.add(delta, choice)
        if len(growing.raw) > 1000 + LONGEST_TOKEN * self._most:
            raise Fault(
                f"expected an answer of at most {self._most} tokens, found"
                f" {len(growing.raw)} characters"
            )
        if self._on_piece is None:
            return
        if self._form and not known:
            piece = {"role": "assistant"} | ({"content": ""} if growing.said else {}) | piece
        self._show(index, growing.shown(self._stop), piece, choice.get("logprobs"))

    def _show(
        self, index: int, text: str, more: dict[str, Any] | None = None, logprobs: Any = None
    ) -> None:
        """Pass a further part of a choice to `on_piece`, unless it is empty."""
        delta = (more or {}) | ({"content": text} if text else {})
        logprobs = logprobs if self._form else None
        if self._on_piece is not None and (delta or logprobs is not None):
            self._on_piece({"index": index, "delta": delta, "logprobs": logprobs})

    def completion(self, latency_s: float) -> Completion:
        """Return the completion once everything has arrived. Raises Fault, with the token counts if
        they are known, if the reply is unusable.
        """
        try:
            return self._completion(latency_s)
        except Fault as fault:
            with suppress(Fault):
                fault.tokens = _counts(self._usage)
            raise

    def _completion(self, latency_s: float) -> Completion:
        if not self._choices:
            raise Fault(_NO_CHOICES, refusal=self._refusal)
        choices = sorted(self._choices.items())
        for index, choice in choices:
            choice.finish()
            if not self._whole and choice.reason is None and _counts(self._usage) is None:
                raise Fault("expected a finish_reason or token usage, but the stream ended first")
            stopped = cut_at_stop(choice.text, self._stop)
            choice.cut = choice.cut and stopped == choice.text
            choice.text = stopped
            if stopped.startswith(choice.seen) and not choice.refusal:
                self._show(index, stopped.removeprefix(choice.seen))
        thoughts = "\n".join(choice.reasoning for _, choice in choices if choice.reasoning)
        first = choices[0][1]
        if not self._form:
            if first.refusal:
                raise Fault(
                    "expected an answer, found a refusal", refusal=Refusal("filter", first.refusal)
                )
            return self._completed(first.text, thoughts, latency_s, first.cut)
        whole = [choice.whole(index) for index, choice in choices]
        found = self._completed(whole_text(text_of(whole[0]["message"])), thoughts, latency_s)
        return replace(found, choices=json.dumps(whole))

    def _completed(
        self, text: str, reasoning: str, latency_s: float, cut: bool = False
    ) -> Completion:
        """Return a completion with the endpoint's token counts, or estimates.

        Without counts, tokens are estimated from the texts, or from the bound that cut the answer;
        unreported reasoning tokens are estimated from the reasoning's share of the characters.
        Raises Fault if the counts are invalid.
        """
        usage = self._usage
        counts = _counts(usage)
        if counts is None:
            known = 0
            thought = estimate_tokens(reasoning)
            prompt = estimated_prompt(self._request.messages)
            written = self._most if cut else TURN_TOKENS + estimate_tokens(text) + thought
        else:
            prompt, written = counts
            known = _detail(usage.get("prompt_tokens_details"), "cached_tokens") or _detail(
                usage, "prompt_cache_hit_tokens"
            )
            thought = _detail(usage.get("completion_tokens_details"), "reasoning_tokens")
            # xAI and Gemini count reasoning separately, Gemini in the total only.
            if (beyond := _detail(usage, "total_tokens") - prompt - written) > 0:
                thought, written = max(thought, beyond), _count(written + beyond)
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
            estimated=counts is None,
        )


@dataclass
class _Choice:
    """Accumulator of one choice; tool calls are kept only for a request with a form."""

    form: bool
    heard: bool = False
    called: bool = False
    odd: bool = False
    raw: str = ""
    said: bool = False
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    reason: Any = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: dict[str, list[Any]] = field(default_factory=dict)
    seen: str = ""
    cut: bool = False
    _at: dict[Any, int] = field(default_factory=dict)
    _new: str = ""
    _held: str = ""
    _begun: bool = False

    def add(self, delta: Mapping[str, Any] | None, choice: Mapping[str, Any]) -> dict[str, Any]:
        """Add a delta; return its parts other than text, for display. Raises Fault if it is
        malformed.
        """
        self.heard = self.heard or delta is not None
        delta = delta or {}
        content, thought = content_of(delta)
        if isinstance(content, list):  # parts without text, such as references
            self.odd, content = True, ""
        if content is not None and not isinstance(content, str):
            raise Fault(_NO_TEXT)
        self._new = content or ""
        self.raw += self._new
        self.said = self.said or content is not None
        self.reasoning += thought
        self.reason = choice.get("finish_reason") or self.reason
        piece: dict[str, Any] = {}
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self.refusal += refusal
            piece |= {"refusal": refusal} if self.form else {}
        if calls := delta.get(CALLS):
            self.called = True
            if self.form:
                piece[CALLS] = self._add_calls(calls)
        if isinstance(logprobs := choice.get("logprobs"), Mapping):
            for name, found in logprobs.items():
                if isinstance(found, list):
                    self.logprobs.setdefault(name, []).extend(found)
        return piece

    def _add_calls(self, calls: Any) -> list[dict[str, Any]]:
        if not isinstance(calls, list):
            raise Fault(_NO_CALLS)
        pieces = []
        for place, call in enumerate(calls):
            function = call.get("function") if isinstance(call, Mapping) else None
            if not isinstance(function, Mapping):
                raise Fault(_NO_CALLS)
            index = call.get("index")
            at = self._at.get(index := place if index is None else index)
            named = call.get("id") and function.get("name")
            # Gemini gives all calls of a stream index 0: a new id and name start another call.
            if at is None or (named and self.calls[at].get("id") not in (None, call["id"])):
                at = self._at[index] = len(self.calls)
                self.calls.append({"function": {"name": "", "arguments": ""}})
            more = {name: call[name] for name in ("id", "type") if call.get(name)}
            self.calls[at] |= more
            parts = {name: _as_text(function.get(name)) for name in ("name", "arguments")}
            for name, text in parts.items():
                self.calls[at]["function"][name] += text
            shown = {name: text for name, text in parts.items() if text}
            pieces.append({"index": at, **more, "function": shown})
        return pieces

    def shown(self, stop: tuple[str, ...]) -> str:
        """Return the next part of the text that can be shown, without reasoning and without a
        possible start of a stop sequence.
        """
        if self._begun:
            self._held += self._new
        elif not begun(self.raw):
            self._held = without_thoughts(self.raw)[0]
            self._begun = self._held != ""
        held = self._held
        ends = [at for at in map(held.find, stop) if at >= 0]
        for each in (*stop, *END_MARKS):  # hold back a possible start of a stop sequence
            begins = (n for n in range(len(each), 0, -1) if held.endswith(each[:n]))
            ends += [len(held) - n for n in islice(begins, 1)]
        if "\ud800" <= held[-1:] <= "\udbff":
            ends.append(len(held) - 1)  # half of a surrogate pair
        end = min(ends, default=len(held))
        self._held = held[end:]
        piece = whole_text(held[:end])
        self.seen += piece
        return piece

    def finish(self) -> None:
        """Separate answer and reasoning once everything has arrived. Raises Fault if the choice is
        not a model's answer.
        """
        self.text, within = without_thoughts(without_end(whole_text(self.raw)))
        separate = whole_text(self.reasoning)
        self.reasoning = "\n".join(part for part in (separate, within) if part)
        reason = self.reason
        name = _name(reason) if isinstance(reason, str) else ""
        self.cut = _CUT.search(name) is not None
        if separate and not (self.raw.strip() or self.cut or self.called or self.refusal):
            # Some servers, such as vLLM with its parsers, send the whole answer as reasoning if the
            # model did not reason.
            self.text, self.reasoning = separate, ""
        if self.called or self.refusal:
            return
        shown = reason if isinstance(reason, str) and reason.isidentifier() else "an unknown value"
        kind = f"expected finish_reason stop or length, found {shown[:40].lower()}"
        if isinstance(reason, str) and is_filter(reason):
            raise Fault(kind, refusal=Refusal("filter", f"finish_reason {reason.lower()}"))
        if name in FAILED:
            raise Fault(kind)
        if not (self.cut or (self.heard and (self.text or not self.odd))):
            raise Fault(_NO_TEXT)
        if not (self.text or self.cut or name in _ENDED):
            empty = "expected an answer, found an empty one without finish_reason stop or length"
            raise Fault(empty if name in ("", "toolcalls", "functioncall") else kind)

    def whole(self, index: int) -> dict[str, Any]:
        """Return the choice as plain data. Raises Fault if a tool call has no name."""
        content = self.text if self.text or self.said else None
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content,
            "refusal": self.refusal or None,
        }
        if self.calls:
            if not all(call["function"]["name"] for call in self.calls):
                raise Fault(_NO_CALLS)
            message |= {CALLS: self.calls}
        ending = {"finish_reason": self.reason, "logprobs": self.logprobs or None}
        return {"index": index, "message": message, **ending}


@lru_cache(maxsize=64)
def _name(reason: str) -> str:
    """Return a finish_reason reduced to lower-case letters."""
    return re.sub(r"[^a-z]", "", reason.lower())


def _as_text(value: Any) -> str:
    """Return a part of a tool call as text; llama.cpp and TGI have sent arguments as an object."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _check_error(data: Mapping[str, Any], choices: Sequence[Any]) -> None:
    """Raise Fault if the reply contains an error instead of an answer. If the error names a status,
    that status classifies the fault.
    """
    first = choices[0] if choices and isinstance(choices[0], Mapping) else {}
    error = data.get("error") or first.get("error")
    if not (any(error.values()) if isinstance(error, Mapping) else error):
        return
    code = _number(error.get("code")) if isinstance(error, Mapping) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    kind = "an error inside HTTP 200" + (f" (code {status})" if status else "")
    refusal = meaning_of({"error": error}, status)
    # The fault gets no status, because the request was answered and may be billed.
    raise Fault(kind, refusal=refusal) if status is None else fault_of_status(status, kind, refusal)


def _counts(counts: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the token counts of prompt and completion, or None if they aren't reported. Raises
    Fault if they are invalid.
    """
    pairs = (tuple(_number(counts.get(name)) for name in names) for names in _COUNTS)
    prompt, written = next((pair for pair in pairs if None not in pair), (0, 0))
    return None if prompt == 0 else (_count(prompt), _count(written))


def _number(value: Any) -> Any:
    """Return a short string of digits as a number, and any other value unchanged."""
    short = isinstance(value, str) and value.isdecimal() and len(value) < 10
    return int(value) if short else value


def _count(number: Any) -> int:
    """Return a valid token count as an integer. Raises Fault if the count is invalid."""
    whole = isinstance(number, int | float) and not isinstance(number, bool)
    if not (whole and 0 <= number <= MOST_TOKENS and number == int(number)):
        raise Fault(f"expected token usage of 0 to {MOST_TOKENS:,}, found an invalid count")
    return int(number)


def _detail(counts: Any, name: str) -> int:
    number = counts.get(name) if isinstance(counts, Mapping) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


def estimated_prompt(messages: Sequence[Message]) -> int:
    """Return the estimated number of tokens in a prompt."""
    return sum(TURN_TOKENS + estimate_tokens(each.whole or each.content) for each in messages)
