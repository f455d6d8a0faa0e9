"""An answer that comes piece by piece."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic import BaseModel

from pipeline.models.client import Completion, Sampling
from pipeline.models.endpoints import Fault
from pipeline.models.reasoning import Thoughts, beside, finer_usage

LONGEST_TOKEN = 128
"""Characters; the longest tokens of today's vocabularies are runs of so many blanks."""


async def read_stream(
    chunks: AsyncIterator[Any], sampling: Sampling, started: float, on_text: Callable[[str], object]
) -> Completion:
    """The completion whose chunks these are; `on_text` gets its text, up to the first stop sequence, as it comes.

    Raises Fault for one without usage, and for one far longer than what was asked for.
    """
    text, thoughts, told, usage = StoppedText(sampling.stop), Thoughts(), "", None
    async for chunk in chunks:
        usage = chunk.usage or usage
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        told += beside(vars(delta) | (getattr(delta, "model_extra", None) or {}))
        if piece := text.add(thoughts.add(delta.content or "")):
            check_length(text.shown, sampling)
            on_text(piece)
    if piece := text.add(thoughts.rest()) + text.rest():
        on_text(piece)
    if usage is None:
        raise Fault("expected the answer's token usage, found none")
    reasoning = told + thoughts.reasoning
    prompt, written = usage.prompt_tokens, usage.completion_tokens
    plain = usage.model_dump() if isinstance(usage, BaseModel) else vars(usage)
    written, known, thought = finer_usage(plain, prompt, written, text.shown, reasoning)
    return Completion(text.shown, prompt, written, time.monotonic() - started, False, reasoning, thought, known)


def check_length(text: str, sampling: Sampling) -> None:
    """Raises Fault for a text far longer than what was asked for."""
    if len(text) > 1000 + LONGEST_TOKEN * sampling.max_tokens:
        raise Fault(f"expected an answer of at most {sampling.max_tokens} tokens, found {len(text)} characters")


class StoppedText:
    """A text that grows, shown up to the first stop sequence; what may yet turn out to begin one is held back."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        self.shown = ""
        self._stop, self._held, self._stopped = stop, "", False

    def add(self, piece: str) -> str:
        """Add a piece; returns what can be shown now."""
        if self._stopped:
            return ""
        self._held += piece
        end, unsure = self._end(), len(self._held) - self._unsure()
        # A stop sequence within a longer one that may yet come does not end the text before that one is ruled out.
        self._stopped = end <= unsure and end < len(self._held)
        return self._show(min(end, unsure))

    def rest(self) -> str:
        """Nothing more comes: what was held back, if the text did not stop."""
        return "" if self._stopped else self._show(self._end())

    def _end(self) -> int:
        """Where the first stop sequence begins, or the length of what is held."""
        return min((at for at in map(self._held.find, self._stop) if at >= 0), default=len(self._held))

    def _unsure(self) -> int:
        """Characters at the end that begin a stop sequence."""
        longest = max((len(stop) - 1 for stop in self._stop), default=0)
        ends = (n for n in range(min(longest, len(self._held)), 0, -1) if any(s.startswith(self._held[-n:]) for s in self._stop))
        return next(ends, 0)

    def _show(self, count: int) -> str:
        piece, self._held = self._held[:count], self._held[count:]
        self.shown += piece
        return piece
