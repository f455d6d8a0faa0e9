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

    @property
    def per_s(self) -> float:
        """Questions a second in the busiest hour."""
        return self.users * self.questions_per_hour * self.peak / 3600


@dataclass(frozen=True, slots=True)
class PerAnswer:
    """What one answer uses: calls, seconds, tokens written and read, dollars where calls are paid
    for by the token.
    """

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
    """What a load takes: answers under way in the busiest hour, processes of `ttsgraph serve`,
    model servers, and dollars a month of servers and of calls.
    """

    per_s: float
    under_way: int
    processes: int
    replicas: int
    server_dollars: float
    call_dollars: float


def plan(
    load: Load, answer: PerAnswer, replica: Replica | None, busy: float = BUSY
) -> CapacityPlan:
    """The servers for a load. Without a replica, models are rented, and paid for by the call.

    Raises InputError for a figure that is not above zero.
    """
    given = {
        "users": load.users,
        "questions per hour": load.questions_per_hour,
        "peak": load.peak,
        "calls": answer.calls,
        "seconds": answer.seconds,
        "busy": busy,
    }
    if replica is not None:
        given["tokens a second of a replica"] = replica.completion_tokens_per_s
    for name, value in given.items():
        if not value > 0:
            raise InputError(f"expected {name} above 0, found {value:g}")
    # Little's law: as many are under way as come in the time that one takes.
    under_way = math.ceil(load.per_s * answer.seconds)
    one_process = REQUESTS_PER_S * CALLS / answer.calls * busy
    replicas = 0
    if replica is not None:
        wanted = max(
            answer.completion_tokens / replica.completion_tokens_per_s,
            answer.prompt_tokens / replica.prompt_tokens_per_s,
        )
        replicas = max(1, math.ceil(load.per_s * wanted / busy))
    questions = load.users * load.questions_per_hour * HOURS
    return CapacityPlan(
        load.per_s,
        under_way,
        max(1, math.ceil(load.per_s / one_process)),
        replicas,
        replicas * replica.dollars_per_hour * HOURS if replica is not None else 0.0,
        questions * answer.dollars,
    )
