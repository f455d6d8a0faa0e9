"""What a search really spends over all its starts, and the limits at which it stops.

Only calls that are made count, not those that the cache answers; their tokens and dollars count
when their answer arrives. The time is that of the processes that searched.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from ttsgraph.agent.base import AgentReply, Chat
from ttsgraph.base.errors import DataError, LimitReached
from ttsgraph.base.files import CHECKSUM, UNREADABLE, checked_text, checksum_of, write_text
from ttsgraph.evaluation.progress import Spent
from ttsgraph.models.client import Client, Completion, Deferred, Message, Request, Wrapper
from ttsgraph.pool.spec import ModelPool
from ttsgraph.settings.stages import LimitSettings

NOTED_SHARE = 0.01
"""Share of a limit after which what was spent is noted again: no more than that can be forgotten by
a crash.
"""


@dataclass(frozen=True, slots=True)
class Account:
    """A file that says what the search of this identity has spent; another search begins with
    nothing.
    """

    path: Path
    identity: str

    def read(self) -> Spent:
        """What is known to have been spent. Raises DataError when the file does not say so: to
        count from nothing would lift the limits, so a person has to.
        """
        if not self.path.exists():
            return Spent()
        try:
            noted = json.loads(self.path.read_text(encoding="utf-8"))
            checksum = noted.pop(CHECKSUM, None)
            identity = noted["identity"]
            spent = Spent(noted["dollars"], noted["tokens"], noted["wall_s"])
            whole = isinstance(identity, str) and all(
                0 <= float(value) < math.inf for value in asdict(spent).values()
            )
            whole = whole and checksum in (None, checksum_of(noted))
        except (*UNREADABLE, LookupError, TypeError, AttributeError, OverflowError):
            whole = False
        if not whole:
            raise DataError(
                f"{self.path}: expected what this search has spent, found something else; delete"
                " the file and start again, and the limits count from nothing"
            )
        return spent if identity == self.identity else Spent()

    def write(self, spent: Spent) -> None:
        """Note what was spent, whole or not at all."""
        write_text(self.path, checked_text({"identity": self.identity, **asdict(spent)}))


NO_SPENDING = Spent()


class Meter:
    """Adds up what a search spends, `before` included; `note` is told of it now and then, and by
    `note_now`, `tell` each time.
    """

    def __init__(
        self,
        limits: LimitSettings,
        before: Spent = NO_SPENDING,
        note: Callable[[Spent], None] = lambda spent: None,
        tell: Callable[[Spent], None] = lambda spent: None,
    ) -> None:
        self.limits = limits
        self._before = before
        self._note = note
        self._tell = tell
        self._dollars = before.dollars
        self._tokens = before.tokens
        self._started = time.monotonic()
        self._noted = before

    @property
    def spent(self) -> Spent:
        """All that was spent until now."""
        return Spent(
            self._dollars, self._tokens, self._before.wall_s + time.monotonic() - self._started
        )

    def pay(self, completion: Completion, dollars: float) -> None:
        """Count a call at this price, unless the cache answered it."""
        if not completion.cached:
            self.add(Spent(dollars, completion.prompt_tokens + completion.completion_tokens))

    def add(self, spent: Spent) -> None:
        """Count dollars and tokens that were spent; seconds pass here by themselves."""
        self._dollars += spent.dollars
        self._tokens += spent.tokens
        self._tell(self.spent)
        dollar_limit = self.limits.dollars
        token_limit = self.limits.tokens
        if (
            dollar_limit is not None
            and self._dollars - self._noted.dollars >= NOTED_SHARE * dollar_limit
        ) or (
            token_limit is not None
            and self._tokens - self._noted.tokens >= NOTED_SHARE * token_limit
        ):
            self.note_now()

    def note_now(self) -> None:
        """Have what was spent noted."""
        self._noted = self.spent
        self._note(self._noted)

    @property
    def over(self) -> bool:
        """Whether dollars or tokens have reached their limit."""
        limits = self.limits
        return (limits.dollars is not None and self._dollars >= limits.dollars) or (
            limits.tokens is not None and self._tokens >= limits.tokens
        )

    @property
    def left(self) -> LimitSettings:
        """Dollars and tokens that may still be spent, while it is not `over`."""
        dollars = self.limits.dollars
        tokens = self.limits.tokens
        return LimitSettings(
            dollars=None if dollars is None else dollars - self._dollars,
            tokens=None if tokens is None else tokens - self._tokens,
        )

    def stop(self) -> LimitReached:
        """The error that says which limit was reached."""
        spent = asdict(self.spent)
        reached = [
            f"limits.{name} of {limit:g} reached ({spent[name]:.6g} spent)"
            for name, limit in self.limits.model_dump().items()
            if limit is not None and spent[name] >= limit
        ]
        return LimitReached(
            f"{' and '.join(reached)}; what was computed is kept, raise the limit and start again"
            " to continue"
        )

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Ends the block when the time is up: raises LimitReached, as it does before the block when
        a limit was reached earlier.
        """
        if self.over:
            raise self.stop()
        left = None if self.limits.wall_s is None else self.limits.wall_s - self.spent.wall_s
        try:
            async with asyncio.timeout(left):
                yield
        except TimeoutError:
            if left is None or self.spent.wall_s < (self.limits.wall_s or 0.0):
                raise
            raise self.stop() from None
        finally:
            self.note_now()


class MeteredClient(Wrapper):
    """Pays for each call of another client, and makes none once a limit is reached.

    Calls under way then are paid for anyway, so the first one refused is told so when they have
    arrived.
    """

    def __init__(self, inner: Client, meter: Meter, pool: ModelPool) -> None:
        super().__init__(inner)
        self._meter = meter
        self._pool = pool
        self._under_way = 0
        self._idle = asyncio.Event()

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """The completion, or what to await for it. Raises LimitReached, here or when awaited,
        instead of making a call beyond a limit.
        """
        found = self._inner.begin(request)
        if not isinstance(found, Completion):
            return Deferred(partial(self._wait, request, found))
        if self._meter.over and not found.cached:
            raise self._meter.stop()
        return self._paid(request, found)

    async def _wait(self, request: Request, call: Awaitable[Completion]) -> Completion:
        if self._meter.over:
            while self._under_way:
                self._idle.clear()
                await self._idle.wait()
            raise self._meter.stop()
        self._under_way += 1
        try:
            return self._paid(request, await call)
        finally:
            self._under_way -= 1
            self._idle.set()

    def _paid(self, request: Request, completion: Completion) -> Completion:
        price = self._pool[request.model].price.of(completion)
        self._meter.pay(completion, price)
        return completion


def metered(speak: Chat, meter: Meter) -> Chat:
    """A way to an agent's model that pays for each answer, and asks nothing once a limit is
    reached.
    """

    def paying(messages: Sequence[Message], name: str, schema: str) -> AgentReply:
        if meter.over:
            raise meter.stop()
        reply = speak(messages, name, schema)
        meter.pay(reply.completion, reply.dollars)
        return reply

    return paying
