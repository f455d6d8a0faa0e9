"""The OpenAI-compatible server of found graphs, asked over real sockets by unchanged clients."""

import http.client
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, urlsplit

import httpx
import openai
import pytest
from starlette.responses import JSONResponse

from tests.support.processes import wait_until
from tests.support.project import ROOT
from tests.support.service import ALONE, FUSED, NAME, VOTED, ask, chat, client_of, deployed, post
from ttsgraph.service import app


def last_text(body):
    return body["messages"][-1]["content"]


def test_the_openai_client_gets_the_graphs_answer_with_its_origin_and_the_usage_of_all_calls(pool):
    with deployed(pool) as url:
        pool.reply = lambda body: "fused it is" if "Solution 1" in last_text(body) else "7"
        raw = client_of(url).chat.completions.with_raw_response.create(**chat())
    answer = raw.parse()
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("fused it is", "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (30, 5)
    assert answer.usage.total_tokens == 35
    assert answer.model == NAME
    origin = answer.model_extra["ttsgraph"]
    assert (origin["graph_hash"], origin["model_version"]) == (FUSED.content_hash, "3")
    assert raw.headers["x-request-id"] == origin["trace_id"]
    assert origin["calls"] == 3
    assert origin["dollars"] == pytest.approx(35 * 0.1 / 1e6)


def test_a_stream_hands_the_last_nodes_text_over_while_it_is_written(pool):
    with deployed(pool) as url:
        pool.reply = lambda body: "one two HOLD three" if body.get("stream") else "7"
        more = {"stream": True, "stream_options": {"include_usage": True}}
        stream = iter(ask(url, **more))
        assert [next(stream).choices[0].delta.content for _ in range(3)] == ["", "one ", "two "]
        pool.release()
        late = list(stream)
    assert late[0].choices[0].delta.content == "three"
    assert late[1].choices[0].finish_reason == "stop"
    assert late[1].model_extra["ttsgraph"]["calls"] == 3
    (last,) = late[2:]
    assert (last.choices, last.usage.prompt_tokens) == ([], 30)
    assert sum("stream" in body and body["stream"] for body in pool.bodies) == 1
    with deployed(pool, VOTED) as url:
        chunks = list(ask(url, stream=True))
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", "7", None]
    assert not any(body.get("stream") for body in pool.bodies)


def test_a_conversation_reaches_every_node_of_a_chat_graph(pool):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": [{"type": "text", "text": "3 + 4"}]},
    ]
    with deployed(pool) as url:
        client_of(url).chat.completions.create(model=NAME, messages=messages)
        ask(url)
    conversation = pool.bodies[:3]
    alone = pool.bodies[3:]
    for body in conversation:
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["system", "user", "assistant", "user"]
        assert body["messages"][0]["content"].endswith("\n\nBe brief.")
        assert [message["content"] for message in body["messages"][1:3]] == ["Hello", "Hi"]
        assert last_text(body).startswith("3 + 4")
    assert all(len(body["messages"]) == 2 and "brief" not in str(body) for body in alone)


def test_max_tokens_lowers_the_last_nodes_limit_and_sampling_has_no_effect_but_is_named(pool):
    with deployed(pool) as url:
        pool.reply = lambda body: "a b c"
        answer = ask(url, max_tokens=3, temperature=0.1, seed=1, user="me")
        assert sorted(body["max_tokens"] for body in pool.bodies) == [3, 64, 64]
        assert {body["temperature"] for body in pool.bodies} == {0.9}
        assert answer.choices[0].finish_reason == "length"
        assert answer.model_extra["ttsgraph"]["ignored"] == ["seed", "temperature", "user"]
        ask(url, max_completion_tokens=1000)
        assert pool.bodies[-1]["max_tokens"] == 64
    with deployed(pool, VOTED) as url:
        for name in ("max_tokens", "max_completion_tokens"):
            assert ask(url, **{name: 3}).model_extra["ttsgraph"]["ignored"] == [name]


def said(content, role="user"):
    return chat() | {"messages": [{"role": role, "content": content}]}


BAD = {
    "not JSON": (b'{"model": ', 400, None, "not JSON"),
    "nested too deep": (b"[" * 100_000, 400, None, "JSON"),
    "not an object": (b"[1]", 400, None, "found list"),
    "no messages": ({"model": NAME}, 400, "messages", "Field required"),
    "an item": (chat() | {"messages": [{"type": "x"}]}, 400, "messages", "items of type 'x'"),
    "assistant last": (said("x", "assistant"), 400, "messages", "last message"),
    "empty question": (chat("  "), 400, "messages", "last message"),
    "output mode": (chat(response_format={"type": "xml"}), 400, "response_format", "json_schema"),
    "stream as text": (chat(stream="yes"), 400, "stream", "boolean"),
    "too many tokens": (chat("word " * 600), 400, "messages", "500"),
    "too many bytes": (chat("x" * 200_000), 413, None, "100100"),
    "unknown model": (chat(model="math@nobody"), 404, "model", f"served: {NAME}"),
    "long model": (chat(model="m" * 90_000), 404, "model", "mmm'; served:"),
}


