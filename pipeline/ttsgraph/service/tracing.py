"""Traces of requests by OpenTelemetry's SDK: a span for each request and one for each node, in the
caller's trace (W3C context), which goes on to the models' endpoints.

Where spans go, sampling, batches and resources are the usual OTEL_* variables. Names follow
OpenTelemetry's conventions for generative models, the rest begins with `ttsgraph.`. It needs the
extra `traces`, which only this imports.

While a request is answered, only the ids are drawn that its models are told. Spans are made once
it has ended, where it is sampled, of several requests at once: one after the other that takes a
third of the time that it takes between other work.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ttsgraph.base.secrets import environment_secrets, redact
from ttsgraph.models.client import whole_text
from ttsgraph.settings.service import TraceSettings

if TYPE_CHECKING:
    from ttsgraph.service.answering import Answering
    from ttsgraph.service.run import ServedRun

HIDDEN = "[redacted]"
TOGETHER = 64
SOON_S = 1.0
"""Spans are made of so many requests that ended, or so long after the first of them."""

Attributes = dict[str, Any]


class GivenIds(RandomIdGenerator):
    """The ids that were told before the spans were made that have them."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        """That of the request whose span is made."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """That which was told, or a new one."""
        return self.span_id or super().generate_span_id()


class Tracing:
    """Makes the traces of one server; what ended is sent in batches by a thread of the SDK's."""

    def __init__(self, settings: TraceSettings) -> None:
        self.texts = settings.texts
        self._ids = GivenIds()
        named = {"service.name": "ttsgraph", "service.version": metadata.version("ttsgraph")}
        resource = Resource(named).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(
            resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(settings.endpoint)))
        self._tracer = self._provider.get_tracer("ttsgraph")
        self._secrets = environment_secrets()
        self._hide = [re.compile(pattern) for pattern in settings.redact]
        self._ended: list[Callable[[], None]] = []

    def begin(self, request_id: str, path: str, headers: Mapping[str, str]) -> RequestTrace:
        """The trace of a request that begins now: the caller's, or by the request's id."""
        within = TraceContextTextMapPropagator().extract(headers)
        caller = get_current_span(within).get_span_context()
        trace_id = caller.trace_id if caller.is_valid else int(request_id, 16)
        found = self._provider.sampler.should_sample(within, trace_id, f"POST {path}")
        sampled = found.decision is Decision.RECORD_AND_SAMPLE
        return RequestTrace(self, request_id, path, (within, headers), trace_id, sampled)

    def span(
        self, name: str, within: Context, kind: SpanKind, ids: tuple[int, int], at: int
    ) -> Span:
        """A span of these ids (0 for a new one of its own) that began then (nanoseconds)."""
        self._ids.trace_id, self._ids.span_id = ids
        return self._tracer.start_span(name, within, kind, start_time=at)

    def add(self, make: Callable[[], None]) -> None:
        """A request has ended: its spans are made soon."""
        self._ended.append(make)
        if len(self._ended) >= TOGETHER:
            self.make()
        elif len(self._ended) == 1:
            asyncio.get_running_loop().call_later(SOON_S, self.make)

    def make(self) -> None:
        """Make the spans of what ended."""
        ended, self._ended = self._ended, []
        for make in ended:
            make()

    def messages(self, said: Sequence[tuple[str, str]]) -> str:
        """(whose, which) words as the conventions write them."""
        shown = [
            {"role": role, "parts": [{"type": "text", "content": self.shown(text)}]}
            for role, text in said
        ]
        return json.dumps(shown, ensure_ascii=False)

    def shown(self, text: str) -> str:
        """A text as a trace may hold it: without secrets and what the settings say to hide."""
        text = redact(whole_text(text), self._secrets)
        for pattern in self._hide:
            text = pattern.sub(HIDDEN, text)
        return text

    def close(self) -> None:
        """Send what is left."""
        self.make()
        self._provider.shutdown()


