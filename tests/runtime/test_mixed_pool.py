"""Models that run elsewhere beside models whose servers are started here."""

import yaml

from tests.support.project import ROOT
from ttsgraph.base.parsing import parse
from ttsgraph.runtime import clients
from ttsgraph.runtime.clients import endpoints
from ttsgraph.serving import running as serving
from ttsgraph.serving.environment import Build
from ttsgraph.settings.profile import Profile

URL = "http://127.0.0.1:1/v1"


def mixed(**engine) -> Profile:
    laptop = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    laptop["engine"] |= engine
    laptop["pool"]["far"] = laptop["pool"]["smollm2-135m"] | {"base_url": URL, "variants": {}}
    del laptop["pool"]["far"]["weights"]
    return parse(Profile, laptop, "here")


def test_only_what_has_no_url_is_started_here_in_the_engines_environment(monkeypatch, tmp_path):
    for where in (serving, clients):
        monkeypatch.setattr(where, "vllm_build", lambda python: Build("0", "cpu"))
    monkeypatch.setattr(serving, "prepare_weights", lambda name, model, state, python: python)
    profile = mixed(python="/opt/vllm/bin/python")
    specs = serving.local_specs(profile, tmp_path)
    assert list(profile.hosted) == [spec.name for spec in specs] == ["smollm2-135m", "gemma3-270m"]
    assert {spec.command[0] for spec in specs} == {"/opt/vllm/bin/python"}
    local = {spec.name: (spec.base_url,) for spec in specs}
    found = endpoints(profile, local, tmp_path)
    assert found["far"].base_urls == (URL,)
    assert found["smollm2-135m"].base_urls == local["smollm2-135m"]
