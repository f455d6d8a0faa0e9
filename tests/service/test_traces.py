"""Traces of served requests, in collectors over real sockets: whole, sampled, or redacted."""

import json
import time
from contextlib import contextmanager

import openai
import pytest
from mlflow.tracking import MlflowClient
from starlette.responses import JSONResponse

from tests.support.background import mlflow_server
from tests.support.collector import Collector, attributes_of, collecting
from tests.support.processes import wait_until
from tests.support.project import HANGS_S
from tests.support.service import FUSED, NAME, chat, client_of, deployed, graph_of, post
from ttsgraph.service.tracing import TEXTS
from ttsgraph.serving.servers import free_ports


@contextmanager
def traced(pool, graph=FUSED):
    """A client of a server that is traced, and the collector that has all of it once it ended."""
    collector = Collector()
    with collecting(collector) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.removesuffix("/v1/traces"))
        patch.setenv("OTEL_SERVICE_NAME", "maths")
        with deployed(pool, graph) as url:
            yield client_of(url), collector


def ask(client, text="3 + 4", **more):
    return client.chat.completions.create(**chat(text), **more)


def below(spans):
    """The attributes of the request, and the names of the spans below it, which lie within it."""
    (request,) = [span for span in spans if not span.parent_span_id]
    nodes = [span for span in spans if span is not request]
    for span in nodes:
        assert span.parent_span_id == request.span_id
        assert request.start_time_unix_nano <= span.start_time_unix_nano
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= request.end_time_unix_nano
    return attributes_of(request), sorted(span.name for span in nodes)


def of_node(spans, node):
    (found,) = [a for a in map(attributes_of, spans) if a.get("ttsgraph.node") == node]
    return found


def test_a_request_and_each_node_have_a_span_with_what_they_used(pool):
    with traced(pool) as (client, collector):
        answer = ask(client)
    (spans,) = collector.spans.values()
    assert list(collector.spans) == [answer.model_extra["ttsgraph"]["trace_id"]]
    assert collector.resources[0]["service.name"] == "maths"
    request, nodes = below(spans)
    assert nodes == ["chat large", "chat small", "chat small"]
    assert (request["gen_ai.agent.name"], request["gen_ai.response.id"]) == (NAME, answer.id)
    assert (request["http.response.status_code"], request["ttsgraph.calls"]) == (200, 3)
    assert request["ttsgraph.graph_hash"] == FUSED.content_hash
    call = of_node(spans, 2)
    assert (call["ttsgraph.role"], call["gen_ai.request.model"]) == ("fuser", "large")
    assert (call["gen_ai.usage.input_tokens"], call["gen_ai.usage.output_tokens"]) == (10, 1)
    for span, tokens in ((request, 33), (call, 11)):
        assert span["ttsgraph.dollars"] == pytest.approx(tokens * 0.1 / 1e6)
    assert "3 + 4" not in str(spans)


CALLER = f"00-{'a1' * 16}-{'b2' * 8}-01"


def test_the_callers_trace_goes_on_to_the_models(pool):
    with traced(pool) as (client, collector):
        ask(client, extra_headers={"traceparent": CALLER, "tracestate": "vendor=1"})
    (spans,) = collector.spans.values()
    assert list(collector.spans) == ["a1" * 16]
    (first,) = [span for span in spans if span.name.startswith("invoke_agent")]
    assert first.parent_span_id.hex() == "b2" * 8
    calls = {f"00-{'a1' * 16}-{s.span_id.hex()}-01" for s in spans if s.name.startswith("chat")}
    assert {headers["traceparent"] for headers in pool.headers} == calls
    assert {headers["tracestate"] for headers in pool.headers} == {"vendor=1"}


def test_calls_that_failed_or_were_not_waited_for_are_told_and_so_is_a_failed_request(pool):
    graph = graph_of("voter", *["small"] * 4, "large")
    replies = iter([JSONResponse({}, 500), "7", "7", "7"])
    with traced(pool, graph) as (client, collector):
        pool.holds = lambda body: body["model"] == "large"
        pool.reply = lambda body: next(replies)
        answer = ask(client)
        pool.holds = lambda body: False
        pool.reply = lambda body: JSONResponse({}, 500)
        with pytest.raises(openai.InternalServerError):
            ask(client)
    cancelled = answer.model_extra["ttsgraph"]["cancelled"]
    assert 4 in cancelled
    spans, of_failed = collector.spans.values()
    (request,) = [span for span in of_failed if not span.parent_span_id]
    assert (request.status.code, attributes_of(request)["http.response.status_code"]) == (2, 502)
    assert len(below(spans)[1]) == 5
    (failed,) = [span for span in spans if span.status.code == 2]
    assert "HTTP 500" in failed.status.message
    assert [i for i in range(5) if of_node(spans, i).get("ttsgraph.cancelled")] == cancelled


def test_texts_are_shown_where_asked_for_without_secrets_and_as_long_as_allowed(pool, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hunter2-hunter2")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "5000")
    monkeypatch.setenv(TEXTS, "true")
    with traced(pool) as (client, collector):
        pool.reply = lambda body: "call me with hunter2-hunter2, it is 7"
        ask(client, "my number is 9876")
        ask(client, "long " * 2000)
    short, long = collector.spans.values()
    said = str(short)
    assert "my number is 9876" in said
    assert "call me with [key], it is 7" in said
    messages = json.loads(of_node(short, 2)["gen_ai.input.messages"])
    assert [message["role"] for message in messages] == ["system", "user"]
    assert len(of_node(long, 2)["gen_ai.input.messages"]) == 5000


def test_a_collector_that_is_down_holds_up_nobody(pool):
    with traced(pool) as (client, collector):
        collector.status = 400
        assert ask(client).choices[0].message.content == "7"
    assert not collector.spans


@pytest.mark.slow
def test_mlflows_traces_page_has_requests_with_their_spans_and_tokens(pool, tmp_path, monkeypatch):
    with mlflow_server(tmp_path, free_ports(1)[0]) as url:
        tracked = MlflowClient(url)
        experiment = tracked.create_experiment("served")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-mlflow-experiment-id={experiment}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{url}/v1/traces")
        monkeypatch.setenv(TEXTS, "true")
        with deployed(pool) as server:
            asked = [post(server, chat(f"{k} + 4")).headers["x-request-id"] for k in range(20)]

            def arrived():
                time.sleep(1)  # each look is work for the server, too
                return tracked.search_traces(locations=[experiment], max_results=len(asked))

            wait_until(lambda: len(arrived()) == len(asked), HANGS_S)
        traces = arrived()
    assert {f"tr-{trace}" for trace in asked} == {trace.info.trace_id for trace in traces}
    for trace in traces:
        kinds = sorted(span.span_type for span in trace.data.spans)
        assert kinds == ["AGENT", "CHAT_MODEL", "CHAT_MODEL", "CHAT_MODEL"]
        assert trace.info.token_usage["input_tokens"] == 30
        assert " + 4" in trace.info.request_preview
        assert "7" in trace.info.response_preview
