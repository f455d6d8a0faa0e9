"""Spending of a search across all its starts, and limits on it.

Only calls that are actually made count. Before a call starts, its worst case is reserved: at most
as many tokens as its prompt has bytes (no tokenizer produces more), and the maximum number of
tokens in its answer, or more if an answer of its model has exceeded its maximum. Estimated counts
are multiplied by ESTIMATED. If a process is killed, the next start counts each call that was in
flight as CAUTION times the mean answered call, or as its reservation if none was answered. Time is
measured in the searching processes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import NonNegativeFloat, NonNegativeInt, ValidationError

from ttsgraph.base.errors import DataError, LimitReached, PromptRefused
from ttsgraph.base.files import checked_json, checked_text, locked, write_text
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.evaluation.progress import Expense
from ttsgraph.models import client as calling
from ttsgraph.models.client import OUTGOING, Completion, OutgoingRequests, Request
from ttsgraph.models.recording import Calls
from ttsgraph.pool.spec import ModelPool, Price
from ttsgraph.settings.stages import LimitSettings

NOTED_SHARE = 0.01
"""Share of a limit that is recorded as spent in advance; a kill loses no more than two of these."""

ROUNDING = 1e-9
NO_SPENDING = Expense()

OVERHEAD_TOKENS = 64
"""Tokens reserved for a prompt's roles and turns, in addition to its texts."""

ESTIMATED = 1.1
"""Factor on estimated tokens and dollars, so that limits hold although tokenizers differ."""

CAUTION = 2.0
"""Multiple of the mean answered call that is counted for each call in flight, because calls that
are still in flight tend to be longer than answered ones.
"""

TOLD_MARGIN = 1.5
"""Upper bound on tokens per byte of later prompts, as a multiple of the highest ratio that the
endpoint has reported so far.
"""


class _AccountFile(ClosedModel, allow_inf_nan=False):
    """Content of an account's file."""

    identity: str
    dollars: NonNegativeFloat
    tokens: NonNegativeInt
    wall_s: NonNegativeFloat


@dataclass(frozen=True, slots=True)
class Account:
    """File with the spending of one search; a file that belongs to a search with a different
    `identity` counts as empty.
    """

    path: Path
    identity: str

    def read(self) -> Expense:
        """Return the spending so far. Raises DataError if the file is invalid: starting at zero
        would lift the limits.
        """
        if not self.path.exists():
            return NO_SPENDING
        try:
            noted = _AccountFile.model_validate(checked_json(self.path, "search"))
        except (DataError, ValidationError):
            raise DataError(
                f"{self.path}: expected the spending of this stage, but the file is damaged;"
                " delete the file to start again as if nothing had been spent"
            ) from None
        mine = noted.identity == self.identity
        return Expense(noted.dollars, noted.tokens, noted.wall_s) if mine else NO_SPENDING

    def write(self, spent: Expense) -> None:
        """Write the spending atomically."""
        write_text(self.path, checked_text({"identity": self.identity, **spent._asdict()}))

    @contextmanager
    def metered(self, limits: LimitSettings, tell: Callable[[Expense], None]) -> Iterator[Meter]:
        """Yield a meter for the spending of the search, over all starts. Raises InputError if a
        second process makes its calls at the same time, because it would pay for the same ones, and
        DataError if the file is invalid.
        """
        with locked(self.path.with_suffix("")):
            yield Meter(limits, self.read(), self.write, tell)


def project_account(state: Path) -> Account:
    """Return the account of all spending in a project's state folder."""
    return Account(state / "spent.json", "project")


