"""Traces of requests with OpenTelemetry: one span per request, and one per call of a model.

The spans belong to the caller's trace (W3C trace context), which is passed on to the models'
endpoints. The OTEL_* variables are the only settings. Attribute names follow OpenTelemetry's
conventions for generative AI, or begin with `ttsgraph.`. Only this module imports packages from the
extra `traces`.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ttsgraph.base.secrets import redact
from ttsgraph.models.client import Completion, Usage, whole_text

if TYPE_CHECKING:
    from ttsgraph.service.answering import Answering
    from ttsgraph.service.app import ClientRequest

Attributes = dict[str, Any]

TEXTS = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Variable that, if it is `true`, includes the texts of questions and answers."""

_propagator = TraceContextTextMapPropagator()


class Tracing(TracerProvider):
    """Traces of one server; a thread of OpenTelemetry's SDK sends ended spans in batches."""

    def __init__(self) -> None:
        named = Resource({"service.name": "ttsgraph"})
        super().__init__(resource=named.merge(OTELResourceDetector().detect()))
        self.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    def begin(self, path: str, headers: Mapping[str, str]) -> RequestTrace:
        """Return the trace of a request that begins now."""
        return RequestTrace(self.get_tracer("ttsgraph"), path, headers)


class RequestTrace:
    """Spans of one request, in the caller's trace or, if the caller sent none, in a new trace."""

    def __init__(self, tracer: Tracer, path: str, headers: Mapping[str, str]) -> None:
        self._tracer = tracer
        within = _propagator.extract(headers)
        self._span = tracer.start_span(f"POST {path}", within, SpanKind.SERVER)
        trace_id = f"{self._span.get_span_context().trace_id:032x}"
        # The caller may send several requests in one trace, so its id can't identify a request.
        self.id = uuid.uuid4().hex if within else trace_id

    async def call(
        self, answering: Answering, node: int, call: Awaitable[Completion]
    ) -> Completion:
        """Await a node's call in a separate span, whose context the call's requests carry."""
        run = answering.run
        model = run.model_of(node)
        within = set_span_in_context(self._span)
        span = self._tracer.start_span(f"chat {model}", within, SpanKind.CLIENT)
        _propagator.inject(answering.outgoing[node].headers, set_span_in_context(span))
        asked = ((m.role, m.whole or m.content) for m in answering.requests[node].messages)
        found: Attributes = {"ttsgraph.node": node, **self._messages("input", asked)}
        found |= {"ttsgraph.role": run.runner.graph.node(node).role, "gen_ai.request.model": model}
        try:
            completion = await call
            found |= _usage(completion, run.runner.pool[model].price.of(completion))
            found |= self._messages("output", [("assistant", completion.text)])
            return completion
        except asyncio.CancelledError:
            found["ttsgraph.cancelled"] = True
            raise
        except Exception as error:
            span.set_status(StatusCode.ERROR, redact(whole_text(str(error))))
            raise
        finally:
            span.set_attributes({**_kind("chat", "openai_compatible"), **found})
            span.end()

    def finish(self, status: int, request: ClientRequest) -> None:
        """Set the attributes of an ended request's span, and end the span."""
        found: Attributes = {"http.response.status_code": status}
        found["gen_ai.response.id"] = f"chatcmpl-{request.id}"
        if (answering := request.answering) is not None:
            run, usage = answering.run, answering.used()
            self._span.update_name(f"invoke_agent {request.model}")
            found |= {f"ttsgraph.{name}": value for name, value in answering.account().items()}
            found |= _kind("invoke_agent", "ttsgraph") | _usage(usage, usage.dollars)
            found["gen_ai.agent.name"] = request.model
            found["gen_ai.agent.version"] = answering.live.origin["model_version"]
            found |= self._messages("input", [("user", answering.asked.conversation.question)])
            answer = run.texts.get(run.runner.sink, "")
            found |= self._messages("output", [("assistant", answer)])
        self._span.set_attributes(found)
        if status >= 500:
            self._span.set_status(StatusCode.ERROR, f"HTTP {status}")
        self._span.end()

    def _messages(self, kind: str, said: Iterable[tuple[str, str]]) -> Attributes:
        """Return messages (role and text), input or output, as an attribute of a span.

        Return no attribute if the trace isn't sampled, or unless TEXTS is set.
        """
        if not self._span.is_recording() or os.environ.get(TEXTS, "").lower() != "true":
            return {}
        shown = [
            {"role": role, "parts": [{"type": "text", "content": redact(whole_text(text))}]}
            for role, text in said
        ]
        return {f"gen_ai.{kind}.messages": json.dumps(shown, ensure_ascii=False)}


def _kind(operation: str, provider: str) -> Attributes:
    return {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider}


def _usage(used: Completion | Usage, dollars: float) -> Attributes:
    read, written = used.prompt_tokens, used.completion_tokens
    tokens = {"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": written}
    return {**tokens, "ttsgraph.dollars": dollars}
