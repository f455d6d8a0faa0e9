"""One request on its way through a graph, in a task of its own that ends when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ttsgraph.base.errors import CallFailed, RunStopped
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.actions import pieces_of
from ttsgraph.models.client import Completion, Request
from ttsgraph.service.acting import AskedRun, actors
from ttsgraph.service.deployments import Live
from ttsgraph.service.errors import ApiError, of_call, of_refusal
from ttsgraph.service.forms import check_place
from ttsgraph.service.requests import ChatRequest
from ttsgraph.service.run import Served, Tolerance
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.tracing import RequestTrace

Piece = str | dict[str, Any]
"""Some of an answer: text, or of a request with a form what a choice grows by; or ALIVE, nothing
yet.
"""

ALIVE: Piece = {}
ALIVE_S = 10.0
"""Between two signs of life of a stream."""


class Answering:
    """A question being answered. Made in a running event loop, where its work begins at once.

    `task` results in the answer or raises ApiError; cancelling it stops every call of the graph
    that is under way, and none is begun any more. `pieces` gives the last node's text as it comes,
    or at once where that node calls no model.
    """

    def __init__(
        self,
        live: Live,
        asked: ChatRequest,
        timeout_s: float,
        tolerance: Tolerance = Tolerance(),  # noqa: B008
        trace: RequestTrace | None = None,
        context: Mapping[str, str] | None = None,
    ) -> None:
        self.live = live
        self.asked = asked
        self.run: AskedRun | None = None
        self._tolerance = tolerance
        if asked.form is not None:
            sink_acts = live.deployed.graph.sink in actors(live.deployed.graph)[0]
            check_place(asked.form, not live.takes_conversations, sink_acts)
        prompt = asked.prompt(live.prompt, live.takes_conversations)
        task = asked.task(live.task)
        self._runner = (
            live.runner
            if prompt is live.prompt and task is live.task
            else live.deployed.runner(live.client, task, prompt)
        )
        self._limit_s = min(timeout_s, asked.timeout_s or timeout_s)
        self._told = trace, context
        self.choices: list[dict[str, Any]] = []  # of an answer in another form than one text
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._handed_over = False
        self.first_at: float | None = None  # the event loop's time of the first piece
        self._alive: asyncio.TimerHandle | None = None
        self.task = asyncio.create_task(self._work())
        live.hold(self.task)
        # A failure that nobody is left to hear of is not a warning of the event loop.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def pieces(self) -> AsyncIterator[Piece]:
        """The answer, piece by piece. Raises ApiError, perhaps after some pieces."""
        while (piece := await self._pieces.get()) is not None:
            yield piece
        await self.task

    async def _work(self) -> Served:
        finish = self._finish if self.asked.stream or self.asked.max_tokens is not None else None
        self.run = run = AskedRun(
            self._runner,
            Question("asked", self.asked.question, ""),
            finish,
            self._tolerance,
            self.live.steady,
            lambda: self._handed_over,
            self.asked.form,
            self.asked.turns,
            *self._told,
        )
        if self.asked.stream:
            self._sign_of_life()
        try:
            answer = await run.answer(self._limit_s)
        except RunStopped as stopped:
            raise ApiError(
                503, "the service can't work at present", code="unavailable"
            ) from stopped
        else:
            if answer.late and (answer.text is None or self._handed_over):
                raise ApiError(504, f"no answer within {self._limit_s:g} seconds")
            if (refused := run.refused) is not None and answer.error:
                raise of_refusal(refused)
            if answer.error:
                raise of_call(answer.error, self.live.deployed.profile.pool) from CallFailed(
                    answer.error
                )
            if answer.note and not answer.text:
                said = (
                    "the question is too long: with what the graph adds to it, it exceeds a pool"
                    " model's context"
                )
                raise ApiError(400, said, "messages", "context_length_exceeded") from CallFailed(
                    answer.note
                )
            if self.formed:
                self.choices = run.choices(answer)
            if not self._handed_over:
                pieces: Sequence[Piece] = pieces_of(self.choices)
                for piece in pieces or (answer.text or "",):
                    self._hand_over(piece)
            return answer
        finally:
            if self._alive is not None:
                self._alive.cancel()
            self._pieces.put_nowait(None)

    def _sign_of_life(self) -> None:
        loop = asyncio.get_running_loop()
        if self._alive is not None:
            self._pieces.put_nowait(ALIVE)
        self._alive = loop.call_later(ALIVE_S, self._sign_of_life)

    async def _finish(self, request: Request) -> Completion:
        """The last node's call, shorter if the client wants it so, its text handed over while it is
        written.
        """
        limit = min(
            request.sampling.max_tokens, self.asked.max_tokens or request.sampling.max_tokens
        )
        request = replace(request, sampling=replace(request.sampling, max_tokens=limit))
        client = self.live.client
        formed = request.form is not None
        if self.asked.stream:
            stream = client.stream_choices if formed else client.stream
            return await stream(request, self._hand_over)
        completion = await client.complete(request)
        if not formed:
            self._hand_over(completion.text)
        return completion

    def _hand_over(self, piece: Piece) -> None:
        if not self._handed_over:
            self.first_at = asyncio.get_running_loop().time()
        self._handed_over = True
        self._pieces.put_nowait(piece)

    @property
    def formed(self) -> bool:
        """Whether the answer is choices in a form, rather than one text."""
        return self.asked.form is not None and self.asked.form.parameters is not None

    @property
    def _last_calls_model(self) -> bool:
        ends = [branch.node(branch.sink) for branch in self.live.deployed.graph.branches]
        roles = [get_role(end.role) for end in ends]
        # Else what it says is not the answer.
        return all(role.calls_model and role.read is None for role in roles)

    @property
    def ignored(self) -> tuple[str, ...]:
        """The client's parameters without effect; max_tokens is one where the last node takes
        another node's text as it is.
        """
        cut = self.asked.max_tokens is not None and not self._last_calls_model
        return (*self.asked.ignored, "max_tokens") if cut else self.asked.ignored

    def finish_reason(self, answer: Served) -> str:
        """`length` when the last node's answer is as long as it may be, else `stop`."""
        graph = self.live.deployed.graph
        sink = graph.branches[graph.route.taken(answer.stages)].sink if graph.route else graph.sink
        last = answer.completions.get(sink)
        limit = self._runner.manners[graph.node(sink).model].sampling.max_tokens
        return (
            "length"
            if last and last.completion_tokens >= min(limit, self.asked.max_tokens or limit)
            else "stop"
        )

    def trace(self, answer: Served) -> list[dict[str, Any]]:
        """Every node's answer, in the graph's order, and what its call used."""
        graph = self.live.deployed.graph
        return [_traced(graph.node(i).role, i, graph.node(i).model, answer) for i in graph.order]


def _traced(role: str, i: int, model: str, answer: Served) -> dict[str, Any]:
    shown: dict[str, Any] = {"node": i, "role": role, "text": answer.node_texts.get(i)}
    if call := answer.completions.get(i):
        used = {
            "prompt_tokens": call.prompt_tokens,
            "completion_tokens": call.completion_tokens,
            "latency_s": call.latency_s,
        }
        shown |= {"model": model, **used, "cached": call.cached}
    return shown
