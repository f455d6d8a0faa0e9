"""What the doctor says of endpoints: it asks each model, and tells apart what is wrong."""

import socket

import pytest

from tests.support.answers import error
from tests.support.habits import refusing, vllm_refusal
from tests.support.project import laptop_on
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.parsing import parse
from ttsgraph.endpoints import endpoint
from ttsgraph.models.dialect import DialectStore
from ttsgraph.runtime import doctor
from ttsgraph.settings.profile import Profile


def examine(state, base_url, **more):
    mine = {"price": 1, "base_url": base_url, "served_as": "served", "api_key_env": "REACH_KEY"}
    settings = laptop_on({"mine": mine | more}, budget={"metric": "dollars", "limit": 1})
    found = doctor.examine(parse(Profile, settings, "here"), state)
    return {finding.subject: finding for finding in found}


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("REACH_KEY", "sesame-sesame-sesame")


@pytest.fixture
def stub():
    return StubServer(("served", "spare"), skill=1.0)


def test_a_model_that_answers_is_told_with_seconds_and_tokens_and_what_it_refuses(stub, tmp_path):
    stub.misbehave = refusing(("temperature", "max_tokens"), system=True)
    with serve(stub) as url:
        found = examine(tmp_path, url)["model mine"]
        assert found.ok
        assert (url in found.found, "2 answer tokens" in found.found) == (True, True)
        assert (
            "without temperature; with max_completion_tokens instead of max_tokens" in found.found
        )
        assert stub.headers[-1]["authorization"] == "Bearer sesame-sesame-sesame"
        assert not DialectStore(tmp_path / "endpoints.json").get(f"{url} served").system
        stub.misbehave = lambda count, body: None  # what an endpoint takes is found out again
        assert "asked" not in examine(tmp_path, url)["model mine"].found
        assert DialectStore(tmp_path / "endpoints.json").get(f"{url} served").system


WRONG = {
    "page": ((200, {"Content-Type": "text/html"}, "<html>Hi</html>"), "no OpenAI-compatible server", "base_url"),
    "account": (error(402, "Insufficient credits"), "Insufficient credits", "account"),
    "request": (vllm_refusal("temperature must be in [0, 2]"), "in [0, 2]", "left_out"),
    "load": (error(503, "loading"), "HTTP 503 (loading)", "later"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_apart_in_the_servers_own_words(stub, tmp_path, what):
    answer, found, advice = WRONG[what]
    stub.misbehave = lambda count, body: answer
    with serve(stub) as url:
        told = examine(tmp_path, url)["model mine"]
    assert not told.ok
    assert found in told.found
    assert advice in told.advice
    assert "sesame" not in told.found


def test_no_key_and_an_unlisted_name(stub, tmp_path, monkeypatch):
    with serve(stub) as url:
        told = examine(tmp_path, url, served_as="else")["model mine"]
        assert not told.ok
        assert "has no model 'else' in its list (served, spare)" in told.found
        assert examine(tmp_path, url, served_as="else", listed=False)["model mine"].ok
        monkeypatch.delenv("REACH_KEY")
        assert "REACH_KEY, which is not set" in examine(tmp_path, url)["model mine"].found


def test_a_server_or_a_proxy_that_never_shakes_hands_is_named_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint, "CONNECT_S", 0.1)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        assert "no server at" in examine(tmp_path, f"https://{at}/v1")["model mine"].found
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://{at}")
        found = examine(tmp_path, "https://models.invalid/v1")["model mine"].found
        assert f"no connection to the proxy http://{at}" in found
