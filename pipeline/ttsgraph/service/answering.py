"""Answer to one request; the graph runs in a separate task, which is cancelled if the client
disconnects.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ttsgraph.base.errors import CallFailed, DataError, FormRefused, PromptRefused, RunStopped
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer
from ttsgraph.models.actions import pieces_of
from ttsgraph.models.client import Completion, Piece, Request
from ttsgraph.service.deployments import LiveVersion
from ttsgraph.service.errors import CLIENT_GONE, ApiError
from ttsgraph.service.forms import FormedTask, actors
from ttsgraph.service.requests import ChatRequest
from ttsgraph.service.run import ServedRun
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.tracing import RequestTrace

ALIVE: Piece = {}
"""Keep-alive marker, yielded in place of a piece of text."""

ALIVE_S = 10.0
"""Seconds between two keep-alive markers."""


class RunningAnswer(ServedRun):
    """A question being answered; its work begins immediately, in the running event loop.

    `task` returns the answer or raises ApiError; cancelling it stops all calls of the graph.
    `pieces` yields the last node's text as it arrives, or in one piece if that node calls no model.
    """

    def __init__(
        self,
        live: LiveVersion,
        asked: ChatRequest,
        settings: ServiceSettings,
        trace: RequestTrace | None,
    ) -> None:
        question = Question("asked", asked.conversation.question, "")
        super().__init__(_runner_for(live, asked), question, settings, live.budget, asked, trace)
        self.live = live
        self.asked = asked
        self._limit_s = settings.timeout_s
        self.choices: Sequence[dict[str, Any]] = ()  # set at the end
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self.begun = asyncio.Event()  # set once the first piece is there or the work has ended
        self.first_at: float | None = None  # event-loop time of the first piece
        if asked.stream or asked.longest is not None:
            self.finish = self._finish
        self.task = asyncio.create_task(self._work())
        live.hold(self.task)
        # A failure after the client has left must not be reported by the event loop.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the answer in pieces, with keep-alive markers during pauses.

        Errors are raised by `task`, not here.
        """
        wait_s = 0.0
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    piece = await self._pieces.get()
            except TimeoutError:
                piece = ALIVE
            wait_s = ALIVE_S
            if piece is None:
                return
            yield piece

    def leave(self, status: int) -> int:
        """Cancel remaining work after the request, and return the request's status for the log.

        This is `status`, which was sent, unless the answer failed or the client left too early.
        """
        if not self.task.done():
            self.task.cancel()
            return CLIENT_GONE
        failed = None if self.task.cancelled() else self.task.exception()
        if failed is None:
            return status
        return failed.status if isinstance(failed, ApiError) else 500

    async def _work(self) -> NodeAnswer:
        try:
            answer = await self.answer(self._limit_s)
            self._check(answer)
            self.choices = self._choices(answer)
            for choice in self.choices:
                choice["finish_reason"] = choice.get("finish_reason") or self._reason(answer)
            if self.first_at is None:
                text = {"delta": {"content": answer.text or ""}}
                for piece in pieces_of(self.choices) if self.asked.form else [text]:
                    self._hand_over(piece)
            return answer
        except (RunStopped, DataError) as stopped:
            message = "the service is unavailable at present"
            raise ApiError(503, message, code="unavailable") from stopped
        finally:
            self._put(None)

    def _put(self, piece: Piece | None) -> None:
        self._pieces.put_nowait(piece)
        self.begun.set()

    def _hand_over(self, piece: Piece) -> None:
        if self.first_at is None:
            self.first_at = asyncio.get_running_loop().time()
        self._put(piece)

    def _check(self, answer: NodeAnswer) -> None:
        """Raise ApiError if the run gave no answer, naming the model if a model's call failed."""
        run = self.run
        if run.late and (answer.text is None or self.first_at is not None):
            raise ApiError(504, f"no answer within {self._limit_s:g} seconds")
        if answer.refused:
            refusal = run.met(PromptRefused)[run.runner.sink]
            message = f"a pool model's provider refuses this question: {refusal.said}"
            raise ApiError(400, message, "messages", "content_filter") from refusal
        if answer.error:
            for failure in run.failures.values():
                if isinstance(failure, FormRefused):
                    model = str(failure).partition(" ")[0]
                    why = failure.said or "no reason given"
                    message = f"pool model {model!r} rejects a parameter of this request: {why}"
                    raise ApiError(400, message, code="unsupported_by_model")
            model = answer.error.partition(" ")[0]
            named = f" {model!r}" if model in self.live.deployed.profile.pool else ""
            message = f"pool model{named} failed or can't be reached"
            raise ApiError(502, message, code="pool_model_failed") from CallFailed(answer.error)
        if answer.note and not answer.text:
            message = "the question is too long: with the graph's own text, it exceeds a pool"
            message += " model's context"
            cause = CallFailed(answer.note)
            raise ApiError(400, message, "messages", "context_length_exceeded") from cause

    def _choices(self, answer: NodeAnswer) -> list[dict[str, Any]]:
        """Return one choice with the answer's text or, for a requested form, the choices of the
        acting node that gave the answer.

        Raises ApiError if the pool doesn't support the form, or no model gave the required JSON.
        """
        message = {"role": "assistant", "content": answer.text or "", "refusal": None}
        plain = {"index": 0, "message": message, "logprobs": None}
        if not self.asked.form:
            return [plain]
        sink = self.run.runner.sink
        acting = [i for i in answer.node_texts if i in answer.completions.keys() & self.acting]
        same = [i for i in acting if answer.node_texts[i] == answer.text]
        made = [answer.completions[i] for i in ([sink] if sink in acting else same)]
        if any(not completion.choices for completion in made):
            why = "expected a request for plain text: this pool supports no tools, JSON or choices"
            raise ApiError(400, why, code="unsupported_parameter")
        if made:
            # Several nodes may give the same text, and only some of them as real tool calls.
            found: list[list[dict[str, Any]]] = [json.loads(one.choices) for one in made]
            return max(found, key=lambda choices: bool(choices[0]["message"].get("tool_calls")))
        if self.asked.as_json and not self.asked.tools:
            why = "expected an answer in JSON, but no pool model gave one"
            raise ApiError(502, why, code="pool_model_failed")
        return [plain | {"finish_reason": "stop"}]

    def _longest(self, most: int) -> int:
        """Return the last node's maximum number of tokens; `most` is the version's maximum."""
        return min(most, self.asked.longest or most)

    async def _finish(self, request: Request) -> Completion:
        """Make the last node's call, limited to the client's max_tokens, and return its answer.

        If the client wants a stream, hand over the answer's pieces as they arrive.
        """
        limit = self._longest(request.sampling.max_tokens)
        request = replace(request, sampling=replace(request.sampling, max_tokens=limit))
        client = self.live.client
        if not self.asked.stream:
            return await client.complete(request)
        return await client.stream(request, self._hand_over)

    @property
    def ignored(self) -> list[str]:
        """The client's parameters that have no effect.

        They include `max_tokens` if the last node of a branch selects among other nodes' answers.
        """
        asked = self.asked
        found = asked.ignored
        if asked.effort not in (None, self.live.effort):
            found.append("reasoning_effort")
        branches = self.live.deployed.graph.branches
        own_words = all(branch.sink in actors(branch)[0] for branch in branches)
        if asked.longest is not None and not own_words:
            found.append("max_tokens" if asked.max_tokens else "max_completion_tokens")
        return found

    def _reason(self, answer: NodeAnswer) -> str:
        """Return "length" if the last node's answer has the maximum length, else "stop"."""
        run = self.run
        last = answer.completions.get(run.runner.sink)
        most = run.runner.manner(run.model_of(run.runner.sink)).sampling.max_tokens
        return "length" if last and last.completion_tokens >= self._longest(most) else "stop"

    def nodes(self, answer: NodeAnswer) -> list[dict[str, Any]]:
        """Return every node's answer, in the graph's order, with the usage of the node's call."""
        graph = self.live.deployed.graph
        shown: list[dict[str, Any]] = []
        for i in graph.order:
            node = graph.node(i)
            shown.append({"node": i, "role": node.role, "text": answer.node_texts.get(i)})
            if call := answer.completions.get(i):
                names = ("prompt_tokens", "completion_tokens", "latency_s", "cached")
                shown[-1] |= {"model": node.model} | {name: getattr(call, name) for name in names}
        return shown


def _runner_for(live: LiveVersion, asked: ChatRequest) -> GraphRunner:
    """Return the version's runner, adapted to the request's conversation and form.

    Raises ApiError 400 if the graph doesn't support them.
    """
    alone = len(asked.messages) == 1
    graph = live.deployed.graph
    if asked.structured and not live.takes_conversations:
        what = "tools" if asked.tools else "response_format"
        why = "expected a request for plain text, because this model uses few-shot prompts"
        raise ApiError(400, f"{what}: {why}", what, "unsupported_parameter")
    if (asked.n or 1) > 1 and graph.sink not in actors(graph)[0]:
        why = "expected 1, because the last node of this graph selects among other nodes' answers"
        raise ApiError(400, f"n: {why}", "n", "unsupported_parameter")
    if not alone and not live.takes_conversations:
        message = "this model answers a single question: expected one user message and no other"
        raise ApiError(400, message, "messages")
    if alone and not asked.structured:
        return live.runner
    task = FormedTask(live.task, asked) if asked.structured else live.task
    around = asked.conversation
    prompt = replace(live.prompt, system=around.system, history=around.history)
    return live.deployed.runner(live.client, task, prompt)
