"""Inference over a collaboration graph (paper, Algorithm 2), asynchronously. A node starts once its
predecessors have answered, whatever the rest of the graph is doing, and so do the questions of a
batch; how many requests are under way is limited where it matters, per endpoint, in the client.
What is asked never depends on timing: a vote that may stop looks at its answers when a wave is
complete, and a gate when all that it watches has answered.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from ttsgraph.base.errors import CallFailed, ContextOverflow, NoAnswer, PromptRefused
from ttsgraph.graphs.budget import longest_run
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import Ballot, Role, get_role, head_of, majority, read_by
from ttsgraph.graphs.stopping import PASSED, Demand, disagreement, stops
from ttsgraph.models.client import (
    Begin,
    Client,
    Completion,
    Deferred,
    Request,
    Sampling,
    Usage,
    with_room,
)
from ttsgraph.pool.spec import ModelPool, ModelSpec
from ttsgraph.tasks.base import CodeTask, Question, Task, passes, read_answer
from ttsgraph.tasks.prompts import Prompt

Finish = Callable[[Request], Awaitable[Completion]]
"""Makes the sink's call in place of the client: to hand its text over while it is written, or to
ask for less of it.
"""

PendingCall = tuple[int, Awaitable[Completion | str | None]]
"""A node and what it waits for: its model's completion, or the answer that it picks itself, None
where it goes on to its next stage.
"""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a member of the pool is asked on a task: the model and revision that its requests name,
    its sampling and its prompts.
    """

    model: str
    revision: str
    sampling: Sampling
    prompt: Prompt

    @property
    def asks(self) -> tuple[object, ...]:
        """The same for two members of the pool that ask the same, whatever they are called."""
        return self.model, self.sampling, self.prompt.style, self.prompt.instruction


def manner_of(spec: ModelSpec, sampling: Sampling, prompt: Prompt) -> Manner:
    """How a member is asked on a task of this sampling and prompt: what a variant sets comes before
    what the task has.
    """
    return Manner(spec.model, spec.revision, spec.sampling(sampling), spec.prompt(prompt))


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """A graph's answer to one question, or why there is none: then `text` is None and `error` says
    which call failed.

    `latency_s` is the critical path over the latencies measured when the calls were made. `usage`
    also counts the calls that succeeded before one failed. A node whose prompt does not fit its
    model answers nothing, and `note` says so: that is the graph's doing, not the infrastructure's,
    and its successors go on with what there is. So they do without a node whose prompt a provider
    refuses; where the last one has no answer for that, the question is `refused`. `completions` are
    the calls made, by node. `stages` says of every node that the question needed how many of its
    stages were asked for, and `closed` are the gates at which it agreed.
    """

    text: str | None
    latency_s: float
    usage: Usage
    node_texts: Mapping[int, str]
    error: str = ""
    note: str = ""
    completions: Mapping[int, Completion] = field(default_factory=dict)
    stages: Mapping[int, int] = field(default_factory=dict)
    closed: tuple[int, ...] = ()
    refused: bool = False


@dataclass(eq=False)
class GraphRunner:
    """One graph made ready to answer many questions. Raises GraphError for an unknown role,
    SettingsError for an unknown model.
    """

    graph: CollaborationGraph
    task: Task
    prompt: Prompt
    sampling: Sampling
    pool: ModelPool
    client: Client

    def __post_init__(self) -> None:
        graph = self.graph
        self.nodes = {node.id: node for node in graph.nodes}
        self.roles: dict[int, Role] = {node.id: get_role(node.role) for node in graph.nodes}
        self.manners: dict[str, Manner] = {}
        for node in graph.nodes:
            self.manner(node.model)
        self.sink = graph.sink
        self.adaptive = {node.id for node in graph.nodes if node.adaptive}
        self.replicas = replica_numbers(graph, self.manners)
        self.demand = Demand(graph)  # what every question begins with
        self.sources = self.demand.ask(self.sink)
        self.begin = with_room(self.client.begin)
        branches = graph.branches if graph.route else ()
        self.branches = [replace(self, graph=branch) for branch in branches]
        # A check that runs programs leaves the event loop free.
        runs = isinstance(self.task, CodeTask)
        self.slow = {i for i, role in self.roles.items() if runs and role.checks}

    def manner(self, model: str) -> Manner:
        """How any member of the pool is asked, also one that the graph has not. Raises
        SettingsError.
        """
        if model not in self.manners:
            self.manners[model] = manner_of(self.pool[model], self.sampling, self.prompt)
        return self.manners[model]

    def of(self, question: Question) -> GraphRunner:
        """What answers this question: the branch that a router sends it to, or itself."""
        return self.branches[self.graph.branch_of(question)] if self.branches else self

    async def answer(self, question: Question, finish: Finish | None = None) -> NodeAnswer:
        """Run the graph on one question; `finish` makes the sink's call if the sink makes one."""
        run = Run(self, question, finish)
        if calls := run.advance(run.runner.sources):
            await run.finish(calls)
        return run.result()


