"""A collector of traces on a real socket: takes OpenTelemetry's protocol over HTTP, decoded."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as told
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.service import running


class Collector:
    """The spans that came, by trace."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Any]] = {}
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200

    def take(self, body: bytes) -> None:
        request = told.ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            self.resources.append(attributes_of(resource.resource))
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.spans.setdefault(span.trace_id.hex(), []).append(span)


def attributes_of(span: Any) -> dict[str, Any]:
    def of(value: Any) -> Any:
        found = getattr(value, value.WhichOneof("value"))
        return [*map(of, found.values)] if hasattr(found, "values") else found

    return {pair.key: of(pair.value) for pair in span.attributes}


@contextmanager
def collecting(collector: Collector) -> Iterator[str]:
    """Run it on a free port; yields the address that traces are sent to."""

    async def post(request: Request) -> Response:
        body = await request.body()
        packed = request.headers.get("content-encoding") == "gzip"
        collector.headers.append(dict(request.headers))
        if collector.status == 200:
            collector.take(gzip.decompress(body) if packed else body)
        answer = told.ExportTraceServiceResponse().SerializeToString()
        return Response(answer, collector.status, media_type="application/x-protobuf")

    with running(Starlette(routes=[Route("/v1/traces", post, methods=["POST"])])) as url:
        yield f"{url}/v1/traces"
