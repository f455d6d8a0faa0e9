"""Inference over a collaboration graph (paper, Algorithm 2), asynchronously.

Level by level: the nodes of one level run together, and so do the questions of a batch; how many requests are under way is limited
where it matters, per endpoint, in the client.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.budget import critical_path
from pipeline.errors import CallFailed
from pipeline.graph import CollaborationGraph, Node
from pipeline.models.client import Completion, ModelClient, Request, Sampling, Usage
from pipeline.models.spec import ModelPool
from pipeline.prompts import Prompt
from pipeline.roles import get_role
from pipeline.tasks.base import Question


@dataclass(frozen=True, slots=True)
class Answer:
    """A graph's answer to one question, or why there is none: then `text` is None and `error` says which call failed.

    `latency_s` is the critical path over the latencies measured when the calls were made. `usage` also counts the calls that
    succeeded before one failed.
    """

    text: str | None
    latency_s: float
    usage: Usage
    node_texts: Mapping[int, str]
    error: str = ""


async def run_graph(
    graph: CollaborationGraph, question: Question, prompt: Prompt, sampling: Sampling, pool: ModelPool, client: ModelClient
) -> Answer:
    """Answer one question. Stops after the level in which a call failed for good."""
    texts: dict[int, str] = {}
    latencies: dict[int, float] = {}
    usage = Usage()
    replicas: Counter[str] = Counter()
    for level in graph.levels:
        requests = {}
        for i in level:
            node = graph.node(i)
            answers = [texts[p] for p in graph.predecessors[i]]
            role = get_role(node.role)
            if role.decide is not None:
                texts[i], latencies[i] = role.decide(prompt.task, answers), 0.0
            elif role.speak is not None:
                shown = most_supported(answers, prompt, node)
                messages = role.speak(prompt, question, shown)
                requests[i] = _with_replica(Request(node.model, pool[node.model].revision, messages, sampling), replicas)
        outcomes = await asyncio.gather(*(_complete(client, request) for request in requests.values()))
        failures = [outcome for outcome in outcomes if isinstance(outcome, CallFailed)]
        for i, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, Completion):
                texts[i], latencies[i] = outcome.text, outcome.latency_s
                usage += _usage(outcome, pool, graph.node(i).model)
        if failures:
            return Answer(None, math.nan, usage, texts, str(failures[0]))
    return Answer(texts[graph.sink], critical_path(graph, latencies), usage, texts)


def most_supported(answers: list[str], prompt: Prompt, node: Node) -> list[str]:
    """What a node reads: all answers, or for a fuser with top_k the k whose extracted form most answers share, in their order."""
    if node.role != "fuser" or node.top_k is None or len(answers) <= node.top_k:
        return answers
    forms = [prompt.task.extract(answer) for answer in answers]
    support = Counter(form for form in forms if form is not None)
    ranked = sorted(range(len(answers)), key=lambda k: (-support.get(forms[k] or "", 0), k))
    return [answers[k] for k in sorted(ranked[: node.top_k])]


def _with_replica(request: Request, replicas: Counter[str]) -> Request:
    """The request, numbered among the identical requests of this graph and question: k parallel nodes are k different draws.

    Levels run one after another, so numbers depend on the graph and the answers alone, never on timing.
    """
    key = request.key()
    number = replicas[key]
    replicas[key] += 1
    return request if number == 0 else Request(request.model, request.revision, request.messages, request.sampling, number)


async def _complete(client: ModelClient, request: Request) -> Completion | CallFailed:
    """A failure as a value, so that the level's other calls finish: what is paid for should reach the cache."""
    try:
        return await client.complete(request)
    except CallFailed as failure:
        return failure


def _usage(completion: Completion, pool: ModelPool, model: str) -> Usage:
    dollars = pool[model].dollars(completion.prompt_tokens, completion.completion_tokens)
    return Usage(
        completion.prompt_tokens,
        completion.completion_tokens,
        dollars,
        0.0 if completion.cached else dollars,
        calls=1,
        cached_calls=int(completion.cached),
    )
