"""Learning a model's dialect from refusals: a refused request is retried in another form, and
the accepted form is kept.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, TypeVar

from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.endpoints.refusals import SETTLED, Refusal
from ttsgraph.models.dialect import FORMS, Dialect

REFUSED_WITHIN_S = 0.1
"""Seconds within which a refusal usually arrives; other attempts wait no longer for the first one.
"""

LEAST_BOUND = 512
"""Smallest token bound to which a refused bound is halved."""

_LEAST_MISSED = ("stream_options", "seed", "top_p", "reasoning_effort", "stop", "temperature")
"""Optional parameters, the most dispensable first; if an error names several, the first of them is
left out first.
"""

_FORM = (400, 413, 422)

T = TypeVar("T")
log = logging.getLogger(__name__)


def after(dialect: Dialect, refusal: Refusal, sent: Mapping[str, Any]) -> Dialect:
    """Return the dialect to try after a refusal of the body `sent`, or the same one if the refusal
    doesn't suggest another.
    """
    if refusal.meaning == "system" and _has_system(sent) and dialect.system:
        return replace(dialect, system=False)
    if refusal.meaning in ("full", "less room"):
        return _with_lower_bound(dialect, refusal, sent)
    if refusal.meaning in ("parameter", "system"):
        names = (dialect.bound, *(name for name in _LEAST_MISSED if name in sent))
        named = [name for name in names if name and refusal.names(name)]
        return replace(dialect, left_out=dialect.left_out.union(named[:1]))
    return dialect


def _with_lower_bound(dialect: Dialect, refusal: Refusal, sent: Mapping[str, Any]) -> Dialect:
    """Return the dialect with a lower token bound: the largest one that the server names, if it is
    at least half of the requested bound, otherwise that half. If the server names no such bound and
    the half is below LEAST_BOUND, return the dialect unchanged.
    """
    asked = sent.get(dialect.bound, 0) if dialect.bound else 0
    named = [int(number) for number in re.findall(r"\d+", refusal.words)]
    half = asked // 2 if asked // 2 >= LEAST_BOUND else dialect.most_tokens
    most = max((each for each in named if asked / 2 <= each < asked), default=half)
    return replace(dialect, most_tokens=most)


def _with_less(dialect: Dialect, sent: Mapping[str, Any]) -> Dialect:
    """Return the next simpler dialect after a refusal without details: without one more parameter,
    with the other name of the token bound, or without a system message; unchanged if it can't be
    simplified further.
    """
    named = [name for name in (*_LEAST_MISSED, "max_tokens") if name in sent]
    if named:
        return replace(dialect, left_out=dialect.left_out.union(named[:1]))
    return replace(dialect, system=dialect.system and not _has_system(sent))


@dataclass
class LearnedDialect:
    """Dialect of one model: at first the profile's, then updated to what the endpoint accepts, and
    saved by `keep`.
    """

    where: str
    dialect: Dialect
    keep: Callable[[Dialect], None]
    known: bool = False
    _first: asyncio.Event | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Guard one attempt: while the first attempt is in flight, later ones wait briefly for its
        result.
        """
        if self._first is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._first.wait(), REFUSED_WITHIN_S)
        if self.known or self._first is not None:
            yield
            return
        self._first = first = asyncio.Event()
        taught = False  # a refused prompt, busy server or cancelled call teaches nothing
        try:
            yield
            taught = True
        except Fault as fault:
            taught = not fault.retry
            raise
        finally:
            self.known = taught
            self._first = None
            first.set()

    async def send(
        self,
        body: Callable[[Dialect], dict[str, Any]],
        post: Callable[[dict[str, Any]], Awaitable[T]],
        schema: bool = False,
        guess: bool = True,
    ) -> tuple[T, float]:
        """Send a request in the forms that `body` gives until the endpoint accepts one; return the
        answer and the start of that attempt (monotonic seconds).

        Until the endpoint has answered once, each refusal without details simplifies the request by
        one step, unless `guess` is False; the form of an answer with a `schema` may be weakened at
        any time. Raises the Fault of `post` if the refusal is final or nothing is left to remove.
        """
        dialect = self.dialect
        first: Fault | None = None
        full = False
        while True:
            sent = body(dialect)
            started = monotonic()
            try:
                answer = await post(sent)
                break
            except Fault as fault:
                if fault.status not in _FORM or fault.meaning in SETTLED:
                    raise (fault if fault.meaning in SETTLED else first or fault) from None
                full = full or fault.meaning == "full"
                other = after(dialect, fault.refusal, sent)
                if other == dialect and fault.meaning != "full":
                    first = first or fault
                    if schema and dialect.form != "text":
                        other = replace(dialect, form=FORMS[FORMS.index(dialect.form) + 1])
                    elif guess and not self.known:
                        other = _with_less(dialect, sent)
                if other == dialect:
                    other = dialect.joined(self.dialect)  # learned by another call in the meantime
                if other == dialect:
                    raise first or fault from None
                dialect = other
        if full and _long(sent["messages"], dialect.most_tokens):
            # This long prompt left no more room, but shorter prompts may.
            dialect = replace(dialect, most_tokens=self.dialect.most_tokens)
        self._settle(dialect)
        return answer, started

    def _settle(self, dialect: Dialect) -> None:
        if dialect is self.dialect or (joined := self.dialect.joined(dialect)) == self.dialect:
            return
        self.dialect = joined
        line = "%s refuses or ignores parts of the requests; requests are now sent %s"
        log.warning(line, self.where, joined.words)
        self.keep(joined)


def _has_system(body: Mapping[str, Any]) -> bool:
    return any(message["role"] == "system" for message in body["messages"])


def _long(messages: Sequence[Mapping[str, Any]], bound: int | None) -> bool:
    """Return True if a prompt may take more than half of the answer's token bound, at 4 characters
    per token.
    """
    letters = sum(len(str(message["content"])) for message in messages)
    return bound is not None and letters / 4 > bound / 2
