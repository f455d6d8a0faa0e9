"""Asynchronous inference over a collaboration graph (paper, Algorithm 2). A node starts once its
predecessors have answered, independently of the rest of the graph, and the questions of a batch run
in parallel; the client limits requests per endpoint. The calls of a search never depend on timing:
a vote that may stop early looks at its answers when a wave is complete, and a gate when all the
nodes it watches have answered (ttsgraph/graphs/stopping.py).
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from ttsgraph.base.errors import CallFailed, ContextOverflow, NoAnswer, PromptRefused
from ttsgraph.graphs.budget import longest_run
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import Ballot, Role, get_role
from ttsgraph.graphs.stopping import ALL, NextMove, Patience, QuestionState
from ttsgraph.models.client import Client, Completion, Deferred, Request, Sampling, Usage, with_room
from ttsgraph.pool.spec import ModelPool, ModelSpec
from ttsgraph.tasks.base import CodeTask, Question, Task, passes, read_answer
from ttsgraph.tasks.prompts import Prompt

E = TypeVar("E", bound=Exception)

BeginNode = Callable[[int, Request], Completion | Awaitable[Completion]]
"""Callback that starts a node's call. By default it calls the client; a service passes one that
does more with a request than send it.
"""

Found = Completion | str | None
"""Result of a node: its model's completion, the answer that it picked, or None if none of the
answers that it reads passes its check.
"""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Call settings of a pool member on a task: model name and revision in requests, sampling and
    prompt.
    """

    model: str
    revision: str
    sampling: Sampling
    prompt: Prompt

    @property
    def asks(self) -> tuple[object, ...]:
        """Key that is equal for two pool members that send equal requests, whatever their names."""
        return self.model, self.sampling, self.prompt.style, self.prompt.instruction


def manner_of(spec: ModelSpec, sampling: Sampling, prompt: Prompt) -> CallSettings:
    """Return the call settings of a member, given a task's sampling and prompt; a variant's
    settings override the task's.
    """
    return CallSettings(spec.model, spec.revision, spec.sampling(sampling), spec.prompt(prompt))


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """A graph's answer to one question. If there is no answer, `text` is None and `error` gives the
    reason.

    `latency_s` is the critical path over the latencies measured when the calls were made. `usage`
    also counts the calls that succeeded before one failed. A node whose prompt does not fit its
    model gives no answer, and `note` says so: this is a fault of the graph, not of infrastructure,
    and the node's successors continue with their other inputs. The same holds for a node whose
    prompt a provider refuses; if the sink lacks an answer because of a refusal, the question is
    `refused`. `completions` are the calls made, by node. `stages` holds, for each node that the
    question needed, the number of stages that the node asked for.
    """

    text: str | None
    latency_s: float
    usage: Usage
    node_texts: Mapping[int, str]
    error: str = ""
    note: str = ""
    completions: Mapping[int, Completion] = field(default_factory=dict)
    stages: Mapping[int, int] = field(default_factory=dict)
    refused: bool = False


@dataclass(eq=False)
class GraphRunner:
    """A graph prepared to answer many questions. Raises GraphError if a role is unknown, and
    SettingsError if a model is unknown.
    """

    graph: CollaborationGraph
    task: Task
    prompt: Prompt
    sampling: Sampling
    pool: ModelPool
    client: Client

    def __post_init__(self) -> None:
        graph = self.graph
        self.roles: dict[int, Role] = {node.id: get_role(node.role) for node in graph.nodes}
        self.manners: dict[str, CallSettings] = {}
        for node in graph.nodes:
            self.manner(node.model)
        self.sink = graph.sink
        greedy = {name for name, manner in self.manners.items() if manner.sampling.greedy}
        self.replicas = draw_numbers(graph, greedy, lambda model: self.manners[model].asks)
        self.form = partial(read_answer, self.task)
        asking = QuestionState(graph, self.roles, self.form)
        # Every question begins at these nodes, and with these stages.
        self.sources, self.stage = asking.ask(self.sink), asking.stage
        self.begin = with_room(self.client.begin)
        self.branches = [replace(self, graph=branch) for branch in graph.branches if graph.route]
        # Checks that start programs run in a thread, to leave the event loop free.
        runs = isinstance(self.task, CodeTask)
        self.slow = {i for i, role in self.roles.items() if runs and role.checks}

    def manner(self, model: str) -> CallSettings:
        """Return the call settings of any member of the pool, even one outside the graph. Raises
        SettingsError if the pool has no such member.
        """
        if model not in self.manners:
            self.manners[model] = manner_of(self.pool[model], self.sampling, self.prompt)
        return self.manners[model]

    def of(self, question: Question) -> GraphRunner:
        """Return the runner of the branch that answers this question, or this runner if the graph
        has no route.
        """
        return self.branches[self.graph.branch_of(question)] if self.branches else self

    async def answer(self, question: Question) -> NodeAnswer:
        """Run the graph on one question."""
        return await Run(self, question).answer()


