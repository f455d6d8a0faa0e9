"""The parameters that clients send by habit: each is used, ignored and named, or refused."""

from __future__ import annotations

import json
import logging
import re
from urllib.parse import quote

from tests.support.project import ROOT
from tests.support.service import ALONE, VOTED, ask, chat, deployed, post

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
    with deployed(pool, VOTED) as url:
        refused = post(url, chat(n=2))
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "n")


def test_a_strict_server_refuses_parameters_that_are_not_openais(pool):
    with deployed(pool, strict=True) as url:
        assert ask(url, temperature=0.1).model_extra["ttsgraph"]["ignored"] == ["temperature"]
        refused = post(url, chat(top_k=40))
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_k")
    assert refused.json()["error"]["code"] == "unknown_parameter"


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


def test_empty_turns_and_numbers_written_as_floats_reach_the_models_as_openai_writes_them(pool):
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}]
    body = chat(n=2.0, max_tokens=5.0, stream=True, top_k=40)
    body["messages"] = turns + body["messages"]
    with deployed(pool, ALONE) as url:
        found = post(url, body)
    assert (found.status_code, found.headers["x-ttsgraph-ignored"]) == (200, "top_k")
    (body,) = pool.bodies
    assert [repr(body[name]) for name in ("n", "max_tokens")] == ["2", "5"]
    assert [message["role"] for message in body["messages"]][-3:] == ["user", "assistant", "user"]
