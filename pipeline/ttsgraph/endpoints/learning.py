"""What an endpoint's refusals teach: read from its errors, tried at once, and kept when it has
answered. Apart from `dialect`, which settings read without the slow `openai` package.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, TypeVar

import openai

from ttsgraph.base.errors import PromptRefused
from ttsgraph.base.secrets import redact_pieces
from ttsgraph.endpoints.endpoints import Fault
from ttsgraph.endpoints.transport import OVERFLOW, refuses, said_by
from ttsgraph.models.dialect import Dialect, Refusal

_REFUSING = (400, 422)
REFUSED_WITHIN_S = 0.1
"""A refusal comes at once: an attempt under way for longer holds up no other."""

LONGEST_SAID = 200
"""Characters of a server's words that an error shows."""

T = TypeVar("T")
log = logging.getLogger(__name__)


def refusal_of(error: Exception) -> Refusal | None:
    """What a server says that refuses the request's form (HTTP 400, 422); else None."""
    if not isinstance(error, openai.APIStatusError) or error.status_code not in _REFUSING:
        return None
    if refuses(error):
        return None
    return _read(said_by(error))


def said_in(error: Exception, secrets: Sequence[str] | None = None) -> str:
    """The server's own words in an error, in one line without secrets; "" where there are none."""
    words = error.said if isinstance(error, Fault) else ""
    if isinstance(error, openai.APIStatusError):
        words = _read(said_by(error)).words
    shown = "".join(letter if letter.isprintable() else " " for letter in words)
    line = redact_pieces(" ".join(shown.split()), secrets)
    return line if len(line) <= LONGEST_SAID else f"{line[:LONGEST_SAID]} ..."


def _read(text: str) -> Refusal:
    """The words of an error in OpenAI's, vLLM's or FastAPI's shape, or in plain text."""
    param = None
    words: Any
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        words = "" if text.lstrip().startswith("<") else text  # a page of HTML says nothing
    else:
        words = data.get("error", data) if isinstance(data, dict) else data
        if isinstance(words, Mapping):
            param = words.get("param")
            words = words.get("message") or words.get("detail") or words
    known = isinstance(param, str) and param not in ("", "None")  # LiteLLM's None is text
    plain = words if isinstance(words, str) else json.dumps(words)
    return Refusal(plain[:2000], param if known else None)


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
    ) -> tuple[T, float]:
        """What the endpoint answers, without what it refuses, and when it was asked for that
        (monotonic seconds). Until it has answered once, a refusal that names nothing is met with
        less and less. Raises what `post` raised first when nothing is left to leave out.
        """
        dialect = self.dialect
        first = None
        overflowed = False
        while True:
            sent = body(dialect)
            started = monotonic()
            try:
                answer = await post(sent)
            except openai.APIStatusError as error:
                refusal = refusal_of(error)
                if refusal is None:
                    raise (error if first is None or refuses(error) else first) from None
                fits = not OVERFLOW.search(said_by(error))
                other = dialect.after(refusal, sent)
                if other is None and (refusal.of_bound or not fits):
                    other = dialect.with_lower_bound(refusal, sent)
                    overflowed = overflowed or not fits
                if other in (None, dialect) and fits and not self.known:
                    first = first or error
                    other = dialect.with_less(sent)
                if other is None or other == dialect:
                    raise first or error from None
                dialect = other
            else:
                if overflowed and _long(sent["messages"], dialect.most_tokens):
                    # no room for more next to this prompt, which says nothing of others
                    dialect = replace(dialect, most_tokens=self.dialect.most_tokens)
                self._settle(dialect)
                return answer, started

    def leave_out(self, parameter: str) -> None:
        """The endpoint takes no notice of a parameter."""
        self._settle(replace(self.dialect, left_out=self.dialect.left_out | {parameter}))

    def _settle(self, dialect: Dialect) -> None:
        if dialect is self.dialect or (joined := self.dialect.joined(dialect)) == self.dialect:
            return
        self.dialect = joined
        said = "%s refuses or ignores some of what it is asked with; it is asked %s"
        log.warning(said, self.where, joined.words)
        self.keep(joined)


def _long(messages: Sequence[Mapping[str, Any]], bound: int | None) -> bool:
    """Whether a prompt may take over half as many tokens as its answer, at 4 letters each."""
    letters = sum(len(str(message["content"])) for message in messages)
    return bound is not None and letters / 4 > bound / 2