class RequestTrace:
    """The spans of one request; all end with it, with all that is known then."""

    def __init__(
        self,
        tracing: Tracing,
        request_id: str,
        path: str,
        caller: tuple[Context, Mapping[str, str]],
        trace_id: int,
        sampled: bool,
    ) -> None:
        self._within, self._headers = caller
        self._tracing = tracing
        self._request_id = request_id
        self._path = path
        self._trace_id = trace_id
        self._sampled = sampled
        self._own_id = random.getrandbits(64) or 1
        self._began = time.time_ns()
        self._nodes: dict[int, tuple[int, int]] = {}  # their spans' ids, and when they asked
        self._ended: dict[int, int] = {}

    def begin(self, node: int) -> Mapping[str, str]:
        """A node asks its model, perhaps another one after the first; returns the headers that its
        requests carry.
        """
        if node not in self._nodes:
            self._nodes[node] = random.getrandbits(64) or 1, time.time_ns()
        own = self._nodes[node][0]
        context = f"00-{self._trace_id:032x}-{own:016x}-{int(self._sampled):02x}"
        return {**self._headers, "traceparent": context}

    def end(self, node: int) -> None:
        """Its call has ended."""
        self._ended[node] = time.time_ns()

    def finish(self, status: int, answering: Answering | None) -> None:
        """The request has ended with this HTTP status."""
        if self._sampled:
            self._tracing.add(partial(self._make, status, answering, time.time_ns()))

    def _make(self, status: int, answering: Answering | None, now: int) -> None:
        found: Attributes = {
            "http.route": self._path,
            "http.response.status_code": status,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "ttsgraph",
            "gen_ai.response.id": f"chatcmpl-{self._request_id}",
        }
        name = f"POST {self._path}"
        if answering is not None:
            name = f"invoke_agent {answering.live.name}"
            found |= self._of_answer(answering)
        ids = self._trace_id, self._own_id
        span = self._tracing.span(name, self._within, SpanKind.SERVER, ids, self._began)
        if status >= 500:
            found["error.type"] = str(status)
            span.set_status(StatusCode.ERROR, f"HTTP {status}")
        span.set_attributes(found)
        if answering is not None:
            within = set_span_in_context(span)
            for i in answering.run.runner.graph.order:
                self._add_node(answering.run, i, within, now)
        span.end(now)

    def _of_answer(self, answering: Answering) -> Attributes:
        deployed = answering.live.deployed
        run = answering.run
        task = answering.task
        done = task.done() and not task.cancelled() and task.exception() is None
        usage = task.result().usage if done else run.used()
        found = {
            "gen_ai.agent.name": answering.live.name,
            "gen_ai.agent.version": deployed.version,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "ttsgraph.graph_hash": deployed.graph.content_hash,
            "ttsgraph.calls": usage.calls,
            "ttsgraph.dollars": usage.dollars,
            "ttsgraph.deadline_passed": run.late,
        }
        if self._tracing.texts:
            said = run.texts.get(run.runner.sink, "")
            found |= self._said([("user", answering.asked.question)], [("assistant", said)])
        return found

    def _add_node(self, run: ServedRun, i: int, within: Any, now: int) -> None:
        """The span of a node; one that was not asked says why."""
        role = run.runner.nodes[i].role
        model = run.model_of(i)
        calls = run.runner.roles[i].calls_model
        how, why = outcome(run, i)
        found: Attributes = {"ttsgraph.node": i, "ttsgraph.role": role, "ttsgraph.outcome": how}
        if why:
            found["ttsgraph.why"] = self._tracing.shown(why)
        if calls:
            found |= self._of_call(run, i, model)
        else:
            reads = run.runner.graph.reads[i]
            heard = sum(p in run.texts for p in reads)
            found["ttsgraph.reads"] = list(reads)
            if run.runner.roles[i].votes:
                found["ttsgraph.votes"] = heard
                found["ttsgraph.voters"] = len(reads)
                found["ttsgraph.stopped_early"] = heard < len(reads)
        own_id, began = self._nodes.get(i, (0, now))
        name = f"chat {model}" if calls else f"{role} {i}"
        ids = self._trace_id, own_id
        span = self._tracing.span(name, within, SpanKind.CLIENT, ids, began)
        span.set_attributes(found)
        if how == "failed":
            span.set_attribute("error.type", "call_failed")
            span.set_status(StatusCode.ERROR, self._tracing.shown(why))
        span.end(self._ended.get(i, now))

    def _of_call(self, run: ServedRun, i: int, model: str) -> Attributes:
        """What is known of the call that a node made."""
        found: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai_compatible",
            "gen_ai.request.model": model,
        }
        if i not in self._nodes:
            return found
        request = run.requests[i]
        found["gen_ai.request.max_tokens"] = request.sampling.max_tokens
        completion = run.completions.get(i)
        if completion is not None:
            found |= {
                "gen_ai.usage.input_tokens": completion.prompt_tokens,
                "gen_ai.usage.output_tokens": completion.completion_tokens,
                "ttsgraph.dollars": run.runner.pool[model].price.of(completion),
                "ttsgraph.cached": completion.cached,
                "ttsgraph.latency_s": completion.latency_s,
            }
            if completion.known_tokens:
                found["gen_ai.usage.cache_read.input_tokens"] = completion.known_tokens
            if completion.reasoning_tokens:
                found["ttsgraph.reasoning_tokens"] = completion.reasoning_tokens
        if self._tracing.texts:
            asked = [(m.role, m.whole or m.content) for m in request.messages]
            found |= self._said(asked, [("assistant", completion.text)] if completion else [])
        return found

    def _said(
        self, asked: Sequence[tuple[str, str]], said: Sequence[tuple[str, str]]
    ) -> Attributes:
        return {
            "gen_ai.input.messages": self._tracing.messages(asked),
            "gen_ai.output.messages": self._tracing.messages(said),
        }


def outcome(run: ServedRun, i: int) -> tuple[str, str]:
    """What became of a node, and why where that is not an answer of its own."""
    if i in run.fallbacks:
        return "fallback", f"its own call failed: {run.lost[i]}"
    if i in run.lost or i in run.failures:
        return "failed", str(run.lost.get(i) or run.failures[i])
    if i in run.overflows:
        return "empty", str(run.overflows[i])
    if i in run.closed:
        return "answered", "its gate stayed closed: what it watches agrees"
    if i in run.texts:
        return "answered", ""
    watchers = run.runner.graph.successors[i]
    causes = (
        (run.late, "the request's deadline had come"),
        (bool(run.failures), "another call failed for good"),
        (any(j in run.closed for j in watchers), "the gate of a node that reads it stayed closed"),
        (run.runner.sink in run.texts, "the vote was decided without it"),
        (True, "the request ended before"),
    )
    why = next(said for holds, said in causes if holds)
    return "cancelled" if i in run.cancelled else "left out", why
