"""A question that a pool model's provider refuses: the caller's 400, or the others' answer."""

import json

import pytest
from starlette.responses import JSONResponse

from tests.support.refusing import FILTERED, REFUSALS
from tests.support.service import VOTED, chat, deployed, graph_of, post

MIXED = graph_of("fuser", "small")
SECRET = "sk-0123456789abcdef0123456789"


def refusing(models):
    """Refuses what these models are asked, and says a secret."""
    status, _, text = REFUSALS["Azure"]
    told = json.loads(text.replace(FILTERED, f"{FILTERED}, {SECRET}"))
    return lambda body: JSONResponse(told, status) if body["model"] in models else "7"


ALL = ("small", "large")


@pytest.mark.parametrize(
    ("graph", "models", "settings", "answered"),
    [
        (VOTED, ALL, {}, False),
        (MIXED, ["large"], {}, False),
        (MIXED, ["large"], {"fallback": True}, True),
        (MIXED, ["small"], {}, True),
        (VOTED, ["large"], {}, True),
    ],
)
def test_it_is_a_400_with_the_providers_words_or_the_others_answer(
    pool, monkeypatch, graph, models, settings, answered
):
    monkeypatch.setenv("POOL_API_KEY", SECRET)
    with deployed(pool, graph, **settings) as url:
        pool.reply = refusing(models)
        answers = [post(url, chat(stream=stream)) for stream in (False, True)]
    for answer in answers:
        assert answer.status_code == (200 if answered else 400)
        assert SECRET not in answer.text
        if answered:
            assert '"content":"7"' in answer.text
        else:
            error = answer.json()["error"]
            assert (error["type"], error["code"]) == ("invalid_request_error", "content_filter")
            assert FILTERED in error["message"]
