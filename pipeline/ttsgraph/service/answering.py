"""Answer to one request: the run of a graph for a waiting user, with a quorum, a deadline and the
client's form of answers.

It counts the requests that were sent and those that are billed. The graph runs in a separate task,
which is cancelled if the client disconnects.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ttsgraph.base.errors import CallFailed, ContextOverflow, FormRefused, PromptRefused
from ttsgraph.endpoints.endpoints import RetryBudget
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer, Run, usage_of
from ttsgraph.graphs.stopping import Patience
from ttsgraph.models.actions import CALLS, pieces_of
from ttsgraph.models.client import (
    OUTGOING,
    Completion,
    Deferred,
    OnPiece,
    OutgoingRequests,
    Piece,
    Request,
    Usage,
    estimate_tokens,
)
from ttsgraph.service.deployments import LiveVersion
from ttsgraph.service.errors import CLIENT_GONE, ApiError
from ttsgraph.service.forms import FormedTask, actors, with_advice, with_turns
from ttsgraph.service.requests import ChatRequest
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.tracing import RequestTrace

ALIVE: Piece = {}
"""Keep-alive marker, yielded in place of a piece of text."""

ALIVE_S = 10.0
"""Seconds between two keep-alive markers."""


class ServedRun:
    """Run of one question in the form that a client asked for.

    `budget` limits retries; time-outs of single calls and hedged requests are left to a gateway
    (docs/production.md). `trace` gets the nodes' spans. `run` is the executor's run.
    """

    on_piece: OnPiece | None = None
    """Receiver of the last node's text as it arrives, if the client wants a stream."""

    def __init__(
        self,
        runner: GraphRunner,
        asked: ChatRequest,
        settings: ServiceSettings,
        budget: RetryBudget,
        trace: RequestTrace | None = None,
    ) -> None:
        self.asked = asked
        self._budget = budget
        self._trace = trace
        question = Question("asked", asked.conversation.question, "")
        patience = Patience(settings.quorum, settings.fallback)
        self.run = Run(runner, question, self._begin, patience)
        runner = self.run.runner
        self.calling = [i for i in runner.graph.order if runner.roles[i].calls_model]
        self.acting, self._choosing = actors(runner.graph)
        self.requests: dict[int, Request] = {}
        self.outgoing: dict[int, OutgoingRequests] = {}

    async def answer(self, deadline_s: float | None = None) -> NodeAnswer:
        """Run the graph for at most `deadline_s` seconds; cancelling the run cancels every call.

        The answer's usage includes an estimate for abandoned calls.
        """
        return replace(await self.run.answer(deadline_s), usage=self.used())

    @property
    def degraded(self) -> bool:
        """True if a missing call may make the answer differ from the complete graph's answer."""
        run = self.run
        read_by = {j for i in run.met(CallFailed) for j in run.asking.graph.successors[i]}
        lost = any(j in run.asking.stage and not run.asking.is_sure(j) for j in read_by)
        return run.late or bool(run.fallbacks) or lost

    def outcome(self, i: int) -> str:
        """Return the outcome of a node.

        It is "answered", "failed", "fallback" (the call failed, and other nodes' answers
        replace it), "refused" (by the provider), "empty" (the prompt doesn't fit), "cancelled"
        (begun, then not needed), or "left_out" (never begun).
        """
        run = self.run
        error = run.errors.get(i) or run.failures.get(i)
        answered = run.completions if run.runner.roles[i].calls_model else run.texts
        outcomes = {
            "fallback": i in run.fallbacks,
            "refused": isinstance(error, PromptRefused),
            "empty": isinstance(error, ContextOverflow),
            "failed": error is not None,
            "answered": i in answered,
            "cancelled": i in run.cancelled,
            "left_out": True,
        }
        return next(how for how, holds in outcomes.items() if holds)

    def account(self) -> dict[str, Any]:
        """Return the numbers of calls and requests, and the nodes whose calls gave no answer, by
        outcome, as plain data.

        `calls` counts answered calls, `begun` requests that were sent, and `billed` requests that
        were answered or abandoned.
        """
        run = self.run
        usage = self.used()
        made = sum(not completion.cached for completion in run.completions.values())
        account: dict[str, Any] = {
            "calls": usage.calls,
            "begun": sum(out.begun for out in self.outgoing.values()),
            "billed": made + sum(map(self._abandoned, self.calling)),
            "dollars": usage.dollars,
            "degraded": self.degraded,
            "deadline_passed": run.late,
        }
        for i in self.calling:
            if (how := self.outcome(i)) != "answered":
                account.setdefault(how, []).append(i)
        return account

    def _begin(self, i: int, request: Request) -> Completion | Awaitable[Completion]:
        """Begin a node's call in the client's form, and return its completion, or an awaitable."""
        self.requests[i] = request = self._formed(i, request)
        runner = self.run.runner
        found: Completion | Awaitable[Completion]
        # A judge's reply is not the graph's answer, so it is neither streamed nor limited.
        last = i == runner.sink and i in self.acting
        if last and self.on_piece:
            found = Deferred(partial(runner.client.stream, request, self.on_piece))
        elif last and self.asked.longest:
            found = runner.client.begin(request)  # gives a cut answer no more room
        else:
            found = runner.begin(request)
        return found if isinstance(found, Completion) else self._called(i, found)

    async def _called(self, i: int, call: Awaitable[Completion]) -> Completion:
        """Await a node's call, in a separate task, and count the call's requests."""
        self._budget.called()
        OUTGOING.set(self.outgoing.setdefault(i, OutgoingRequests()))  # kept after a cancelled call
        return await (self._trace.call(self, i, call) if self._trace else call)

    def _formed(self, i: int, request: Request) -> Request:
        """Return a node's request in the client's form; advising nodes are asked for advice."""
        asked = self.asked
        messages = request.messages
        if turns := asked.conversation.turns:
            shown = self.run.runner.task.render(self.run.question)
            messages = with_turns(messages, shown, turns)
        if i in self.acting:
            # The task's own stop sequences are for plain text, and could cut a tool call or JSON.
            own = () if asked.structured else request.sampling.stop
            stop = tuple(dict.fromkeys((*own, *(asked.stop or ()))))
            sampling = replace(request.sampling, stop=stop)
            if i == self.run.runner.sink and asked.longest:
                most = min(sampling.max_tokens, asked.longest)
                sampling = replace(sampling, max_tokens=most)
            return replace(request, messages=messages, sampling=sampling, form=asked.form)
        if i not in self._choosing:
            messages = with_advice(messages, asked.advice)
        return replace(request, messages=messages)

    def used(self) -> Usage:
        """Return the usage of answered calls plus an estimate for abandoned requests."""
        return sum(map(self.used_by, self.run.runner.graph.order), Usage())

    def used_by(self, i: int) -> Usage:
        """Return the usage of a node's call, including an estimate for abandoned requests."""
        asked = self.run.runner.pool[self.run.model_of(i)]
        made = self.run.completions.get(i)
        used = usage_of(made, asked) if made is not None else Usage()
        for _ in range(self._abandoned(i)):
            used += replace(usage_of(self._expected(i), asked), calls=0)
        return used

    def _abandoned(self, i: int) -> int:
        """Return the number of a node's requests that were sent but not awaited to the end."""
        out = self.outgoing.get(i)
        return out.begun - out.ended if out else 0

    def _expected(self, i: int) -> Completion:
        """Return the estimated usage of an abandoned request, which is billed in full.

        The estimate is the mean usage of the answered calls or, if there are none, the length of
        the node's request.
        """
        made = self.run.completions.values()
        if not made:
            messages = self.requests[i].messages
            asked = "\n".join(message.whole or message.content for message in messages)
            return Completion("", estimate_tokens(asked), 0, 0.0)
        read = fmean(call.prompt_tokens for call in made)
        written = fmean(call.completion_tokens for call in made)
        return Completion("", round(read), round(written), 0.0)


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
        super().__init__(_runner_for(live, asked), asked, settings, live.budget, trace)
        self.live = live
        self._limit_s = settings.timeout_s
        self.choices: Sequence[dict[str, Any]] = ()  # set at the end
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        # Done once the first piece is there or the work has ended.
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first_at: float | None = None  # event-loop time of the first piece
        if asked.stream:
            self.on_piece = self._hand_over
        self.task = asyncio.create_task(self._work())
        # A failure after the client has left must not be reported by the event loop.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the answer in pieces, with keep-alive markers during pauses.

        Errors are raised by `task`, not here.
        """
        while True:
            try:
                async with asyncio.timeout(ALIVE_S):
                    piece = await self._pieces.get()
            except TimeoutError:
                piece = ALIVE
            if piece is None:
                return
            yield piece

    def leave(self, status: int) -> int:
        """Cancel remaining work after the request, and return the request's status for the log.

        This is `status`, which was sent, unless the answer failed or the client left too early.
        """
        if self.task.cancel():
            return CLIENT_GONE
        if self.task.cancelled() or (failed := self.task.exception()) is None:
            return status
        return failed.status if isinstance(failed, ApiError) else 500

    async def _work(self) -> NodeAnswer:
        try:
            answer = await self.answer(self._limit_s)
            self._check(answer)
            self.choices = self._choices(answer)
            if self.first_at is None:
                for piece in pieces_of(self.choices):
                    self._hand_over(piece)
            return answer
        finally:
            self._hand_over(None)

    def _hand_over(self, piece: Piece | None) -> None:
        """Add a piece for `pieces` to yield; None ends them."""
        if self.first_at is None and piece is not None:
            self.first_at = asyncio.get_running_loop().time()
        self._pieces.put_nowait(piece)
        if not self.begun.done():
            self.begun.set_result(None)

    def _check(self, answer: NodeAnswer) -> None:
        """Raise ApiError if the run gave no answer, naming the model if a model's call failed."""
        run, messages = self.run, self.asked.named("messages")
        if run.late and (answer.text is None or self.first_at is not None):
            raise ApiError(504, f"no answer within {self._limit_s:g} seconds")
        if answer.refused:
            refusal = run.met(PromptRefused)[run.runner.sink]
            why = f"a pool model's provider refuses this question: {refusal.said}"
            raise ApiError(400, why, messages, "content_filter") from refusal
        for failure in run.failures.values():
            if isinstance(failure, FormRefused):
                said = failure.said or "no reason given"
                why = f"pool model {str(failure).partition(' ')[0]!r} rejects a parameter of this"
                raise ApiError(400, f"{why} request: {said}", code="unsupported_by_model")
        if answer.error:
            model = answer.error.partition(" ")[0]
            named = f" {model!r}" if model in self.live.deployed.profile.pool else ""
            why = f"pool model{named} failed or can't be reached"
            raise ApiError(502, why, code="pool_model_failed") from CallFailed(answer.error)
        if (full := run.met(ContextOverflow)) and not answer.text:
            why = "the question is too long for a pool model's context"
            cause = next(iter(full.values()))
            raise ApiError(400, why, messages, "context_length_exceeded") from cause

    def _choices(self, answer: NodeAnswer) -> list[dict[str, Any]]:
        """Return one choice with the answer's text or, for a requested form, the choices of the
        acting node that gave the answer.

        Raises ApiError if the pool doesn't support the form, or no model gave the required JSON.
        """
        sink = self.run.runner.sink
        last = answer.completions.get(sink)
        full = last and last.completion_tokens >= self.requests[sink].sampling.max_tokens
        message = {"role": "assistant", "content": answer.text or "", "refusal": None}
        plain = {"index": 0, "message": message, "logprobs": None}
        plain["finish_reason"] = "length" if full else "stop"
        if not self.asked.form:
            return [plain]
        acting = answer.completions.keys() & self.acting
        same = [i for i, text in answer.node_texts.items() if i in acting and text == answer.text]
        made = [answer.completions[i].choices for i in same]
        if not all(made):
            why = "expected a request for plain text: this pool supports no tools, JSON or choices"
            raise ApiError(400, why, code="unsupported_parameter")
        if made:
            # Several nodes may give the same text, and only some of them as real tool calls.
            known: list[list[dict[str, Any]]] = [json.loads(choices) for choices in made]
            found = max(known, key=lambda choices: bool(choices[0]["message"].get(CALLS)))
            for choice in found:  # some endpoints give no reason
                choice["finish_reason"] = choice["finish_reason"] or plain["finish_reason"]
            return found
        if self.asked.as_json and not self.asked.tools:
            why = "expected an answer in JSON, but no pool model gave one"
            raise ApiError(502, why, code="pool_model_failed")
        return [plain]

    @property
    def ignored(self) -> list[str]:
        """The client's parameters that have no effect.

        They include `max_tokens` if the last node selects among other nodes' answers.
        """
        asked = self.asked
        found = asked.ignored
        if asked.reasoning_effort not in (None, self.live.effort):
            found.append(asked.named("reasoning_effort"))
        if asked.longest is not None and not self.live.speaks:
            limit = "max_tokens" if asked.max_tokens else "max_completion_tokens"
            found.append(asked.named(limit))
        return found

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
    if asked.n and not live.speaks:
        why = "expected 1, because the last node of this graph selects among other nodes' answers"
        raise ApiError(400, f"n: {why}", "n", "unsupported_parameter")
    if len(asked.said) == 1 and not asked.structured:
        return live.runner
    if not live.takes_conversations:
        why = "this model uses few-shot prompts: expected a single question, without tools and"
        why += f" {asked.named('response_format')}"
        raise ApiError(400, why, asked.named("messages"), "unsupported_parameter")
    task = FormedTask(live.task, asked) if asked.structured else live.task
    around = asked.conversation
    prompt = replace(live.prompt, system=around.system, history=around.history)
    return live.deployed.runner(live.client, task, prompt)
