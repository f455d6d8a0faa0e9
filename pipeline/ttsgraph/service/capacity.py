"""How many servers a number of users takes, and what they cost: from what one answer uses and what
one server was measured to do (docs/capacity.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ttsgraph.base.errors import InputError

REQUESTS_PER_S = 220.0
"""Answers of three calls that one process of `ttsgraph serve` gives a second, on one core."""

CALLS = 3.0
"""Of such an answer: a process's work grows with the calls it makes."""

BUSY = 0.7
"""Share of what a server can do that it is planned for: waiting grows without bound towards 1."""

HOURS = 730.0
"""Of a month."""


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What a load takes: questions a second and answers under way in the busiest hour, processes of
    `ttsgraph serve`, model servers, and dollars a month of servers and of calls.
    """

    per_s: float
    under_way: int
    processes: int
    replicas: int
    server_dollars: float
    call_dollars: float


def plan(
    users: float,
    questions: float,
    calls: float,
    seconds: float,
    tokens: float,
    *,
    prompt_tokens: float = 0.0,
    dollars: float = 0.0,
    peak: float = 3.0,
    replica_tokens: float | None = None,
    replica_prompt_tokens: float = math.inf,
    replica_dollars: float = 0.0,
) -> CapacityPlan:
    """The servers for users who ask so many questions an hour, `peak` times as many in the busiest
    one, of answers that take so many calls, seconds, and tokens written and read, and dollars where
    calls are paid for.

    A model server (`replica`) writes and reads so many tokens a second, and costs dollars an hour;
    without one, models are rented. Raises InputError for a figure that is not above zero.
    """
    given = {
        "users": users,
        "questions per hour": questions,
        "peak": peak,
        "calls": calls,
        "seconds": seconds,
        "tokens a second of a replica": 1.0 if replica_tokens is None else replica_tokens,
    }
    for name, value in given.items():
        if not value > 0:
            raise InputError(f"expected {name} above 0, found {value:g}")
    per_s = users * questions * peak / 3600
    replicas = 0
    if replica_tokens is not None:
        busy_s = max(tokens / replica_tokens, prompt_tokens / replica_prompt_tokens)
        replicas = max(1, math.ceil(per_s * busy_s / BUSY))
    return CapacityPlan(
        per_s,
        math.ceil(per_s * seconds),  # Little's law
        max(1, math.ceil(per_s * calls / (REQUESTS_PER_S * CALLS * BUSY))),
        replicas,
        replicas * replica_dollars * HOURS,
        users * questions * HOURS * dollars,
    )
