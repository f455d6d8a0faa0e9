"""A collector of traces on a real socket: takes OpenTelemetry's protocol over HTTP, decoded."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.stub_server import listening


class Collector:
    """The spans that came, by trace."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Any]] = {}
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self._lock = threading.Lock()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        with self._lock:
            for resource in request.resource_spans:
                self.resources.append(attributes_of(resource.resource))
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        self.spans.setdefault(span.trace_id.hex(), []).append(span)


def attributes_of(span: Any) -> dict[str, Any]:
    found = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        if kind == "array_value":
            value = [getattr(one, one.WhichOneof("value")) for one in value.values]
        found[pair.key] = value
    return found


@contextmanager
def collecting(collector: Collector) -> Iterator[str]:
    """Run it on a free port; yields the address that traces are sent to."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            collector.headers.append({k.lower(): v for k, v in self.headers.items()})
            if collector.status == 200:
                collector.take(gzip.decompress(body) if packed else body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(collector.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    with listening(Handler) as port:
        yield f"http://127.0.0.1:{port}/v1/traces"
