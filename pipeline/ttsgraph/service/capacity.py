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
class Load:
    """What users ask: each so many questions an hour, `peak` times as many in the busiest one."""

    users: float
    questions_per_hour: float
    peak: float = 3.0


@dataclass(frozen=True, slots=True)
class PerAnswer:
    """What one answer uses; dollars where calls are paid for by the token."""

    calls: float
    seconds: float
    completion_tokens: float
    prompt_tokens: float = 0.0
    dollars: float = 0.0


@dataclass(frozen=True, slots=True)
class Replica:
    """A model server, as measured under load: tokens that it writes a second, and dollars an hour;
    tokens that it reads a second where that is what it is short of.
    """

    completion_tokens_per_s: float
    dollars_per_hour: float = 0.0
    prompt_tokens_per_s: float = math.inf


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


def plan(load: Load, answer: PerAnswer, replica: Replica | None) -> CapacityPlan:
    """The servers for a load. Without a replica, models are rented, and paid for by the call.

    Raises InputError for a figure that is not above zero.
    """
    given = {
        "users": load.users,
        "questions per hour": load.questions_per_hour,
        "peak": load.peak,
        "calls": answer.calls,
        "seconds": answer.seconds,
        "tokens a second of a replica": replica.completion_tokens_per_s if replica else 1.0,
    }
    for name, value in given.items():
        if not value > 0:
            raise InputError(f"expected {name} above 0, found {value:g}")
    questions = load.users * load.questions_per_hour
    per_s = questions * load.peak / 3600
    replicas = 0
    server_dollars = 0.0
    if replica is not None:
        wanted = max(
            answer.completion_tokens / replica.completion_tokens_per_s,
            answer.prompt_tokens / replica.prompt_tokens_per_s,
        )
        replicas = max(1, math.ceil(per_s * wanted / BUSY))
        server_dollars = replicas * replica.dollars_per_hour * HOURS
    return CapacityPlan(
        per_s,
        math.ceil(per_s * answer.seconds),  # Little's law
        max(1, math.ceil(per_s * answer.calls / (REQUESTS_PER_S * CALLS * BUSY))),
        replicas,
        server_dollars,
        questions * HOURS * answer.dollars,
    )
