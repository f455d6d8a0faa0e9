"""Searches with the forms that everybody would try, and nothing else."""

import asyncio

from ttsgraph.evaluation.environment import Evaluator
from ttsgraph.searching.loop import Bench, run
from ttsgraph.searching.methods.forms import Forms
from ttsgraph.searching.response.calibration import Candidate
from ttsgraph.searching.state import State


def compete(state: State, environment: Evaluator, rounds: bool = True) -> list[Candidate]:
    """Run all forms, or without `rounds` the probes alone; return the candidates, best first."""
    asyncio.run(run(state, Forms(rounds), Bench(environment)))
    return state.standings