@dataclass(eq=False)
class Meter:
    """Meter of a search's spending, including the spending `before` this start.

    `note` receives the spending, including the likely cost of calls in flight, occasionally and on
    `note_now`; `tell` receives the spending after each change.
    """

    limits: LimitSettings
    before: Expense = NO_SPENDING
    note: Callable[[Expense], None] = lambda spent: None
    tell: Callable[[Expense], None] = lambda spent: None
    _held: Expense = NO_SPENDING
    _under_way: int = 0
    _answers: int = 0
    _answered: Expense = NO_SPENDING
    _refused: bool = False
    _started: float = field(default_factory=time.monotonic)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # first come, first served
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._paid = self._noted = self.before  # paid: without the time, which is measured
        self._dollars = self.limits.dollars or math.inf
        self._tokens = self.limits.tokens or math.inf

    @property
    def spent(self) -> Expense:
        """Total spending so far."""
        return self._paid + Expense(wall_s=time.monotonic() - self._started)

    def pay(self, completion: Completion, dollars: float) -> None:
        """Count a call that cost `dollars`, unless it came from the cache."""
        if not completion.cached:
            spent = counted(completion, dollars)
            self._answers += 1
            self._answered += spent
            self.add(spent)

    def add(self, spent: Expense) -> None:
        """Count spent dollars and tokens. Seconds must be 0, because the meter measures them."""
        self._paid += spent
        self.tell(self.spent)
        self._keep()

    async def reserve(self, most: Expense) -> None:
        """Reserve `most`, the worst case of a call, until `release`.

        While the worst case doesn't fit into the remaining limits, the call waits for calls in
        flight, first come, first served. Raises LimitReached if it doesn't fit and no call is in
        flight, so that the search ends without cutting off a call.
        """
        async with self._turn:
            while self._refused or not self._has_room(most):
                self._refused = self._refused or not self._under_way
                if self._refused:
                    raise self.stop(most)
                self._freed.clear()
                await self._freed.wait()
            self._under_way += 1
            self._held += most
            self._keep()

    def release(self, most: Expense) -> None:
        """Give back what `reserve` reserved for a call that has ended."""
        self._under_way -= 1
        self._held = self._held - most if self._under_way else NO_SPENDING
        self._freed.set()

    def lost(self, most: Expense) -> None:
        """Count a failed attempt, which may be billed, as `most`. Raises LimitReached if another
        attempt would not fit.
        """
        self.add(most)
        if not self._fits(self._held):
            raise self.stop(most)

    @property
    def _likely(self) -> Expense:
        """Estimated cost of the calls in flight; it would count if the process ended now."""
        if not self._answers:
            return self._held
        share = CAUTION * self._under_way / self._answers
        dollars = min(self._held.dollars, share * self._answered.dollars)
        return Expense(dollars, min(self._held.tokens, math.ceil(share * self._answered.tokens)))

    def _has_room(self, most: Expense) -> bool:
        """Return True if `most` can be reserved; together, reservations never exceed half of the
        remaining limits, unless there is only one.
        """
        held = self._held + most
        return self._fits(held) and (not self._under_way or self._fits(held + held))

    def _fits(self, more: Expense) -> bool:
        """Return True if `more` can be spent."""
        needed = self._paid + more
        return needed.dollars <= self._dollars * (1 + ROUNDING) and needed.tokens <= self._tokens

    def _keep(self) -> None:
        """Record the spending if the last record is too far from it; record slightly more, so that
        records are seldom necessary.
        """
        spent = self._paid + self._likely
        tokens = math.ceil(NOTED_SHARE * (self.limits.tokens or spent.tokens))
        step = Expense(NOTED_SHARE * (self.limits.dollars or spent.dollars), tokens)
        more = self._noted - spent
        if not (0 <= more.dollars <= 2 * step.dollars and 0 <= more.tokens <= 2 * step.tokens):
            self.note_now(step)

    def note_now(self, more: Expense = NO_SPENDING) -> None:
        """Record the current spending, including the likely cost of calls in flight, and `more`."""
        self._noted = self.spent + self._likely + more
        self.note(self._noted)

    @property
    def over(self) -> bool:
        """True if dollars or tokens have reached their limit."""
        return self._paid.dollars >= self._dollars or self._paid.tokens >= self._tokens

    def stop(self, most: Expense = NO_SPENDING) -> LimitReached:
        """Return the error that names the limits reached, including those that the next call would
        reach if it spent `most`.
        """
        spent, more = self.spent._asdict(), most._asdict()
        reached = " and ".join(
            f"limits.{name} of {limit:g} reached ({spent[name]:.6g} spent)"
            for name, limit in self.limits.model_dump(exclude_none=True).items()
            if spent[name] + more[name] >= limit
        )
        if most.tokens:
            reached += f"; the next call may take ${most.dollars:.2g} and {most.tokens:,} tokens"
        return LimitReached(
            f"{reached}; computed results are kept; raise the limit and run again to continue"
        )

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Limit a block to the remaining time. Raises LimitReached if the time is up or a limit was
        already reached.
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


