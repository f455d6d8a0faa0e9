"""A question to a graph for somebody who waits: the executor's run with a quorum and a deadline,
each call in the client's form, and an account of what was sent and may be billed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING

from ttsgraph.endpoints.endpoints import RetryBudget
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer, Run, usage_of
from ttsgraph.graphs.stopping import Patience
from ttsgraph.models.client import OUTGOING, Completion, Deferred, Message, Outgoing, Request, Usage
from ttsgraph.service.forms import Form, actors, with_advice, with_turns
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.tracing import RequestTrace


CHARACTERS_PER_TOKEN = 4
"""Of a model none of whose calls has been answered yet."""

Finish = Callable[[Request], Awaitable[Completion]]
"""Makes the sink's call in place of the client: to hand its text over while it is written, or to
ask for less of it.
"""


class Upstream:
    """Average usage of one served version's calls, by model. `budget` bounds further attempts.
    Time-outs and second requests are a gateway's work (docs/steady.md).
    """

    def __init__(self, budget: RetryBudget) -> None:
        self.budget = budget
        # Of a model's calls: how many, sums of characters asked and of tokens read and written, and
        # of squares of characters and of their products with tokens read.
        self._used: defaultdict[str, tuple[int, ...]] = defaultdict(lambda: (0,) * 6)

    def learn(self, model: str, request: Request, completion: Completion) -> None:
        """A call was answered; what it used says what one uses that is not."""
        asked = _characters(request)
        read = completion.prompt_tokens
        call = (1, asked, read, completion.completion_tokens, asked**2, asked * read)
        self._used[model] = tuple(map(sum, zip(self._used[model], call, strict=True)))

    def expected(self, model: str, request: Request) -> Completion:
        """An estimate of what a call uses that was given up, and is billed whole. Tokens read are a
        straight line over characters, since prompts have tokens that no text accounts for.
        """
        characters = _characters(request)
        calls, asked, read, written, squared, asked_by_read = self._used[model]
        if not calls:
            return Completion("", characters // CHARACTERS_PER_TOKEN, 0, 0.0)
        spread = squared * calls - asked**2
        slope = (asked_by_read * calls - asked * read) / spread if spread else 0.0
        slope = min(max(0.0, slope), read / asked)  # no call reads fewer than none
        reads = read / calls + slope * (characters - asked / calls)
        return Completion("", round(reads), round(written / calls), 0.0)


def _characters(request: Request) -> int:
    return sum(len(message.whole or message.content) for message in request.messages) or 1


@dataclass(frozen=True, slots=True)
class Served(NodeAnswer):
    """An answer, and what it went without: calls that were `lost` and why, `cancelled` or
    `left_out`, and nodes that passed on another's answer (`fallbacks`). `late`: a deadline ended
    it.

    `degraded`: it may be another answer than the graph's own. `begun` requests were sent, and
    `billed` of them answered or given up on the way: the usage counts these too, with the tokens
    that a call of their model takes on average.
    """

    lost: Mapping[int, str] = field(default_factory=dict)
    cancelled: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()
    fallbacks: tuple[int, ...] = ()
    late: bool = False
    degraded: bool = False
    begun: int = 0
    billed: int = 0


@dataclass(eq=False)
class ServedRun:
    """One question, for somebody who waits, asked in its form; `turns` (calls of tools, their
    results) come after it. `finish` makes the sink's call if the sink makes one. `trace` has spans
    of nodes; without one models get the headers `context`. `run` is the executor's.
    """

    runner: GraphRunner
    question: Question
    finish: Finish | None
    settings: ServiceSettings
    upstream: Upstream = field(default_factory=lambda: Upstream(RetryBudget(0.0)))
    form: Form = field(default_factory=Form)
    turns: tuple[Message, ...] = ()
    trace: RequestTrace | None = None
    context: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        patience = Patience(self.settings.quorum, self.settings.fallback)
        self.run = Run(self.runner, self.question, self._begin, patience)
        self.acting, self._choosing = actors(self.runner.graph)
        self.requests: dict[int, Request] = {}
        self.outgoing: dict[int, Outgoing] = {}

    async def answer(self, deadline_s: float | None = None) -> Served:
        """Run the graph for `deadline_s` seconds at most; a cancel is that of every call."""
        plain = await self.run.answer(deadline_s)
        run = self.run
        graph = run.runner.graph
        calls = [i for i in graph.order if run.runner.roles[i].calls_model]
        begun = {*run.completions, *run.cancelled, *run.lost, *run.refusals}
        own = {part.name: getattr(plain, part.name) for part in fields(plain)}
        return Served(
            **own | {"usage": self.used()},
            lost={i: str(run.lost[i]) for i in calls if i in run.lost},
            cancelled=tuple(sorted({*run.cancelled} - run.completions.keys())),
            left_out=tuple(i for i in calls if i not in begun),
            fallbacks=tuple(sorted(run.fallbacks)),
            late=run.late,
            degraded=run.late or bool(run.fallbacks) or self._loss_mattered(),
            begun=sum(out.begun for out in self.outgoing.values()),
            billed=sum(not made.cached for made in run.completions.values())
            + sum(out.begun - out.ended for out in self.outgoing.values()),
        )

    def _begin(self, i: int, request: Request) -> Completion | Awaitable[Completion]:
        """Begin a node's call in the client's form."""
        self.requests[i] = request = self._formed(i, request)
        runner = self.run.runner
        # What a judge says is not the answer, so nobody is to be told of it while it is written.
        if self.finish and i == runner.sink and runner.roles[i].read is None:
            found: Completion | Awaitable[Completion] = Deferred(partial(self.finish, request))
        else:
            found = runner.begin(request)
        if isinstance(found, Completion):
            self.upstream.learn(self.run.model_of(i), request, found)
            return found
        return self._called(i, found)

    async def _called(self, i: int, call: Awaitable[Completion]) -> Completion:
        """What a node's call answers, in a task of its own."""
        self.upstream.budget.called()
        out = self.outgoing.setdefault(i, Outgoing())  # it may have been cancelled before
        out.headers = self.trace.begin(i) if self.trace else self.context
        OUTGOING.set(out)
        try:
            completion = await call
            self.upstream.learn(self.run.model_of(i), self.requests[i], completion)
            return completion
        finally:
            if self.trace:
                self.trace.end(i)

    def _formed(self, i: int, request: Request) -> Request:
        """The request as the client's form has it, or of a node that advises, as an advice."""
        messages = request.messages
        if self.turns:
            shown = self.runner.task.render(self.question)
            messages = with_turns(messages, shown, self.turns)
        form = self.form
        if i in self.acting:
            # The version's stop sequences end its kind's texts, and could cut a call or JSON in
            # two.
            own = () if form.structured else request.sampling.stop
            stop = tuple(dict.fromkeys((*own, *form.stop)))
            sampling = replace(request.sampling, stop=stop)
            request = replace(request, sampling=sampling, form=form.parameters)
        elif i not in self._choosing:
            messages = with_advice(messages, form.advice)
        return replace(request, messages=messages)

    def used(self) -> Usage:
        """What answered calls used, and about what those did that were given up."""
        return sum(map(self.used_by, self.run.runner.graph.order), Usage())

    def used_by(self, i: int) -> Usage:
        """The same of one node's call."""
        asked = self.run.runner.pool[self.run.model_of(i)]
        made = self.run.completions.get(i)
        used = usage_of(made, asked) if made is not None else Usage()
        out = self.outgoing.get(i)
        if out is not None and out.begun > out.ended:
            lost = self.upstream.expected(asked.name, self.requests[i])
            once = replace(usage_of(lost, asked), calls=0)
            used = sum([once] * (out.begun - out.ended), used)
        return used

    def _loss_mattered(self) -> bool:
        """Whether a call that failed could have changed what reads it."""
        asking = self.run.asking
        read_by = {j for i in self.run.lost for j in asking.graph.successors[i]}
        return any(j in asking.stage and not asking.is_sure(j) for j in read_by)
