"""The contest: what its contenders are, what it learns of nodes, and that it finds what is there to
be found.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from lab.pools.arrays import ArrayEnvironment, ArrayWorld
from tests.support.contests import compete
from ttsgraph.evaluation.environment import Feedback, Job
from ttsgraph.evaluation.objective import Objective
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.pool.simulated import TaskTraits
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.contenders import Contenders
from ttsgraph.searching.response.model import ResponseModel
from ttsgraph.searching.state import State
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.tasks.base import Question

SMALL = "llama-3.2-1b"
MIDDLE = "llama-3.2-3b"
LARGE = "llama-3.1-8b"
ROLES = ("assistant", "fuser", "voter")
TRAIN = 160
VAL = 32
SETTINGS = ContestSettings(calls=900)
JOINT = Objective(kind="joint", weight=0.9, half_s=2.0)


def questions(count: int) -> list[Question]:
    return [Question(f"q{k}", str(k), "") for k in range(count)]


class Turns(ArrayEnvironment):
    """Counts how often a search waits for answers."""

    turns = 0

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        self.turns += bool(jobs)
        return await super().evaluate_all(jobs, publish)


def world_of(profile: Profile, seed: int = 0, **changes: object) -> Turns:
    traits = TaskTraits(**profile.simulation.tasks["math"].model_dump() | changes)
    world = ArrayWorld(traits, profile.model_pool(), TRAIN + VAL, seed)
    return Turns(world, questions(TRAIN + VAL), profile.task("math").lengths.given)


def scored(profile: Profile, environment: ArrayEnvironment, budget: float) -> Brief:
    cost = profile.cost_model("math")
    scores = {model: environment.world.accuracy(topologies.single(model)) for model in cost.pool}
    return Brief("math", Budget(cost, budget, 80), scores, ROLES)


def contest_of(
    profile: Profile,
    environment: ArrayEnvironment,
    budget: float = 18.0,
    seed: int = 0,
    calls: int = SETTINGS.calls,
) -> State:
    every = environment.questions
    brief = scored(profile, environment, budget)
    settings = SETTINGS.model_copy(update={"calls": calls})
    contest = State(brief, every[:TRAIN], every[TRAIN:], settings, np.random.default_rng(seed))
    compete(contest, environment)
    return contest


@pytest.fixture(scope="module")
def repairing(profile):
    """A world in which refinement repairs, and a contest there."""
    environment = world_of(profile, seed=1, repair=0.9, corrupt=0.02)
    return environment, contest_of(profile, environment)


@pytest.fixture(scope="module")
def long(profile):
    """A world, and a contest there with calls for its finals."""
    environment = world_of(profile, seed=3)
    return environment, contest_of(profile, environment, calls=2000)


def test_it_predicts_graphs_that_were_never_run(long):
    environment, contest = long
    models = tuple(contest.brief.cost.pool)
    model = ResponseModel(contest.evidence, models, np.random.default_rng(0))
    never = [g for g in Contenders(contest.brief).graphs if g not in contest.evidence.graphs]
    predicted = np.array([model.predict(graph).accuracy for graph in never])
    true = np.array([environment.world.accuracy(graph) for graph in never])
    assert len(never) > 50
    assert np.abs(predicted - true).mean() < 0.06
    assert np.corrcoef(predicted, true)[0, 1] > 0.6


class TestContest:
    def test_where_refinement_repairs_it_finds_more_than_one_call(self, repairing):
        environment, contest = repairing
        found = contest.standings[0].graph
        accuracy = environment.world.accuracy
        alone = max(accuracy(topologies.single(model)) for model in (SMALL, MIDDLE, LARGE))
        assert accuracy(found) > alone + 0.05
        assert environment.turns <= 20  # it asks much at once

    def test_where_nothing_helps_it_is_not_far_below_one_call(self, profile):
        useless = {"repair": 0.0, "corrupt": 0.9, "discernment": 0.5, "mend": 0.0}
        environment = world_of(profile, seed=2, favourite=(0.9, 1.0), **useless)
        found = contest_of(profile, environment).standings[0].graph
        accuracy = environment.world.accuracy
        assert accuracy(found) > accuracy(topologies.single(LARGE)) - 0.03

    def test_under_a_joint_objective_a_fast_graph_is_worth_more(self, profile, repairing):
        environment, contest = repairing
        patient = contest.standings[0]
        every = environment.questions
        brief = replace(scored(profile, environment, 18.0), objective=JOINT)
        contest = State(brief, every[:TRAIN], every[TRAIN:], SETTINGS, np.random.default_rng(0))
        hasty = compete(contest, deepcopy(environment))[0]
        assert hasty.graph.depth < patient.graph.depth
        assert hasty.value <= 1

    def test_a_graph_that_does_not_do_as_predicted_is_not_found(self, profile, long):
        """Graphs of some size come to nothing here, which no node's answer tells."""
        sound, contest = long
        size = len(contest.standings[0].graph.nodes)
        assert size > 2

        class NothingLarge(ArrayEnvironment):
            def _evaluate(
                self, graph: CollaborationGraph, questions: Sequence[Question]
            ) -> Feedback:
                feedback = super()._evaluate(graph, questions)
                if len(graph.nodes) < size:
                    return feedback
                spoilt = tuple(replace(result, correct=False) for result in feedback.results)
                return replace(feedback, results=spoilt)

        large = NothingLarge(sound.world, sound.questions, sound.lengths)
        found = contest_of(profile, large, calls=2000).standings[0]
        assert len(found.graph.nodes) < size
