"""An answer to a request with a form: its choices as the endpoint gives them, whole or in pieces.

Unlike a text, it may refuse, and call tools. What a model thinks before it answers is left out as
it is of a text.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ttsgraph.endpoints.answers import check_finish, check_letters, completed, first_choice, json_of
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.models.actions import CALLS, text_of
from ttsgraph.models.client import Completion, Sampling, whole_text
from ttsgraph.models.reasoning import Thoughts, parted

_TEXTS = ("role", "content", "refusal")
_ODD = "expected choices with messages, found something else"


def read_choices(body: bytes, latency_s: float, sampling: Sampling) -> Completion:
    """The choices of a response's body. Raises Fault for a body that holds none that can be
    used.
    """
    data = json_of(body)
    if first_choice(data) is None:
        raise Fault("expected an answer with choices, found none")
    thoughts = []
    choices = []
    for index, choice in enumerate(data["choices"]):
        if not isinstance(choice, Mapping) or not isinstance(choice.get("message"), Mapping):
            raise Fault(_ODD)
        text, thought = parted(choice["message"])
        message = {name: choice["message"].get(name) for name in _TEXTS} | {"role": "assistant"}
        message["content"] = text
        if calls := choice["message"].get(CALLS):
            message[CALLS] = calls
        told = {"finish_reason": choice.get("finish_reason"), "logprobs": choice.get("logprobs")}
        choices.append({"index": index, "message": message, **told})
        thoughts.append(thought)
    return _completion(choices, "\n".join(filter(None, thoughts)), data, latency_s, sampling)


async def read_choice_stream(
    chunks: AsyncIterator[Any],
    sampling: Sampling,
    started: float,
    on_piece: Callable[[dict[str, Any]], object],
) -> Completion:
    """The same of an answer that comes in pieces; `on_piece` gets {index, delta, logprobs} of each
    as it comes. Raises Fault as `read_choices`.
    """
    parts: dict[int, _Growing] = {}
    last: dict[str, Any] = {}
    async for chunk in chunks:
        first_choice(chunk)  # for the error that may stand in its place
        if not isinstance(chunk, Mapping):
            continue
        last["usage"] = chunk.get("usage") or last.get("usage")
        for choice in chunk.get("choices") or ():
            if (piece := _piece(choice, parts)) is not None:
                check_letters(parts[piece["index"]].letters, sampling)
                on_piece(piece)
    for index, growing in parts.items():
        if rest := growing.thoughts.rest():
            growing.add({"content": rest}, None)
            on_piece({"index": index, "delta": {"content": rest}, "logprobs": None})
    choices = [growing.whole(index) for index, growing in sorted(parts.items())]
    if not choices:
        raise Fault("expected an answer with choices, found none")
    thoughts = "\n".join(part.thoughts.reasoning for part in parts.values())
    return _completion(choices, thoughts.strip(), last, time.monotonic() - started, sampling)


def _piece(choice: Any, parts: dict[int, _Growing]) -> dict[str, Any] | None:
    """What a chunk adds to one choice, and can be shown; None where it only ends it."""
    if not isinstance(choice, Mapping) or not isinstance(delta := choice.get("delta") or {}, dict):
        raise Fault(_ODD)
    index = choice.get("index") or 0
    if not isinstance(index, int):
        raise Fault(_ODD)
    begins = index not in parts
    growing = parts.setdefault(index, _Growing())
    growing.reason = choice.get("finish_reason") or growing.reason
    shown = {name: delta[name] for name in (*_TEXTS, CALLS) if name in delta}
    if isinstance(text := shown.get("content"), str) and text:
        shown["content"] = growing.thoughts.add(text)
        if not shown["content"]:
            del shown["content"]
    elif text is not None and not isinstance(text, str):
        raise Fault("expected an answer as text, found something else")
    if begins:
        shown = {"role": "assistant"} | shown
    logprobs = choice.get("logprobs")
    growing.add(shown, logprobs)
    if not shown and logprobs is None:
        return None
    return {"index": index, "delta": shown, "logprobs": logprobs}


@dataclass
class _Growing:
    """One choice of which pieces have come."""

    texts: dict[str, str | None] = field(default_factory=dict)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    logprobs: dict[str, list[Any]] = field(default_factory=dict)
    reason: Any = None
    letters: int = 0
    thoughts: Thoughts = field(default_factory=Thoughts)

    def add(self, delta: Mapping[str, Any], logprobs: Any) -> None:
        """Take in a piece. Raises Fault for one of another shape."""
        for name in ("content", "refusal"):
            if isinstance(piece := delta.get(name), str):
                self.texts[name] = (self.texts.get(name) or "") + piece
                self.letters += len(piece)
        for place, call in enumerate(delta.get(CALLS) or ()):
            if not isinstance(call, Mapping):
                raise Fault(_ODD)
            self._call(call.get("index", place), call)
        if isinstance(logprobs, Mapping):
            for name, found in logprobs.items():
                self.logprobs.setdefault(name, []).extend(found or ())

    def _call(self, index: Any, piece: Mapping[str, Any]) -> None:
        call = self.calls.setdefault(index, {"function": {"name": "", "arguments": ""}})
        call |= {name: piece[name] for name in ("id", "type") if piece.get(name)}
        function = piece.get("function") or {}
        for name in ("name", "arguments"):
            if isinstance(said := function.get(name), str):
                call["function"][name] += said
                self.letters += len(said)

    def whole(self, index: int) -> dict[str, Any]:
        """The choice."""
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        message |= self.texts
        if self.calls:
            message[CALLS] = [call for _, call in sorted(self.calls.items())]
        more = {"finish_reason": self.reason, "logprobs": self.logprobs or None}
        return {"index": index, "message": message, **more}


def _completion(
    choices: list[dict[str, Any]],
    thoughts: str,
    data: Mapping[str, Any],
    latency_s: float,
    sampling: Sampling,
) -> Completion:
    """Checked, and with what the endpoint counted."""
    for choice in choices:
        message = choice["message"]
        content = message["content"]
        calls = message.get(CALLS) or ()
        if content is not None and not isinstance(content, str):
            raise Fault("expected an answer as text, found something else")
        if not isinstance(calls, list | tuple) or not all(map(_is_call, calls)):
            raise Fault("expected calls of tools with a name and arguments, found something else")
        if not calls and not message.get("refusal"):
            check_finish(choice["finish_reason"], bool(content))
        letters = len(content or "") + sum(len(call["function"]["arguments"]) for call in calls)
        check_letters(letters, sampling)
    text = whole_text(text_of(choices[0]["message"]))
    found = completed(text, whole_text(thoughts), data.get("usage"), latency_s)
    return replace(found, choices=json.dumps(choices))


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    return isinstance(function, Mapping) and all(
        isinstance(function.get(name), str) for name in ("name", "arguments")
    )
