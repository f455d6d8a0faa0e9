"""Run of a graph for a waiting user, with a quorum, a deadline and the client's form of answers.

It also counts the requests that were sent and those that are billed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ttsgraph.base.errors import CallFailed, ContextOverflow, PromptRefused
from ttsgraph.endpoints.endpoints import RetryBudget
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer, Run, usage_of
from ttsgraph.graphs.stopping import Patience
from ttsgraph.models.client import (
    OUTGOING,
    Completion,
    Deferred,
    OutgoingRequests,
    Request,
    Usage,
    estimate_tokens,
)
from ttsgraph.service.forms import actors, with_advice, with_turns
from ttsgraph.service.requests import ChatRequest
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.tracing import RequestTrace


Finish = Callable[[Request], Awaitable[Completion]]
"""Function that makes the last node's call, to stream the answer or to limit its length, if that
node calls a model and isn't a judge.
"""


class ServedRun:
    """Run of one question in the form that a client asked for.

    `budget` limits retries; time-outs of single calls and hedged requests are left to a gateway
    (docs/production.md). `trace` gets the nodes' spans. `run` is the executor's run.
    """

    finish: Finish | None = None

    def __init__(
        self,
        runner: GraphRunner,
        question: Question,
        settings: ServiceSettings,
        budget: RetryBudget,
        asked: ChatRequest | None = None,
        trace: RequestTrace | None = None,
    ) -> None:
        self._budget = budget
        self._asked = asked
        self._trace = trace
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

    def fate(self, i: int) -> str:
        """Return the outcome of a node.

        It is "answered", "failed", "fallback" (the call failed, and other nodes' answers replace
        it), "refused" (by the provider), "empty" (the prompt doesn't fit), "cancelled" (begun, then
        not needed), or "left_out" (never begun).
        """
        run = self.run
        for fate, nodes in (
            ("fallback", run.fallbacks),
            ("failed", {*run.met(CallFailed), *run.failures}),
            ("refused", run.met(PromptRefused)),
            ("empty", run.met(ContextOverflow)),
            ("answered", run.completions if run.runner.roles[i].calls_model else run.texts),
            ("cancelled", run.cancelled),
        ):
            if i in nodes:
                return fate
        return "left_out"

    def account(self) -> dict[str, Any]:
        """Return the numbers of calls and requests, and the missing calls, as plain data.

        `calls` counts answered calls, `begun` requests that were sent, and `billed` requests that
        were answered or abandoned.
        """
        run = self.run
        reads = run.runner.graph.reads
        usage = self.used()
        made = [completion for completion in run.completions.values() if not completion.cached]

        def named(i: int) -> dict[str, Any]:
            return {"node": i, "model": run.model_of(i)}

        found = {
            "calls": usage.calls,
            "begun": sum(out.begun for out in self.outgoing.values()),
            "billed": len(made) + sum(map(self._abandoned, self.calling)),
            "dollars": usage.dollars,
            "degraded": self.degraded,
        }
        missing = {
            "left_out": [i for i in self.calling if self.fate(i) == "left_out"],
            "cancelled": [i for i in sorted(run.cancelled) if self.fate(i) == "cancelled"],
            "lost": [named(i) for i in self.calling if i in run.met(CallFailed)],
            "fallbacks": [
                named(i) | {"answered_by": list(reads[i])} for i in sorted(run.fallbacks)
            ],
            "deadline_passed": run.late,
        }
        return found | {name: nodes for name, nodes in missing.items() if nodes}

    def _begin(self, i: int, request: Request) -> Completion | Awaitable[Completion]:
        """Begin a node's call in the client's form, and return its completion, or an awaitable."""
        self.requests[i] = request = self._formed(i, request)
        runner = self.run.runner
        # A judge's reply is not the graph's answer, so it is not streamed.
        if self.finish and i == runner.sink and runner.roles[i].read is None:
            found: Completion | Awaitable[Completion] = Deferred(partial(self.finish, request))
        else:
            found = runner.begin(request)
        return found if isinstance(found, Completion) else self._called(i, found)

    async def _called(self, i: int, call: Awaitable[Completion]) -> Completion:
        """Await a node's call, in a separate task, and count the call's requests."""
        self._budget.called()
        out = self.outgoing.setdefault(i, OutgoingRequests())  # kept after a cancelled call
        out.headers = self._trace.begin(i) if self._trace else {}
        OUTGOING.set(out)
        try:
            return await call
        finally:
            if self._trace:
                self._trace.end(i)

    def _formed(self, i: int, request: Request) -> Request:
        """Return a node's request in the client's form; advising nodes are asked for advice."""
        asked = self._asked
        if asked is None:
            return request
        messages = request.messages
        if turns := asked.conversation.turns:
            shown = self.run.runner.task.render(self.run.question)
            messages = with_turns(messages, shown, turns)
        if i in self.acting:
            # The task's own stop sequences are for plain text, and could cut a tool call or JSON.
            own = () if asked.structured else request.sampling.stop
            stop = tuple(dict.fromkeys((*own, *(asked.stop or ()))))
            sampling = replace(request.sampling, stop=stop)
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
