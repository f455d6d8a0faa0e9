"""Traces of requests by OpenTelemetry's SDK: a span for each request and node, in the caller's
trace (W3C context), which goes on to the models' endpoints.

The OTEL_* variables say where spans go. Names follow the conventions for generative models, or
begin with `ttsgraph.`. Only this imports the extra `traces`. Under way only nodes' span ids are
drawn; spans are made at the end, where the request is sampled.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ttsgraph.base.secrets import environment_secrets, redact
from ttsgraph.models.client import whole_text
from ttsgraph.settings.service import TraceSettings

if TYPE_CHECKING:
    from ttsgraph.evaluation.executor import Run
    from ttsgraph.service.answering import Answering
    from ttsgraph.service.run import ServedRun

HIDDEN = "[redacted]"

Attributes = dict[str, Any]


class _Ids(IdGenerator):
    trace = 0
    span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class Tracing:
    """Makes the traces of one server; what ended is sent in batches by a thread of the SDK's."""

    def __init__(self, settings: TraceSettings) -> None:
        self._texts = settings.texts
        self.ids = _Ids()
        named = {"service.name": "ttsgraph", "service.version": metadata.version("ttsgraph")}
        self.resource = Resource(named).merge(OTELResourceDetector().detect())
        self.scope = InstrumentationScope("ttsgraph")
        self._longest = SpanLimits().max_span_attribute_length
        self._provider = TracerProvider(
            resource=self.resource, id_generator=self.ids, shutdown_on_exit=False
        )
        self.processor = BatchSpanProcessor(OTLPSpanExporter(settings.endpoint))
        self._provider.add_span_processor(self.processor)
        self.tracer = self._provider.get_tracer("ttsgraph")
        self._secrets = environment_secrets()
        self._hide = [re.compile(pattern) for pattern in settings.redact]

    def begin(self, request_id: str, path: str, headers: Mapping[str, str]) -> RequestTrace:
        """The trace of a request that begins now."""
        return RequestTrace(self, request_id, path, headers)

    def messages(self, asked: Iterable[tuple[str, str]], said: Iterable[str]) -> Attributes:
        """What was asked, by role, and said, in the conventions' form, if texts are shown."""
        if not self._texts:
            return {}
        return {
            "gen_ai.input.messages": self._written(asked),
            "gen_ai.output.messages": self._written(("assistant", text) for text in said),
        }

    def _written(self, said: Iterable[tuple[str, str]]) -> str:
        shown = [
            {"role": role, "parts": [{"type": "text", "content": self.shown(text)}]}
            for role, text in said
        ]
        return json.dumps(shown, ensure_ascii=False)

    def within_limits(self, found: Attributes) -> Attributes:
        """Texts as long as OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT lets them be."""
        if self._longest is None:
            return found
        return {k: v[: self._longest] if isinstance(v, str) else v for k, v in found.items()}

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
    """One request's spans, in the caller's trace or one of its id; all end with it."""

    def __init__(
        self, tracing: Tracing, request_id: str, path: str, headers: Mapping[str, str]
    ) -> None:
        self._tracing = tracing
        self._headers = headers
        within = TraceContextTextMapPropagator().extract(headers)
        tracing.ids.trace = int(request_id, 16)
        tracing.ids.span = _span_id()
        self._span = tracing.tracer.start_span(f"POST {path}", within, SpanKind.SERVER)
        self._known: Attributes = {
            "http.route": path,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "ttsgraph",
            "gen_ai.response.id": f"chatcmpl-{request_id}",
        }
        self._nodes: dict[int, tuple[int, int]] = {}  # their spans' ids, and when they asked
        self._ended: dict[int, int] = {}

    def begin(self, node: int) -> Mapping[str, str]:
        """A node asks its model; returns the headers that its requests carry."""
        self._nodes[node] = _span_id(), time.time_ns()
        own = self._nodes[node][0]
        whole = self._span.get_span_context()
        context = f"00-{whole.trace_id:032x}-{own:016x}-{whole.trace_flags:02x}"
        return {**self._headers, "traceparent": context}

    def end(self, node: int) -> None:
        """Its call has ended."""
        self._ended[node] = time.time_ns()

    def finish(self, status: int, answering: Answering | None) -> None:
        """The request has ended with this HTTP status."""
        if not self._span.is_recording():
            return
        found = self._known | {"http.response.status_code": status}
        if answering is not None:
            self._span.update_name(f"invoke_agent {answering.live.name}")
            found |= self._of_answer(answering)
            now = time.time_ns()
            for i in answering.run.runner.graph.order:
                self._add_node(answering.served, i, now)
        if status >= 500:
            found["error.type"] = str(status)
            self._span.set_status(_failure(f"HTTP {status}"))
        self._span.set_attributes(found)
        self._span.end()

    def _of_answer(self, answering: Answering) -> Attributes:
        deployed = answering.live.deployed
        run = answering.run
        task = answering.task
        done = task.done() and not task.cancelled() and task.exception() is None
        usage = task.result().usage if done else answering.served.used()
        said = run.texts.get(run.runner.sink, "")
        return {
            "gen_ai.agent.name": answering.live.name,
            "gen_ai.agent.version": deployed.version,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "ttsgraph.graph_hash": deployed.graph.content_hash,
            "ttsgraph.calls": usage.calls,
            "ttsgraph.dollars": usage.dollars,
            "ttsgraph.deadline_passed": run.late,
            **self._tracing.messages([("user", answering.asked.question)], [said]),
        }

    def _add_node(self, served: ServedRun, i: int, now: int) -> None:
        """The span of a node; one that was not asked says why."""
        run = served.run
        role = run.runner.roles[i]
        named = run.runner.nodes[i].role
        how, why = outcome(run, i)
        why = self._tracing.shown(why)
        found: Attributes = {"ttsgraph.node": i, "ttsgraph.role": named, "ttsgraph.outcome": how}
        if why:
            found["ttsgraph.why"] = why
        if how == "failed":
            found["error.type"] = "call_failed"
        if role.calls_model:
            name = f"chat {run.model_of(i)}"
            found |= self._of_call(served, i)
        else:
            name = f"{named} {i}"
            reads = run.runner.graph.reads[i]
            found["ttsgraph.reads"] = list(reads)
            if role.votes:
                heard = sum(p in run.texts for p in reads)
                found["ttsgraph.votes"] = heard
                found["ttsgraph.voters"] = len(reads)
                found["ttsgraph.stopped_early"] = heard < len(reads)
        own, began = self._nodes.get(i) or (_span_id(), now)
        whole = self._span.get_span_context()
        # As it is over, it is made as what has ended: a fifth of what a span takes that begins.
        span = ReadableSpan(
            name,
            SpanContext(whole.trace_id, own, False, whole.trace_flags, whole.trace_state),
            whole,
            self._tracing.resource,
            self._tracing.within_limits(found),
            kind=SpanKind.CLIENT,
            status=_failure(why) if how == "failed" else Status(),
            start_time=began,
            end_time=self._ended.get(i, now),
            instrumentation_scope=self._tracing.scope,
        )
        self._tracing.processor.on_end(span)

    def _of_call(self, served: ServedRun, i: int) -> Attributes:
        run = served.run
        model = run.model_of(i)
        found: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai_compatible",
            "gen_ai.request.model": model,
        }
        if i not in self._nodes:
            return found
        request = served.requests[i]
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
        asked = ((m.role, m.whole or m.content) for m in request.messages)
        said = [completion.text] if completion else []
        return found | self._tracing.messages(asked, said)


def _failure(why: str) -> Status:
    return Status(StatusCode.ERROR, why)


def _span_id() -> int:
    return random.getrandbits(64) or 1


def outcome(run: Run, i: int) -> tuple[str, str]:
    """What became of a node, and why where that is not an answer of its own."""
    if i in run.fallbacks:
        return "fallback", f"its own call failed: {run.lost.get(i) or run.refusals[i]}"
    if i in run.lost or i in run.failures:
        return "failed", str(run.lost.get(i) or run.failures[i])
    if i in run.refusals:
        return "refused", str(run.refusals[i])
    if i in run.overflows:
        return "empty", str(run.overflows[i])
    if i in run.closed:
        return "answered", "its gate stayed closed: what it watches agrees"
    if i in run.texts:
        return "answered", ""
    if run.late:
        why = "the request's deadline had come"
    elif run.failures:
        why = "another call failed for good"
    elif any(j in run.closed for j in run.runner.graph.successors[i]):
        why = "the gate of a node that reads it stayed closed"
    elif run.runner.sink in run.texts:
        why = "the vote was decided without it"
    else:
        why = "the request ended before"
    return "cancelled" if i in run.cancelled else "left out", why
