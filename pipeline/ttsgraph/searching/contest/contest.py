"""The contest: which plain form answers best within the budget, found with few calls, by evidence
of every node. It is the search's loop (loop.py) with one proposer (forms.py) on one state
(state.py).
"""

from __future__ import annotations

from ttsgraph.evaluation.environment import Evaluator
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.searching.contest import loop
from ttsgraph.searching.contest.forms import Forms
from ttsgraph.searching.contest.state import Standing, State


class Contest(State):
    """One contest, on training and validation questions, in an environment that grades every
    node.
    """

    async def begin(self, environment: Evaluator, publish: Publish = ignore) -> list[Standing]:
        """Each model alone, and the probes; returns the standings after them. Raises as `run`."""
        await loop.run(self, [Forms(rounds=False)], environment, publish)
        return self.standings

    async def run(self, environment: Evaluator, publish: Publish = ignore) -> list[Standing]:
        """Run all of it; returns the standings, the best first. Raises RunStopped when a graph lost
        too many questions.
        """
        await loop.run(self, [Forms()], environment, publish)
        first = next((k for k, known in enumerate(self.standings) if self.was_run(known.graph)), 0)
        self.standings.insert(0, self.standings.pop(first))
        return self.standings
