"""One client's request on its way through a graph: asked in the form that it wishes, its
conversation handed on as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ttsgraph.base.errors import CallFailed, ContextOverflow, FormRefused
from ttsgraph.evaluation.executor import Finish, GraphRunner
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import Role, get_role
from ttsgraph.models.client import Completion, Message, Request
from ttsgraph.service.errors import ApiError
from ttsgraph.service.forms import Form, as_choice
from ttsgraph.service.run import Served, ServedRun, Tolerance
from ttsgraph.service.steady import Steady
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:
    from ttsgraph.service.tracing import RequestTrace


def actors(graph: CollaborationGraph) -> tuple[frozenset[int], frozenset[int]]:
    """The nodes whose answer can become the graph's as it is, and those that only choose among
    such answers.
    """
    acting = set[int]()
    choosing = set[int]()
    asked = [graph.sink]
    while asked:
        i = asked.pop()
        if i in acting or i in choosing:
            continue
        node = graph.node(i)
        role = get_role(node.role)
        acts = role.calls_model and role.read is None
        (acting if acts else choosing).add(i)
        asked += [] if acts else graph.reads[i]
        asked += graph.stages[i][0] if node.gate else []
    return frozenset(acting), frozenset(choosing)


class AskedRun(ServedRun):
    """A request's question, asked in its form; `turns` are those after the question: calls of tools
    and their results. `trace` has a span of each node, where the request is traced; else its
    models are told of the caller's trace as it came, which `context` are the headers of.
    """

    def __init__(
        self,
        runner: GraphRunner,
        question: Question,
        finish: Finish | None,
        tolerance: Tolerance,
        steady: Steady | None = None,
        told: Callable[[], bool] = lambda: False,
        form: Form | None = None,
        turns: tuple[Message, ...] = (),
        trace: RequestTrace | None = None,
        context: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(runner, question, finish, tolerance, steady, told)
        self.form = form
        self.turns = turns
        self.trace = trace
        self._context = context or {}
        self._headers: dict[int, Mapping[str, str]] = {}
        self.acting, self._choosing = actors(runner.graph)

    def _request(self, i: int, role: Role, answers: list[str]) -> Request:
        request = self._formed(i, super()._request(i, role, answers))
        if self.trace is not None:
            self._headers[i] = self.trace.begin(i, request)
        return request

    def headers_of(self, i: int) -> Mapping[str, str]:
        """The trace that the node's requests are of."""
        return self._headers.get(i, self._context)

    def _arrived(self, i: int, completion: Completion | str | None) -> list[int]:
        if self.trace is not None:
            self.trace.end(i)
        return super()._arrived(i, completion)

    def _missing(self, i: int, error: CallFailed | ContextOverflow) -> list[int]:
        if self.trace is not None:
            self.trace.end(i)
        return super()._missing(i, error)

    def _formed(self, i: int, request: Request) -> Request:
        form = self.form
        if form is None and not self.turns:
            return request
        text = self.runner.task.render(self.question)
        messages = with_turns(request.messages, text, self.turns)
        if form is None or i in self._choosing:
            return replace(request, messages=messages)
        if i not in self.acting:
            return replace(request, messages=with_advice(messages, form.advice))
        sampling = request.sampling
        # The version's stop sequences end its kind's texts, and could cut a call or JSON in two.
        own = () if form.structured else sampling.stop
        stop = (*own, *(text for text in form.stop if text not in own))
        sampling = replace(sampling, stop=stop)
        return replace(request, messages=messages, sampling=sampling, form=form.parameters)

    @property
    def refused(self) -> FormRefused | None:
        """What an endpoint said that refused the request's form, where that failed the run."""
        failures = self.failures.values()
        return next((error for error in failures if isinstance(error, FormRefused)), None)

    def choices(self, answer: Served) -> list[dict[str, Any]]:
        """The choices of an answer in a form with parameters, as the node gave them whose answer it
        is. Raises ApiError where its endpoint gave none, or what there is is no JSON as asked for.
        """
        assert self.form is not None
        made = [answer.completions[i] for i in self._said(answer) if i in answer.completions]
        if any(not completion.choices for completion in made):
            said = "this model's pool answers in plain text, without tools, JSON modes or choices"
            raise ApiError(400, said, code="unsupported_parameter")
        if made:
            # Where a text reads like calls, the calls come first.
            found = max((json.loads(completion.choices) for completion in made), key=_has_calls)
            return list(found)
        if self.form.as_json and not self.form.tools:
            raise ApiError(502, "no model that answers in JSON did", code="pool_model_failed")
        return list(as_choice(answer.text or ""))

    def _said(self, answer: Served) -> list[int]:
        """The acting nodes whose answer is the graph's."""
        sink = self.runner.sink
        if sink in self.acting and sink in answer.completions:
            return [sink]
        order = self.runner.graph.order
        return [i for i in order if i in self.acting and answer.node_texts.get(i) == answer.text]


def _has_calls(choices: Sequence[Any]) -> bool:
    return bool(choices[0]["message"].get("tool_calls"))


def with_turns(
    messages: Sequence[Message], text: str, turns: Sequence[Message]
) -> tuple[Message, ...]:
    """Messages whose last begins with the question's text, with what was said after it behind it;
    what a node is asked beyond the question stands at the end.
    """
    if not turns:
        return tuple(messages)
    *before, last = messages
    shown = text if last.content.startswith(text) else last.content
    more = last.content.removeprefix(shown).strip()
    end = (Message("user", more),) if more else ()
    return (*before, Message(last.role, shown), *turns, *end)


def with_advice(messages: Sequence[Message], advice: str) -> tuple[Message, ...]:
    """Messages that end by telling a node that it advises."""
    if not advice:
        return tuple(messages)
    *before, last = messages
    if last.role != "user" or last.whole is not None:
        return (*messages, Message("user", advice))
    return (*before, replace(last, content=f"{last.content}\n\n{advice}"))
