"""The contest of both init stages: run anew in each, the second finds the first one's calls in the
cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ttsgraph.evaluation.environment import Environment
from ttsgraph.evaluation.progress import run_state
from ttsgraph.tasks.base import Question
from ttsgraph_flows.live import live
from ttsgraph_flows.stage import Stage

if TYPE_CHECKING:
    from ttsgraph.contest.contest import Contest


def run_contest(stage: Stage, name: str, probes_only: bool = False) -> Contest:
    """The stage's contest, to its end or to the end of its probes."""
    from ttsgraph.contest.contest import Contest  # with scipy, slow to import

    settings = stage.profile.contest
    brief = stage.brief()
    questions = stage.questions()
    rng = np.random.default_rng([stage.params.seed, 1])
    contest = Contest(brief, questions["train"], questions["val"], settings, rng)

    async def run(environment: Environment, splits: dict[str, list[Question]]) -> None:
        graded = environment.with_node_grades()
        if probes_only:
            await contest.begin(graded, publish)
        else:
            await contest.run(graded, publish)

    most = len(brief.cost.pool) * len(questions["train"]) + settings.calls
    with live(run_state(f"{name} {stage.task}", most, at_most=True)) as publish:
        stage.with_models(run, account=name)
    return contest
