"""What the doctor says of endpoints: it asks each model, and tells apart what is wrong."""

import json

import pytest
import yaml

from tests.support.habits import openai_refusal, refusing, vllm_refusal
from tests.support.project import ROOT
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.parsing import parse
from ttsgraph.models.dialect import DialectStore
from ttsgraph.runtime import doctor
from ttsgraph.settings.profile import Profile


def examine(state, base_url, agent=None, **more):
    laptop = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    laptop |= {"engine": {"kind": "external"}, "budget": {"metric": "dollars", "limit": 1}}
    mine = {"price": 1, "base_url": base_url, "served_as": "served", "api_key_env": "REACH_KEY"}
    laptop |= {"agent": agent or {}, "pool": {"mine": mine | more}}
    found = doctor.examine(parse(Profile, laptop, "here"), state)
    return {finding.subject: finding for finding in found}


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("REACH_KEY", "sesame-sesame-sesame")


@pytest.fixture
def stub():
    return StubServer(("served", "spare"), skill=1.0)


def error(status, message, **more):
    return status, {}, json.dumps({"error": {"message": message} | more})


def test_a_model_that_answers_is_told_with_seconds_and_tokens_and_what_it_refuses(stub, tmp_path):
    stub.misbehave = refusing(("temperature", "max_tokens"), system=True)
    with serve(stub) as url:
        found = examine(tmp_path, url)["model mine"]
        assert found.ok
        assert found.found.startswith(f"{url} answered in ")
        assert "prompt and 2 answer tokens" in found.found
        refused = "max_completion_tokens for max_tokens; system messages in the user's turn"
        assert f"without temperature; {refused}" in found.found
        assert stub.headers[-1]["authorization"] == "Bearer sesame-sesame-sesame"
        assert not DialectStore(tmp_path / "endpoints.json").get(f"{url} served").system
        stub.misbehave = lambda count, body: None  # what an endpoint takes is found out again
        assert "sent" not in examine(tmp_path, url)["model mine"].found
        assert DialectStore(tmp_path / "endpoints.json").get(f"{url} served").system


WRONG = [
    (error(401, "Incorrect API key provided: sesame-sesame-sesame.", code="invalid_api_key"),
     "refuses the key in REACH_KEY: HTTP 401 (Incorrect API key provided: [key].)", "correct REACH_KEY"),
    (error(404, "The model `served` does not exist or you do not have access to it.", code="model_not_found"),
     "has no model 'served': HTTP 404 (The model `served` does not exist", "correct served_as; the server has served, spare"),
    ((404, {}, '{"error": {"code": "DeploymentNotFound", "message": "The API deployment for this resource does not exist."}}'),
     "has no model 'served'", "correct served_as"),
    (error(400, "litellm: Invalid model name passed in model=served"), "has no model 'served'", "correct served_as"),
    ((404, {}, '{"detail": "Not Found"}'), "/chat/completions: HTTP 404 (Not Found)", "correct base_url; it usually ends in /v1"),
    ((200, {"Content-Type": "text/html"}, "<html>Welcome</html>"), "answers, but not as an OpenAI-compatible server",
     "correct base_url"),
    (error(402, "Insufficient credits"), "wants to be paid first: HTTP 402 (Insufficient credits)", "account"),
    (error(429, "You exceeded your current quota", type="insufficient_quota"), "wants to be paid first", "account"),
    (vllm_refusal("temperature must be in [0, 2]"), "refuses the request: HTTP 400 (temperature must be in [0, 2])", "left_out"),
    (error(503, "loading"), "can't answer now: HTTP 503 (loading)", "later"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "found", "advice"), WRONG)
def test_what_is_wrong_is_told_apart_in_the_servers_own_words(
    stub, tmp_path, answer, found, advice
):
    stub.misbehave = lambda count, body: answer
    with serve(stub) as url:
        told = examine(tmp_path, url)["model mine"]
    assert not told.ok
    assert found in told.found
    assert advice in told.advice
    assert "sesame" not in told.found


def test_no_server_and_no_key_and_an_unlisted_name(stub, tmp_path, monkeypatch):
    nowhere = "http://127.0.0.1:9/v1"
    gone = f"no server at {nowhere}: the connection is refused or broken"
    assert examine(tmp_path, nowhere)["model mine"].found == gone
    with serve(stub) as url:
        told = examine(tmp_path, url, served_as="else")["model mine"]
        assert not told.ok
        assert "doesn't list 'else' (served, spare)" in told.found
        assert examine(tmp_path, url, served_as="else", listed=False)["model mine"].ok
        monkeypatch.delenv("REACH_KEY")
        assert "REACH_KEY, which is not set" in examine(tmp_path, url)["model mine"].found


def test_each_model_goes_with_its_own_key(stub, tmp_path, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "other-other-other")
    agent = {"kind": "llm", "model": "spare", "api_key_env": "OTHER_KEY", "price": 1}
    with serve(stub) as url:
        examine(tmp_path, url, agent=agent | {"base_url": url})
    asked = zip(stub.requests, stub.headers, strict=True)
    keys = {body["model"]: headers["authorization"] for body, headers in asked}
    assert keys == {"served": "Bearer sesame-sesame-sesame", "spare": "Bearer other-other-other"}


def test_variants_that_reason_otherwise_are_asked_too(stub, tmp_path):
    both = {"reasoning_effort", "temperature"}
    stub.misbehave = lambda count, body: (
        openai_refusal("temperature") if both <= set(body) else None
    )
    variants = {"t0": {"temperature": 0}, "hard": {"reasoning_effort": "high"}}
    with serve(stub) as url:
        found = examine(tmp_path, url, variants=variants)
    assert "without temperature" in found["model mine:hard"].found
    assert "without" not in found["model mine"].found
    assert "model mine:t0" not in found
