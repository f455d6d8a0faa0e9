"""How much of one server is used, and whether it works: a limit on requests that adapts, a circuit
breaker, and what went wrong.

Own code, as circuit-breaker packages refuse calls while a server is down, where a search waits or
goes to its replica.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ttsgraph.base.errors import CallFailed, RunStopped
from ttsgraph.base.secrets import redact_pieces
from ttsgraph.endpoints.refusals import SETTLED, Meaning, Refusal

KEPT = "what was computed is kept, start again to continue"
DOWN_S = 180.0
"""Without a success after which a model's servers are given up: longer than a restart takes."""

OPENS_AFTER = 10
"""Failures in a row that open the breaker; chance at one in three hardly gets there."""

FIRST_BREAK_S = 0.5
LONGEST_BREAK_S = 30.0
_OVERLOADED = (408, 429, 503)
TRANSIENT = (408, 409, 425, 429)
LONGEST_SAID = 200
"""Characters of a server's words that an error shows."""


class Fault(CallFailed):
    """An attempt gone wrong: by `overload`, `unreached` where no server heard of it, with `retry`
    where another may go better. `refusal` are the server's words with their
    meaning, `status` is HTTP's, `tokens` those of an unusable answer.
    """

    refusal = Refusal("")
    status: int | None = None
    tokens: tuple[int, int] | None = None

    def __init__(
        self,
        kind: str,
        retry: bool = True,
        overload: bool = False,
        retry_after_s: float | None = None,
        unreached: bool = False,
    ) -> None:
        super().__init__(kind)
        self.kind = kind
        self.retry = retry
        self.overload = overload
        self.retry_after_s = retry_after_s
        self.unreached = unreached

    @property
    def meaning(self) -> Meaning:
        """The meaning of the server's words."""
        return self.refusal.meaning

    @property
    def charged(self) -> bool:
        """Whether it may be charged for: not what nobody heard of, or ended in an error."""
        return not self.unreached and self.status is None

    def take(self, refusal: Refusal) -> None:
        """Take in a server's words; another attempt changes nothing where their meaning is one of
        those that are settled.
        """
        self.refusal = refusal
        self.retry = self.retry and refusal.meaning not in SETTLED

    def said(self, secrets: Sequence[str] | None = None) -> str:
        """Return the server's words, in one line without secrets; "" where there are none."""
        shown = "".join(letter if letter.isprintable() else " " for letter in self.refusal.words)
        line = redact_pieces(" ".join(shown.split()), secrets)
        return line if len(line) <= LONGEST_SAID else f"{line[:LONGEST_SAID]} ..."


def refused(kind: str, said: str = "") -> Fault:
    """Return a fault of the prompt, in the server's words if it has any."""
    fault = Fault(kind, retry=False)
    fault.refusal = Refusal("filter", said)
    return fault