def draw_numbers(
    graph: CollaborationGraph, greedy: Collection[str], asks: Callable[[str], object]
) -> dict[int, int]:
    """Return, by id of a node that calls a model, the number of the node's draw among this graph's
    calls that could be equal: k equal nodes in parallel make k different draws.

    Two calls can be equal only if their nodes use one model in the same way (`asks` of the model is
    equal) and read the same number of answers, so a node's number is its rank among such nodes, in
    the graph's order. It depends only on the graph, not on the order in which answers arrive, and
    graphs that share a prefix share the numbers of that prefix. (A role that hides its input could
    make nodes of different in-degrees send equal requests; such nodes share a draw.) Calls of a
    greedy model have only one possible answer, so all of them count as the first draw: equal
    requests are one call.
    """
    ranks: Counter[tuple[object, int]] = Counter()
    numbers = {}
    for i in graph.order:
        node = graph.node(i)
        if get_role(node.role).calls_model:
            alike = asks(node.model), len(graph.reads[i])
            numbers[i] = ranks[alike]
            ranks[alike] += node.model not in greedy
    return numbers


class Run:
    """One question on its way through a graph, or through the branch that `whole` routes it to.
    `begin` starts a node's call in place of the client; `patience` says which answers may be
    missing.
    """

    def __init__(
        self,
        runner: GraphRunner,
        question: Question,
        begin: BeginNode | None = None,
        patience: Patience = ALL,
    ) -> None:
        self.whole = runner
        self.runner = runner = runner.of(question)
        self.question = question
        self._begin = begin or (lambda i, request: runner.begin(request))
        self.asking = QuestionState(
            runner.graph, runner.roles, runner.form, patience, runner.stage.copy()
        )
        self.texts, self.errors = self.asking.texts, self.asking.errors
        self.completions: dict[int, Completion] = {}
        self.failures: dict[int, CallFailed] = {}
        self.fallbacks: list[int] = []
        self.cancelled: list[int] = []
        self.late = False
        self._under_way: dict[int, asyncio.Future[Found]] = {}
        self._ended = asyncio.Event()

    async def answer(self, deadline_s: float | None = None) -> NodeAnswer:
        """Run nodes until the graph has answered or has failed. For a waiting user, run for at most
        `deadline_s` seconds, and don't wait for calls that are no longer needed. Cancelling this
        coroutine cancels every call.
        """
        early = self.asking.patience.quorum is not None
        dropped: list[asyncio.Future[Found]] = []
        try:
            self._advance(self.runner.sources)
            async with asyncio.timeout(deadline_s) as deadline:
                while self._under_way:
                    if early and (self.failures or self.runner.sink in self.texts):
                        break
                    for i in await self._done():
                        self._advance(self._take(i, self._under_way.pop(i).result))
                    if early:
                        dropped += self._cancel(self.asking.drop())
        except TimeoutError:
            if not deadline.expired():
                raise
            self._give_up()
        finally:
            await asyncio.gather(*dropped, *self._cancel(), return_exceptions=True)
        return self.result()

    async def _done(self) -> list[int]:
        """Wait until a call may have ended, and return the nodes whose calls have."""
        await self._ended.wait()
        self._ended.clear()
        return [i for i, call in self._under_way.items() if call.done()]

    def _take(self, i: int, find: Callable[[], Found | Awaitable[Found]]) -> list[int]:
        """Let a node find something; return the nodes that become ready as a result."""
        try:
            return self._arrived(i, find())
        except (CallFailed, NoAnswer) as error:
            return self._missing(i, error)

    def _advance(self, ready: Iterable[int]) -> None:
        """Advance these nodes, and all nodes that become ready as a result."""
        queue = deque(ready)
        asking = self.asking
        while queue and not self.failures:
            i = queue.popleft()
            if asking.ended(i) or i in self._under_way:  # already decided or started
                continue
            step = asking.decide(i)
            if step is NextMove.RUN:
                queue += self._run(i)
            elif isinstance(step, int):
                self.texts[i] = self.texts[step]
                queue += asking.arrived(i)
            elif step is NextMove.ASK:
                queue += asking.go_on(i)
            elif step is NextMove.CHECK:
                queue += self._chosen(i, partial(self._passed, i))
            elif step is NextMove.FAIL:
                queue += self._missing(i, asking.lost(i)[0])

    def _run(self, i: int) -> list[int]:
        """Run a node's role; return the nodes that become ready immediately."""
        role = self.runner.roles[i]
        refusals = self.met(PromptRefused)
        refused = [refusals[p] for p in self.runner.graph.reads[i] if p in refusals]
        if refused and len(self._heard(i)) < role.min_in_degree:
            return self._missing(i, refused[0])
        if not role.calls_model:
            return self._chosen(i, partial(role.choose, self._ballot(i)))
        return self._take(i, lambda: self._begin(i, self._request(i, role)))

    def _chosen(self, i: int, choose: Callable[[], str | None]) -> list[int]:
        """Let a node pick an answer. A pick that starts programs runs in a thread and is awaited
        like a call.
        """
        slow = i in self.runner.slow
        return self._take(i, partial(asyncio.to_thread, choose) if slow else choose)

    def _cancel(self, needed: Collection[int] = ()) -> list[asyncio.Future[Found]]:
        """Cancel the calls under way that are not needed, and return them."""
        nodes = [i for i in self._under_way if i not in needed]
        self.cancelled += nodes
        calls = [self._under_way.pop(i) for i in nodes]
        for call in calls:
            call.cancel()
        return calls

    def _give_up(self) -> None:
        """Handle the deadline: every node that was asked but has no answer passes on the most
        frequent answer of its predecessors.
        """
        self.late = True
        graph = self.runner.graph
        for i in graph.order:
            there = self.asking.heard(graph.predecessors[i])
            if i in self.asking.stage and i not in self.texts and there:
                self.texts[i] = self.texts[self.asking.leader(there)]
        if self.runner.sink not in self.texts:
            self.failures.setdefault(self.runner.sink, CallFailed("no answer before the deadline"))

    def result(self) -> NodeAnswer:
        """Return the answer, once nothing is under way. Sums and texts are in the graph's order, so
        that results and files don't depend on the order of arrival.
        """
        order, made, pool = self.runner.graph.order, self.completions, self.runner.pool
        usages = (usage_of(made[i], pool[self.model_of(i)]) for i in order if i in made)
        texts = {i: self.texts[i] for i in order if i in self.texts}
        answer = NodeAnswer(None, math.nan, sum(usages, Usage()), texts, completions=made)
        if self.failures:
            return replace(answer, error=str(self.failures[min(self.failures, key=order.index)]))
        if (text := self.texts.get(self.runner.sink)) is None:
            return replace(answer, error=str(self.errors[self.runner.sink]), refused=True)
        silent = self.met(NoAnswer)
        note = str(silent[min(silent, key=order.index)]) if silent else ""
        stages = {i: place + 1 for i, place in self.asking.stage.items()}
        seconds = {i: made[i].latency_s if i in made else 0.0 for i in order}
        latency = longest_run(self.runner.graph, seconds, stages)
        if self.whole is not self.runner:  # a router returns the answer of its branch
            texts[self.whole.sink] = text
            stages[self.whole.sink] = 1
        return replace(answer, text=text, latency_s=latency, note=note, stages=stages)

    def _passed(self, i: int) -> str | None:
        """Return the answer of a node that stops once an answer passes the check, or None if none
        of its latest answers passes.
        """
        # Answers of watched nodes don't count, and no answer of an earlier wave has passed.
        latest = set(self.runner.graph.reads[i]).intersection(self.asking.awaited(i))
        texts = {self.texts[p] for p in self.asking.heard(latest)}
        if not any(passes(self.runner.task, self.question, text) for text in texts):
            return None
        return self.runner.roles[i].choose(self._ballot(i))

    def met(self, kind: type[E]) -> dict[int, E]:
        """Return the errors of this kind, by node."""
        return {i: error for i, error in self.errors.items() if isinstance(error, kind)}

    def _heard(self, i: int) -> list[str]:
        """Return the answers that a node reads."""
        return [self.texts[p] for p in self.asking.heard(self.runner.graph.reads[i])]

    def _ballot(self, i: int) -> Ballot:
        """Return the ballot for a node that picks one of the answers that it reads."""
        runner = self.runner
        known = [
            runner.pool[self.model_of(p)].accuracy if runner.roles[p].calls_model else None
            for p in self.asking.heard(runner.graph.reads[i])
        ]
        return Ballot(runner.task, self.question, self._heard(i), known)

    def model_of(self, i: int) -> str:
        """Return the name of the pool member that a node calls."""
        return self.runner.graph.node(i).model

    def _request(self, i: int, role: Role) -> Request:
        runner = self.runner
        assert role.speak is not None
        manner = runner.manner(self.model_of(i))
        messages = role.speak(runner.task, manner.prompt, self.question, self._heard(i))
        return Request(manner.model, manner.revision, messages, manner.sampling, runner.replicas[i])

    def _arrived(self, i: int, found: Found | Awaitable[Found]) -> list[int]:
        """Handle what a node has found, or await it; None if no answer passes a node's check."""
        if found is None:
            return self.asking.go_on(i)
        if isinstance(found, str):
            self.texts[i] = found
        elif isinstance(found, Completion):
            self.completions[i] = found
            text, read = found.text, self.runner.roles[i].read
            # A few-shot prompt asks for an answer whatever the role, so the reply is the answer.
            if read and self.runner.manner(self.model_of(i)).prompt.style != "few_shot":
                text = read(self.runner.task, text, self._heard(i))
            self.texts[i] = text
        else:
            begun = found.make() if isinstance(found, Deferred) else found
            call = self._under_way[i] = asyncio.ensure_future(begun)
            call.add_done_callback(lambda _: self._ended.set())
            return []
        return self.asking.arrived(i)

    def _missing(self, i: int, error: CallFailed | NoAnswer) -> list[int]:
        """Handle a node without an answer: a prompt that is too long gives an empty answer, a
        refused prompt gives none, and a failed call, or the loss of a node's inputs, may end the
        run.
        """
        self.errors[i] = error
        patience, inputs = self.asking.patience, self.runner.graph.reads[i]
        if isinstance(error, ContextOverflow):
            return self._arrived(i, "")
        if patience.fallback and self.asking.heard(inputs):
            self.texts[i] = self.texts[self.asking.leader(inputs)]
            self.fallbacks.append(i)
        elif isinstance(error, CallFailed) and (i == self.runner.sink or patience.quorum is None):
            self.failures[i] = error
            return []
        return self.asking.arrived(i)


def usage_of(call: Completion, asked: ModelSpec) -> Usage:
    """Return the usage of a call to this pool member."""
    price = asked.price.of(call)
    spent = 0.0 if call.cached else price
    return Usage(call.prompt_tokens, call.completion_tokens, price, spent, 1, int(call.cached))
