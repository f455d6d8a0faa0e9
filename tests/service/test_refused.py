"""A question that a pool model's provider refuses: the caller's 400, or the others' answer."""

from __future__ import annotations

import json

import pytest
from starlette.responses import JSONResponse

from tests.support.refusing import FILTERED, REFUSALS
from tests.support.service import (
    ALONE,
    FUSED,
    VOTED,
    PoolStub,
    chat,
    deployed,
    graph_of,
    pooled,
    post,
)

MIXED = graph_of("fuser", "small")


@pytest.fixture(scope="module")
def pool():
    with pooled(PoolStub()) as stub:
        yield stub


def refusing(*models: str, said: str = FILTERED):
    """Refuses what these models are asked."""
    status, _, text = REFUSALS["Azure"][0]
    told = json.loads(text.replace(FILTERED, said))
    return lambda body: JSONResponse(told, status) if body["model"] in models else "7"


ALL = ["small", "large"]


@pytest.mark.parametrize(
    ("graph", "models"),
    [(ALONE, ALL), (FUSED, ALL), (VOTED, ALL), (MIXED, ["large"])],
    ids=["alone", "fused", "voted", "the last node"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_it_is_a_400_with_the_provider_s_words(pool, graph, models, stream):
    with deployed(pool, graph) as url:
        pool.reply = refusing(*models)
        answer = post(url, chat(stream=stream))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "content_filter")
    assert FILTERED in error["message"]


def test_no_secret_is_in_the_words(pool, monkeypatch):
    monkeypatch.setenv("POOL_API_KEY", "sk-0123456789abcdef0123456789")
    with deployed(pool, ALONE) as url:
        pool.reply = refusing("large", said=f"{FILTERED}, sk-0123456789abcdef0123456789")
        answer = post(url, chat())
    assert answer.status_code == 400
    assert "0123456789abcdef" not in answer.text


@pytest.mark.parametrize(
    ("graph", "models", "settings"),
    [
        (VOTED, ["small"], {}),
        (VOTED, ["large"], {}),
        (MIXED, ["small"], {}),
        (MIXED, ["large"], {"fallback": True}),
    ],
    ids=["two voices", "one voice", "what is read", "the last node"],
)
def test_the_others_answer_where_they_can(pool, graph, models, settings):
    with deployed(pool, graph, **settings) as url:
        pool.reply = refusing(*models)
        answer = post(url, chat())
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "7"
