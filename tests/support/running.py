"""Two models and a question of arithmetic, and the simulated pool, for tests that run graphs."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ttsgraph.evaluation.environment import Environment
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.models.client import Client, Sampling
from ttsgraph.pool.simulated import SimulatedClient
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.runtime.workers import environment_for
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.prompts import Prompt

MODELS = ("m", "n")
FACTS = ("f", 1e9, 1e9, 1, 1, Price(1.0, 2.0), "unpinned", (0.001, 0.1))
POOL = ModelPool(tuple(ModelSpec(name, *FACTS) for name in MODELS))
TASK = get_task("math")
PROMPT = Prompt("Answer.", "few_shot")
QUESTION = Question("q1", "3 + 4", "7")


def branches(
    chains: Sequence[Sequence[str]], sink_model: str, sink_role: str = "fuser"
) -> CollaborationGraph:
    """Parallel chains, of any lengths and models, and a sink that reads their last nodes."""
    steps = [(k, branch) for branch, models in enumerate(chains) for k in range(len(models))]
    ids = {step: i for i, step in enumerate(sorted(steps))}
    sink = Node(len(ids), sink_role, sink_model)
    nodes = [Node(i, "assistant", chains[branch][k]) for (k, branch), i in ids.items()]
    edges = ((i, ids.get((k + 1, branch), sink.id)) for (k, branch), i in ids.items())
    return CollaborationGraph((*nodes, sink), tuple(edges))


def run(
    graph: CollaborationGraph,
    client: Client,
    question: Question = QUESTION,
    task: Task = TASK,
    pool: ModelPool = POOL,
    prompt: Prompt = PROMPT,
) -> NodeAnswer:
    runner = GraphRunner(graph, task, prompt, Sampling(), pool, client)
    return asyncio.run(asyncio.wait_for(runner.answer(question), 20))


def environment(client: Client, task: Task = TASK, **more: Any) -> Environment:
    return Environment(task, PROMPT, Sampling(), POOL, client, **more)


def simulated(profile: Profile, task: str) -> Environment:
    """An environment of a profile's simulated pool."""
    lengths = {each.kind: each.lengths.given for each in profile.tasks.values()}
    client = SimulatedClient(profile.simulation.tasks, profile.model_pool(), lengths)
    return environment_for(profile, task, client, ())
