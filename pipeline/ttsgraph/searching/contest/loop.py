"""The loop of a search: proposers ask for graphs to be run, what came of them is learnt, and so on
until nobody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ttsgraph.evaluation.environment import Evaluator
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.searching.contest.state import Job, State


class Proposer(Protocol):
    """A source of graphs. `name` is what `found_by` says of them."""

    name: str

    def ask(self, state: State) -> Sequence[Job]:
        """The graphs to run next, each on some questions, within the calls that are left; none
        where it is done.
        """

    def tell(self, state: State, jobs: Sequence[Job]) -> None:
        """Take in that these jobs were run, its own or others'; what came of them is in the
        state.
        """


async def run(
    state: State, proposers: Sequence[Proposer], environment: Evaluator, publish: Publish = ignore
) -> None:
    """Run what proposers ask for until none asks for anything. Raises RunStopped when a graph lost
    too many questions.
    """
    while jobs := [job for proposer in proposers for job in proposer.ask(state)]:
        await state.run_jobs(jobs, environment, publish)
        for proposer in proposers:
            proposer.tell(state, jobs)
