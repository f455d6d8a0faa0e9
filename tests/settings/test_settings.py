from pathlib import Path

import pytest
import yaml

from tests.support.project import ROOT
from ttsgraph.base.errors import SettingsError
from ttsgraph.settings.profile import load_params, load_profile

PROFILES = sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml"))


def profile_with(tmp_path: Path, change) -> Path:
    data = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    change(data)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data))
    return tmp_path


@pytest.mark.parametrize("name", PROFILES)
def test_shipped_profiles_are_valid(name):
    profile = load_profile(name, ROOT / "profiles")
    assert profile.pool
    for task in profile.tasks:
        profile.budget_on(task).require_feasible()


def test_shipped_params_name_a_profile_and_its_tasks():
    params = load_params(ROOT / "params.yaml")
    profile = load_profile(params.profile, ROOT / "profiles")
    assert set(params.tasks) <= set(profile.tasks)


THERE = {"model": "m", "base_url": "http://x/v1"}


def agent(**given):
    return lambda data: data.update(agent=given)


def simulated(**changes):
    """The simulated profile's, with these changes of its task math."""

    def change(data):
        data.clear()
        data |= yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())
        data["tasks"] = {"math": data["tasks"]["math"] | changes}
        del data["simulation"]["tasks"]["mmlu"]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["search"].update(patiance=3), r"'search\.patiance', did you mean 'patience'"),
        (lambda d: d["budget"].update(limit=-1), r"'budget\.limit': .*found -1"),
        (lambda d: d.pop("pool"), "missing key 'pool'"),
        (lambda d: d.update(pol=d.pop("pool")), "did you mean 'pool'"),
        (lambda d: d["tasks"]["math"].update(kind="maths"), r"tasks\.math.*found 'maths'"),
        (lambda d: d.update(roles=["assistant", "critique"]), "found 'critique'"),
        (lambda d: d.update(roles=["fuser"]), "expected 'assistant'"),
        (lambda d: d["engine"].update(kind="magic"), r"'engine\.kind': .*'vllm'"),
        (lambda d: d.update(workers={"kind": "celery"}), r"workers\.kind"),
        (lambda d: d.update(workers={"address": "tcp://h:1"}), "only with kind dask"),
        (lambda d: d.update(workers={"kind": "dask"}), "external or simulated, found vllm"),
        (agent(kind="llm"), "expected a model"),
        (agent(kind="llm", **THERE), "expected a price"),
        (agent(kind="llm", model="m"), "among gemma3-270m, smollm2-135m"),
        (agent(kind="heuristic", model="m"), "found kind heuristic"),
        (agent(kind="llm", price={"prompt": 1}, **THERE), "prompt and completion"),
        (agent(kind="oracle"), r"agent\.kind"),
        (simulated(prompt={"style": "few_shot"}), "expected .*chat prompts"),
        (simulated(source={"kind": "synthetic", "task": "mmlu", "size": 9}), "of its kind"),
        (simulated(kind="mmlu"), "its kind, mmlu, among"),
    ],
)
def test_a_wrong_profile_gets_one_line_that_names_the_key(tmp_path, change, message):
    with pytest.raises(SettingsError, match=message) as caught:
        load_profile("mine", profile_with(tmp_path, change))
    assert "\n" not in str(caught.value)


class TestIdentityOfAModel:
    """What is in the call key: a change that changes answers must not meet old answers."""

    def revision(self, tmp_path: Path, **changes) -> str:
        folder = profile_with(tmp_path, lambda d: d["pool"]["smollm2-135m"].update(changes))
        return load_profile("mine", folder).model_pool()["smollm2-135m"].revision

    @pytest.mark.parametrize(
        ("change", "same"),
        [
            ({"served_as": "other"}, False),
            ({"weights": {"hub": "org/other"}}, False),
            ({"revision": "unpinned"}, False),
            # Where a model is served, and what it costs, is not what it is.
            ({"base_url": "http://b/v1"}, True),
            ({"base_url": ["http://a/v1", "http://b/v1"]}, True),
            ({"price": 5.0}, True),
        ],
    )
    def test_another_model_is_another_identity(self, tmp_path, change, same):
        assert (self.revision(tmp_path, **change) == self.revision(tmp_path)) is same
        unpinned = self.revision(tmp_path, revision="unpinned")
        moved = self.revision(tmp_path, revision="unpinned", base_url="http://b/v1")
        assert moved == unpinned

    def test_what_calls_were_recorded_under_stays(self):
        """Else what is published, and every call that a user kept, would have to be made again."""
        known = {
            "smollm2-135m": "15d031ab14ea148c-9f03ad1e",
            "gemma3-270m": "2791f825e2264b84-20e129b2",
        }
        pool = load_profile("laptop", ROOT / "profiles").model_pool()
        assert {spec.name: spec.revision for spec in pool.values()} == {
            f"{name}{variant}": revision
            for name, revision in known.items()
            for variant in ("", ":t0", ":t0.5")
        }