def counted(completion: Completion, dollars: float) -> Expense:
    """Return the dollars and tokens that count against the limits for a call."""
    tokens = completion.prompt_tokens + completion.completion_tokens
    factor = ESTIMATED if completion.estimated else 1
    return Expense(factor * dollars, math.ceil(factor * tokens))


class MeteredClient(calling.Client):
    """Client that counts each call on a meter, and starts no call whose worst case doesn't fit into
    the limits.
    """

    def __init__(self, inner: calling.Client, meter: Meter, pool: ModelPool) -> None:
        self.inner = inner
        self.meter = meter
        self._pool = pool
        self._told: dict[str, tuple[float, float]] = {}
        """Tokens per byte of prompts, and the longest answer as a multiple of its bound, by model;
        each is the highest so far.
        """

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """Return the completion, or an awaitable for it. Raises LimitReached, here or when awaited,
        if the call doesn't fit into the limits.
        """
        found = self.inner.begin(request)
        if not isinstance(found, Completion):
            return calling.Deferred(partial(self._wait, request, found))
        if self.meter.over and not found.cached:
            raise self.meter.stop()
        return self._paid(request, found)

    async def _wait(self, request: Request, call: Awaitable[Completion]) -> Completion:
        per_byte, beyond = self._told.get(request.model, (1.0, 1.0))
        read = OVERHEAD_TOKENS + math.ceil(per_byte * _bytes_of(request))
        written = math.ceil(beyond * request.sampling.max_tokens)
        price = self._pool[request.model].price
        most = Expense(_dearest(price, read, written), read + written)  # of one attempt

        def lose(tokens: tuple[int, int] | None) -> None:
            """Count a failed attempt, as the call's full reservation if its tokens are unknown."""
            self.meter.lost(Expense(_dearest(price, *tokens), sum(tokens)) if tokens else most)

        await self.meter.reserve(most)
        requests = OutgoingRequests(lost=lose)
        counting = OUTGOING.set(requests)
        try:
            return self._paid(request, await call)
        except asyncio.CancelledError:
            if requests.begun > requests.ended:
                self.meter.add(most)
            raise
        finally:
            OUTGOING.reset(counting)
            self.meter.release(most)

    def _paid(self, request: Request, completion: Completion) -> Completion:
        ratio = TOLD_MARGIN * completion.prompt_tokens / max(1, _bytes_of(request))
        per_byte, beyond = self._told.get(request.model, (0.0, 1.0))
        written = completion.completion_tokens / max(1, request.sampling.max_tokens)
        self._told[request.model] = max(per_byte, min(1.0, ratio)), max(beyond, written)
        self.meter.pay(completion, self._pool[request.model].price.of(completion))
        return completion


def lines_of(calls: Calls) -> Iterator[str]:
    """Yield report lines about refused prompts, cut answers and estimated token counts."""
    for model in sorted({call.model for call in calls.values()}):
        outcomes = [call.outcome for call in calls.values() if call.model == model]
        answers = [each for each in outcomes if isinstance(each, Completion)]
        if refused := [each for each in outcomes if isinstance(each, PromptRefused)]:
            yield (
                f"{model}: its provider refuses {len(refused)} of {len(refused) + len(answers)}"
                f' prompts ("{refused[0].said}"); they are not sent again, and count as missing,'
                " not as wrong"
            )
        if cut := sum(each.cut for each in answers):
            yield (
                f"{model}: {cut} of {len(answers)} answers cut at the token limit; each is asked"
                f" for once more, with {calling.ROOM} times the tokens, and then graded as it is;"
                " raise sampling.max_tokens"
            )
        if estimated := sum(each.estimated for each in answers):
            yield (
                f"{model}: its endpoint reports no token counts for {estimated} of {len(answers)}"
                f" calls; tokens and costs are estimated, and count {ESTIMATED} times against"
                " limits"
            )


def _dearest(price: Price, read: int, written: int) -> float:
    """Return the highest price of these token counts in dollars: each generated token is charged as
    reasoning if that costs more.
    """
    return (price.prompt * read + max(price.completion, price.reasoning or 0.0) * written) / 1e6


def _bytes_of(request: Request) -> int:
    size = len(request.form or "") + sum(map(len, request.schema or ()))
    for message in request.messages:
        text = message.whole or message.content
        size += len(text if text.isascii() else text.encode("utf-8", "replace"))
    return size