def test_what_cannot_be_answered_is_an_error_in_openais_shape_and_breaks_nothing(pool):
    with deployed(pool, max_input_tokens=500, MAX_BODY_BYTES=100_100) as url:
        for case, (body, status, param, said) in BAD.items():
            answer = post(url, body)
            assert answer.status_code == status, case
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}, case
            assert said in error["message"], case
            assert error["param"] == param, case
            assert answer.headers["x-request-id"], case
        assert pool.bodies == []
        nothing = {"n": 1, "tools": [], "logprobs": False, "response_format": {"type": "text"}}
        assert ask(url, **nothing).choices[0].message.content == "7"
        assert httpx.get(f"{url}/v1/nowhere").json()["error"]["code"] == "not_found"
        assert httpx.get(f"{url}/v1/chat/completions").status_code == 405
        assert httpx.post(f"{url}/v1/chat/completions", content="{}").status_code == 415


def test_unknown_models_and_wrong_keys_are_what_the_openai_client_expects(pool):
    with deployed(pool, key="sesame") as url:
        right = client_of(url, "sesame")
        assert [model.id for model in right.models.list()] == [NAME]
        origin = right.models.retrieve(NAME).model_extra["ttsgraph"]
        assert origin["graph_hash"] == FUSED.content_hash
        with pytest.raises(openai.NotFoundError, match="math@nobody"):
            right.chat.completions.create(**chat(model="math@nobody"))
        with pytest.raises(openai.AuthenticationError, match="API key"):
            client_of(url, "sesam").chat.completions.create(**chat())
        assert post(url, chat(), authorization="Bearer ключ".encode()).status_code == 401
        for path in ("v1/models", "metrics"):
            assert httpx.get(f"{url}/{path}").status_code == 401
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
        assert right.chat.completions.create(**chat()).choices[0].message.content == "7"


LENGTH = {"message": "This model's maximum context length is 2048 tokens.", "code": 400}
FAILED = {
    "down": (JSONResponse({"error": "out of memory"}, 500), 502, "pool_model_failed"),
    "full": (JSONResponse({"error": LENGTH}, 400), 400, "context_length_exceeded"),
    "breaks off": ("one HOLD two", 502, "pool_model_failed"),
}


@pytest.mark.parametrize("failure", FAILED)
def test_what_fails_in_the_pool_is_told_without_its_address_and_breaks_nothing_else(pool, failure):
    said, status, code = FAILED[failure]
    with deployed(pool, engine={"timeout_s": 2}) as url:
        pool.reply = lambda body: said if body["model"] == "large" else "7"
        client = client_of(url)
        items = {"model": NAME, "input": "3 + 4"}
        asked = [lambda: list(client.chat.completions.create(**chat(stream=True)))]
        if failure != "breaks off":
            asked.append(lambda: client.chat.completions.create(**chat()))
            asked.append(lambda: list(client.responses.create(**items, stream=True)))
        for ask_it in asked:
            with pytest.raises(openai.APIError, match=r"large|context") as found:
                ask_it()
            assert found.value.code == code
            assert getattr(found.value, "status_code", status) == status
            assert pool.url not in str(found.value)
        pool.reply = lambda body: "7"
        assert ask(url).choices[0].message.content == "7"


def test_a_pool_that_is_down_is_told_at_once_and_used_again_when_it_is_back(pool):
    with deployed(pool, max_retries=1) as url:
        pool.reply = lambda body: JSONResponse({}, 503)
        assert {post(url, chat()).status_code for _ in range(8)} == {502}
        asked = len(pool.bodies)
        assert post(url, chat()).status_code == 502
        # The breaker is open: at most a look whether the server is back.
        assert len(pool.bodies) - asked <= 1
        pool.reply = lambda body: "7"
        wait_until(lambda: post(url, chat()).status_code == 200)
        assert {post(url, chat()).status_code for _ in range(4)} == {200}


def test_an_answer_that_takes_too_long_is_given_up_and_the_work_behind_it_stops(pool, monkeypatch):
    with deployed(pool, timeout_s=0.2) as url:
        pool.holds = lambda body: True
        refused = post(url, chat())
        assert (refused.status_code, refused.json()["error"]["code"]) == (504, "timeout")
        assert "no answer within 0.2 seconds" in refused.text
        wait_until(lambda: pool.left == 2)
        assert len(pool.bodies) == 2
        monkeypatch.setattr(app, "HEAD_S", 0.0)  # the error comes after the first sign of life
        late = post(url, chat(stream=True))
    error = json.loads(late.text.strip().rpartition("data: ")[2])["error"]
    assert (late.status_code, error["code"]) == (200, "timeout")


