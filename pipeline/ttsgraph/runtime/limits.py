"""What a search really spends over all its starts, and the limits at which it stops.

Only calls that are made count. Before one starts, the most that it can take is held back: its
prompt's bytes, which no tokenizer makes more tokens of, and all tokens it may write. Estimates
count ESTIMATED times. Calls that were under way when a process was killed count on the next start
as CAUTION times as many answered ones, or as all that was held back for them where none had been
answered; the rest is given back. The time is that of the processes that searched.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeInt, ValidationError

from ttsgraph.base.errors import DataError, LimitReached, PromptRefused
from ttsgraph.base.files import checked_json, checked_text, locked, write_text
from ttsgraph.base.parsing import Closed
from ttsgraph.evaluation.progress import Spent
from ttsgraph.models.client import (
    OUTGOING,
    ROOM,
    AgentReply,
    Chat,
    Client,
    Completion,
    Deferred,
    Message,
    Outgoing,
    Request,
    Wrapper,
)
from ttsgraph.models.recording import Recorder
from ttsgraph.pool.spec import ModelPool, Price
from ttsgraph.settings.stages import LimitSettings

NOTED_SHARE = 0.01
"""Share of a limit noted beyond what may be spent: a crash loses no more than that."""

ROUNDING = 1e-9
NO_LIMITS = LimitSettings()

OVERHEAD_TOKENS = 64
"""Of a prompt beside its texts: roles and turns."""

ESTIMATED = 1.1
"""Factor on estimated tokens and dollars, so that limits hold where tokenizers differ."""

CAUTION = 2.0
"""Calls under way are longer than answered ones: those have ended."""

TOLD_MARGIN = 1.5
"""Tokens per byte of further prompts at most, as a multiple of those an endpoint counted."""


class _Noted(Closed):
    """What an account's file holds."""

    identity: str
    dollars: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    tokens: NonNegativeInt
    wall_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Account:
    """The file of what one search has spent; one of another identity begins with nothing."""

    path: Path
    identity: str

    def read(self) -> Spent:
        """What was spent. Raises DataError for no such file, as a start at nothing lifts limits."""
        if not self.path.exists():
            return Spent()
        try:
            noted = _Noted.model_validate(checked_json(self.path, "search"))
        except (DataError, ValidationError):
            raise DataError(
                f"{self.path}: expected what this search has spent, found something else; delete"
                " the file and start again, and the limits count from nothing"
            ) from None
        if noted.identity != self.identity:
            return Spent()
        return Spent(noted.dollars, noted.tokens, noted.wall_s)

    def write(self, spent: Spent) -> None:
        """Note what was spent, whole or not at all."""
        write_text(self.path, checked_text({"identity": self.identity, **asdict(spent)}))


PROJECT = "project"
NO_SPENDING = Spent()


@contextmanager
def project_meter(
    limits: LimitSettings, state: Path, tell: Callable[[Spent], None] = lambda spent: None
) -> Iterator[Meter]:
    """A meter whose limits are for all that is spent in a folder, over all starts. Raises
    InputError where another process spends there, DataError as `Account.read`.
    """
    with locked(state / "spending"):
        account = Account(state / "spent.json", PROJECT)
        yield Meter(limits, account.read(), account.write, tell)


