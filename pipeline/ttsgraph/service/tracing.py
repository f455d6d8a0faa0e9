"""Traces of requests by OpenTelemetry's SDK: a span for each request and one for each node, in the
caller's trace (W3C context), which goes on to the models' endpoints.

Where spans go, sampling, batches and resources are the usual OTEL_* variables. Names follow
OpenTelemetry's conventions for generative models, the rest begins with `ttsgraph.`. It needs the
extra `traces`, which only this imports.

While a request is answered, only the ids are drawn that its models are told; its spans are made
whole once it has ended, where it is sampled.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ttsgraph.base.secrets import environment_secrets, redact
from ttsgraph.models.client import whole_text
from ttsgraph.settings.service import TraceSettings

if TYPE_CHECKING:
    from ttsgraph.service.answering import Answering
    from ttsgraph.service.run import ServedRun

HIDDEN = "[redacted]"
SCOPE = InstrumentationScope("ttsgraph")

Attributes = dict[str, Any]


class Tracing:
    """Makes the traces of one server; what ended is sent in batches by a thread of the SDK's."""

    def __init__(self, settings: TraceSettings) -> None:
        self.texts = settings.texts
        named = {"service.name": "ttsgraph", "service.version": metadata.version("ttsgraph")}
        self.resource = Resource(named).merge(OTELResourceDetector().detect())
        self.processor = BatchSpanProcessor(OTLPSpanExporter(settings.endpoint))
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(self.processor)
        self.sampler = self._provider.sampler
        self._limits = SpanLimits()
        self._secrets = environment_secrets()
        self._hide = [re.compile(pattern) for pattern in settings.redact]

    def begin(self, request_id: str, path: str, headers: Mapping[str, str]) -> RequestTrace:
        """The trace of a request that begins now."""
        return RequestTrace(self, request_id, path, headers)

    def bounded(self, attributes: Attributes) -> BoundedAttributes:
        """Attributes within the limits of the usual variables."""
        limits = self._limits
        most = limits.max_span_attributes
        return BoundedAttributes(most, attributes, True, limits.max_span_attribute_length)

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
        self._provider.shutdown()


class RequestTrace:
    """The spans of one request that begins now, in the caller's trace, else in one of the request's
    id; all end with it, with all that is known then.
    """

    def __init__(
        self, tracing: Tracing, request_id: str, path: str, headers: Mapping[str, str]
    ) -> None:
        within = TraceContextTextMapPropagator().extract(headers)
        caller = get_current_span(within).get_span_context()
        self._caller = caller if caller.is_valid else None
        trace_id = caller.trace_id if caller.is_valid else int(request_id, 16)
        found = tracing.sampler.should_sample(within, trace_id, f"POST {path}")
        self._flags = TraceFlags(int(found.decision is Decision.RECORD_AND_SAMPLE))
        self._own = SpanContext(trace_id, _span_id(), False, self._flags, found.trace_state)
        self._tracing = tracing
        self._headers = headers
        self._request_id = request_id
        self._path = path
        self._began = time.time_ns()
        self._nodes: dict[int, tuple[int, int]] = {}  # their spans' ids, and when they asked
        self._ended: dict[int, int] = {}

    def begin(self, node: int) -> Mapping[str, str]:
        """A node asks its model; returns the headers that its requests carry."""
        self._nodes[node] = _span_id(), time.time_ns()
        own = self._nodes[node][0]
        context = f"00-{self._own.trace_id:032x}-{own:016x}-{self._flags:02x}"
        return {**self._headers, "traceparent": context}

    def end(self, node: int) -> None:
        """Its call has ended."""
        self._ended[node] = time.time_ns()

    def finish(self, status: int, answering: Answering | None) -> None:
        """The request has ended with this HTTP status."""
        if not self._flags.sampled:
            return
        now = time.time_ns()
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
            for i in answering.run.runner.graph.order:
                self._add_node(answering.run, i, now)
        failed = f"HTTP {status}" if status >= 500 else ""
        if failed:
            found["error.type"] = str(status)
        self._add(name, found, self._own.span_id, (self._began, now), failed)

    def _add(
        self, name: str, attributes: Attributes, own: int, time_ns: tuple[int, int], failed: str
    ) -> None:
        """One span: of the request where it has the request's id, else of a node."""
        whole = own == self._own.span_id
        context = SpanContext(self._own.trace_id, own, False, self._flags, self._own.trace_state)
        span = ReadableSpan(
            name,
            context,
            self._caller if whole else self._own,
            self._tracing.resource,
            self._tracing.bounded(attributes),
            kind=SpanKind.SERVER if whole else SpanKind.CLIENT,
            status=Status(StatusCode.ERROR, failed) if failed else Status(),
            start_time=time_ns[0],
            end_time=time_ns[1],
            instrumentation_scope=SCOPE,
        )
        self._tracing.processor.on_end(span)

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

    def _add_node(self, run: ServedRun, i: int, now: int) -> None:
        """The span of a node; one that was not asked says why."""
        role = run.runner.nodes[i].role
        model = run.model_of(i)
        calls = run.runner.roles[i].calls_model
        how, why = outcome(run, i)
        why = self._tracing.shown(why)
        found: Attributes = {"ttsgraph.node": i, "ttsgraph.role": role, "ttsgraph.outcome": how}
        if why:
            found["ttsgraph.why"] = why
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
        if how == "failed":
            found["error.type"] = "call_failed"
        own, began = self._nodes.get(i) or (_span_id(), now)
        name = f"chat {model}" if calls else f"{role} {i}"
        span = began, self._ended.get(i, now)
        self._add(name, found, own, span, why if how == "failed" else "")

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


def _span_id() -> int:
    return random.getrandbits(64) or 1


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
