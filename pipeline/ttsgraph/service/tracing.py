"""Traces of requests by OpenTelemetry's SDK: a span for each request and one for each node, in the
caller's trace (W3C context), which goes on to the models' endpoints.

Where spans go, sampling, batches and resources are the usual OTEL_* variables. Names follow
OpenTelemetry's conventions for generative models, the rest begins with `ttsgraph.`. It needs the
extra `traces`, which only this imports.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ttsgraph.base.secrets import environment_secrets, redact
from ttsgraph.models.client import Request, whole_text
from ttsgraph.settings.service import TraceSettings

if TYPE_CHECKING:
    from ttsgraph.service.acting import AskedRun
    from ttsgraph.service.answering import Answering

HIDDEN = "[redacted]"


class RequestIds(RandomIdGenerator):
    """Where no caller's trace goes on, it goes by the request's id."""

    request_id = ""

    def generate_trace_id(self) -> int:
        """That of the request that begins now."""
        return int(self.request_id, 16)


class Tracing:
    """Makes the traces of one server; what ended is sent in batches by a thread of the SDK's.

    `exporter` takes the spans in place of a collector.
    """

    def __init__(self, settings: TraceSettings, exporter: SpanExporter | None = None) -> None:
        self.settings = settings
        self.ids = RequestIds()
        self.propagator = TraceContextTextMapPropagator()
        named = {"service.name": "ttsgraph", "service.version": metadata.version("ttsgraph")}
        resource = Resource(named).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(
            resource=resource, id_generator=self.ids, shutdown_on_exit=False
        )
        sender = exporter or OTLPSpanExporter(settings.endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(sender))
        self.tracer = self._provider.get_tracer("ttsgraph")
        self._secrets = environment_secrets()
        self._hide = [re.compile(pattern) for pattern in settings.redact]

    def begin(self, request_id: str, path: str, headers: Mapping[str, str]) -> RequestTrace:
        """The trace of a request that begins now."""
        self.ids.request_id = request_id
        span = self.tracer.start_span(
            f"POST {path}", self.propagator.extract(headers), SpanKind.SERVER
        )
        return RequestTrace(self, span, path)

    def messages(self, said: Sequence[tuple[str, str]]) -> str:
        """(whose, which) words as the conventions write them, without secrets and what the settings
        say to hide.
        """
        return json.dumps(
            [
                {"role": role, "parts": [{"type": "text", "content": self.shown(text)}]}
                for role, text in said
            ],
            ensure_ascii=False,
        )

    def shown(self, text: str) -> str:
        """A text as a trace may hold it."""
        text = redact(whole_text(text), self._secrets)
        for pattern in self._hide:
            text = pattern.sub(HIDDEN, text)
        return text

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


class RequestTrace:
    """The spans of one request. Nodes' spans begin when they ask, so that their models can be told
    of them; all end with the request, with all that is known then.
    """

    def __init__(self, tracing: Tracing, span: Span, path: str) -> None:
        self._tracing = tracing
        self._span = span
        self._path = path
        self._nodes: dict[int, tuple[Span, Request]] = {}
        self._ended: dict[int, int] = {}

    def begin(self, node: int, request: Request) -> Mapping[str, str]:
        """A node asks its model, perhaps another one after the first; returns the headers that its
        requests carry.
        """
        if node not in self._nodes:
            within = set_span_in_context(self._span)
            span = self._tracing.tracer.start_span(f"node {node}", within, SpanKind.CLIENT)
            self._nodes[node] = span, request
        headers: dict[str, str] = {}
        within = set_span_in_context(self._nodes[node][0])
        self._tracing.propagator.inject(headers, within)
        return headers

    def end(self, node: int) -> None:
        """Its call has ended."""
        self._ended[node] = time.time_ns()

    def finish(self, status: int, request_id: str, answering: Answering | None) -> None:
        """The request has ended with this HTTP status."""
        span = self._span
        now = time.time_ns()
        if span.is_recording():
            span.set_attributes(
                {
                    "http.request.method": "POST",
                    "http.route": self._path,
                    "url.path": self._path,
                    "http.response.status_code": status,
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.provider.name": "ttsgraph",
                    "gen_ai.response.id": f"chatcmpl-{request_id}",
                }
            )
            if status >= 500:
                span.set_attribute("error.type", str(status))
                span.set_status(StatusCode.ERROR, f"HTTP {status}")
            if answering is not None and answering.run is not None:
                self._describe(answering, answering.run)
                self._end_nodes(answering.run, now)
        span.end(now)

    def _describe(self, answering: Answering, run: AskedRun) -> None:
        deployed = answering.live.deployed
        usage = run.used()
        self._span.update_name(f"invoke_agent {answering.live.name}")
        described: dict[str, str | int | float | bool] = {
            "gen_ai.agent.name": answering.live.name,
            "gen_ai.agent.version": deployed.version,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "ttsgraph.task": deployed.task,
            "ttsgraph.graph_hash": deployed.graph.content_hash,
            "ttsgraph.calls": usage.calls,
            "ttsgraph.cached_calls": usage.cached_calls,
            "ttsgraph.dollars": usage.dollars,
            "ttsgraph.deadline_passed": run.late,
        }
        self._span.set_attributes(described)
        if self._tracing.settings.texts:
            said = run.texts.get(run.runner.sink, "")
            self._say(self._span, [("user", answering.asked.question)], [("assistant", said)])

    def _end_nodes(self, run: AskedRun, now: int) -> None:
        """End the span of every node, in the graph's order; what was not asked has one that says
        why.
        """
        within = set_span_in_context(self._span)
        for i in run.runner.graph.order:
            known = self._nodes.get(i)
            span = (
                known[0] if known else self._tracing.tracer.start_span("", within, start_time=now)
            )
            self._end_node(run, i, span)
            span.end(self._ended.get(i, now))

    def _end_node(self, run: AskedRun, i: int, span: Span) -> None:
        node = run.runner.nodes[i]
        model = run.model_of(i)
        calls = run.runner.roles[i].calls_model
        how, why = outcome(run, i)
        attributes: dict[str, Any] = {
            "ttsgraph.node": i,
            "ttsgraph.role": node.role,
            "ttsgraph.outcome": how,
            "ttsgraph.reads": list(run.runner.graph.reads[i]),
        }
        if why:
            attributes["ttsgraph.why"] = self._tracing.shown(why)
        if calls:
            attributes |= {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai_compatible",
                "gen_ai.request.model": model,
            }
        if run.runner.roles[i].votes:
            heard = sum(p in run.texts for p in run.runner.graph.reads[i])
            attributes |= {
                "ttsgraph.votes": heard,
                "ttsgraph.voters": len(run.runner.graph.reads[i]),
                "ttsgraph.stopped_early": heard < len(run.runner.graph.reads[i]),
            }
        span.update_name(f"chat {model}" if calls else f"{node.role} {i}")
        span.set_attributes(attributes | self._call(run, i, model))
        if how == "failed":
            span.set_attribute("error.type", "call_failed")
            span.set_status(StatusCode.ERROR, self._tracing.shown(why))

    def _call(self, run: AskedRun, i: int, model: str) -> dict[str, Any]:
        """What is known of the call that a node made."""
        if i not in self._nodes:
            return {}
        request = self._nodes[i][1]
        completion = run.completions.get(i)
        found: dict[str, Any] = {"gen_ai.request.max_tokens": request.sampling.max_tokens}
        if request.sampling.temperature is not None:
            found["gen_ai.request.temperature"] = request.sampling.temperature
        if completion is not None:
            found |= {
                "gen_ai.response.model": model,
                "gen_ai.usage.input_tokens": completion.prompt_tokens,
                "gen_ai.usage.output_tokens": completion.completion_tokens,
                "gen_ai.usage.cache_read.input_tokens": completion.known_tokens,
                "ttsgraph.reasoning_tokens": completion.reasoning_tokens,
                "ttsgraph.dollars": run.runner.pool[model].price.of(completion),
                "ttsgraph.cached": completion.cached,
                "ttsgraph.latency_s": completion.latency_s,
            }
        if self._tracing.settings.texts:
            asked = [(m.role, m.whole or m.content) for m in request.messages]
            said = [] if completion is None else [("assistant", completion.text)]
            self._say(self._nodes[i][0], asked, said)
        return found

    def _say(
        self, span: Span, asked: Sequence[tuple[str, str]], said: Sequence[tuple[str, str]]
    ) -> None:
        span.set_attribute("gen_ai.input.messages", self._tracing.messages(asked))
        span.set_attribute("gen_ai.output.messages", self._tracing.messages(said))


def outcome(run: AskedRun, i: int) -> tuple[str, str]:
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
