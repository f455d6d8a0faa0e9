from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.project import ROOT, merged
from ttsgraph.base.errors import SettingsError
from ttsgraph.settings.profile import load_params, load_profile

PROFILES = sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml"))
WRONG = yaml.safe_load(Path(__file__).with_name("wrong_profiles.yaml").read_text())


def profile_with(tmp_path: Path, change: dict[str, Any], of: str = "laptop") -> Path:
    data = yaml.safe_load((ROOT / "profiles" / f"{of}.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(merged(data, change)))
    return tmp_path


@pytest.mark.parametrize("name", PROFILES)
def test_shipped_profiles_are_valid(name):
    profile = load_profile(name, ROOT / "profiles")
    assert profile.pool
    for task in profile.tasks:
        profile.budget_on(task).require_feasible()


def test_a_bundle_of_an_earlier_version_is_read_unless_it_asks_for_what_is_gone(tmp_path):
    earlier = {"search": {"alpha": 1.05}, "description": "two", "workers": {"kind": "local"}}
    earlier["engine"] = {"down_s": 180, "startup_s": 300, "effective_tflops": 1.0}
    earlier["pool"] = {"smollm2-135m": {"listed": False, "query": {}}}
    earlier["agent"] = {"reasks": 2, "timeout_s": 600, "temperature": None, "insight_1": True}
    earlier["agent"] |= {"kind": "heuristic", "max_tokens": 9}
    earlier["init"] = {"contest": {"block": 40, "routes": True}}
    mine = load_profile("mine", profile_with(tmp_path, earlier))
    assert mine == load_profile("laptop", ROOT / "profiles")
    earlier["search"]["alpha"] = 1.1
    with pytest.raises(SettingsError, match="alpha"):
        load_profile("mine", profile_with(tmp_path, earlier))


def test_a_query_of_an_earlier_version_is_part_of_the_url(tmp_path):
    own = {"smollm2-135m": {"base_url": "http://a/v1", "query": {"v": "1"}}}
    pool = load_profile("mine", profile_with(tmp_path, {"pool": own})).pool
    assert pool["smollm2-135m"].base_urls == ("http://a/v1?v=1",)


def test_shipped_params_name_a_profile_and_its_tasks():
    params = load_params(ROOT / "params.yaml")
    profile = load_profile(params.profile, ROOT / "profiles")
    assert set(params.tasks) <= set(profile.tasks)


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case["says"])
def test_a_wrong_profile_gets_one_line_that_names_the_key(tmp_path, case):
    folder = profile_with(tmp_path, case["change"], case.get("of", "laptop"))
    with pytest.raises(SettingsError, match=case["says"]) as caught:
        load_profile("mine", folder)
    assert "\n" not in str(caught.value)


class TestIdentityOfAModel:
    """What is in the call key: a change that changes answers must not meet old answers."""

    def revision(self, tmp_path: Path, **changes) -> str:
        folder = profile_with(tmp_path, {"pool": {"smollm2-135m": changes}})
        return load_profile("mine", folder).model_pool()["smollm2-135m"].revision

    def test_another_model_is_another_identity(self, tmp_path):
        here, weights = self.revision(tmp_path), {"hub": "org/other", "package": None}
        for change in ({"served_as": "other"}, {"weights": weights}, {"revision": "unpinned"}):
            assert self.revision(tmp_path, **change) != here
        # Where a model is served, and what it costs, is not what it is.
        for url in ("http://b/v1", ["http://a/v1", "http://b/v1"]):
            assert self.revision(tmp_path, base_url=url) == here
        assert self.revision(tmp_path, price=5.0) == here
        unpinned = self.revision(tmp_path, revision="unpinned")
        moved = self.revision(tmp_path, revision="unpinned", base_url="http://b/v1")
        assert moved == unpinned

    def test_what_calls_were_recorded_under_stays(self):
        """Else what is published, and every call that a user kept, would have to be made again."""
        pool = load_profile("laptop", ROOT / "profiles").model_pool()
        found = {(spec.model, spec.revision) for spec in pool.values()}
        smollm = "smollm2-135m", "15d031ab14ea148c-9f03ad1e"
        assert found == {smollm, ("gemma3-270m", "2791f825e2264b84-20e129b2")}
