"""A question on its way through a graph for somebody who waits.

Unlike in a search, a vote is over as soon as no missing answer can change it, calls that no node
needs are cancelled, a vote continues without a failed voter as long as its quorum answered, and at
the deadline the graph answers with what there is.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from ttsgraph.base.errors import CallFailed, ContextOverflow, NoAnswer
from ttsgraph.endpoints.endpoints import RetryBudget
from ttsgraph.evaluation.executor import Finish, GraphRunner, NodeAnswer, PendingCall, Run, usage_of
from ttsgraph.graphs.roles import Role, head_of, majority
from ttsgraph.graphs.stopping import decided
from ttsgraph.models.client import OUTGOING, Completion, Message, Outgoing, Request, Usage
from ttsgraph.service.forms import Form, actors, with_advice, with_turns
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.tracing import RequestTrace


CHARACTERS_PER_TOKEN = 4
"""Of a model none of whose calls has been answered yet."""

Answer = Completion | str | None


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


class ServedRun(Run):
    """One question, for somebody who waits, asked in its form; `turns` (calls of tools, their
    results) come after it. `trace` has spans of nodes; without one models get the headers
    `context`.
    """

    def __init__(
        self,
        runner: GraphRunner,
        question: Question,
        finish: Finish | None,
        settings: ServiceSettings,
        upstream: Upstream | None = None,
        form: Form | None = None,
        turns: tuple[Message, ...] = (),
        trace: RequestTrace | None = None,
        context: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(runner, question, finish)
        self.form = form or Form()
        self.turns = turns
        self.trace = trace
        self._context = context or {}
        self.acting, self._choosing = actors(runner.graph)
        self.settings = settings
        self._upstream = upstream or Upstream(RetryBudget(0.0))
        self.requests: dict[int, Request] = {}
        self.lost: dict[int, CallFailed] = {}
        self.fallbacks: list[int] = []
        self.cancelled: list[int] = []
        self.late = False
        self._under_way: dict[int, asyncio.Task[Answer]] = {}
        self._end = math.inf
        self.outgoing: dict[int, Outgoing] = {}

    async def answer(self, deadline_s: float | None = None) -> Served:
        """Run the graph for `deadline_s` seconds at most; a cancel is that of every call."""
        loop = asyncio.get_running_loop()
        self._end = math.inf if deadline_s is None else loop.time() + deadline_s
        try:
            self._begin(self.advance(self.runner.sources))
            while self._under_way and not self.failures and self.runner.sink not in self.texts:
                left = None if self._end == math.inf else max(0.0, self._end - loop.time())
                done, _ = await asyncio.wait(
                    self._under_way.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    self._take([i for i, task in self._under_way.items() if task in done])
                else:
                    self._give_up()
                    break
        finally:
            tasks = list(self._under_way.values())
            self._stop(list(self._under_way))
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._served()

    def _begin(self, calls: Iterable[PendingCall]) -> None:
        for i, call in calls:
            self._under_way[i] = asyncio.ensure_future(self._called(i, call))

    async def _called(self, i: int, call: Awaitable[Answer]) -> Answer:
        """What a node's call answers."""
        headers = self._context
        if i in self.requests:
            self._upstream.budget.called()
            headers = self.trace.begin(i) if self.trace else headers
        self.outgoing[i] = Outgoing(headers)
        OUTGOING.set(self.outgoing[i])  # in this call's task alone
        try:
            return await call
        finally:
            if self.trace:
                self.trace.end(i)

    def _request(self, i: int, role: Role, answers: list[str]) -> Request:
        """The request as the client's form has it, or of a node that advises, as an advice."""
        request = super()._request(i, role, answers)
        messages = request.messages
        if self.turns:
            messages = with_turns(messages, self.runner.task.render(self.question), self.turns)
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
        self.requests[i] = replace(request, messages=messages)
        return self.requests[i]

    def _take(self, done: list[int]) -> None:
        """Take in ended calls, begin what they make ready, cancel what nobody needs."""
        for i in done:
            task = self._under_way.pop(i)
            try:
                ready = self._arrived(i, task.result())
            except (CallFailed, NoAnswer) as error:
                ready = self._missing(i, error)
            self._begin(self.advance(ready))
        self._drop()

    def _arrived(self, i: int, completion: Answer) -> list[int]:
        if isinstance(completion, Completion) and i in self.requests:
            self._upstream.learn(self.model_of(i), self.requests[i], completion)
        return super()._arrived(i, completion)

    def _drop(self) -> None:
        """Cancel what the sink does not wait for any more."""
        needed: set[int] = set()
        asked = [self.runner.sink]
        while asked:
            i = asked.pop()
            if i not in needed and not self._ended(i):
                needed.add(i)
                asked += self.demand.awaited(i)
        self._stop([i for i in self._under_way if i not in needed])

    def _stop(self, nodes: list[int]) -> None:
        self.cancelled += nodes
        for i in nodes:
            self._under_way.pop(i).cancel()

    def _reached(self, i: int) -> list[int]:
        graph = self.runner.graph
        ready = super()._reached(i)
        for after in graph.successors[i]:
            if after not in self.demand.stage or self._ended(after):
                continue
            if self._is_decided(after):
                self.texts[after] = majority(self.runner.task, self._heard(graph.reads[after]))
                ready += self._reached(after)
                continue
            lost = [self.lost[p] for p in graph.predecessors[after] if p in self.lost]
            if lost and not self._can_go_on(after, complete=after in ready):
                ready += self._lose(after, lost[0])
        return [j for j in ready if not self._ended(j)]

    def _is_decided(self, i: int) -> bool:
        """Whether no missing answer changes a vote; beta waits for its wave, as measured."""
        extract = self.runner.task.extract
        node = self.runner.nodes[i]
        reads = self.runner.graph.reads[i]
        past_gate = node.gate is None or self.demand.stage[i] > 0
        if not (self.runner.roles[i].by_majority and past_gate) or node.stop.rule == "none":
            return False
        ended = ((k, p) for k, p in enumerate(reads) if self._ended(p))
        heard = {k: extract(self.texts[p]) if p in self.texts else None for k, p in ended}
        head = head_of(self.runner.task)
        return len(heard) < len(reads) and decided(heard, len(reads), head) and self._has_quorum(i)

    def _ended(self, i: int) -> bool:
        return super()._ended(i) or i in self.lost

    def _has_quorum(self, i: int) -> bool:
        """Whether enough of the voices have answered that a vote asked so far."""
        asked = [p for p in self.runner.graph.reads[i] if p in self.demand.stage]
        least = self.settings.quorum * sum(map(self._ended, asked))
        return sum(p in self.texts for p in asked) >= max(1.0, least)

    def _can_go_on(self, i: int, complete: bool) -> bool:
        """True if it continues without a lost answer: by settings, or by its quorum."""
        role = self.runner.roles[i]
        if role.calls_model and not self.settings.fallback:
            return False
        if not complete or self.demand.goes_on(i):
            return True  # there may be more to hear
        heard = self._heard(self.runner.graph.reads[i])
        enough = len(heard) >= max(1, role.min_in_degree) or self._heard(self.demand.awaited(i))
        return bool(enough) and (self.settings.fallback or self._has_quorum(i))

    def _missing(self, i: int, error: CallFailed | NoAnswer) -> list[int]:
        if isinstance(error, ContextOverflow):
            return super()._missing(i, error)
        inputs = self._heard(self.runner.graph.reads[i])
        if self.settings.fallback and inputs:
            self.texts[i] = majority(self.runner.task, inputs)
            self.fallbacks.append(i)
        elif isinstance(error, CallFailed):
            return self._lose(i, error)
        if isinstance(error, CallFailed):
            self.lost[i] = error
            return self._reached(i)
        return super()._missing(i, error)

    def _lose(self, i: int, error: CallFailed) -> list[int]:
        """A node without an answer; what needs it is lost too, with the sink the run."""
        self.lost[i] = error
        if i == self.runner.sink:
            self.failures[i] = error
            return []
        return self._reached(i)

    def _give_up(self) -> None:
        """The deadline: every node asked passes on what there is of its inputs."""
        self.late = True
        graph = self.runner.graph
        task = self.runner.task
        for i in graph.order:
            there = self._heard(graph.predecessors[i])
            if i in self.demand.stage and i not in self.texts and there:
                self.texts[i] = majority(task, there)

    def _served(self) -> Served:
        graph = self.runner.graph
        if self.late and graph.sink not in self.texts:
            self.failures.setdefault(graph.sink, CallFailed("no answer before the deadline"))
        plain = self.result()
        calls = [i for i in graph.order if self.runner.roles[i].calls_model]
        begun = {*self.completions, *self.cancelled, *self.lost, *self.refusals}
        return Served(
            **{part.name: getattr(plain, part.name) for part in fields(plain)},
            lost={i: str(self.lost[i]) for i in calls if i in self.lost},
            cancelled=tuple(sorted(self.cancelled)),
            left_out=tuple(i for i in calls if i not in begun),
            fallbacks=tuple(sorted(self.fallbacks)),
            late=self.late,
            degraded=self.late or bool(self.fallbacks) or self._loss_mattered(),
            begun=sum(out.begun for out in self.outgoing.values()),
            billed=sum(not made.cached for made in self.completions.values())
            + sum(out.begun - out.ended for out in self.outgoing.values()),
        )

    def used(self) -> Usage:
        """What answered calls used, and about what those did that were given up."""
        return sum(map(self.used_by, self.runner.graph.order), Usage())

    def used_by(self, i: int) -> Usage:
        """The same of one node's call."""
        asked = self.runner.pool[self.model_of(i)]
        made = self.completions.get(i)
        used = usage_of(made, asked) if made is not None else Usage()
        out = self.outgoing.get(i)
        if out is not None and out.begun > out.ended and i in self.requests:
            lost = self._upstream.expected(asked.name, self.requests[i])
            once = replace(usage_of(lost, asked), calls=0)
            used = sum([once] * (out.begun - out.ended), used)
        return used

    def _loss_mattered(self) -> bool:
        """Whether a call that failed could have changed what reads it."""
        graph = self.runner.graph
        extract = self.runner.task.extract
        read_by = {j for i in self.lost for j in graph.successors[i] if j in self.demand.stage}
        for after in read_by:
            reads = graph.reads[after]
            heard = {k: extract(self.texts[p]) for k, p in enumerate(reads) if p in self.texts}
            if not (self.runner.roles[after].by_majority and decided(heard, len(reads))):
                return True
        return False
