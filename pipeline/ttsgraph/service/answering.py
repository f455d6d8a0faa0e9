"""Answer to one request: the run of a graph for a waiting user, with a quorum, a deadline and the
client's form of answers.

It counts the requests that were sent and those that are billed. The graph runs in a separate task,
which is cancelled if the client disconnects.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ttsgraph.base.errors import CallFailed, ContextOverflow, FormRefused, PromptRefused
from ttsgraph.evaluation.executor import NodeAnswer, Run, usage_of
from ttsgraph.graphs.stopping import Patience
from ttsgraph.models.actions import CALLS, delta_of
from ttsgraph.models.client import (
    OUTGOING,
    Completion,
    Deferred,
    OutgoingRequests,
    Piece,
    Request,
    Usage,
    estimate_tokens,
)
from ttsgraph.service.deployments import LiveVersion
from ttsgraph.service.errors import CLIENT_GONE, ApiError
from ttsgraph.service.requests import ChatRequest, actors
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.tracing import RequestTrace

ALIVE_S = 10.0
"""Seconds without a piece of a stream before a sign of life."""


@dataclass(eq=False)
class Answering:
    """Question that a version answers in the form that a client asked for, with its trace id.

    Time-outs of single calls and hedged requests are left to a gateway (docs/production.md).
    `trace` gets the nodes' spans. `requests` and `outgoing` have the nodes' requests. `choice` is
    the answer as clients expect it, once `task` has ended.
    """

    id: str
    live: LiveVersion
    asked: ChatRequest
    settings: ServiceSettings
    trace: RequestTrace | None = None
    requests: dict[int, Request] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin the work in the running event loop.

        Raises ApiError 400 if the version doesn't support the request.
        """
        self.outgoing: defaultdict[int, OutgoingRequests] = defaultdict(OutgoingRequests)
        runner = self.live.runner_for(self.asked)
        question = Question("asked", self.asked.conversation.question, "")
        patience = Patience(self.settings.quorum, self.settings.fallback)
        self.run = Run(runner, question, self._begin, patience)
        runner = self.run.runner  # of the branch that answers the question
        self.calling = [i for i in runner.graph.order if runner.roles[i].calls_model]
        self._acts = actors(runner.graph)
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()  # None ends them
        self.begun = asyncio.Event()
        """Set once there is a first piece, or the work has ended without one."""
        self.task = asyncio.create_task(self._work())
        """Returns the answer or raises ApiError; cancelling it stops all calls of the graph."""
        # A failure after the client has left must not be reported by the event loop.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def leave(self, status: int) -> int:
        """Cancel remaining work after the request, and return the request's status for the log.

        This is `status`, which was sent, unless the answer failed or the client left too early.
        """
        if self.task.cancel():
            return CLIENT_GONE
        if self.task.cancelled() or (failed := self.task.exception()) is None:
            return status
        return failed.status if isinstance(failed, ApiError) else 500

    async def arriving(self) -> AsyncIterator[Piece]:
        """Yield the answer in pieces, and an empty piece after ALIVE_S seconds without one.

        Errors are raised by `task`, not here.
        """
        while True:
            try:
                async with asyncio.timeout(ALIVE_S):
                    piece = await self._pieces.get()
            except TimeoutError:
                piece = {}
            if piece is None:
                return
            yield piece

    @property
    def degraded(self) -> bool:
        """True if a missing call may make the answer differ from the complete graph's answer."""
        run = self.run
        read_by = {j for i in run.met(CallFailed) for j in run.asking.graph.successors[i]}
        lost = any(j in run.asking.stage and not run.asking.is_sure(j) for j in read_by)
        return run.late or bool(run.fallbacks) or lost

    @cached_property
    def ignored(self) -> list[str]:
        """The client's parameters that have no effect.

        They include `max_tokens` if the last node selects among other nodes' answers.
        """
        asked = self.asked
        unused = [] if self.live.speaks else ["max_tokens"]
        if asked.reasoning_effort != self.live.effort:
            unused.append("reasoning_effort")
        named = [asked.named(name) for name in unused if getattr(asked, name) is not None]
        return sorted([*(asked.model_extra or ()), *named])

    def outcome(self, i: int) -> str:
        """Return the outcome of a node's call.

        It is "answered", "failed", "fallback" (the call failed, and other nodes' answers
        replace it), "refused" (by the provider), "empty" (the prompt doesn't fit), "cancelled"
        (begun, then not needed), or "left_out" (never begun).
        """
        run = self.run
        error = run.errors.get(i) or run.failures.get(i)
        if i in run.fallbacks:
            return "fallback"
        if error is not None:
            kinds: dict[type, str] = {PromptRefused: "refused", ContextOverflow: "empty"}
            return kinds.get(type(error), "failed")
        if i in run.completions:
            return "answered"
        return "cancelled" if i in run.cancelled else "left_out"

    def account(self) -> dict[str, Any]:
        """Return the answer's origin, the numbers of its calls and requests, and the nodes whose
        calls gave no answer, by outcome, as plain data.

        `calls` counts answered calls, `begun` requests that were sent, and `billed` requests that
        were answered or abandoned.
        """
        run, usage = self.run, self.used()
        account: dict[str, Any] = {
            **self.live.origin,
            "trace_id": self.id,
            "ignored": self.ignored,
            "calls": usage.calls,
            "begun": sum(out.begun for out in self.outgoing.values()),
            "billed": usage.calls + sum(map(self._abandoned, self.calling)),
            "dollars": usage.dollars,
            "degraded": self.degraded,
            "deadline_passed": run.late,
        }
        if run.whole is not run.runner:
            account["branch"] = run.whole.branches.index(run.runner)
        for i in self.calling:
            if (how := self.outcome(i)) != "answered":
                account.setdefault(how, []).append(i)
        return account

    def used(self) -> Usage:
        """Return the usage of answered calls plus an estimate for abandoned requests."""
        return sum(map(self.used_by, self.calling), Usage())

    def used_by(self, i: int) -> Usage:
        """Return the usage of a node's call plus an estimate for its abandoned requests, which are
        billed in full.

        The estimate is the mean usage of the answered calls or, if there are none, the length of
        the node's request.
        """
        made = self.run.completions
        spec = self.run.runner.pool[self.run.model_of(i)]
        used = usage_of(made[i], spec) if i in made else Usage()
        if not (abandoned := self._abandoned(i)):
            return used
        if made:
            read = round(fmean(call.prompt_tokens for call in made.values()))
            written = round(fmean(call.completion_tokens for call in made.values()))
        else:
            messages = self.requests[i].messages
            read = estimate_tokens("\n".join(each.whole or each.content for each in messages))
            written = 0
        expected = usage_of(Completion("", read, written, 0.0), spec)._replace(calls=0)
        return sum([expected] * abandoned, used)

    def _abandoned(self, i: int) -> int:
        """Return the number of a node's requests that were sent but not awaited to the end."""
        return self.outgoing[i].begun - self.outgoing[i].ended

    def _begin(self, i: int, request: Request) -> Completion | Awaitable[Completion]:
        """Begin a node's call in the client's form, and return its completion, or an awaitable."""
        runner, asked, sampling = self.run.runner, self.asked, request.sampling
        acts = self._acts.get(i)
        # A judge's reply is not the graph's answer, so it is neither streamed nor limited.
        last = acts is True and i == runner.sink
        limit = asked.max_tokens if last else None
        if acts:
            # The task's own stop sequences are for plain text, and could cut a tool call or JSON.
            own = () if asked.form else sampling.stop
            stop = tuple(dict.fromkeys((*own, *(asked.stop or ()))))
            most = min(sampling.max_tokens, limit or sampling.max_tokens)
            sampling = replace(sampling, stop=stop, max_tokens=most)
        shown = runner.task.render(self.run.question)
        messages = asked.shaped(request.messages, shown, advises=acts is None)
        form = asked.form if acts else None
        request = replace(request, messages=messages, sampling=sampling, form=form)
        self.requests[i] = request
        if last and asked.stream:
            written = Deferred(partial(runner.client.stream, request, self._hand_over))
            return self._called(i, written)
        begin = runner.client.begin if limit else runner.begin  # with a limit: no more room
        found = begin(request)
        return found if isinstance(found, Completion) else self._called(i, found)

    async def _called(self, i: int, call: Awaitable[Completion]) -> Completion:
        """Await a node's call, in a separate task, and count the call's requests."""
        self.live.budget.called()
        OUTGOING.set(self.outgoing[i])  # kept after a cancelled call
        return await (self.trace.call(self, i, call) if self.trace else call)

    async def _work(self) -> NodeAnswer:
        try:
            answer = await self.run.answer(self.settings.timeout_s)
            answer = replace(answer, usage=self.used())  # with abandoned calls
            self._check(answer)
            self.choice = self._choice(answer)
            if not self.begun.is_set():
                self._hand_over({"delta": delta_of(self.choice["message"])})
            return answer
        finally:
            self._hand_over(None)

    def _hand_over(self, piece: Piece | None) -> None:
        self._pieces.put_nowait(piece)
        self.begun.set()

    def _check(self, answer: NodeAnswer) -> None:
        """Raise ApiError if the run gave no answer, naming the model if a model's call failed."""
        run, messages = self.run, self.asked.named("messages")
        if run.late and (answer.text is None or self.begun.is_set()):
            why = f"no answer within {self.settings.timeout_s:g} seconds"
            raise ApiError(504, why, code="timeout")
        if answer.refused:
            refusal = run.met(PromptRefused)[run.runner.sink]
            why = f"a pool model's provider refuses this question: {refusal.said}"
            raise ApiError(400, why, messages, "content_filter") from refusal
        if failure := run.failures.get(run.runner.sink):
            model = str(failure).partition(" ")[0]
            named = f"pool model {model!r}" if model in run.runner.pool else "pool model"
            if isinstance(failure, FormRefused):
                said = failure.said or "no reason given"
                why = f"{named} rejects a parameter of this request: {said}"
                raise ApiError(400, why, code="unsupported_by_model")
            why = f"{named} failed or can't be reached"
            raise ApiError(502, why, code="pool_model_failed") from failure
        if (full := [*run.met(ContextOverflow).values()]) and not answer.text:
            why = "the question is too long for a pool model's context"
            raise ApiError(400, why, messages, "context_length_exceeded") from full[0]

    def _choice(self, answer: NodeAnswer) -> dict[str, Any]:
        """Return the choice with the answer's text or, for a requested form, the first choice of
        the acting node that gave the answer.

        Raises ApiError if the pool doesn't support the form, or no model gave the required JSON.
        """
        sink = self.run.runner.sink
        last = answer.completions.get(sink)
        full = last and last.completion_tokens >= self.requests[sink].sampling.max_tokens
        message = {"role": "assistant", "content": answer.text or "", "refusal": None}
        plain = {"index": 0, "message": message, "logprobs": None}
        plain["finish_reason"] = "length" if full else "stop"
        if not self.asked.form:
            return plain
        same = [i for i, text in answer.node_texts.items() if text == answer.text]
        acting = [i for i in same if self._acts.get(i) and i in answer.completions]
        made = [answer.completions[i].choice for i in acting]
        if not all(made):
            why = "expected a request for plain text: this pool supports no tools or JSON"
            raise ApiError(400, why, code="unsupported_parameter")
        if made:
            # Several nodes may give the same text, and only some of them as real tool calls.
            known: list[dict[str, Any]] = [json.loads(choice) for choice in made]
            found = max(known, key=lambda choice: bool(choice["message"].get(CALLS)))
            # Some endpoints give no reason.
            return found | {"finish_reason": found["finish_reason"] or plain["finish_reason"]}
        if self.asked.as_json and not self.asked.tools:
            why = "expected an answer in JSON, but no pool model gave one"
            raise ApiError(502, why, code="pool_model_failed")
        return plain
