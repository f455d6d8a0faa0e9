"""Traces of served requests, in collectors over real sockets: whole, sampled, redacted, or off."""

import asyncio
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import chain

import aiohttp
import openai
import pytest
from mlflow.tracking import MlflowClient
from starlette.responses import JSONResponse

from tests.support.background import mlflow_server
from tests.support.collector import Collector, attributes_of, collecting
from tests.support.processes import wait_until
from tests.support.project import HANGS_S
from tests.support.service import FUSED, NAME, chat, client_of, deployed, graph_of
from ttsgraph.serving.servers import free_ports


@contextmanager
def traced(pool, graph=FUSED, **traces):
    """A client of a server that is traced, and the collector that has all of it once it ended."""
    collector = Collector()
    with (
        collecting(collector) as endpoint,
        deployed(pool, graph, traces={"endpoint": endpoint} | traces) as url,
    ):
        yield client_of(url), collector


def ask(client, text="3 + 4", **more):
    return client.chat.completions.create(**chat(text), **more)


def tree(spans):
    """{name: (attributes, names of its children)} of one trace; each span's parent is there."""
    by_id = {span.span_id: span for span in spans}
    children = {span.span_id: [] for span in spans}
    for span in spans:
        if span.parent_span_id:
            children[span.parent_span_id].append(span.name)
            above = by_id[span.parent_span_id]
            assert span.start_time_unix_nano <= span.end_time_unix_nano
            assert above.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= above.end_time_unix_nano
    return {
        f"{span.name}@{k}" if span.name.startswith("chat") else span.name: (
            attributes_of(span),
            children[span.span_id],
        )
        for k, span in enumerate(spans)
    }


def of_node(spans, node):
    (found,) = [a for a in map(attributes_of, spans) if a.get("ttsgraph.node") == node]
    return found


def test_a_request_and_each_node_have_a_span_with_what_they_used(pool):
    with traced(pool) as (client, collector):
        answer = ask(client)
    (spans,) = collector.spans.values()
    assert list(collector.spans) == [answer.model_extra["ttsgraph"]["trace_id"]]
    assert collector.resources[0]["service.name"] == "ttsgraph"
    found = tree(spans)
    request, nodes = found[f"invoke_agent {NAME}"]
    assert sorted(nodes) == ["chat large", "chat small", "chat small"]
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


def test_a_vote_names_who_failed_and_who_was_not_waited_for_and_a_failed_request_is_one(pool):
    graph = graph_of("voter", *["small"] * 3, "large")
    replies = iter([JSONResponse({}, 500), "7", "7"])
    with traced(pool, graph) as (client, collector):
        pool.holds = lambda body: body["model"] == "large"
        pool.reply = lambda body: next(replies)
        answer = ask(client)
        pool.holds = lambda body: False
        pool.reply = lambda body: JSONResponse({}, 500)
        with pytest.raises(openai.InternalServerError):
            ask(client)
    assert answer.model_extra["ttsgraph"]["cancelled"] == [3]
    spans, of_failed = collector.spans.values()
    (request,) = [span for span in of_failed if not span.parent_span_id]
    assert (request.status.code, attributes_of(request)["http.response.status_code"]) == (2, 502)
    tree(spans)
    nodes = [of_node(spans, i) for i in range(5)]
    (failed,) = [node for node in nodes if node["ttsgraph.outcome"] == "failed"]
    assert "HTTP 500" in failed["ttsgraph.why"]
    (of_it,) = [span for span in spans if span.status.code == 2]
    assert attributes_of(of_it) == failed
    assert nodes[3]["ttsgraph.outcome"] == "cancelled"
    assert nodes[3]["ttsgraph.why"] == "the vote was decided without it"
    assert (nodes[4]["ttsgraph.stopped_early"], nodes[4]["ttsgraph.votes"]) == (True, 2)
    assert nodes[4]["ttsgraph.voters"] == 4


def test_texts_are_shown_only_where_asked_for_and_without_what_is_to_be_hidden(pool, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hunter2-hunter2")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "5000")
    with traced(pool, texts=True, redact=[r"\b\d{3}-\d{4}\b"]) as (client, collector):
        pool.reply = lambda body: "call 555-1234 with hunter2-hunter2, it is 7"
        ask(client, "my number is 555-9876")
        ask(client, "long " * 2000)
    short, long = collector.spans.values()
    said = str(short)
    assert "my number is [redacted]" in said
    assert "call [redacted] with [key], it is 7" in said
    assert "555-" not in said
    messages = json.loads(of_node(short, 2)["gen_ai.input.messages"])
    assert [message["role"] for message in messages] == ["system", "user"]
    assert len(of_node(long, 2)["gen_ai.input.messages"]) == 5000


def test_the_usual_variables_say_where_traces_go_and_which_share_each_of_them_whole(
    pool, monkeypatch
):
    collector = Collector()
    with collecting(collector) as endpoint:
        for name, value in (
            ("EXPORTER_OTLP_ENDPOINT", endpoint.removesuffix("/v1/traces")),
            ("EXPORTER_OTLP_HEADERS", "x-experiment=7"),
            ("SERVICE_NAME", "maths"),
            ("TRACES_SAMPLER", "parentbased_traceidratio"),
            ("TRACES_SAMPLER_ARG", "0.5"),
        ):
            monkeypatch.setenv(f"OTEL_{name}", value)
        with deployed(pool) as url:
            asked = asyncio.run(many(f"{url}/v1"))
    assert set(collector.spans) == {trace for trace in asked if int(trace[16], 16) < 8}
    for spans in collector.spans.values():
        names = sorted(span.name for span in spans)
        assert names == ["chat large", "chat small", "chat small", f"invoke_agent {NAME}"]
        tree(spans)
    assert collector.headers[0]["x-experiment"] == "7"
    assert collector.resources[0]["service.name"] == "maths"


def test_a_collector_that_is_down_holds_up_nobody(pool):
    with traced(pool) as (client, collector):
        collector.status = 400
        assert ask(client).choices[0].message.content == "7"
    assert not collector.spans


async def many(url, count=300):
    """Requests of 20 clients, every fourth streamed; the ids of their traces."""
    names = iter(range(count))
    async with aiohttp.ClientSession() as session:

        async def client():
            found = []
            for name in names:
                body = chat(f"{name} + 4", stream=name % 4 == 0)
                async with session.post(f"{url}/chat/completions", json=body) as answer:
                    await answer.read()
                    found.append(answer.headers["x-request-id"])
            return found

        asked = list(chain(*await asyncio.gather(*(client() for _ in range(20)))))
    assert len(asked) == len(set(asked)) == count
    return asked


@pytest.mark.slow
def test_mlflows_traces_page_has_requests_with_their_spans_and_tokens(pool, tmp_path, monkeypatch):
    with mlflow_server(tmp_path, free_ports(1)[0]) as url:
        tracked = MlflowClient(url)
        experiment = tracked.create_experiment("served")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-mlflow-experiment-id={experiment}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        traces = {"endpoint": f"{url}/v1/traces", "texts": True}
        with deployed(pool, traces=traces) as server:
            asked = asyncio.run(many(f"{server}/v1", 100))

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


def test_off_means_that_nothing_of_it_is_imported():
    code = "import sys, ttsgraph.service.server\n"
    code += 'assert not {"opentelemetry.sdk", "opentelemetry.exporter"} & set(sys.modules)'
    subprocess.run([sys.executable, "-c", code], check=True)
