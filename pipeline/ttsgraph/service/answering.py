"""One request on its way through a graph, in a task of its own that ends when its client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ttsgraph.base.errors import CallFailed, DataError, FormRefused, RunStopped
from ttsgraph.evaluation.executor import GraphRunner
from ttsgraph.models.actions import pieces_of
from ttsgraph.models.client import Completion, Piece, Request
from ttsgraph.service.deployments import Live
from ttsgraph.service.errors import CLIENT_GONE, ApiError
from ttsgraph.service.forms import FormedTask, actors
from ttsgraph.service.requests import ChatRequest
from ttsgraph.service.run import Served, ServedRun
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.tracing import RequestTrace

ALIVE: Piece = {}
"""In place of a piece: nothing yet."""

HEAD_S = 0.05
"""Until a stream's first sign of life: an error before it and any text has its own status."""

ALIVE_S = 10.0
"""Between two signs of life."""


class Answering:
    """A question being answered; made in a running event loop, where its work begins at once.
    `task` results in the answer or raises ApiError; cancelling it stops every call of the graph.
    `pieces` gives the last node's text as it comes, or at once where that calls no model. `formed`:
    the answer is choices in a form, rather than one text.
    """

    def __init__(
        self,
        live: Live,
        asked: ChatRequest,
        settings: ServiceSettings,
        trace: RequestTrace | None,
        context: Mapping[str, str],
    ) -> None:
        self.live = live
        self.asked = asked
        self.formed = asked.form.parameters is not None
        self._limit_s = min(settings.timeout_s, asked.timeout_s or settings.timeout_s)
        self.choices: Sequence[dict[str, Any]] = ()  # once it has ended
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self.begun = asyncio.Event()  # there is a piece, or the end
        self.first_at: float | None = None  # the event loop's time of the first piece
        self._alive: asyncio.TimerHandle | None = None
        self.served = ServedRun(
            _runner_for(live, asked),
            Question("asked", asked.question, ""),
            self._finish if asked.stream or asked.max_tokens is not None else None,
            settings,
            live.upstream,
            asked.form,
            asked.turns,
            trace,
            context,
        )
        self.run = self.served.run
        self.task = asyncio.create_task(self._work())
        live.hold(self.task)
        # A failure that nobody is left to hear of is not a warning of the event loop.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def pieces(self) -> AsyncIterator[Piece]:
        """The answer, piece by piece. Raises ApiError, perhaps after some pieces."""
        while (piece := await self._pieces.get()) is not None:
            yield piece
        await self.task

    def leave(self, status: int) -> int:
        """Nobody waits any more: what is left of the work is cancelled. Returns the request's HTTP
        status, which is this one unless the answer failed, or the client left before its end.
        """
        if not self.task.done():
            self.task.cancel()
            return CLIENT_GONE
        failed = None if self.task.cancelled() else self.task.exception()
        return failed.status if isinstance(failed, ApiError) else status

    async def _work(self) -> Served:
        if self.asked.stream:
            loop = asyncio.get_running_loop()
            self._alive = loop.call_later(HEAD_S, self._sign_of_life)
        try:
            answer = await self.served.answer(self._limit_s)
            self._check(answer)
            self.choices = self._choices(answer)
            for choice in self.choices:
                choice["finish_reason"] = choice.get("finish_reason") or self._reason(answer)
            if self.first_at is None:
                text = {"delta": {"content": answer.text or ""}}
                for piece in pieces_of(self.choices) if self.formed else [text]:
                    self._hand_over(piece)
            return answer
        except (RunStopped, DataError) as stopped:
            said = "the service can't work at present"
            raise ApiError(503, said, code="unavailable") from stopped
        finally:
            if self._alive is not None:
                self._alive.cancel()
            self._put(None)

    def _put(self, piece: Piece | None) -> None:
        self._pieces.put_nowait(piece)
        self.begun.set()

    def _check(self, answer: Served) -> None:
        """Raises ApiError for an answer that is none; it says which model failed."""
        if answer.late and (answer.text is None or self.first_at is not None):
            raise ApiError(504, f"no answer within {self._limit_s:g} seconds")
        if answer.refused:
            refusal = self.run.refusals[self.run.runner.sink]
            said = f"a pool model's provider refuses this question: {refusal.said}"
            raise ApiError(400, said, "messages", "content_filter") from refusal
        if answer.error:
            for failure in self.run.failures.values():
                if isinstance(failure, FormRefused):
                    model = str(failure).partition(" ")[0]
                    why = failure.said or "no reason"
                    said = f"pool model {model!r} refuses what this request asks for: {why}"
                    raise ApiError(400, said, code="unsupported_by_model")
            model = answer.error.partition(" ")[0]
            named = f" {model!r}" if model in self.live.deployed.profile.pool else ""
            said = f"pool model{named} failed or can't be reached"
            raise ApiError(502, said, code="pool_model_failed") from CallFailed(answer.error)
        if answer.note and not answer.text:
            said = "the question is too long: with what the graph adds to it, it exceeds a pool"
            said += " model's context"
            cause = CallFailed(answer.note)
            raise ApiError(400, said, "messages", "context_length_exceeded") from cause

    def _choices(self, answer: Served) -> list[dict[str, Any]]:
        """A text's one choice, or the choices of the node that answers. Raises ApiError."""
        form = self.asked.form
        run = self.run
        message = {"role": "assistant", "content": answer.text or "", "refusal": None}
        plain = {"index": 0, "message": message, "logprobs": None}
        if not self.formed:
            return [plain]
        sink = run.runner.sink
        said = [i for i in run.runner.graph.order if answer.node_texts.get(i) == answer.text]
        acting = self.served.acting
        if sink in acting and sink in answer.completions:
            said = [sink]
        made = [answer.completions[i] for i in said if i in acting and i in answer.completions]
        if any(not completion.choices for completion in made):
            told = "this model's pool answers in plain text, without tools, JSON modes or choices"
            raise ApiError(400, told, code="unsupported_parameter")
        if made:
            # Where a text reads like calls, the calls come first.
            found: list[list[dict[str, Any]]] = [json.loads(one.choices) for one in made]
            return max(found, key=lambda choices: bool(choices[0]["message"].get("tool_calls")))
        if form.as_json and not form.tools:
            raise ApiError(502, "no model that answers in JSON did", code="pool_model_failed")
        return [plain | {"finish_reason": "stop"}]

    def _sign_of_life(self) -> None:
        self._put(ALIVE)
        self._alive = asyncio.get_running_loop().call_later(ALIVE_S, self._sign_of_life)

    async def _finish(self, request: Request) -> Completion:
        """The last node's call, as short as the client wants it, handed over as it comes."""
        most = request.sampling.max_tokens
        limit = min(most, self.asked.max_tokens or most)
        request = replace(request, sampling=replace(request.sampling, max_tokens=limit))
        client = self.live.client
        if not self.asked.stream:
            return await client.complete(request)
        return await client.stream(request, self._hand_over)

    def _hand_over(self, piece: Piece) -> None:
        if self.first_at is None:
            self.first_at = asyncio.get_running_loop().time()
        self._put(piece)

    @cached_property
    def ignored(self) -> tuple[str, ...]:
        """The client's parameters without effect, max_tokens where no own words are cut."""
        branches = self.live.deployed.graph.branches
        own_words = all(branch.sink in actors(branch)[0] for branch in branches)
        cut = self.asked.max_tokens is not None and not own_words
        return (*self.asked.ignored, "max_tokens") if cut else self.asked.ignored

    def _reason(self, answer: Served) -> str:
        """`length` when the last node's answer is as long as it may be, else `stop`."""
        runner = self.run.runner
        last = answer.completions.get(runner.sink)
        most = runner.manner(self.run.model_of(runner.sink)).sampling.max_tokens
        limit = min(most, self.asked.max_tokens or most)
        return "length" if last and last.completion_tokens >= limit else "stop"

    def trace(self, answer: Served) -> list[dict[str, Any]]:
        """Every node's answer, in the graph's order, and what its call used."""
        graph = self.live.deployed.graph
        shown: list[dict[str, Any]] = []
        for i in graph.order:
            node = graph.node(i)
            shown.append({"node": i, "role": node.role, "text": answer.node_texts.get(i)})
            if call := answer.completions.get(i):
                told = ("prompt_tokens", "completion_tokens", "latency_s", "cached")
                shown[-1] |= {"model": node.model} | {name: getattr(call, name) for name in told}
        return shown


def _runner_for(live: Live, asked: ChatRequest) -> GraphRunner:
    """The version's runner, with the conversation in its prompt and a task that counts answers of
    the request's form. Raises ApiError 400 where the graph has no place for them.
    """
    form = asked.form
    alone = not (asked.system or asked.history or asked.turns)
    if form.structured and not live.takes_conversations:
        what = "tools" if form.tools else "response_format"
        said = f"{what}: this model continues worked examples; expected a question in plain text"
        raise ApiError(400, said, what, "unsupported_parameter")
    graph = live.deployed.graph
    if form.choices > 1 and graph.sink not in actors(graph)[0]:
        said = "n: expected 1, as the last node of this graph chooses among the others' answers"
        raise ApiError(400, said, "n", "unsupported_parameter")
    if not alone and not live.takes_conversations:
        said = "this model answers a single question: expected one user message and no other"
        raise ApiError(400, said, "messages")
    if alone and not form.structured:
        return live.runner
    task = FormedTask(live.task, form) if form.structured else live.task
    prompt = replace(live.prompt, system=asked.system, history=asked.history)
    return live.deployed.runner(live.client, task, prompt)
