"""Traces of requests, sent to a collector by OpenTelemetry's protocol over HTTP.

Imported only where traces are on: it needs the extra `traces`.
"""

from __future__ import annotations

import logging
import re
import time
from importlib import metadata
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, Status, StatusCode

from ttsgraph.base.secrets import environment_secrets, redact
from ttsgraph.models.client import whole_text
from ttsgraph.service.doors import Sparing
from ttsgraph.service.spans import Span, Times, Value, node_spans, request_span
from ttsgraph.settings.service import TraceSettings

if TYPE_CHECKING:
    from ttsgraph.service.answering import Answering

HIDDEN = "[redacted]"
MOST_WAITING = 2**15
"""Spans that wait for the collector; beyond it the oldest are lost, which the log says."""

BATCH, EVERY_MS, SEND_S, END_MS = 512, 1000, 10, 5000
_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.sdk._shared_internal",
)


class _Given(RandomIdGenerator):
    """Trace ids as they are given, so that a trace goes by the id that its client was told."""

    trace_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id


class Traces:
    """Makes and sends the traces of sampled requests. `close` sends what is left."""

    def __init__(self, settings: TraceSettings) -> None:
        assert settings.endpoint is not None
        exporter = OTLPSpanExporter(
            settings.endpoint, headers=dict(settings.headers), timeout=SEND_S
        )
        self._settings = settings
        self._ids = _Given()
        resource = {"service.name": "ttsgraph", "service.version": metadata.version("ttsgraph")}
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(resource),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=MOST_WAITING,
                max_export_batch_size=BATCH,
                schedule_delay_millis=EVERY_MS,
            )
        )
        self._tracer = self._provider.get_tracer("ttsgraph")
        self._secrets = environment_secrets()
        self._hide = [re.compile(pattern) for pattern in settings.redact]
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(Sparing())

    def sampled(self, trace_id: str) -> bool:
        """Whether a request is traced: the same wherever its id is asked about."""
        return int(trace_id[:8], 16) < self._settings.rate * 2**32

    def record(
        self, trace_id: str, path: str, status: int, start: int, answering: Answering | None
    ) -> None:
        """The trace of a request that began then (ns since 1970) and has ended now."""
        end = time.time_ns()
        show = self._shown if self._settings.texts else None
        run = None if answering is None else answering.run
        said = None
        origin: dict[str, Value] = {}
        nodes: list[Span] = []
        if answering is not None and run is not None:
            deployed = answering.live.deployed
            usage = run.used()
            said = (answering.asked.question, run.texts.get(run.runner.sink, ""))
            origin = {
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
            nodes = node_spans(run, answering.times or Times(), end, show)
        span = request_span(path, status, (start, end), origin, said, show)
        span.children = nodes
        self._ids.trace_id = int(trace_id, 16)
        self._send(span, Context(), SpanKind.SERVER)

    def _send(self, span: Span, parent: Context, kind: SpanKind = SpanKind.INTERNAL) -> None:
        begun = self._tracer.start_span(
            span.name, parent, kind, {**span.attributes}, start_time=span.start
        )
        if span.error:
            begun.set_status(Status(StatusCode.ERROR, redact(span.error, self._secrets)))
        within = trace.set_span_in_context(begun, parent)
        for child in span.children:
            inner = SpanKind.CLIENT if "gen_ai.request.model" in child.attributes else kind.INTERNAL
            self._send(child, within, inner)
        begun.end(span.end)

    def _shown(self, text: str) -> str:
        """A text without secrets, and without what the settings say to hide."""
        text = redact(whole_text(text), self._secrets)
        for pattern in self._hide:
            text = pattern.sub(HIDDEN, text)
        return text

    def close(self) -> None:
        """Send what is left, for so long; then nothing is sent any more."""
        self._provider.force_flush(END_MS)
        self._provider.shutdown()
