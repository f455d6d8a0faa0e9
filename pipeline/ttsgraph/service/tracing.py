"""Traces of requests with OpenTelemetry: one span per request, and one per node of the graph.

The spans belong to the caller's trace (W3C trace context), which is passed on to the models'
endpoints. The OTEL_* variables configure the export. Attribute names follow OpenTelemetry's
conventions for generative AI, or begin with `ttsgraph.`. Only this module imports packages from the
extra `traces`.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ttsgraph.base.secrets import redact
from ttsgraph.models.client import whole_text
from ttsgraph.settings.service import TraceSettings

if TYPE_CHECKING:
    from ttsgraph.service.answering import RunningAnswer
    from ttsgraph.service.app import RequestState

Attributes = dict[str, Any]

_propagator = TraceContextTextMapPropagator()


class Tracing:
    """Traces of one server; a thread of OpenTelemetry's SDK sends ended spans in batches."""

    def __init__(self, settings: TraceSettings) -> None:
        self._settings = settings
        named = {"service.name": "ttsgraph", "service.version": metadata.version("ttsgraph")}
        resource = Resource(named).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(settings.endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self._provider.get_tracer("ttsgraph")

    def begin(self, path: str, headers: Mapping[str, str]) -> RequestTrace:
        """Return the trace of a request that begins now."""
        return RequestTrace(self, path, headers)

    def messages(self, kind: str, said: Iterable[tuple[str, str]]) -> Attributes:
        """Return messages (role and text), input or output, as an attribute of a span.

        Return no attribute if the settings export no texts.
        """
        if not self._settings.texts:
            return {}
        shown = [
            {"role": role, "parts": [{"type": "text", "content": self.shown(text)}]}
            for role, text in said
        ]
        return {f"gen_ai.{kind}.messages": json.dumps(shown, ensure_ascii=False)}

    def shown(self, text: str) -> str:
        """Return text with secrets and matches of the settings' patterns redacted."""
        text = redact(whole_text(text))
        for pattern in self._settings.redact:
            text = re.sub(pattern, "[redacted]", text)
        return text

    def close(self) -> None:
        """Send the remaining spans, and end the export."""
        self._provider.shutdown()


class RequestTrace:
    """Spans of one request, in the caller's trace or, if the caller sent none, in a new trace."""

    def __init__(self, tracing: Tracing, path: str, headers: Mapping[str, str]) -> None:
        self._tracing = tracing
        within = _propagator.extract(headers)
        self._span = tracing.tracer.start_span(f"POST {path}", within, SpanKind.SERVER)
        self._span.set_attribute("http.route", path)
        trace_id = f"{self._span.get_span_context().trace_id:032x}"
        # The caller may send several requests in one trace, so its id can't identify a request.
        self.id = uuid.uuid4().hex if within else trace_id
        self._nodes: dict[int, Span] = {}
        self._ended: dict[int, int] = {}

    def begin(self, node: int) -> Mapping[str, str]:
        """Begin the span of a node's call, and return headers for the call's requests."""
        carried: dict[str, str] = {}
        _propagator.inject(carried, set_span_in_context(self._span_of(node)))
        return carried

    def _span_of(self, node: int) -> Span:
        """Return a node's span; start it unless a cancelled call has done so."""
        if node not in self._nodes:
            within = set_span_in_context(self._span)
            span = self._tracing.tracer.start_span(f"node {node}", within, SpanKind.CLIENT)
            self._nodes[node] = span
        return self._nodes[node]

    def end(self, node: int) -> None:
        """Record the time at which a node's call ended."""
        self._ended[node] = time.time_ns()

    def finish(self, status: int, state: RequestState) -> None:
        """Set the attributes of all spans of an ended request, and end the spans."""
        span = self._span
        if not span.is_recording():
            return
        found: Attributes = {
            "http.response.status_code": status,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "ttsgraph",
            "gen_ai.response.id": f"chatcmpl-{state.id}",
        }
        span.set_attributes(found)
        if state.answering is not None:
            span.update_name(f"invoke_agent {state.model}")
            self._describe_answer(state.answering)
            for i in state.answering.run.runner.graph.order:
                self._finish_node(state.answering, i)
        if status >= 500:
            span.set_attribute("error.type", str(status))
            span.set_status(StatusCode.ERROR, f"HTTP {status}")
        span.end()

    def _describe_answer(self, answering: RunningAnswer) -> None:
        version, graph = answering.live.labels
        run, usage = answering.run, answering.used()
        found: Attributes = {
            "gen_ai.agent.name": answering.live.name,
            "gen_ai.agent.version": version,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "ttsgraph.graph_hash": graph,
            "ttsgraph.calls": usage.calls,
            "ttsgraph.dollars": usage.dollars,
            "ttsgraph.deadline_passed": run.late,
            **self._tracing.messages("input", [("user", answering.asked.conversation.question)]),
            **self._tracing.messages("output", [("assistant", run.texts.get(run.runner.sink, ""))]),
        }
        self._span.set_attributes(found)

    def _finish_node(self, answering: RunningAnswer, i: int) -> None:
        """Set the attributes of a node's span, including why the node has no answer, and end it."""
        run = answering.run
        role = run.runner.graph.node(i).role
        how, why = answering.fate(i)
        why = self._tracing.shown(why)
        span = self._span_of(i)
        found: Attributes = {"ttsgraph.node": i, "ttsgraph.role": role, "ttsgraph.outcome": how}
        span.set_attributes(found | ({"ttsgraph.why": why} if why else {}))
        if run.runner.roles[i].calls_model:
            span.update_name(f"chat {run.model_of(i)}")
            self._describe_call(span, answering, i)
        else:
            span.update_name(f"{role} {i}")
            reads = run.runner.graph.reads[i]
            span.set_attribute("ttsgraph.reads", reads)
            if run.runner.roles[i].votes:
                heard = sum(p in run.texts for p in reads)
                voters = {"ttsgraph.votes": heard, "ttsgraph.voters": len(reads)}
                span.set_attributes(voters | {"ttsgraph.stopped_early": heard < len(reads)})
        if how == "failed":
            span.set_attribute("error.type", "call_failed")
            span.set_status(StatusCode.ERROR, why)
        span.end(self._ended.get(i))

    def _describe_call(self, span: Span, answering: RunningAnswer, i: int) -> None:
        model = answering.run.model_of(i)
        found = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai_compatible",
            "gen_ai.request.model": model,
        }
        span.set_attributes(found)
        if request := answering.requests.get(i):
            span.set_attribute("gen_ai.request.max_tokens", request.sampling.max_tokens)
            asked = ((m.role, m.whole or m.content) for m in request.messages)
            span.set_attributes(self._tracing.messages("input", asked))
        if completion := answering.run.completions.get(i):
            used: Attributes = {
                "gen_ai.usage.input_tokens": completion.prompt_tokens,
                "gen_ai.usage.output_tokens": completion.completion_tokens,
                "gen_ai.usage.cache_read.input_tokens": completion.known_tokens,
                "ttsgraph.reasoning_tokens": completion.reasoning_tokens,
                "ttsgraph.dollars": answering.run.runner.pool[model].price.of(completion),
                "ttsgraph.cached": completion.cached,
                "ttsgraph.latency_s": completion.latency_s,
            }
            said = self._tracing.messages("output", [("assistant", completion.text)])
            span.set_attributes(used | said)
