"""How a model wants to be asked, learnt from refusals: tried at once, and kept when it has
answered.
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

from ttsgraph.base.errors import PromptRefused
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.endpoints.refusals import SETTLED, Refusal
from ttsgraph.models.dialect import FORMS, Dialect

REFUSED_WITHIN_S = 0.1
"""A refusal comes at once: an attempt under way for longer holds up no other."""

LEAST_BOUND = 512
"""A bound on tokens that is refused is not halved to fewer than these."""

_LEAST_MISSED = ("stream_options", "seed", "top_p", "reasoning_effort", "stop", "temperature")
"""Parameters that can be left out; where an error names several, the first of these goes first."""

_FORM = (400, 413, 422)

T = TypeVar("T")
log = logging.getLogger(__name__)


def after(dialect: Dialect, refusal: Refusal, sent: Mapping[str, Any]) -> Dialect | None:
    """Return how to ask after a refusal of this body, if it tells."""
    if refusal.meaning == "system" and dialect.system and _has_system(sent):
        return replace(dialect, system=False)
    if refusal.meaning in ("full", "less room"):
        return _with_lower_bound(dialect, refusal, sent)
    if refusal.meaning in ("parameter", "system"):
        names = (dialect.bound, *(name for name in _LEAST_MISSED if name in sent))
        named = next((name for name in names if name and refusal.names(name)), None)
        return replace(dialect, left_out=dialect.left_out | {named}) if named else None
    return None


def _with_lower_bound(
    dialect: Dialect, refusal: Refusal, sent: Mapping[str, Any]
) -> Dialect | None:
    """Return the same with the bound that the server names, if it is at least half of what was
    asked, else with half; nothing where half is too few.
    """
    asked = sent.get(dialect.bound, 0) if dialect.bound else 0
    named = [int(number) for number in re.findall(r"\d+", refusal.words)]
    most = max((each for each in named if asked / 2 <= each < asked), default=None)
    if most is None and asked // 2 >= LEAST_BOUND:
        most = asked // 2
    return None if most is None else replace(dialect, most_tokens=most)


def _with_less(dialect: Dialect, sent: Mapping[str, Any]) -> Dialect | None:
    """Return how to ask after a refusal that names nothing: without one more parameter, with the
    other name for the bound, without a system message.
    """
    if name := next((name for name in (*_LEAST_MISSED, "max_tokens") if name in sent), None):
        return replace(dialect, left_out=dialect.left_out | {name})
    return replace(dialect, system=False) if dialect.system and _has_system(sent) else None


@dataclass
class Learned:
    """How one model wants to be asked: by its profile, then by what its endpoint took (`keep`)."""

    where: str
    dialect: Dialect
    keep: Callable[[Dialect], None]
    known: bool = False
    _first: asyncio.Event | None = None

    @property
    def settled(self) -> bool:
        """Whether no attempt has to wait for what comes of another one."""
        return self.known and self._first is None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """For one attempt; while the first is under way, others wait for what it teaches."""
        if self._first is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._first.wait(), REFUSED_WITHIN_S)
        if self.known or self._first is not None:
            yield
            return
        self._first = first = asyncio.Event()
        taught = True
        try:
            yield
        except PromptRefused:  # which says nothing of how the model wants to be asked
            taught = False
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
        """Return the endpoint's answer, without what it refuses, and when it was asked for that
        (monotonic seconds). Until it has answered once, a refusal that names nothing is met with
        less and less, unless it may not `guess`, and always with a weaker form of a `schema`.
        Raises what `post` raised first when nothing is left to leave out.
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
                    settled = fault.meaning in SETTLED
                    raise (fault if first is None or settled else first) from None
                full = full or fault.meaning == "full"
                other = after(dialect, fault.refusal, sent)
                if other in (None, dialect) and fault.meaning != "full":
                    first = first or fault
                    if schema and dialect.form != "text":
                        other = replace(dialect, form=FORMS[FORMS.index(dialect.form) + 1])
                    elif guess and not self.known:
                        other = _with_less(dialect, sent)
                if other is None or other == dialect:
                    other = dialect.joined(self.dialect)  # which another call has learnt meanwhile
                if other == dialect:
                    raise first or fault from None
                dialect = other
        if full and _long(sent["messages"], dialect.most_tokens):
            # no room for more next to this prompt, which says nothing of others
            dialect = replace(dialect, most_tokens=self.dialect.most_tokens)
        self._settle(dialect)
        return answer, started

    def _settle(self, dialect: Dialect) -> None:
        if dialect is self.dialect or (joined := self.dialect.joined(dialect)) == self.dialect:
            return
        self.dialect = joined
        said = "%s refuses or ignores some of what it is asked with; it is asked %s"
        log.warning(said, self.where, joined.words)
        self.keep(joined)


def _has_system(body: Mapping[str, Any]) -> bool:
    return any(message["role"] == "system" for message in body["messages"])


def _long(messages: Sequence[Mapping[str, Any]], bound: int | None) -> bool:
    """Return whether a prompt may take over half the tokens of its answer, at 4 letters each."""
    letters = sum(len(str(message["content"])) for message in messages)
    return bound is not None and letters / 4 > bound / 2
