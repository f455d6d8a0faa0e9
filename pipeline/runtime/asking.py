"""One question through one graph, outside any search."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.base.errors import RunStopped
from pipeline.evaluation.executor import Answer, run_graph
from pipeline.graphs.graph import CollaborationGraph
from pipeline.runtime.clients import open_client
from pipeline.settings.profile import Profile
from pipeline.tasks.base import Question


async def ask_graph(
    graph: CollaborationGraph,
    question: str,
    profile: Profile,
    task: str,
    shots: Sequence[Question] = (),
) -> Answer:
    """The graph's answer. `shots` are the worked examples of few-shot prompts. Raises RunStopped
    when a call failed for good.
    """
    settings = profile.task(task)
    prompt = settings.prompt.prompt(settings.task, shots)
    async with open_client(profile) as client:
        asked = Question("asked", question, "")
        answer = await run_graph(
            graph, asked, prompt, settings.sampling.sampling(), profile.model_pool(), client
        )
    if answer.text is None:
        raise RunStopped(f"no answer: {answer.error}")
    return answer
