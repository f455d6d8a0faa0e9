"""Cost of a search, measured by a client that makes each call once and sums up the usage of new
calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ttsgraph.models.client import Client, Completion, Request
from ttsgraph.pool.simulated import SimulatedClient


@dataclass(slots=True)
class Ledger:
    """Record of the calls made, by key, with their number, tokens and seconds; repeated calls are
    free.

    `seconds` is the sum of the calls' latencies: the time that one server would need to answer them
    one after another.
    """

    known: dict[str, Completion] = field(default_factory=dict)
    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def copy(self) -> Ledger:
        """Return a copy of the current state."""
        return Ledger(dict(self.known), self.calls, self.tokens, self.seconds)

    def add(self, key: str, completion: Completion) -> None:
        """Record a new call."""
        self.known[key] = replace(completion, cached=True)
        self.calls += 1
        self.tokens += completion.prompt_tokens + completion.completion_tokens
        self.seconds += completion.latency_s


class LedgerClient(Client):
    """Client in front of a simulated pool that records calls in a ledger."""

    def __init__(self, inner: SimulatedClient, ledger: Ledger) -> None:
        self._inner = inner
        self.ledger = ledger

    def begin(self, request: Request) -> Completion:
        """Return the recorded completion, or else make the call and record it."""
        key = request.key()
        found = self.ledger.known.get(key)
        if found is None:
            found = self._inner.begin(request)
            self.ledger.add(key, found)
        return found
