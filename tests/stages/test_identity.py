"""What makes two searches the same: their settings."""

from typing import Any

import pytest
import yaml

from tests.support.project import ROOT, merged
from ttsgraph.base.parsing import parse
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.identity import code_digest, settings_sha256

LAPTOP = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
MODEL = next(iter(LAPTOP["pool"]))


def identity(change: dict[str, Any]) -> str:
    return settings_sha256(parse(Profile, merged(LAPTOP, change), "laptop"), "math")


def test_how_models_are_served_is_not_in_the_identity_of_results():
    model = {"serve": {"replicas": 3, "tensor_parallel": 2}}
    model |= {"base_url": ["http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1?a=b"]}
    model |= {"api_key_env": "ANOTHER_KEY", "api_key_header": "api-key"}
    engine = {"concurrency": 7, "timeout_s": 9, "max_retries": 9, "device": "gpu", "python": "else"}
    others = {"limits": {"dollars": 1}}
    assert identity({"pool": {MODEL: model}, "engine": engine} | others) == identity({})


@pytest.mark.parametrize(
    "change",
    [
        {"pool": {MODEL: {"price": 12.5}}},
        {"pool": {MODEL: {"revision": "another"}}},
        {"engine": {"max_model_len": 512}},
        {"roles": ["assistant"]},
        {"tasks": {"math": {"sampling": {"temperature": 0.123}}}},
        {"search": {"patience": 1}},
    ],
)
def test_what_decides_a_result_is_in_its_identity(change):
    assert identity(change) != identity({})


def test_code_is_the_same_until_a_module_or_a_template_changes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    digests = [code_digest("mine")]
    for name in ("results.csv", "rule.py", "prompt.j2"):
        (package / name).write_text("X = 1\n")
        code_digest.cache_clear()
        digests.append(code_digest("mine"))
    assert digests[0] == digests[1]
    assert len(set(digests[1:])) == 3