def test_more_requests_than_places_are_told_to_come_back(pool):
    with deployed(pool, concurrency=1) as url:
        pool.holds = lambda body: True
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(ask, url)
            wait_until(lambda: pool.holding == 2)
            refused = post(url, chat())
            pool.release()
            assert waiting.result().choices[0].message.content == "7"
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert post(url, chat()).status_code == 200
        figures = httpx.get(f"{url}/metrics").text
    assert f'ttsgraph_requests_total{{model="{NAME}",status="429"}} 1.0' in figures


def test_a_client_that_leaves_stops_the_work_behind_it(pool):
    """Before there is any text, asked for a stream or not, and in the middle of one."""
    with deployed(pool, concurrency=1) as url:
        pool.holds = lambda body: body["model"] == "small"
        for stream in (False, True):
            pool.left = 0
            connection = http.client.HTTPConnection(urlsplit(url).netloc)
            body = json.dumps(chat(stream=stream))
            kind = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", body, kind)
            wait_until(lambda: pool.holding == 2)
            connection.close()
            wait_until(lambda: pool.left == 2)
        assert [body["model"] for body in pool.bodies] == ["small"] * 4
        pool.holds = lambda body: False
        pool.reply = lambda body: "one HOLD two" if body.get("stream") else "7"
        with ask(url, stream=True) as stream:
            assert [next(stream).choices[0].delta.content for _ in range(2)] == ["", "one "]
        wait_until(lambda: 'status="499"} 3.0' in httpx.get(f"{url}/metrics").text)
        assert pool.left == 3
        assert "ttsgraph_requests_under_way 0.0" in httpx.get(f"{url}/metrics").text
        pool.reply = lambda body: "7"
        assert ask(url).choices[0].message.content == "7"


def test_metrics_count_requests_tokens_and_calls_by_served_name(pool):
    with deployed(pool) as url:
        ask(url)
        list(ask(url, stream=True))
        post(url, chat(model="x" * 50))
        figures = httpx.get(f"{url}/metrics").text
    assert f'ttsgraph_requests_total{{model="{NAME}",status="200"}} 2.0' in figures
    assert 'ttsgraph_requests_total{model="-",status="404"} 1.0' in figures
    for upstream, calls in (("small", 4), ("large", 2)):
        of = f'model="{NAME}",upstream="{upstream}"'
        told = f'model="{NAME}",outcome="answered",upstream="{upstream}"'
        assert f'ttsgraph_tokens_total{{kind="prompt",{of}}} {calls}0.0' in figures
        assert f"ttsgraph_pool_calls_total{{{told}}} {calls}.0" in figures
        assert f"ttsgraph_pool_call_seconds_count{{{of}}} {calls}.0" in figures
    of = f'graph_hash="{FUSED.content_hash}",model="{NAME}",version="3"'
    assert f"ttsgraph_deployed{{{of}}} 1.0" in figures
    assert "xxx" not in figures


ROW = re.compile(r"^\| `(\"\w+\": .*)` \| (used|ignored|refused)\b", re.MULTILINE)
TABLE = ROW.findall((ROOT / "docs" / "reference" / "parameters.md").read_text())


def test_every_parameter_of_the_docs_table_is_treated_as_it_says(pool):
    assert len(TABLE) >= 30
    with deployed(pool) as url:
        for fragment, fate in TABLE:
            more = json.loads(f"{{{fragment}}}")
            (name,) = more
            found = post(url, chat() | more)
            assert found.status_code == (400 if fate == "refused" else 200), (fragment, found.text)
            named = name if fate == "ignored" else None
            assert found.headers.get("x-ttsgraph-ignored") == named, fragment
            if fate == "refused":
                assert found.json()["error"]["param"] == name, fragment
            else:
                assert found.json()["ttsgraph"]["ignored"] == ([name] if named else []), fragment


def test_names_are_logged_once_and_harm_neither_log_nor_header(pool, caplog):
    caplog.set_level(logging.INFO, "ttsgraph.service.app")
    odd = "a\r\nx-forged: 1, é"
    with deployed(pool, ALONE) as url:
        for _ in range(3):
            found = post(url, chat(**{odd: 1, "min_p": 0.1, "b" * 5000: 1}))
            assert found.status_code == 200
    assert "x-forged" not in found.headers
    assert found.headers["x-ttsgraph-ignored"] == f"{quote(odd)}, {'b' * 60}, min_p"
    said = [r.getMessage() for r in caplog.records if "min_p" in r.getMessage()]
    assert len(said) == 1
    assert said[0].isprintable()
