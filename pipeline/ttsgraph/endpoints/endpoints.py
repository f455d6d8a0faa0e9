"""State of the servers behind endpoints (adaptive concurrency limits, circuit breakers and failure
counts), and the policy by which calls are retried and servers are given up.

Circuit-breaker packages reject calls while a server is down, but a search has to wait for the
server or use a replica.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ttsgraph.base.ending import GO_ON
from ttsgraph.base.errors import RunStopped
from ttsgraph.endpoints.faults import Fault

DOWN_S = 180.0
"""Seconds without a success after which a model's servers are given up: longer than a restart
takes.
"""

OPENS_AFTER = 10
"""Number of consecutive failures that opens the breaker; a server that fails one call in three
rarely reaches it.
"""

FIRST_BREAK_S = 0.5
LONGEST_BREAK_S = 30.0
LONGEST_WAIT_S = 30.0

MOST_TOKENS = 1000.0
"""Maximum number of saved-up retries. If a server fails during many calls, this many retries may
follow immediately.
"""


@dataclass
class RetryBudget:
    """Limit on retries as a share of all calls, so that a failing server is not flooded.

    A token bucket, as in gRPC and Finagle: each call adds `share` of a token, each retry takes a
    whole one.
    """

    share: float
    tokens: float = 10.0

    def called(self) -> None:
        """Count a new call."""
        self.tokens = min(MOST_TOKENS, self.tokens + self.share)

    def take(self) -> bool:
        """Take one token and return True if a retry is allowed; otherwise return False."""
        allowed = self.tokens >= 1.0
        self.tokens -= allowed
        return allowed


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """Limits on failures.

    `concurrency`: maximum number of parallel requests per server. `down_s`: seconds without a
    success after which a server is given up. `max_failed`: maximum share of calls that may fail
    permanently, checked once `least_calls` calls have finished. `waits`: calls wait for servers
    that are down; otherwise they fail immediately, except occasional probes. `ends`: a wrong key,
    URL or model name, or an empty account, ends the run. A call gets at most `max_retries` retries,
    and all calls together no more than `budget`; an attempt takes at most `timeout_s` seconds.

    The wait before a retry is drawn uniformly between 0 and a maximum (full jitter). The maximum is
    `first_wait_s` at first and doubles with each retry. The server's retry-after is added to the
    wait.
    """

    concurrency: int = 32
    down_s: float = DOWN_S
    max_failed: float = 0.5
    least_calls: int = 50
    waits: bool = True
    ends: bool = True
    max_retries: int = 8
    first_wait_s: float = 0.5
    timeout_s: float = 120
    budget: RetryBudget | None = None

    def over(self, failed: int) -> bool:
        """Return True if a call must not be retried after this many failed attempts; otherwise take
        one retry from the budget.
        """
        return failed > self.max_retries or (self.budget is not None and not self.budget.take())

    def wait_s(self, made: int, fault: Fault) -> float:
        """Return the seconds to wait before the next attempt after this fault."""
        most = min(LONGEST_WAIT_S, self.first_wait_s * 2.0 ** min(made - 1, 60))
        return (fault.retry_after_s or 0.0) + random.uniform(0.0, most)


@dataclass(eq=False)
class Server:
    """State of the server at one base URL.

    The concurrency limit is halved when the server is overloaded (429, 503, a time-out), at most
    once per round trip, and grows by about one for every `limit` successes: additive increase,
    multiplicative decrease, as in TCP. The breaker opens after OPENS_AFTER consecutive failures, or
    as many as there are calls in flight if that is more. Then nothing is sent for a while, and
    afterwards one call at a time until one succeeds. Each break lasts twice as long as the one
    before, up to LONGEST_BREAK_S.
    """

    url: str
    policy: FailurePolicy
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: int = 0
    finished: int = 0
    failed_for_good: int = 0
    is_open: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    _last_said: str = ""
    _failures_in_a_row: int = 0
    _down_since: float | None = None
    _closed_until: float = 0.0
    _last_cut: float = 0.0
    _break_s: float = FIRST_BREAK_S

    def __post_init__(self) -> None:
        self.limit = float(self.policy.concurrency)

    @property
    def has_room(self) -> bool:
        """True if a call may start now."""
        most = 1 if self.is_open else self.limit
        return self.under_way + 1 <= most and time.monotonic() >= self._closed_until

    @property
    def turns_away(self) -> bool:
        """True if the breaker is open and calls must not wait for it to close."""
        return self.is_open and time.monotonic() < self._closed_until and not self.policy.waits

    @property
    def is_gone(self) -> bool:
        """True if no attempt has succeeded for longer than the policy's `down_s`."""
        since = self._down_since
        return since is not None and time.monotonic() - since > self.policy.down_s

    def succeeded(self) -> None:
        """Record a success."""
        self._failures_in_a_row = 0
        self.is_open = False
        self._down_since = None
        self._break_s = FIRST_BREAK_S
        self.limit = min(self.policy.concurrency, self.limit + 1 / self.limit)

    def failed(self, fault: Fault, started: float) -> None:
        """Record a failed attempt that started at `started` (monotonic seconds)."""
        now = time.monotonic()
        self.faults[fault.kind] += 1
        self._last_said = fault.said() or self._last_said
        if fault.overload and started >= self._last_cut:
            self.limit = max(1.0, self.limit / 2)
            self._last_cut = now
        if fault.retry_after_s is not None:
            self._close(fault.retry_after_s)
        if not fault.retry:
            return  # the server works, but refuses this call
        self._failures_in_a_row += 1
        self._down_since = self._down_since or now
        # Failures arrive sooner than answers: of 200 calls that start together, dozens may have
        # failed before a working server answers the first.
        if self._failures_in_a_row >= max(OPENS_AFTER, self.under_way):
            self.is_open = True
        if self.is_open and now >= self._closed_until:
            self._close(self._break_s)
            self._break_s = min(LONGEST_BREAK_S, 2 * self._break_s)

    def _close(self, seconds: float) -> None:
        self._closed_until = max(self._closed_until, time.monotonic() + seconds)
        asyncio.get_running_loop().call_later(seconds + 0.001, self.changed.set)

    def release(self) -> None:
        """Free the place of a finished request for the call that has waited longest."""
        self.under_way -= 1
        self.changed.set()

    def finish(self, failed: Fault | None) -> None:
        """Record the final outcome of a call. Raises RunStopped if too many calls failed
        permanently.
        """
        self.finished += 1
        self.failed_for_good += failed is not None
        share = self.failed_for_good / self.finished
        if failed and self.finished >= self.policy.least_calls and share > self.policy.max_failed:
            raise RunStopped(
                f"{self.url}: {self.failed_for_good} of {self.finished} calls failed permanently"
                f" ({self.reasons()}); {GO_ON}"
            )

    def reasons(self) -> str:
        """Return the most frequent kinds of failure with their counts, and the last message."""
        kinds = ", ".join(f"{kind}: {count}" for kind, count in self.faults.most_common(4))
        return f"{kinds}; the last message: {self._last_said}" if self._last_said else kinds


@dataclass(slots=True)
class Replicas:
    """Servers that share the calls of one or more models, first come, first served."""

    servers: Sequence[Server]
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def place(self) -> Server:
        """Reserve a place for one request at the least busy server with room, and return that
        server.

        Waits for a place if necessary; `Server.release` frees it. Raises RunStopped if all servers
        have been down for too long, and Fault if all of them turn calls away.
        """
        async with self._turn:
            while not (free := [server for server in self.servers if server.has_room]):
                self.stop_if_given_up()
                if all(server.turns_away for server in self.servers):
                    raise Fault("down", retry=False)
                changed = self.servers[0].changed  # shared by all servers of a client
                changed.clear()
                await changed.wait()
            server = min(free, key=lambda each: each.under_way)
            server.under_way += 1
            return server

    def stop_if_given_up(self) -> None:
        """Raise RunStopped, naming the failures of each server, if all breakers are open and all
        servers have been down for too long.
        """
        if all(server.is_open and server.is_gone for server in self.servers):
            how = "; ".join(f"{server.url} ({server.reasons()})" for server in self.servers)
            down_s = self.servers[0].policy.down_s
            raise RunStopped(f"no answer for {down_s:g} s from {how}; {GO_ON}")