class Meter:
    """Adds up what a search spends, `before` included; `note` is told of it now and then, with what
    is held back for calls under way, and by `note_now`, `tell` each time.
    """

    def __init__(
        self,
        limits: LimitSettings,
        before: Spent = NO_SPENDING,
        note: Callable[[Spent], None] = lambda spent: None,
        tell: Callable[[Spent], None] = lambda spent: None,
    ) -> None:
        self.limits = limits
        self._dollars = math.inf if limits.dollars is None else limits.dollars
        self._tokens = math.inf if limits.tokens is None else limits.tokens
        self._before = before
        self._note = note
        self._tell = tell
        self._paid = before  # but for the time, which passes by itself
        self._started = time.monotonic()
        self._noted = before
        self._held = NO_SPENDING
        self._under_way = 0
        self._answers = 0
        self._answered = NO_SPENDING
        self._refused = False
        self._turn = asyncio.Lock()  # first come first served
        self._freed = asyncio.Event()

    @property
    def spent(self) -> Spent:
        """All that was spent until now."""
        return self._paid + Spent(wall_s=time.monotonic() - self._started)

    @property
    def now(self) -> Spent:
        """What was spent since this start."""
        return self.spent - self._before

    def pay(self, completion: Completion, dollars: float) -> None:
        """Count a call at this price, unless the cache answered it."""
        if not completion.cached:
            spent = counted(completion, dollars)
            self._answers += 1
            self._answered += spent
            self.add(spent)

    def add(self, spent: Spent) -> None:
        """Count dollars and tokens that were spent; seconds pass here by themselves."""
        self._paid += replace(spent, wall_s=0.0)
        self._tell(self.spent)
        self._keep()

    async def hold(self, most: Spent) -> None:
        """Hold back the most that a call can take, until `release`; while that does not fit in what
        is left, wait for calls under way, first come first served. Raises LimitReached where none
        is: then the search ends, and no call is to be cut off under way.
        """
        async with self._turn:
            while not self._refused and not self._take(most):
                self._refused = not self._under_way
                if not self._refused:
                    self._freed.clear()
                    await self._freed.wait()
            if self._refused:
                raise self.stop(most)

    def release(self, most: Spent) -> None:
        """The call is over, and paid for."""
        self._under_way -= 1
        self._held = self._held - most if self._under_way else NO_SPENDING
        self._freed.set()

    def lost(self, most: Spent) -> None:
        """A failed attempt may be charged for. Raises LimitReached where no other one fits."""
        self.add(most)
        if not self._fits(NO_SPENDING):
            raise self.stop(most)

    @property
    def _likely(self) -> Spent:
        """What calls under way count as should the process end now."""
        if not self._answers:
            return self._held
        share = CAUTION * self._under_way / self._answers
        tokens = math.ceil(share * self._answered.tokens)
        dollars = min(self._held.dollars, share * self._answered.dollars)
        return Spent(dollars, min(self._held.tokens, tokens))

    def _fits(self, most: Spent) -> bool:
        needed = self._paid + self._held + most
        return needed.dollars <= self._dollars * (1 + ROUNDING) and needed.tokens <= self._tokens

    def _take(self, most: Spent) -> bool:
        """Begin a call if it fits; all together hold back half of what is left at most."""
        if not self._fits(most) or (self._under_way and not self._fits(self._held + most + most)):
            return False
        self._under_way += 1
        self._held += most
        self._keep()
        return True

    def _keep(self) -> None:
        """Note what may have been spent by now, a little more than that so as to write seldom."""
        limits = self.limits
        spent = self.spent + self._likely
        tokens = math.ceil(NOTED_SHARE * (limits.tokens or spent.tokens))
        step = Spent(NOTED_SHARE * (limits.dollars or spent.dollars), tokens)
        too_much = self._noted - spent
        spent_more = too_much.dollars < 0 or too_much.tokens < 0
        by_dollars = limits.dollars is not None and too_much.dollars > 2 * step.dollars
        by_tokens = limits.tokens is not None and too_much.tokens > 2 * step.tokens
        if spent_more or by_dollars or by_tokens:
            most = spent + step  # what is left may yet be spent
            dollars = max(spent.dollars, min(most.dollars, self._dollars))
            self._noted = replace(most, dollars=dollars)
            self._note(self._noted)

    def note_now(self) -> None:
        """Have what was spent noted, with what is held back if calls are under way yet."""
        self._noted = self.spent + self._likely
        self._note(self._noted)

    @property
    def over(self) -> bool:
        """Whether dollars or tokens have reached their limit."""
        return self._paid.dollars >= self._dollars or self._paid.tokens >= self._tokens

    @property
    def left(self) -> LimitSettings:
        """Dollars and tokens that may still be spent, while it is not `over`."""
        limits = self.limits
        return LimitSettings(
            dollars=None if limits.dollars is None else limits.dollars - self._paid.dollars,
            tokens=None if limits.tokens is None else limits.tokens - self._paid.tokens,
        )

    def stop(self, most: Spent = NO_SPENDING) -> LimitReached:
        """The error that says which limit was reached, or that a call of so much does not fit."""
        spent = asdict(self.spent)
        more = asdict(most)
        reached = [
            f"limits.{name} of {limit:g} reached ({spent[name]:.6g} spent"
            + (f", the next call may take {more[name]:.2g})" if spent[name] < limit else ")")
            for name, limit in self.limits.model_dump().items()
            if limit is not None and spent[name] + more[name] >= limit
        ]
        return LimitReached(
            f"{' and '.join(reached)}; what was computed is kept, raise the limit and start again"
            " to continue"
        )

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Ends the block when the time is up. Raises LimitReached then, or where one is reached."""
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


def counted(completion: Completion, dollars: float) -> Spent:
    """What a call at this price counts against limits."""
    tokens = completion.prompt_tokens + completion.completion_tokens
    if completion.estimated:
        return Spent(ESTIMATED * dollars, math.ceil(ESTIMATED * tokens))
    return Spent(dollars, tokens)


class _Held(Outgoing):
    """The requests of a call for which so much is held back."""

    def __init__(self, meter: Meter, most: Spent, price: Price) -> None:
        super().__init__()
        self._meter = meter
        self._most = most
        self._price = price

    def lost(self, tokens: tuple[int, int] | None = None) -> None:
        """Count the attempt, in full if its tokens are not known. Raises as `Meter.lost`."""
        told = tokens and Spent(_dearest(self._price, *tokens), sum(tokens))
        self._meter.lost(told or self._most)


class MeteredClient(Wrapper):
    """Pays for each call of a client, and starts none whose worst case does not fit."""

    def __init__(self, inner: Client, meter: Meter, pool: ModelPool) -> None:
        super().__init__(inner)
        self.meter = meter
        self._pool = pool
        self._most_per_byte: dict[str, float] = {}

    def begin(self, request: Request) -> Completion | Awaitable[Completion]:
        """The completion, or what to await for it. Raises LimitReached instead of calling."""
        found = self._inner.begin(request)
        if not isinstance(found, Completion):
            return Deferred(partial(self._wait, request, found))
        if self.meter.over and not found.cached:
            raise self.meter.stop()
        return self._paid(request, found)

    async def _wait(self, request: Request, call: Awaitable[Completion]) -> Completion:
        most = self._most(request)
        await self.meter.hold(most)
        requests = _Held(self.meter, most, self._pool[request.model].price)
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

    def _most(self, request: Request) -> Spent:
        """The most that one attempt of a call can take."""
        per_byte = self._most_per_byte.get(request.model, 1.0)
        read = OVERHEAD_TOKENS + math.ceil(per_byte * _bytes_of(request))
        written = request.sampling.max_tokens
        return Spent(_dearest(self._pool[request.model].price, read, written), read + written)

    def _paid(self, request: Request, completion: Completion) -> Completion:
        told = TOLD_MARGIN * completion.prompt_tokens / max(1, _bytes_of(request))
        known = self._most_per_byte.get(request.model, 0.0)
        self._most_per_byte[request.model] = max(known, min(1.0, told))
        self.meter.pay(completion, self._pool[request.model].price.of(completion))
        return completion


def limited_by(meter: Meter | None, pool: ModelPool) -> Callable[[Client], Client]:
    """Return how to put a client of these models behind a meter, if there is one."""
    if meter is None:
        return lambda inner: inner
    return partial(MeteredClient, meter=meter, pool=pool)


def lines_of(recorder: Recorder) -> list[str]:
    """Return for people whose prompts were refused, whose answers were cut, and whose tokens no
    endpoint told.
    """
    done = {key: call for key, call in recorder.calls.items() if key in recorder.bounds}
    calls = [
        (call.model, recorder.bounds[key], call.outcome)
        for key, call in done.items()
        if isinstance(call.outcome, Completion)
    ]
    of = Counter((model, bound) for model, bound, _ in calls)
    cut = Counter((model, bound) for model, bound, answer in calls if answer.cut)
    answered = Counter(model for model, *_ in calls)
    said = refusal_lines(recorder)
    for (model, bound), count in of.items():
        if not cut[model, bound] or cut[model, bound // ROOM]:
            continue
        share = cut[model, bound] / count
        line = f"{model}: {share:.0%} of {count} answers cut at {bound} tokens"
        if more := of[model, ROOM * bound]:
            left = cut[model, ROOM * bound]
            line += f", asked again with {ROOM * bound}, where {left} of {more} were cut"
            if left:
                line += "; they are graded as they stand, so give it more (sampling.max_tokens)"
        said.append(line)
    estimated = Counter(model for model, _, answer in calls if answer.estimated)
    return said + [
        f"{model}: its endpoint tells no token counts of {count} of {answered[model]} calls;"
        f" these are estimated, also what they cost, and count {ESTIMATED} times against limits"
        for model, count in estimated.items()
    ]


def refusal_lines(recorder: Recorder) -> list[str]:
    """Return for people how many of a model's prompts its provider refused, by models and words."""
    calls = recorder.calls.values()
    answered = Counter(call.model for call in calls if isinstance(call.outcome, Completion))
    refused = [
        (call.model, call.outcome.said) for call in calls if isinstance(call.outcome, PromptRefused)
    ]
    counts = Counter(model for model, _ in refused)
    words = dict(reversed(refused))
    return [
        f"{model}: its provider refuses {count} of {count + answered[model]} prompts"
        f' ("{words[model]}"); they are asked no more, and are lost, never wrong'
        for model, count in counts.items()
    ]


def _dearest(price: Price, read: int, written: int) -> float:
    """Dollars of so many tokens, as if all that were written were reasoning."""
    return (price.prompt * read + max(price.completion, price.reasoning or 0.0) * written) / 1e6


def _bytes_of(request: Request) -> int:
    texts = (message.whole or message.content for message in request.messages)
    more = len(request.form or "") + sum(map(len, request.schema or ()))
    return more + sum(len(text.encode("utf-8", "replace")) for text in texts)


def metered(speak: Chat, meter: Meter) -> Chat:
    """A way to an agent's model that pays for each answer, and asks nothing past a limit."""

    def paying(messages: Sequence[Message], name: str, schema: str) -> AgentReply:
        if meter.over:
            raise meter.stop()
        reply = speak(messages, name, schema)
        meter.pay(reply.completion, reply.dollars)
        return reply

    return paying
