"""How many further attempts may be made: a share of the calls, so that a server in trouble is not
asked several times as much as one that works.
"""

from __future__ import annotations

FIRST = 10.0
"""Further attempts that may be made before there were calls."""

MOST = 1000.0
"""Further attempts that may be saved up: the burst of a server that goes down under many calls."""


class RetryBudget:
    """A token bucket, as of gRPC's retry throttling and Finagle's retry budgets: every call puts
    `share` of a token into it, and every further attempt at a call (another after a failure, or a
    second one beside a slow first) takes one out.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._tokens = FIRST
        self.refused = 0

    def called(self) -> None:
        """A call begins."""
        self._tokens = min(MOST, self._tokens + self._share)

    def take(self) -> bool:
        """Whether a further attempt may be made; if so, it counts."""
        if self._tokens < 1.0:
            self.refused += 1
            return False
        self._tokens -= 1.0
        return True
