"""What a request's trace says: a span for the request, one for each node, one for each call.

Plain values, made once the request has ended, of what its run knows and of the times that it noted.
Names are those of OpenTelemetry's conventions for generative models where it has some, else they
begin with `ttsgraph.`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ttsgraph.models.client import Completion, Message, Request

if TYPE_CHECKING:
    from ttsgraph.service.acting import AskedRun

Value = str | int | float | bool | Sequence[str] | Sequence[int]
Show = Callable[[str], str]
"""A text as a trace may show it."""


class Times:
    """When the nodes of a run began and ended to ask their models, in ns since 1970, and what they
    asked.
    """

    def __init__(self) -> None:
        self.began: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.asked: dict[int, Request] = {}

    def begin(self, node: int, request: Request) -> None:
        """A node asks its model."""
        self.began.setdefault(node, time.time_ns())
        self.asked[node] = request

    def end(self, node: int) -> None:
        """Its call has ended."""
        self.ended[node] = time.time_ns()


@dataclass
class Span:
    """Something that took from one time to another (ns since 1970), and what it was made of."""

    name: str
    start: int
    end: int
    attributes: dict[str, Value]
    children: list[Span] = field(default_factory=list)
    error: str = ""


def node_spans(run: AskedRun, times: Times, end: int, show: Show | None) -> list[Span]:
    """A span for every node of a run's graph, in its order, with the call that it made.

    Nodes that were not asked have one too, which says why. Texts are shown by `show`, if at all.
    """
    graph = run.runner.graph
    ended: dict[int, int] = {}
    found = []
    for i in graph.order:
        ready = max((ended[p] for p in graph.predecessors[i] if p in ended), default=end)
        start = times.began.get(i, ready)
        ended[i] = max(start, times.ended.get(i, end if i in times.began else start))
        node = graph.node(i)
        how, why = outcome(run, i)
        attributes: dict[str, Value] = {
            "ttsgraph.node": i,
            "ttsgraph.role": node.role,
            "ttsgraph.outcome": how,
            "ttsgraph.reads": list(graph.reads[i]),
        }
        attributes |= {"ttsgraph.why": why} if why else {}
        if run.runner.roles[i].votes:
            heard = [p for p in graph.reads[i] if p in run.texts]
            attributes |= {"ttsgraph.votes": len(heard), "ttsgraph.voters": len(graph.reads[i])}
            attributes["ttsgraph.stopped_early"] = len(heard) < len(graph.reads[i])
        if show is not None and i in run.texts:
            attributes["gen_ai.output.messages"] = _messages([("assistant", run.texts[i])], show)
        failed = why if how == "failed" else ""
        span = Span(f"{node.role} {i}", start, ended[i], attributes, error=failed)
        if i in times.asked:
            span.children = [_call(run, i, times.asked[i], span, show)]
        found.append(span)
    return found


def outcome(run: AskedRun, i: int) -> tuple[str, str]:
    """What became of a node, and why where that is not an answer of its own."""
    if i in run.fallbacks:
        return "fallback", f"its own call failed: {run.lost[i]}"
    if i in run.lost:
        return "failed", str(run.lost[i])
    if i in run.failures:
        return "failed", str(run.failures[i])
    if i in run.overflows:
        return "empty", str(run.overflows[i])
    if i in run.closed:
        return "answered", "its gate stayed closed: what it watches agrees"
    if i in run.texts:
        return "answered", ""
    why = "the request ended before"
    if run.late:
        why = "the request's deadline had come"
    elif run.failures:
        why = "another call failed for good"
    elif any(j in run.closed for j in run.runner.graph.successors[i]):
        why = "the gate of a node that reads it stayed closed"
    elif run.runner.sink in run.texts:
        why = "the vote was decided without it"
    return "cancelled" if i in run.cancelled else "left out", why


def _call(run: AskedRun, i: int, request: Request, node: Span, show: Show | None) -> Span:
    """The call that a node made."""
    model = run.runner.nodes[i].model
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": request.sampling.max_tokens,
    }
    if request.sampling.temperature is not None:
        attributes["gen_ai.request.temperature"] = request.sampling.temperature
    if (completion := run.completions.get(i)) is not None:
        attributes |= used(completion, run.runner.pool[model].price.of(completion))
    if show is not None:
        attributes["gen_ai.input.messages"] = _messages(map(_said, request.messages), show)
        if completion is not None:
            attributes["gen_ai.output.messages"] = _messages([("assistant", completion.text)], show)
    return Span(f"chat {model}", node.start, node.end, attributes, error=node.error)


def used(completion: Completion, dollars: float) -> dict[str, Value]:
    """What a call used, and where its answer came from."""
    return {
        "gen_ai.usage.input_tokens": completion.prompt_tokens,
        "gen_ai.usage.output_tokens": completion.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": completion.known_tokens,
        "ttsgraph.reasoning_tokens": completion.reasoning_tokens,
        "ttsgraph.dollars": dollars,
        "ttsgraph.cached": completion.cached,
        "ttsgraph.latency_s": completion.latency_s,
    }


def request_span(
    path: str,
    status: int,
    times: tuple[int, int],
    origin: Mapping[str, Value],
    said: tuple[str, str] | None,
    show: Show | None,
) -> Span:
    """The span of a request that ended with this HTTP status; `said` are its question and answer.

    `origin` is what answered it.
    """
    attributes: dict[str, Value] = {
        "http.request.method": "POST",
        "url.path": path,
        "http.response.status_code": status,
        "gen_ai.operation.name": "invoke_agent",
        **origin,
    }
    if show is not None and said is not None:
        question, answer = said
        attributes["gen_ai.input.messages"] = _messages([("user", question)], show)
        attributes["gen_ai.output.messages"] = _messages([("assistant", answer)], show)
    error = f"HTTP {status}" if status >= 500 else ""
    return Span(f"POST {path}", *times, attributes, error=error)


def _said(message: Message) -> tuple[str, str]:
    return message.role, message.content if message.whole is None else message.whole


def _messages(said: Iterable[tuple[str, str]], show: Show) -> str:
    """Messages as the conventions write them."""
    messages = [
        {"role": role, "parts": [{"type": "text", "content": show(text)}]} for role, text in said
    ]
    return json.dumps(messages, ensure_ascii=False)