def fault_of_status(status: int, kind: str, retry_after_s: float | None = None) -> Fault:
    """Return a status's fault; all but redirects and the client's own doing may pass."""
    may_pass = not 300 <= status < 500 or status in TRANSIENT
    fault = Fault(kind, may_pass, status in _OVERLOADED, retry_after_s)
    fault.status = status
    return fault


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What is put up with: requests at once per server, seconds without a success, the share of
    calls that may fail for good once there are `least_calls`. `waits`: calls wait for servers that
    are down; else they fail at once, but for one now and then that looks whether a server is back.
    `ends`: a wrong key, URL or name, or an empty account, ends the run.
    """

    concurrency: int = 32
    down_s: float = DOWN_S
    max_failed: float = 0.5
    least_calls: int = 50
    waits: bool = True
    ends: bool = True


class Server:
    """One base URL.

    The limit of requests under way halves when the server is overloaded (429, 503, a time-out), at
    most once per round trip, and grows by one per limit's worth of answers: AIMD, as in TCP. After
    OPENS_AFTER failures in a row, and as many as calls still out, the breaker opens: nothing is
    sent for a while, then one call at a time until one succeeds; each break is twice the last.
    """

    def __init__(
        self, url: str, policy: FailurePolicy, changed: asyncio.Event | None = None
    ) -> None:
        self.url = url
        self.policy = policy
        self.limit = float(policy.concurrency)
        self.under_way = 0
        self.finished = self.failed_for_good = 0
        self.faults: Counter[str] = Counter()
        self.changed = changed or asyncio.Event()
        self._failures_in_a_row = 0
        self._is_open = False
        self._down_since: float | None = None
        self._closed_until = self._last_cut = 0.0
        self._break_s = FIRST_BREAK_S

    @property
    def has_room(self) -> bool:
        """Whether a call may start now."""
        if time.monotonic() < self._closed_until:
            return False
        return self.under_way < (1 if self._is_open else int(self.limit))

    @property
    def turns_away(self) -> bool:
        """Whether the breaker is open, and calls are not to wait for its end."""
        return self._is_open and time.monotonic() < self._closed_until and not self.policy.waits

    @property
    def given_up(self) -> bool:
        """Whether the breaker has been open for longer than is put up with."""
        waited = 0.0 if self._down_since is None else time.monotonic() - self._down_since
        return self._is_open and waited > self.policy.down_s

    def succeeded(self) -> None:
        """A call was answered."""
        self._failures_in_a_row = 0
        self._is_open = False
        self._down_since = None
        self._break_s = FIRST_BREAK_S
        self.limit = min(float(self.policy.concurrency), self.limit + 1 / self.limit)

    def failed(self, fault: Fault, started: float) -> None:
        """An attempt that started then (monotonic seconds) went wrong."""
        now = time.monotonic()
        self.faults[fault.kind] += 1
        if fault.overload and started >= self._last_cut:
            self.limit = max(1.0, self.limit / 2)
            self._last_cut = now
        if fault.retry_after_s is not None:
            self._close(fault.retry_after_s)
        if not fault.retry:
            return  # the server works, and refuses this call
        self._failures_in_a_row += 1
        self._down_since = self._down_since or now
        # Failures come sooner than answers: of 200 calls that begin at once, dozens may have failed
        # before the first is answered, by a server that works.
        if self._failures_in_a_row >= max(OPENS_AFTER, self.under_way):
            self._is_open = True
        if self._is_open and now >= self._closed_until:
            self._close(self._break_s)
            self._break_s = min(LONGEST_BREAK_S, 2 * self._break_s)
        if self.given_up or self.turns_away:  # there may be nothing left to wait for
            self.changed.set()

    def _close(self, seconds: float) -> None:
        self._closed_until = max(self._closed_until, time.monotonic() + seconds)
        asyncio.get_running_loop().call_later(seconds + 0.001, self.changed.set)

    def release(self) -> None:
        """A request ended; the longest waiting call may get its place."""
        self.under_way -= 1
        self.changed.set()

    def finish(self, failed: Fault | None) -> None:
        """A call is over for good. Raises RunStopped when too many of them failed."""
        self.finished += 1
        self.failed_for_good += failed is not None
        share = self.failed_for_good / self.finished
        if failed and self.finished >= self.policy.least_calls and share > self.policy.max_failed:
            raise RunStopped(
                f"{self.url}: {self.failed_for_good} of {self.finished} calls failed for good"
                f" ({self.reasons()}); {KEPT}"
            )

    def reasons(self) -> str:
        """What went wrong how often, most frequent first."""
        return ", ".join(f"{kind}: {count}" for kind, count in self.faults.most_common(4))


@dataclass(frozen=True, slots=True)
class Replicas:
    """The servers of one model, or of several, whose calls take turns: first come first served."""

    servers: Sequence[Server]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def place(self) -> Server:
        """A place at the least busy server with room, waited for if need be; `release` gives it
        back. Raises RunStopped when all have been down for too long, Fault when all turn calls
        away.
        """
        async with self.turn:
            while True:
                self.stop_if_given_up()
                if all(server.turns_away for server in self.servers):
                    raise Fault("down", retry=False)
                if free := [server for server in self.servers if server.has_room]:
                    server = min(free, key=lambda s: s.under_way)
                    server.under_way += 1
                    return server
                changed = self.servers[0].changed  # which all servers of a client share
                changed.clear()
                await changed.wait()

    def stop_if_given_up(self) -> None:
        """Raises RunStopped, with how each failed, when all were down for too long."""
        if all(server.given_up for server in self.servers):
            how = "; ".join(f"{server.url} ({server.reasons()})" for server in self.servers)
            down_s = self.servers[0].policy.down_s
            raise RunStopped(f"no answer for {down_s:g} s from {how}; {KEPT}")


FIRST_TOKENS = 10.0
"""Further attempts that may be made before there were calls."""

MOST_TOKENS = 1000.0
"""Further attempts that may be saved up: the burst of a server that goes down under many calls."""


class RetryBudget:
    """How many further attempts may be made: a share of the calls, so that a server in trouble is
    not asked several times as much. A token bucket, as gRPC's and Finagle's: every call puts
    `share` of a token into it, every further attempt takes one out.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._tokens = FIRST_TOKENS
        self.refused = 0

    def called(self) -> None:
        """A call begins."""
        self._tokens = min(MOST_TOKENS, self._tokens + self._share)

    def take(self) -> bool:
        """Whether a further attempt may be made; if so, it counts."""
        if self._tokens < 1.0:
            self.refused += 1
            return False
        self._tokens -= 1.0
        return True
