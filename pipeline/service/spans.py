"""What a request's trace says: a span for the request, one for each node, one for each call.

Plain values, made once the request has ended, of what its run knows and of the times that it noted.
Names are those of OpenTelemetry's conventions for generative models where it has some, else they
begin with `ttsgraph.`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ttsgraph.models.client import Completion, Request

if TYPE_CHECKING:
    from ttsgraph.service.acting import AskedRun
    from ttsgraph.service.answering import Answering

Value = str | int | float | bool | Sequence[str] | Sequence[int]
Said = tuple[str, str]
"""Whose words, and which."""

INPUT = "gen_ai.input.messages"
OUTPUT = "gen_ai.output.messages"


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


@dataclass(slots=True)
class Span:
    """Something that took from one time to another (ns since 1970), and what it was made of.

    `texts` are what was asked and answered, where traces may hold that.
    """

    name: str
    start: int
    end: int
    attributes: dict[str, Value]
    children: list[Span] = field(default_factory=list)
    error: str = ""
    texts: dict[str, list[Said]] = field(default_factory=dict)


def request_span(
    path: str, status: int, times: tuple[int, int], answering: Answering | None, texts: bool
) -> Span:
    """The span of a request that ended with this HTTP status, with all that it was made of; where
    it was never asked of a graph, that alone.
    """
    attributes: dict[str, Value] = {
        "http.request.method": "POST",
        "url.path": path,
        "http.response.status_code": status,
        "gen_ai.operation.name": "invoke_agent",
    }
    error = f"HTTP {status}" if status >= 500 else ""
    span = Span(f"POST {path}", *times, attributes, error=error)
    run = None if answering is None else answering.run
    if answering is None or run is None:
        return span
    deployed = answering.live.deployed
    usage = run.used()
    attributes |= {
        "gen_ai.agent.name": answering.live.name,
        "ttsgraph.task": deployed.task,
        "ttsgraph.model_version": deployed.version,
        "ttsgraph.graph_hash": deployed.graph.content_hash,
        "ttsgraph.calls": usage.calls,
        "ttsgraph.cached_calls": usage.cached_calls,
        "ttsgraph.prompt_tokens": usage.prompt_tokens,
        "ttsgraph.completion_tokens": usage.completion_tokens,
        "ttsgraph.dollars": usage.dollars,
        "ttsgraph.deadline_passed": run.late,
    }
    if texts:
        span.texts = {
            INPUT: [("user", answering.asked.question)],
            OUTPUT: [("assistant", run.texts.get(run.runner.sink, ""))],
        }
    span.children = node_spans(run, answering.times or Times(), times[1], texts)
    return span


def node_spans(run: AskedRun, times: Times, end: int, texts: bool) -> list[Span]:
    """A span for every node of a run's graph, in its order, with the call that it made.

    Nodes that were not asked have one too, which says why.
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
        failed = why if how == "failed" else ""
        span = Span(f"{node.role} {i}", start, ended[i], attributes, error=failed)
        if texts and i in run.texts:
            span.texts = {OUTPUT: [("assistant", run.texts[i])]}
        if i in times.asked:
            span.children = [_call(run, i, times.asked[i], span, texts)]
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


def _call(run: AskedRun, i: int, request: Request, node: Span, texts: bool) -> Span:
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
    span = Span(f"chat {model}", node.start, node.end, attributes, error=node.error)
    if texts:
        span.texts = {INPUT: [(m.role, m.whole or m.content) for m in request.messages]}
        span.texts |= {OUTPUT: [("assistant", completion.text)]} if completion is not None else {}
    return span


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
