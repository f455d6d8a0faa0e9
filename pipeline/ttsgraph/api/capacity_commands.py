"""The command `ttsgraph capacity`: how many servers a number of users takes, and what they cost,
from what one answer uses and what one server was measured to do (docs/capacity.md).
"""

from __future__ import annotations

import math
from typing import Annotated

import typer

from ttsgraph.base.errors import InputError

REQUESTS_PER_S = 220.0
"""Answers of three calls that one process of `ttsgraph serve` gives a second, on one core."""

CALLS = 3.0
"""Of such an answer: a process's work grows with the calls it makes."""

BUSY = 0.7
"""Share of what a server can do that it is planned for: waiting grows without bound towards 1."""

HOURS = 730.0
"""Of a month."""


def capacity(
    users: Annotated[float, typer.Option(help="how many there are")],
    questions: Annotated[float, typer.Option(help="that each asks in an hour")],
    calls: Annotated[float, typer.Option(help="of an answer")],
    seconds: Annotated[float, typer.Option(help="that an answer takes")],
    tokens: Annotated[float, typer.Option(help="that an answer's calls write")],
    prompt_tokens: Annotated[float, typer.Option(help="that they read")] = 0.0,
    dollars: Annotated[float, typer.Option(help="of an answer, where calls are paid for")] = 0.0,
    peak: Annotated[float, typer.Option(help="busiest hour over the mean")] = 3.0,
    replica_tokens: Annotated[
        float | None, typer.Option(help="written a second by a model server (none: rented models)")
    ] = None,
    replica_prompt_tokens: Annotated[
        float, typer.Option(help="read a second by a model server")
    ] = math.inf,
    replica_dollars: Annotated[float, typer.Option(help="of a model server, an hour")] = 0.0,
) -> None:
    """How many servers a number of users takes, and what they cost; docs/capacity.md says how.

    Example: ttsgraph capacity --users 1000 --questions 6 --calls 5 --seconds 8 --tokens 2000
    """
    given = {
        "--users": users,
        "--questions": questions,
        "--peak": peak,
        "--calls": calls,
        "--seconds": seconds,
        "--replica-tokens": 1.0 if replica_tokens is None else replica_tokens,
    }
    for name, value in given.items():
        if not value > 0:
            raise InputError(f"expected {name} above 0, found {value:g}")
    per_s = users * questions * peak / 3600
    under_way = math.ceil(per_s * seconds)  # Little's law
    processes = max(1, math.ceil(per_s * calls / (REQUESTS_PER_S * CALLS * BUSY)))
    replicas = 0
    if replica_tokens is not None:
        busy_s = max(tokens / replica_tokens, prompt_tokens / replica_prompt_tokens)
        replicas = max(1, math.ceil(per_s * busy_s / BUSY))
    typer.echo(
        f"{per_s:.3g} questions a second in the busiest hour, {under_way} answers under way\n"
        f"{processes} processes of ttsgraph serve, {replicas} model servers\n"
        f"${replicas * replica_dollars * HOURS:,.0f} a month for model servers,"
        f" ${users * questions * HOURS * dollars:,.0f} for calls"
    )
