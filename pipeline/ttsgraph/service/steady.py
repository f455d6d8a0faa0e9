"""One node's call, made so that trouble with an endpoint does not show: a deadline, a second
request beside one that is slow, and another model in place of one that fails.

A second request is begun once the first takes longer than most of its model's last calls did, and
the first answer counts (Dean and Barroso, "The tail at scale", 2013: hedged requests).
All further attempts of a version share one budget (`RetryBudget`), so that a pool in trouble is
not asked several times as much as one that works.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ttsgraph.base.errors import CallFailed, InputError
from ttsgraph.deployment.bundle import Deployed
from ttsgraph.endpoints.endpoints import RetryBudget
from ttsgraph.models.client import Completion, Request
from ttsgraph.settings.service import SteadySettings

KEPT = 200
"""Last calls of a model that say how long one takes."""

LEAST = 20
"""Calls of a model before which none is known to be slow."""

LOOK_S = 0.5
"""Between two looks at a slow call that must not be made again yet."""

MOST = 3
"""Requests of one call at once, the first included."""

CHARACTERS_PER_TOKEN = 4
"""Of a model none of whose calls has been answered yet."""

HANGING = 3
"""Calls of a model in a row that used up their share of a request's time, after which it is waited
for no longer than for the others.
"""

LOOK_AGAIN_S = 30.0
"""Between two calls of such a model that are waited for."""

MakeCall = Callable[[Request], Awaitable[Completion]]
"""Begins a call, anew each time."""


class Pace:
    """How long the last calls of a model took. A call is slow beyond `slow_s` seconds; None where
    too few are known.
    """

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=KEPT)
        self._since = 0
        self.slow_s: float | None = None

    def add(self, seconds: float, share: float) -> None:
        """A call was answered; slow is what takes longer than this share of them."""
        self._last.append(seconds)
        self._since += 1
        if self._since >= LEAST:
            self._since = 0
            ranked = sorted(self._last)
            self.slow_s = ranked[min(len(ranked) - 1, int(share * len(ranked)))]

    @property
    def patience_s(self) -> float:
        """Seconds until a call that begins now is slow, or until one may know."""
        return LOOK_S if self.slow_s is None else self.slow_s


@dataclass(slots=True)
class Typical:
    """What the calls of a model use: sums over them of characters asked, of tokens read and
    written, of squares and of products. Tokens read are taken as a straight line over characters,
    since every prompt has tokens that no text of it accounts for.
    """

    calls: int = 0
    asked: float = 0.0
    read: float = 0.0
    written: float = 0.0
    asked_squared: float = 0.0
    asked_by_read: float = 0.0

    def add(self, characters: int, completion: Completion) -> None:
        """One more call."""
        self.calls += 1
        self.asked += characters
        self.read += completion.prompt_tokens
        self.written += completion.completion_tokens
        self.asked_squared += characters**2
        self.asked_by_read += characters * completion.prompt_tokens

    def tokens(self, characters: int) -> tuple[int, int]:
        """Those that a call of so many characters reads and writes, as far as can be told."""
        if not self.calls:
            return characters // CHARACTERS_PER_TOKEN, 0
        spread = self.asked_squared * self.calls - self.asked**2
        slope = (self.asked_by_read * self.calls - self.asked * self.read) / spread if spread else 0
        slope = min(max(0.0, slope), self.read / self.asked)  # no call reads fewer than none
        read = self.read / self.calls + slope * (characters - self.asked / self.calls)
        return round(read), round(self.written / self.calls)


class Steady:
    """What the calls of one served version share: settings, budget, and how quick its models are.

    `make` makes a call a second time.
    """

    def __init__(self, settings: SteadySettings, budget: RetryBudget, make: MakeCall) -> None:
        self._settings = settings
        self._budget = budget
        self._make = make
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._typical: defaultdict[str, Typical] = defaultdict(Typical)
        self._hanging: dict[str, tuple[int, float]] = {}  # calls in a row, and when it was seen

    def hangs(self, model: str, now: float) -> bool:
        """Whether a call of this model that begins now is not worth waiting for; once in a while
        one is, to see whether the model is back.
        """
        count, seen = self._hanging.get(model, (0, now))
        if count >= HANGING and now >= seen + LOOK_AGAIN_S:
            self._hanging[model] = count, now
            return False
        return count >= HANGING

    def gave_up(self, model: str, now: float) -> None:
        """A call of this model used up its share of the request's time."""
        self._hanging[model] = self._hanging.get(model, (0, now))[0] + 1, now

    def learn(self, model: str, request: Request, completion: Completion) -> None:
        """A call was answered; what it used says what one uses that is not."""
        self._hanging.pop(model, None)
        self._typical[model].add(_characters(request), completion)

    def expected(self, model: str, request: Request) -> Completion:
        """What a call uses that was given up on the way: an estimate, since nobody says. Whoever
        bills a call bills it whole.
        """
        return Completion("", *self._typical[model].tokens(_characters(request)), 0.0)

    def stand_in(self, model: str) -> str | None:
        """Who answers for this model where it fails."""
        return self._settings.stand_ins.get(model)

    async def answer(
        self,
        model: str,
        first: Awaitable[Completion],
        again: Request | None,
        hedged: Callable[[], None],
    ) -> Completion:
        """What a call of this model answers. `again` is what a second one asks, None where there
        must be none; `hedged` is told of one.

        Raises CallFailed when it failed or took longer than its deadline. Cancelling it cancels
        every request of it.
        """
        self._budget.called()
        deadline = self._settings.deadlines_s.get(model, self._settings.deadline_s)
        share = self._settings.hedge
        if share is not None and again is not None:
            first = self._hedged(self._paces[model], share, first, again, hedged)
        if deadline is None:
            return await first
        try:
            async with asyncio.timeout(deadline):
                return await first
        except TimeoutError:
            raise CallFailed(f"{model} gave no answer within {deadline:g} seconds") from None

    async def _hedged(
        self,
        pace: Pace,
        share: float,
        first: Awaitable[Completion],
        again: Request,
        hedged: Callable[[], None],
    ) -> Completion:
        """The first answer of a call and, where it is slow, of others like it: one more each time
        that the last is slow too, or failed, up to MOST at once.
        """
        loop = asyncio.get_running_loop()
        # When each began: what a call took that was slow and was made again says nothing of how
        # long one takes, and would put off the next second request ever more.
        began = {asyncio.ensure_future(first): loop.time()}
        made = 1
        look_at = loop.time() + pace.patience_s
        try:
            while True:
                wait = max(0.0, look_at - loop.time()) if made < MOST else None
                done, _ = await asyncio.wait(
                    began, timeout=wait, return_when=asyncio.FIRST_COMPLETED
                )
                ended = {task: began.pop(task) for task in done}
                good = [task for task in done if task.exception() is None]
                if good:
                    pace.add(loop.time() - ended[good[0]], share)
                    return good[0].result()
                if done and not began:
                    return done.pop().result()  # which raises what it failed with
                slow = pace.slow_s is not None and loop.time() >= max(began.values()) + pace.slow_s
                look_at = loop.time() + LOOK_S
                if made < MOST and (done or slow) and self._budget.take():
                    hedged()
                    began[asyncio.ensure_future(self._make(again))] = loop.time()
                    made += 1
                    look_at = loop.time() + pace.patience_s
        finally:
            for call in began:
                call.cancel()


def standing_in(deployed: Deployed, settings: SteadySettings) -> set[str]:
    """The models that stand in for those of this version's graph. Raises InputError for one that
    its pool has not.
    """
    found = {model for name, model in settings.stand_ins.items() if name in deployed.used_models}
    pool = deployed.profile.model_pool()
    if missing := sorted(found - set(pool)):
        raise InputError(
            f"service.steady.stand_ins: expected models of the pool of {deployed.task}"
            f" ({', '.join(pool)}), found {missing[0]!r}"
        )
    return found


def _characters(request: Request) -> int:
    return sum(len(message.whole or message.content) for message in request.messages) or 1
