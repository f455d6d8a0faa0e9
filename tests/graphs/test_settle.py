"""What stops and gates cost and answer by known answers: as the executor does it."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.pools.arrays import ArrayWorld
from tests.graphs.test_stopping import READS, voting_graphs
from tests.support.fakes import ScriptedClient
from tests.support.running import POOL, PROMPT, TASK, run
from tests.support.timed import waited
from ttsgraph.evaluation.executor import draw_numbers, manner_of
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import CostModel, MeanCost
from ttsgraph.graphs.settle import Votes, answered, needs
from ttsgraph.graphs.stopping import LOSSLESS, NEVER, Gate, Stop, stops
from ttsgraph.graphs.topologies import with_sink
from ttsgraph.models.client import Completion, Request, Sampling
from ttsgraph.tasks.math import MathTask

SMALL = "llama-3.2-1b"
MIDDLE = "llama-3.2-3b"
LARGE = "llama-3.1-8b"
OTHER = "gemma-1.1-7b"
COLUMNS = 12


class Uneven(ScriptedClient):
    """Answers after a while that differs between calls and seeds."""

    def __init__(self, reply, seed):
        super().__init__(reply)
        self.seed = seed

    async def complete(self, request: Request) -> Completion:
        for _ in range((int(request.key()[:8], 16) + self.seed) % (5 + self.seed)):
            await asyncio.sleep(0)
        return await super().complete(request)


def own_answers(graph, seed):
    """Node id -> (C,) form that it says by its model, draw and in-degree; -1 is none."""
    asks = {name: manner_of(POOL[name], Sampling(), PROMPT).asks for name in POOL}
    replicas = draw_numbers(graph, (), asks.get)
    found = {}
    for i, replica in replicas.items():
        key = [seed, replica, len(graph.reads[i]), ord(graph.node(i).model)]
        found[i] = np.random.default_rng(key).integers(-1, 1 + seed % 3, COLUMNS)
    return found, replicas


class Even(MathTask):
    """Numbers, of which the even ones pass the check."""

    checks = "whether it is even"

    def passes(self, text):
        return self.extract(text) in {"0", "2"}


@settings(max_examples=40, deadline=None)
@given(voting_graphs(True, (*READS, "verifier")), st.integers(0, 1000))
def test_arrays_searches_and_services_ask_and_answer_the_same(graph, seed):
    """Of one question, the executor asks whom the arrays say, whichever answers come first; for
    somebody who waits it asks no more, and answers the same.
    """
    own, replicas = own_answers(graph, seed)
    passing = np.tile([[True], [False], [True]], COLUMNS)
    classes = {}
    for i in graph.order:
        classes[i], _ = answered(graph, i, classes, lambda i=i: own[i], passing)
    wanted = needs(graph, classes, passing)
    called = replicas.items()
    by_call = {(graph.node(i).model, k, len(graph.reads[i])): i for i, k in called}
    for column in range(COLUMNS):

        def reply(request, column=column):
            text = request.messages[-1].content
            reads = text.count("Draft: ") + text.count("Candidate: ")
            form = own[by_call[request.model, request.replica, reads]][column]
            return "no idea" if form < 0 else str(form)

        answer = run(graph, Uneven(reply, column), task=Even())
        stages = {i: int(used[column]) for i, used in wanted.stages.items() if used[column]}
        assert stages == dict(answer.stages)
        assert {i for i, made in wanted.calls.items() if made[column]} == set(answer.completions)
        for i, text in answer.node_texts.items():
            form = TASK.extract(text)
            assert classes[i][column] == (-1 if form is None else int(form))
        served, begun = waited(graph, reply, Even())
        assert TASK.extract(served.text) == TASK.extract(answer.text)
        assert begun <= set(answer.completions)


@pytest.mark.parametrize("stop", [LOSSLESS, NEVER, Stop("beta", 0.7), Stop("beta", 0.95)])
@pytest.mark.parametrize("total", [2, 3, 5, 9])
def test_votes_in_arrays_stop_where_a_single_vote_does(total, stop):
    inputs = np.random.default_rng(total).integers(-1, 3, (total, 300))
    for heard in range(1, total + 1):
        ballot = Votes(inputs)
        arrays = ballot.stops(stop, heard, *ballot.leading(heard))
        forms = [[None if form < 0 else str(form) for form in each] for each in inputs[:heard].T]
        assert arrays.tolist() == [stops(stop, dict(enumerate(each)), total) for each in forms]


def voters(models, **settings_of_it):
    return with_sink(topologies.parallel(models, models[-1], "voter"), **settings_of_it)


ADAPTIVE = {
    "lossless vote of two models": voters([LARGE, OTHER] * 4, waves=(5, 1)),
    "Beta vote of 15": voters([LARGE] * 15, waves=(4, 2), stop=Stop("beta", 0.95)),
    "cascade": voters([MIDDLE] * 3 + [LARGE] * 5, gate=Gate(0.0, (0, 1, 2)), waves=(3, 1)),
    "lenient cascade": voters([SMALL] * 5 + [LARGE], gate=Gate(0.5, tuple(range(5)))),
}


@pytest.mark.parametrize("task", ["math", "mmlu"])
def test_the_mean_cost_is_within_five_percent_of_what_held_out_questions_take(profile, task):
    pool, traits = profile.model_pool(), profile.simulation.tasks[task]
    cost = CostModel(pool, profile.task(task).lengths.given)
    known, held_out = (ArrayWorld(traits, pool, 3000, seed=seed) for seed in (11, 12))

    def demand(graph, world=known):
        return needs(graph, {i: said.replies for i, said in world.nodes(graph).items()})

    mean = MeanCost(cost, demand, 3000, {})
    for name, graph in ADAPTIVE.items():
        expected = float(mean.each(graph).mean())
        paid = demand(graph, held_out).weights(cost.node_costs(graph))
        assert expected == pytest.approx(sum(paid.values()).mean(), rel=0.05), name
        assert expected < mean.graph_cost(graph) < cost.graph_cost(graph)
