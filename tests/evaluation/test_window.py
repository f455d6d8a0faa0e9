"""However many questions there are, a bounded number is under way, with the same outcomes."""

import asyncio

import pytest

from ttsgraph.base.errors import RunStopped
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import chain, single
from ttsgraph.models.client import Client, Completion, Sampling
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import Prompt

POOL = ModelPool((ModelSpec("m", "f", 1e9, 1e9, 16, 2048, Price(0.1, 0.2)),))
QUESTIONS = [Question(f"q{k}", f"{k} + 1", str(k + 1)) for k in range(40)]


class Counting(Client):
    """Knows how many calls were under way at most; one question's calls stop the run."""

    def __init__(self, stops=""):
        self.now = self.most = self.calls = 0
        self.stops = stops

    async def complete(self, request):
        self.now = self.now + 1
        self.calls = self.calls + 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
        finally:
            self.now -= 1
        asked = request.messages[-1].content
        if self.stops and self.stops in asked:
            raise RunStopped("enough")
        return Completion(str(len(asked)), 10, 1, 0.5)

    async def aclose(self):
        pass


def environment(client, **more):
    return Environment(get_task("math"), Prompt("Answer."), Sampling(), POOL, client, **more)


def feedbacks(client, **more):
    graphs = (single("m"), chain(["m"] * 2), chain(["m"] * 3))
    asked = environment(client, **more).evaluate_all([(graph, QUESTIONS) for graph in graphs])
    return [(feedback.results, feedback.usage) for feedback in asyncio.run(asked)]


def test_the_questions_of_all_graphs_share_one_window_and_come_out_the_same():
    bounded = Counting()
    free = Counting()
    assert feedbacks(bounded, most_under_way=7) == feedbacks(free)
    assert bounded.most == 7
    assert free.most == 3 * len(QUESTIONS)


def test_a_window_is_free_again_after_a_run_that_was_stopped():
    client = Counting(stops="5 + 1")
    env = environment(client, most_under_way=3)

    async def run():
        with pytest.raises(RunStopped, match="enough"):
            await env.evaluate(single("m"), QUESTIONS)
        before = client.calls
        client.stops = ""
        await env.evaluate(single("m"), QUESTIONS[:10])
        return before

    assert asyncio.run(run()) < len(QUESTIONS)
    assert client.most == 3
