"""Models that join a pool once their endpoint lists them, asked of real servers."""

import pytest
import yaml

from tests.support.project import MODEL, ROOT, laptop_on
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import parse
from ttsgraph.deployment.provenance import pool_fingerprint
from ttsgraph.runtime import clients
from ttsgraph.runtime.clients import endpoints, with_newcomers
from ttsgraph.serving import running as serving
from ttsgraph.serving.environment import Build
from ttsgraph.settings.profile import Profile

NOWHERE = "http://127.0.0.1:9/v1"


def profile(url: str, **newcomers: dict) -> Profile:
    pool = {"small": MODEL | {"base_url": url}}
    return parse(Profile, laptop_on(pool, newcomers=newcomers), "profile")


def test_a_newcomer_joins_when_its_endpoint_lists_it_and_the_pool_is_another_then():
    stub = StubServer(("small",))
    with serve(stub) as url:
        before = profile(url, late=MODEL | {"base_url": url, "served_as": "org/late"})
        assert set(with_newcomers(before).pool) == {"small"}
        stub.models = ("small", "org/late")
        after = with_newcomers(before)
    assert (set(after.pool), set(after.newcomers)) == ({"small", "late"}, set())
    assert pool_fingerprint(after) != pool_fingerprint(before)


def test_a_newcomer_whose_endpoint_is_away_or_lists_nothing_waits(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    waiting = profile(NOWHERE, late=MODEL | {"base_url": NOWHERE})
    assert set(with_newcomers(waiting).newcomers) == {"late"}
    with serve(StubServer(("late",))) as url:
        everywhere = profile(url, late=MODEL | {"base_url": [url, NOWHERE]})
        assert set(with_newcomers(everywhere).newcomers) == {"late"}


@pytest.mark.parametrize(
    "newcomer", [{"small": MODEL | {"base_url": "http://x/v1"}}, {"late": MODEL}]
)
def test_a_newcomer_is_not_in_the_pool_yet_and_has_an_endpoint(newcomer):
    with pytest.raises(SettingsError, match="not in the pool yet"):
        profile(NOWHERE, **newcomer)


def test_only_what_has_no_url_is_started_here_in_the_engines_environment(monkeypatch, tmp_path):
    for where in (serving, clients):
        monkeypatch.setattr(where, "vllm_build", lambda python: Build("0", "cpu"))
    monkeypatch.setattr(serving, "prepare_weights", lambda name, model, python, state: python)
    laptop = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    laptop["pool"] |= {"far": MODEL | {"base_url": NOWHERE}}
    laptop["engine"] |= {"python": "/opt/vllm/bin/python"}
    profile = parse(Profile, laptop, "here")
    specs = serving.local_specs(profile, tmp_path)
    assert list(profile.hosted) == [spec.name for spec in specs] == ["smollm2-135m", "gemma3-270m"]
    assert {spec.command[0] for spec in specs} == {"/opt/vllm/bin/python"}
    local = {spec.name: (spec.base_url,) for spec in specs}
    found = endpoints(profile, local, tmp_path)
    assert found["far"].base_urls == (NOWHERE,)
    assert found["smollm2-135m"].base_urls == local["smollm2-135m"]