def replica_numbers(graph: CollaborationGraph, manners: Mapping[str, Manner]) -> dict[int, int]:
    """Node id -> which draw it is among the calls of this graph that could ask the same: k parallel
    nodes are k different draws.

    Two calls can be the same only if their nodes ask one model in one manner and read equally many
    answers, so a node's number is its rank among those, in the graph's order. That depends on the
    graph alone, not on which answer came first, and graphs that share a prefix share its numbers.
    (A role that hides what it read could make nodes of different in-degrees ask the same; these
    share a draw.) Greedy calls have one answer, so all of them are the first draw: those that ask
    the same are one call.
    """
    ranks: Counter[tuple[object, ...]] = Counter()
    numbers = {}
    for i in graph.order:
        node = graph.node(i)
        if not get_role(node.role).calls_model:
            continue
        reads = len(graph.reads[i])
        manner = manners[node.model]
        alike = (*manner.asks, read_by(node, reads))
        numbers[i] = ranks[alike]
        if not manner.sampling.greedy:
            ranks[alike] += 1
    return numbers


class Run:
    """One question on its way through a graph, or through the branch that `whole` routes it to."""

    def __init__(self, runner: GraphRunner, question: Question, finish: Finish | None) -> None:
        self.whole = runner
        self.runner = runner = runner.of(question)
        self.question = question
        # What a judge says is not the answer, so nobody is to be told of it while it is written.
        own_words = runner.roles[runner.sink].read is None
        self.begin_last: Begin = (
            (lambda request: Deferred(partial(finish, request)))
            if finish and own_words
            else runner.begin
        )
        self.demand = runner.demand.copy()
        self.closed: list[int] = []
        self.texts: dict[int, str] = {}
        self.completions: dict[int, Completion] = {}
        self.failures: dict[int, CallFailed] = {}
        self.overflows: dict[int, ContextOverflow] = {}
        self.refusals: dict[int, PromptRefused] = {}

    def advance(self, ready: Iterable[int]) -> list[PendingCall]:
        """Start these nodes and whatever their answers make ready; returns the calls that have to
        be waited for.
        """
        queue = deque(ready)
        calls: list[PendingCall] = []
        while queue and not self.failures:
            i = queue.popleft()
            if self._ended(i):  # a vote that was decided in between
                continue
            if i in self.runner.adaptive:
                taken = self._taken(i)
                if taken is not None:
                    self.texts[i] = taken
                    queue += self._reached(i)
                    continue
                if self.demand.goes_on(i):
                    if self.runner.graph.node(i).stop != PASSED:
                        queue += self.demand.go_on(i)
                    elif i in self.runner.slow:
                        calls.append((i, asyncio.to_thread(self._passed, i)))
                    else:
                        queue += self._arrived(i, self._passed(i))
                    continue
            role = self.runner.roles[i]
            answers = self._heard(self.runner.graph.reads[i])
            if len(answers) < role.min_in_degree and (refusal := self._refusal_before(i)):
                queue += self._missing(i, refusal)
                continue
            if i in self.runner.slow:
                calls.append((i, asyncio.to_thread(role.choose, self._ballot(i, answers))))
                continue
            if not role.calls_model:
                self.texts[i] = role.choose(self._ballot(i, answers))
                queue += self._reached(i)
                continue
            try:
                begin = self.begin_last if i == self.runner.sink else self.runner.begin
                found = begin(self._request(i, role, answers))
            except (CallFailed, NoAnswer) as error:
                queue += self._missing(i, error)
                continue
            if isinstance(found, Completion):
                queue += self._arrived(i, found)
            else:
                calls.append((i, found))
        return calls

    async def finish(self, calls: list[PendingCall]) -> None:
        """Wait for these calls and all that follow from them; what is under way when one fails
        still finishes.
        """
        try:
            async with asyncio.TaskGroup() as group:
                await self._follow(calls, group)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _follow(self, calls: list[PendingCall], group: asyncio.TaskGroup) -> None:
        """Follow the first call in this task and each other one in a task of its own, so that a
        chain needs one task.
        """
        while calls:
            (i, call), *others = calls
            for other in others:
                group.create_task(self._follow([other], group))
            try:
                ready = self._arrived(i, await call)
            except (CallFailed, NoAnswer) as error:
                ready = self._missing(i, error)
            calls = self.advance(ready)

    def used(self) -> Usage:
        """What the calls that were answered used, summed in the graph's order."""
        pool = self.runner.pool
        made = [i for i in self.runner.graph.order if i in self.completions]
        return sum((usage_of(self.completions[i], pool[self.model_of(i)]) for i in made), Usage())

    def result(self) -> NodeAnswer:
        """The answer, once nothing is under way. Sums and texts are in the graph's order, so that
        they, and the files written of them, are the same whatever came first.
        """
        order = self.runner.graph.order
        usage = self.used()
        texts = {i: self.texts[i] for i in order if i in self.texts}
        if self.failures:
            error = str(self.failures[min(self.failures, key=order.index)])
            return NodeAnswer(None, math.nan, usage, texts, error, completions=self.completions)
        silent = {**self.overflows, **self.refusals}
        note = str(silent[min(silent, key=order.index)]) if silent else ""
        if (text := self.texts.get(self.runner.sink)) is None:
            error = str(self.refusals[self.runner.sink])
            made = self.completions
            return NodeAnswer(None, math.nan, usage, texts, error, completions=made, refused=True)
        stages = {i: place + 1 for i, place in self.demand.stage.items()}
        made = self.completions
        seconds = {i: made[i].latency_s if i in made else 0.0 for i in order}
        latency = longest_run(self.runner.graph, seconds, stages)
        if self.whole is not self.runner:  # a router answers what its branch does
            texts[self.whole.sink] = text
            stages[self.whole.sink] = 1
        closed = tuple(sorted(self.closed))
        return NodeAnswer(text, latency, usage, texts, "", note, made, stages, closed)

    def _taken(self, i: int) -> str | None:
        """What a node whose stage is complete answers without doing what it else does: where its
        gate stays closed, or its vote stops; None where it goes on.
        """
        graph = self.runner.graph
        task = self.runner.task
        stage = self.demand.stage[i]
        node = graph.node(i)
        stages = graph.stages[i]
        if node.gate and stage == 0:
            answers = self._heard(stages[0])
            if disagreement([read_answer(task, answer) for answer in answers]) > node.gate.over:
                return None
            self.closed.append(i)
            return majority(task, answers)
        if not self.demand.goes_on(i) or node.stop == PASSED:
            return None
        voices = [p for group in stages[1 if node.gate else 0 : stage + 1] for p in group]
        answers = self._heard(voices)
        known = {k: self._form(p) for k, p in enumerate(voices) if self._ended(p)}
        stop = stops(node.stop, known, len(graph.reads[i]), head_of(task))
        return majority(task, answers) if stop and answers else None

    def _form(self, i: int) -> str | None:
        """What the task reads of a node's answer; None where there is nothing."""
        return read_answer(self.runner.task, self.texts[i]) if i in self.texts else None

    def _refusal_before(self, i: int) -> PromptRefused | None:
        """Why the first of those that a node reads has no answer, if it was refused."""
        reads = self.runner.graph.reads[i]
        return next((self.refusals[p] for p in reads if p in self.refusals), None)

    def _passed(self, i: int) -> str | None:
        """What a node takes that stops once an answer passes; None where none has."""
        graph = self.runner.graph
        read = [p for p in graph.reads[i] if p in self.texts]
        # Not those that a gate watches, and earlier stages had none that passes.
        latest = {self.texts[p] for p in read if p in graph.stages[i][self.demand.stage[i]]}
        if not any(passes(self.runner.task, self.question, text) for text in latest):
            return None
        return self.runner.roles[i].choose(self._ballot(i, self._heard(read)))

    def _heard(self, nodes: Iterable[int]) -> list[str]:
        """What these nodes answered, without those that were refused."""
        return [self.texts[p] for p in nodes if p in self.texts]

    def _ballot(self, i: int, answers: list[str]) -> Ballot:
        """What a node knows that picks one of these answers."""
        runner = self.runner
        known = [
            runner.pool[runner.nodes[p].model].accuracy if runner.roles[p].calls_model else None
            for p in runner.graph.reads[i]
            if p in self.texts
        ]
        return Ballot(runner.task, self.question, answers, known)

    def _ended(self, i: int) -> bool:
        """Whether nothing more is to come of a node."""
        return i in self.texts or i in self.refusals

    def _reached(self, i: int) -> list[int]:
        """The nodes that can go on now that this one has answered."""
        return self.demand.arrived(i)

    def model_of(self, i: int) -> str:
        """The member of the pool that a node's call asks."""
        return self.runner.nodes[i].model

    def _request(self, i: int, role: Role, answers: list[str]) -> Request:
        runner = self.runner
        node = self.runner.nodes[i]
        assert role.speak is not None
        manner = runner.manner(self.model_of(i))
        read = most_supported(runner.task, answers, node)
        messages = role.speak(runner.task, manner.prompt, self.question, read)
        return Request(manner.model, manner.revision, messages, manner.sampling, runner.replicas[i])

    def _arrived(self, i: int, completion: Completion | str | None) -> list[int]:
        if completion is None:
            return self.demand.go_on(i)
        if isinstance(completion, str):
            self.texts[i] = completion
            return self._reached(i)
        self.texts[i] = completion.text
        self.completions[i] = completion
        read = self.runner.roles[i].read
        # A prompt that a model continues asks for an answer, whatever the role.
        if read and self.runner.manner(self.model_of(i)).prompt.style != "few_shot":
            heard = self._heard(self.runner.graph.reads[i])
            self.texts[i] = read(self.runner.task, completion.text, heard)
        return self._reached(i)

    def _missing(self, i: int, error: CallFailed | NoAnswer) -> list[int]:
        """A node without an answer: an overflow is an empty one, a refusal none, a failed call the
        end of the run.
        """
        if isinstance(error, CallFailed):
            self.failures[i] = error
            return []
        if isinstance(error, PromptRefused):
            self.refusals[i] = error
            return self._reached(i)
        assert isinstance(error, ContextOverflow)
        self.texts[i] = ""
        self.overflows[i] = error
        return self._reached(i)


def most_supported(task: Task, answers: list[str], node: Node) -> list[str]:
    """What a node reads: all answers, or where it narrows the `top_k` whose extracted form most
    answers share, in their order.
    """
    kept = read_by(node, len(answers))
    if kept == len(answers):
        return answers
    forms = [read_answer(task, answer) for answer in answers]
    support = Counter(form for form in forms if form is not None)
    ranked = sorted(range(len(answers)), key=lambda k: (-support.get(forms[k] or "", 0), k))
    return [answers[k] for k in sorted(ranked[:kept])]


def usage_of(call: Completion, asked: ModelSpec) -> Usage:
    """What a call of this member of the pool used."""
    price = asked.price.of(call)
    spent = 0.0 if call.cached else price
    return Usage(call.prompt_tokens, call.completion_tokens, price, spent, 1, int(call.cached))
