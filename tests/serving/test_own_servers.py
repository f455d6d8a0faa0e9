"""The servers that people have: each line of docs/own-models.md on a stub with its habits."""

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from typer.testing import CliRunner

from tests.scaffold.test_add import PARAMS, PROFILE, sums
from tests.support.docs_blocks import blocks_of
from tests.support.own_servers import KEY, SERVERS, OwnServer
from tests.support.project import laptop_on
from tests.support.stub_server import serve
from ttsgraph.base.parsing import parse
from ttsgraph.cli import app
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.models.client import Completion, Message, Request, Sampling
from ttsgraph.runtime import doctor
from ttsgraph.runtime.clients import connect
from ttsgraph.settings.profile import Profile, load_profile

(LINES,) = [
    yaml.safe_load(block.text)["pool"]
    for block in blocks_of("docs/own-models.md")
    if "on-ollama" in block.text
]
EVERY = pytest.mark.parametrize("name", SERVERS)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in LINES.values():
        monkeypatch.setenv(line.get("api_key_env", "NO_KEY"), KEY)


@pytest.fixture
def server(name: str) -> Iterator[tuple[OwnServer, str]]:
    """The stub of a server, and its address without a path."""
    stub = OwnServer(name)
    with serve(stub) as url:
        yield stub, url.removesuffix("/v1")


def place(name: str) -> str:
    """The path and query of the page's line."""
    url = urlsplit(LINES[name]["base_url"])
    return url._replace(scheme="", netloc="").geturl()


def profile(name: str, address: str, **changes: Any) -> Profile:
    """The laptop profile with the page's line as its pool, but at this address."""
    model = LINES[name] | {"base_url": address + place(name)} | changes
    budget = {"metric": "dollars", "limit": 1}
    return parse(Profile, laptop_on({name: model}, budget=budget), "here")


def asked(told: Profile, name: str, state: Any) -> list[Completion]:
    """What a run's client gets for a few calls with all that a task sends."""
    messages = (Message("system", "Add them."), Message("user", "Q: 1 + 1"))
    calls = [Request(name, "r", messages, Sampling(0.7, 0.9, 16, ("\n",)), k) for k in range(3)]

    async def run() -> list[Completion]:
        policy = FailurePolicy(max_retries=2, first_wait_s=0.01)
        async with connect(told, {}, policy, state) as client:
            return [await client.complete(call) for call in calls]

    return asyncio.run(run())


def test_each_server_has_a_line():
    assert set(LINES) == set(SERVERS)
    for name, line in LINES.items():
        assert SERVERS[name].get("root", "/v1") == urlsplit(line["base_url"]).path
        assert line["served_as"] == SERVERS[name]["model"]


def finding(told: Profile, name: str, state: Any) -> doctor.Finding:
    (found,) = [one for one in doctor.examine(told, state) if one.subject == f"model {name}"]
    return found


@EVERY
def test_a_run_gets_answers_from_its_line_as_it_stands_and_the_doctor_agrees(
    name, server, tmp_path
):
    stub, address = server
    told = profile(name, address)
    assert [answer.text for answer in asked(told, name, tmp_path)] == ["2"] * 3
    refused = [body for body in stub.requests if set(stub.refused) & set(body)]
    # Each is refused once, and the next run asks rightly at once.
    assert len(refused) <= len(stub.refused)
    before = len(stub.requests)
    asked(told, name, tmp_path)
    body = stub.requests[-1]
    tried = "unlisted" in stub.own  # a server without a list is asked for its model first
    assert len(stub.requests) == before + 3 + tried
    assert not set(stub.refused) & set(body)
    assert ("max_completion_tokens" in body) == ("max_tokens" in stub.refused)
    assert finding(told, name, tmp_path).ok


@EVERY
def test_a_wrong_key_model_or_address_is_told_from_the_others(name, server, tmp_path, monkeypatch):
    address = server[1]
    other = {"served_as": "other"}
    if name == "on-azure":
        other["base_url"] = address + place(name).replace("my-gpt", "other")
    wrong_model = finding(profile(name, address, **other), name, tmp_path)
    wrong_address = finding(profile(name, address, base_url=f"{address}/v7"), name, tmp_path)
    assert not wrong_model.ok
    assert not wrong_address.ok
    assert "has no model 'other'" in wrong_model.found
    assert "has no model" not in wrong_address.found
    assert "base_url" in wrong_address.advice
    if key := LINES[name].get("api_key_env"):
        monkeypatch.setenv(key, "another-another")
        wrong_key = finding(profile(name, address), name, tmp_path)
        assert not wrong_key.ok
        assert key in wrong_key.found
        assert "another" not in wrong_key.found


NOWHERE = "http://127.0.0.1:9/v1"
PRICES = {"on-openrouter": {"prompt": 0.02, "completion": 0.03}}


@EVERY
def test_add_finds_what_a_server_tells_and_asks_for_the_rest(name, server, tmp_path, monkeypatch):
    stub, address = server
    text = PROFILE.replace("URL", NOWHERE)
    text = text.replace("max_retries: 0", "max_retries: 1")
    text = text.replace("{metric: flops, limit: 8}", "{metric: dollars, limit: 1}")
    files = {"profiles/mine.yaml": text, "inputs/sums.jsonl": sums(20), "params.yaml": PARAMS}
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(content)
    monkeypatch.chdir(tmp_path)
    command = ["add", "--url", address + place(name), "--model", stub.model]
    if "api_key_env" in LINES[name]:
        command += ["--key-env", LINES[name]["api_key_env"]]
    if name == "on-azure":
        command += ["--set", "{api_key_header: api-key}"]
    done = CliRunner().invoke(app, command)
    if name not in PRICES:
        assert "--price" in str(done.exception)
        done = CliRunner().invoke(app, [*command, "--price", "1,2"])
    assert done.exit_code == 0, done.exception
    (made,) = (each for each in load_profile("mine").pool.values() if each.base_url != NOWHERE)
    assert made.served_as == stub.model
    assert made.price == PRICES.get(name, {"prompt": 1.0, "completion": 2.0})
