"""An answer that comes piece by piece."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from ttsgraph.endpoints.answers import (
    check_finish,
    check_letters,
    completed,
    counts_in,
    first_choice,
    is_cut,
)
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.models.client import Completion, Sampling, whole_text
from ttsgraph.models.reasoning import Thoughts, beside


async def read_stream(
    chunks: AsyncIterator[Any], sampling: Sampling, started: float, on_text: Callable[[str], object]
) -> Completion:
    """The completion whose chunks these are, as plain data; `on_text` gets its text, up to the
    first stop sequence, as it comes.

    Raises Fault as `completion_of` does for an answer that comes whole.
    """
    text = StoppedText(sampling.stop)
    thoughts = Thoughts()
    told = ""
    half = ""
    usage = None
    reason = None
    async for chunk in chunks:
        choice = first_choice(chunk) or {}
        usage = (chunk.get("usage") if isinstance(chunk, dict) else None) or usage
        reason = choice.get("finish_reason") or reason
        delta = _delta(choice)
        told += beside(delta)
        content, half = _joined(half, delta.get("content") or "")
        if piece := text.add(thoughts.add(content)):
            check_letters(len(text.shown), sampling)
            on_text(piece)
    if piece := text.add(thoughts.add(whole_text(half)) + thoughts.rest()) + text.rest():
        on_text(piece)
    check_finish(reason, bool(text.shown) or text.stopped)
    if reason is None and not counts_in(usage):  # it broke off
        raise Fault("expected the answer's token usage, found none")
    cut = is_cut(reason) and not text.stopped
    reasoning = whole_text(told) + thoughts.reasoning
    return completed(text.shown, reasoning, usage, time.monotonic() - started, cut)


def _delta(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a chunk adds, its content a text if there is any. Raises Fault for a refusal, and for
    what is no text.
    """
    delta = choice.get("delta") or {}
    if not isinstance(delta, dict) or not isinstance(delta.get("content") or "", str):
        raise Fault("expected an answer as text, found something else")
    if delta.get("refusal"):
        raise Fault("expected an answer, found a refusal", retry=False)
    return delta


def _joined(half: str, content: str) -> tuple[str, str]:
    """Text that can be shown, and the half of a surrogate pair at its end whose other half may yet
    come.
    """
    content = half + content
    cut = len(content) - (content[-1:] != "" and "\ud800" <= content[-1] <= "\udbff")
    return whole_text(content[:cut]), content[cut:]


class StoppedText:
    """A text that grows, shown up to the first stop sequence; what may yet turn out to begin one is
    held back.
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        self.shown = ""
        self.stopped = False
        self._stop = stop
        self._held = ""

    def add(self, piece: str) -> str:
        """Add a piece; returns what can be shown now."""
        if self.stopped:
            return ""
        self._held += piece
        end = self._end()
        unsure = len(self._held) - self._unsure()
        # A stop sequence within a longer one that may yet come does not end the text before that
        # one is ruled out.
        self.stopped = end <= unsure and end < len(self._held)
        return self._show(min(end, unsure))

    def rest(self) -> str:
        """Nothing more comes: what was held back, if the text did not stop."""
        return "" if self.stopped else self._show(self._end())

    def _end(self) -> int:
        """Where the first stop sequence begins, or the length of what is held."""
        return min(
            (at for at in map(self._held.find, self._stop) if at >= 0), default=len(self._held)
        )

    def _unsure(self) -> int:
        """Characters at the end that begin a stop sequence."""
        longest = max((len(stop) - 1 for stop in self._stop), default=0)
        ends = (
            n
            for n in range(min(longest, len(self._held)), 0, -1)
            if any(s.startswith(self._held[-n:]) for s in self._stop)
        )
        return next(ends, 0)

    def _show(self, count: int) -> str:
        piece = self._held[:count]
        self._held = self._held[count:]
        self.shown += piece
        return piece
