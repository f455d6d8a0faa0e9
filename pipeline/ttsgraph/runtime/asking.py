"""One question through one graph, outside any search."""

from __future__ import annotations

from collections.abc import Sequence

from ttsgraph.base.errors import RunStopped
from ttsgraph.evaluation.executor import NodeAnswer, run_graph
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.runtime.clients import open_client
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks.base import Question


async def ask_graph(
    graph: CollaborationGraph,
    question: str,
    profile: Profile,
    task: str,
    shots: Sequence[Question] = (),
) -> NodeAnswer:
    """The graph's answer. `shots` are the worked examples of few-shot prompts. Raises RunStopped
    when a call failed for good.
    """
    settings = profile.task(task)
    prompt = settings.prompt.prompt(settings.task, shots)
    async with open_client(profile) as client:
        asked = Question("asked", question, "")
        answer = await run_graph(
            graph,
            asked,
            settings.task,
            prompt,
            settings.sampling.sampling(),
            profile.model_pool(task),
            client,
        )
    if answer.text is None:
        raise RunStopped(f"no answer: {answer.error}")
    return answer
