"""The process that sends traces to a collector, by OpenTelemetry's protocol over HTTP.

It needs the extra `traces`, which only it imports. It works at low priority, ends when nothing more
can come, and keeps no request from being answered.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
from collections.abc import Sequence
from importlib import metadata
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from ttsgraph.base.secrets import environment_secrets, redact
from ttsgraph.models.client import whole_text
from ttsgraph.service.spans import Said, Span
from ttsgraph.settings.service import TraceSettings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanKind

HIDDEN = "[redacted]"
MOST_WAITING = 2**15
"""Spans that wait for the collector; beyond it the oldest are lost, which the log says."""

BATCH = 512
EVERY_MS = 500
END_MS = 30_000
NICE = 5
SEND_S = 60
"""For a batch to be taken by the collector; later it is lost. One that keeps traces in a database
may take more than ten seconds on a busy machine.
"""

Trace = tuple[str, Span]
"""A trace's id in hex, and its first span."""


def run(settings: TraceSettings, pipe: Connection) -> None:
    """Send the traces that come through the pipe until it is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends after the server, with what that still had
    os.nice(NICE)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    sender = Sender(settings)
    try:
        while True:
            for trace_id, span in pipe.recv():
                sender.send(trace_id, span)
    except EOFError:
        sender.close()


class Sender:
    """Makes spans of OpenTelemetry, and sends them in batches."""

    def __init__(self, settings: TraceSettings) -> None:
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        class Given(RandomIdGenerator):
            """Trace ids as they are given: a trace goes by the id that its client was told."""

            trace_id = 0

            def generate_trace_id(self) -> int:
                return self.trace_id

        self._ids = Given()
        self._provider = _provider(settings, self._ids)
        self._tracer = self._provider.get_tracer("ttsgraph")
        self._secrets = environment_secrets()
        self._hide = [re.compile(pattern) for pattern in settings.redact]

    def send(self, trace_id: str, span: Span) -> None:
        """Queue a trace."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        self._ids.trace_id = int(trace_id, 16)
        self._send(span, Context(), SpanKind.SERVER)

    def _send(self, span: Span, parent: Context, kind: SpanKind) -> None:
        from opentelemetry import trace
        from opentelemetry.trace import SpanKind, Status, StatusCode

        attributes = dict(span.attributes)
        for name, said in span.texts.items():
            attributes[name] = self._messages(said)
        for name in ("ttsgraph.why",):
            if name in attributes:
                attributes[name] = redact(str(attributes[name]), self._secrets)
        begun = self._tracer.start_span(span.name, parent, kind, attributes, start_time=span.start)
        if span.error:
            begun.set_status(Status(StatusCode.ERROR, redact(span.error, self._secrets)))
        within = trace.set_span_in_context(begun, parent)
        for child in span.children:
            calls = "gen_ai.request.model" in child.attributes
            self._send(child, within, SpanKind.CLIENT if calls else SpanKind.INTERNAL)
        begun.end(span.end)

    def _messages(self, said: Sequence[Said]) -> str:
        """Messages as OpenTelemetry's conventions write them."""
        messages = [
            {"role": role, "parts": [{"type": "text", "content": self._shown(text)}]}
            for role, text in said
        ]
        return json.dumps(messages, ensure_ascii=False)

    def _shown(self, text: str) -> str:
        """A text without secrets, and without what the settings say to hide."""
        text = redact(whole_text(text), self._secrets)
        for pattern in self._hide:
            text = pattern.sub(HIDDEN, text)
        return text

    def close(self) -> None:
        """Send what is left, for so long."""
        self._provider.force_flush(END_MS)
        self._provider.shutdown()


def _provider(settings: TraceSettings, ids: Any) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    resource = {"service.name": "ttsgraph", "service.version": metadata.version("ttsgraph")}
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource.create(resource),
        id_generator=ids,
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(settings.endpoint, headers=dict(settings.headers), timeout=SEND_S)
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=MOST_WAITING,
            max_export_batch_size=BATCH,
            schedule_delay_millis=EVERY_MS,
        )
    )
    return provider
