"""One node's call, made so that trouble with an endpoint does not show: a deadline, a second
request beside one that is slow, and another model in place of one that fails.

A second request is begun once the first takes longer than most of its model's last calls did, and
the first answer counts (Dean and Barroso, "The tail at scale", 2013: hedged requests).
All further attempts of a version share one budget (`RetryBudget`), so that a pool in trouble is
not asked several times as much as one that works.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

from ttsgraph.base.errors import CallFailed, InputError
from ttsgraph.deployment.bundle import Deployed
from ttsgraph.endpoints.retry_budget import RetryBudget
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
    """How long the last calls of a model took, in seconds."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._last: deque[float] = deque(maxlen=KEPT)
        self._slow: float | None = None
        self._since = 0

    def add(self, seconds: float) -> None:
        """A call was answered."""
        self._last.append(seconds)
        self._since += 1
        if self._since >= LEAST:
            self._since = 0
            ranked = sorted(self._last)
            self._slow = ranked[min(len(ranked) - 1, int(self._share * len(ranked)))]

    @property
    def slow_s(self) -> float | None:
        """Seconds beyond which a call is slow; None where too few are known."""
        return self._slow

    @property
    def patience_s(self) -> float:
        """Seconds until a call that begins now is slow, or until one may know."""
        return LOOK_S if self._slow is None else self._slow


@dataclass(slots=True)
class Typical:
    """What the calls of a model use: characters asked, and tokens read and written, summed."""

    calls: int = 0
    characters: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Steady:
    """What the calls of one served version share: settings, budget, and how quick its models are.

    `make` makes a call a second time.
    """

    def __init__(self, settings: SteadySettings, budget: RetryBudget, make: MakeCall) -> None:
        self._settings = settings
        self._budget = budget
        self._make = make
        self._paces: dict[str, Pace] = {}
        self._typical: dict[str, Typical] = {}
        self._hanging: dict[str, tuple[int, float]] = {}  # calls in a row, and when it was seen

    def hangs(self, model: str, now: float) -> bool:
        """Whether a call of this model that begins now is not worth waiting for; once in a while
        one is, to see whether the model is back.
        """
        count, seen = self._hanging.get(model, (0, now))
        if count < HANGING:
            return False
        if now >= seen + LOOK_AGAIN_S:
            self._hanging[model] = count, now
            return False
        return True

    def gave_up(self, model: str, now: float) -> None:
        """A call of this model used up its share of the request's time."""
        self._hanging[model] = self._hanging.get(model, (0, now))[0] + 1, now

    def learn(self, model: str, request: Request, completion: Completion) -> None:
        """A call was answered; what it used says what one uses that is not."""
        self._hanging.pop(model, None)
        seen = self._typical.setdefault(model, Typical())
        seen.calls += 1
        seen.characters += _characters(request)
        seen.prompt_tokens += completion.prompt_tokens
        seen.completion_tokens += completion.completion_tokens

    def expected(self, model: str, request: Request) -> Completion:
        """What a call uses that was given up on the way: an estimate, since nobody says. Whoever
        bills a call bills it whole.
        """
        seen = self._typical.get(model)
        if seen is None:
            return Completion("", _characters(request) // CHARACTERS_PER_TOKEN, 0, 0.0)
        prompt = round(seen.prompt_tokens * _characters(request) / seen.characters)
        return Completion("", prompt, round(seen.completion_tokens / seen.calls), 0.0)

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
        slow = self._settings.hedge
        if slow is None or again is None:
            call = first
        else:
            call = self._hedged(self._paces.setdefault(model, Pace(slow)), first, again, hedged)
        if deadline is None:
            return await call
        try:
            async with asyncio.timeout(deadline):
                return await call
        except TimeoutError:
            _too_late(model, deadline)

    async def _hedged(
        self,
        pace: Pace,
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
        started = loop.time()
        began = {asyncio.ensure_future(_awaited(first)): started}
        made = 1
        look_at = started + pace.patience_s
        try:
            while True:
                wait = max(0.0, look_at - loop.time()) if made < MOST else None
                done, _ = await asyncio.wait(
                    began, timeout=wait, return_when=asyncio.FIRST_COMPLETED
                )
                ended = {task: began.pop(task) for task in done}
                good = [task for task in done if task.exception() is None]
                if good:
                    pace.add(loop.time() - ended[good[0]])
                    return good[0].result()
                if done and not began:
                    return done.pop().result()  # which raises what it failed with
                slow = pace.slow_s is not None and loop.time() >= max(began.values()) + pace.slow_s
                if made < MOST and (done or slow) and self._budget.take():
                    hedged()
                    began[asyncio.ensure_future(_awaited(self._make(again)))] = loop.time()
                    made += 1
                    look_at = loop.time() + pace.patience_s
                else:
                    look_at = loop.time() + LOOK_S
        finally:
            for call in began:
                call.cancel()


def standing_in(deployed: Deployed, settings: SteadySettings) -> tuple[str, ...]:
    """The models that stand in for those of this version's graph. Raises InputError for one that
    its pool has not.
    """
    found = {
        settings.stand_ins[name] for name in deployed.used_models if name in settings.stand_ins
    }
    pool = deployed.profile.model_pool()
    if missing := sorted(name for name in found if name not in pool):
        raise InputError(
            f"service.steady.stand_ins: expected models of the pool of {deployed.task}"
            f" ({', '.join(pool)}), found {missing[0]!r}"
        )
    return tuple(sorted(found))


def _characters(request: Request) -> int:
    return sum(len(message.whole or message.content) for message in request.messages) or 1


async def _awaited(call: Awaitable[Completion]) -> Completion:
    return await call


def _too_late(model: str, deadline: float) -> NoReturn:
    raise CallFailed(f"{model} gave no answer within {deadline:g} seconds") from None
