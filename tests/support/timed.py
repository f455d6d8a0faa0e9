"""Models that take their time, on a clock that does not."""

import asyncio
import selectors
from collections.abc import Callable

from tests.support.fakes import ScriptedClient
from tests.support.running import POOL, PROMPT, QUESTION, TASK
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer, Run
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.stopping import Patience
from ttsgraph.models.client import Completion, Request, Sampling
from ttsgraph.tasks.base import Question, Task


class _Waits(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout=None):
        self.now += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes without waiting."""

    def __init__(self):
        self._clock = _Waits()
        super().__init__(self._clock)

    def time(self):
        return self._clock.now


class Timed(ScriptedClient):
    """Answers after `seconds(request)`, and remembers what was begun, and what was cancelled."""

    def __init__(self, reply, seconds=lambda request: 1.0, fails=lambda request: False):
        super().__init__(reply, fails)
        self.seconds = seconds
        self.cancelled = []

    async def complete(self, request: Request) -> Completion:
        try:
            await asyncio.sleep(self.seconds(request))
        except asyncio.CancelledError:
            self.cancelled.append(request)
            raise
        return await super().complete(request)


def waited(
    graph: CollaborationGraph,
    reply: Callable[[Request], str],
    task: Task = TASK,
    question: Question = QUESTION,
) -> tuple[NodeAnswer, set[int]]:
    """What somebody gets who waits for models of all speeds, and the nodes whose calls began."""
    client = Timed(reply, lambda request: 1.0 + int(request.key()[:4], 16) % 7)
    runner = GraphRunner(graph, task, PROMPT, Sampling(), POOL, client)
    served = Run(runner, question, patience=Patience(quorum=0.5))
    with asyncio.Runner(loop_factory=VirtualLoop) as clock:
        answer = clock.run(served.answer(deadline_s=1e6))
    return answer, {*answer.completions, *served.cancelled}
