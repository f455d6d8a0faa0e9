"""What the doctor says of a profile: on this machine and on machines that are described to it, and
of endpoints, where it asks each model and tells apart what is wrong.
"""

import shutil
import socket

import pytest

from tests.support.answers import error
from tests.support.habits import refusing, vllm_refusal
from tests.support.project import ROOT, laptop_on
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.parsing import parse
from ttsgraph.endpoints import endpoint
from ttsgraph.models.dialect import DialectStore
from ttsgraph.runtime import doctor
from ttsgraph.serving import needs
from ttsgraph.settings.profile import Profile, load_profile

WEIGHTS = "models--meta-llama--Llama-3.2-1B-Instruct/snapshots"
REVISION = "9213176726f574b556790deb65791e0c5aa438b6"


def examined(profile, state):
    return {finding.subject: finding for finding in doctor.examine(profile, state)}


@pytest.fixture
def on_the_machine(tmp_path, monkeypatch):
    """What is said of the paper's profile on a machine without GPUs, weights, tokens and serve
    environment.
    """
    for name in ("HF_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr(needs, "gpu_memory_gib", lambda: {})
    paper = load_profile("paper", ROOT / "profiles")
    engine = paper.engine.model_copy(update={"python": str(tmp_path / "no-python")})
    paper = paper.model_copy(update={"engine": engine})
    return lambda: examined(paper, tmp_path / "state")


def test_a_bare_machine_hears_all_that_is_missing_and_how_to_get_it(on_the_machine):
    found = on_the_machine()
    assert {name for name in found if found[name].ok} <= {"isolation of programs"}
    assert "make setup" in found["serve environment"].advice
    assert found["GPU"].found == "none found"
    weights = found["weights of llama-3.1-8b"].advice
    assert "hf download meta-llama/Llama-3.1-8B-Instruct --revision 0e9e39f249a1" in weights
    assert "15.0 GiB" in weights
    assert "HF_TOKEN" in found["hub token"].advice
    assert "cais/mmlu" in found["questions of mmlu"].advice


def test_what_is_there_is_found(on_the_machine, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "value")
    monkeypatch.setattr(needs, "gpu_memory_gib", lambda: {0: 80.0})
    weights = tmp_path / "hub" / WEIGHTS / REVISION
    weights.mkdir(parents=True)
    shutil.copy(ROOT / "tests/data/configs/llama-3.2-1b.json", weights / "config.json")
    found = on_the_machine()
    there = ["weights of llama-3.2-1b", "hub token", "server llama-3.2-1b"]
    assert [found[name].ok for name in [*there, "weights of llama-3.2-3b"]] == [True] * 3 + [False]
    assert "(GPU 0)" in found["server llama-3.2-1b"].found


def reached(state, base_url, **more):
    mine = {"price": 1, "base_url": base_url, "served_as": "served", "api_key_env": "REACH_KEY"}
    settings = laptop_on({"mine": mine | more}, budget={"metric": "dollars", "limit": 1})
    return examined(parse(Profile, settings, "here"), state)["model mine"]


@pytest.fixture
def stub(monkeypatch):
    monkeypatch.setenv("REACH_KEY", "sesame-sesame-sesame")
    return StubServer(("served", "spare"), skill=1.0)


def test_a_model_that_answers_is_told_with_seconds_and_tokens_and_what_it_refuses(stub, tmp_path):
    stub.misbehave = refusing(("temperature", "max_tokens"), system=True)
    with serve(stub) as url:
        found = reached(tmp_path, url)
        assert found.ok
        refused = "without temperature; with max_completion_tokens instead of max_tokens"
        assert all(part in found.found for part in (url, "2 answer tokens", refused))
        assert stub.headers[-1]["authorization"] == "Bearer sesame-sesame-sesame"
        assert not DialectStore(tmp_path / "endpoints.json").get(f"{url} served").system
        stub.misbehave = lambda count, body: None  # what an endpoint takes is found out again
        assert "asked" not in reached(tmp_path, url).found
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
        told = reached(tmp_path, url)
    assert not told.ok
    assert found in told.found
    assert advice in told.advice
    assert "sesame" not in told.found


def test_no_key_and_an_unlisted_name(stub, tmp_path, monkeypatch):
    stub.misbehave = lambda count, body: error(404, "none") if body["model"] == "else" else None
    with serve(stub) as url:
        told = reached(tmp_path, url, served_as="else")
        assert not told.ok
        assert "has no model 'else' in its list (served, spare) (none)" in told.found
        assert reached(tmp_path, url, served_as="secret").ok  # as it answers under this name
        monkeypatch.delenv("REACH_KEY")
        assert "REACH_KEY, which is not set" in reached(tmp_path, url).found


def test_a_server_or_a_proxy_that_never_shakes_hands_is_named_soon(stub, tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint, "CONNECT_S", 0.1)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        assert "no server at" in reached(tmp_path, f"https://{at}/v1").found
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://{at}")
        found = reached(tmp_path, "https://models.invalid/v1").found
        assert f"no connection to the proxy http://{at}" in found
