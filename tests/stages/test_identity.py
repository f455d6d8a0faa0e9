"""What makes two searches the same: their settings."""

import json
from typing import Any

import yaml

from tests.support.project import ROOT
from ttsgraph.base.parsing import parse
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.identity import code_digest, settings_sha256

LAPTOP = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())


def laptop(**changes: Any) -> Profile:
    """The laptop's profile with some dotted keys changed."""
    data = json.loads(json.dumps(LAPTOP))
    for key, value in changes.items():
        *where, last = key.split("__")
        inner = data
        for part in where:
            inner = inner.setdefault(part.replace("_x_", "-"), {})
        inner[last] = value
    return parse(Profile, data, "laptop")


def test_how_models_are_served_is_not_in_the_identity_of_results():
    model = next(iter(LAPTOP["pool"]))
    pool = f"pool__{model.replace('-', '_x_')}"
    serving = {
        f"{pool}__serve": {"replicas": 3, "tensor_parallel": 2},
        f"{pool}__base_url": ["http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"],
        f"{pool}__api_key_env": "ANOTHER_KEY",
        f"{pool}__api_key_header": "api-key",
        f"{pool}__query": {"api-version": "2024-10-21"},
        f"{pool}__listed": False,
        "engine__concurrency": 7,
        "engine__timeout_s": 9,
        "engine__max_retries": 9,
        "engine__device": "gpu",
        "engine__python": "elsewhere/bin/python",
        "limits": {"dollars": 1},
        "description": "other words",
    }
    plain = settings_sha256(laptop(), "math")
    for key, value in serving.items():
        assert settings_sha256(laptop(**{key: value}), "math") == plain, key
    deciding = {
        f"{pool}__price": 12.5,
        f"{pool}__revision": "another",
        "engine__max_model_len": 512,
        "roles": ["assistant"],
        "tasks__math__sampling__temperature": 0.123,
        "search__patience": 1,
    }
    for key, value in deciding.items():
        assert settings_sha256(laptop(**{key: value}), "math") != plain, key


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
