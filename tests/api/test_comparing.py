"""Methods over seeds: the test questions stay, and a method of one's own is compared by its
name.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from tests.support.project import ROOT
from ttsgraph.api.comparing import compare_methods, splits_of
from ttsgraph.base.errors import InputError, SettingsError
from ttsgraph.base.parsing import load
from ttsgraph.evaluation.stats import smallest_p
from ttsgraph.settings.profile import Profile


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    data = yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())
    data["pool"] = {name: data["pool"][name] for name in ("llama-3.2-1b", "gemma-3-1b")}
    data["tasks"] = {
        "math": data["tasks"]["math"] | {"splits": {"train": 24, "val": 12, "test": 40}}
    }
    data["tasks"]["math"]["source"]["size"] = 300
    data["init"] = {"contest": {"calls": 150, "block": 6, "rounds": 1, "final_block": 6}}
    data["search"] = {"max_iterations": 2, "patience": 1, "candidates": 2, "batch": 8}
    data["budget"]["limit"] = 8
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(data))
    monkeypatch.chdir(tmp_path)
    return load(Profile, tmp_path / "p.yaml")


def test_test_questions_stay_and_the_others_are_drawn_anew(profile: Profile) -> None:
    first = splits_of(profile, "math", 1)
    second = splits_of(profile, "math", 2)
    assert first["test"] == second["test"]
    assert first["train"] != second["train"]
    for splits in (first, second):
        ids = [question.id for split in splits.values() for question in split]
        assert len(ids) == len(set(ids))


def test_methods_are_compared_over_seeds(profile: Profile) -> None:
    told: list[str] = []
    found = asyncio.run(
        compare_methods(profile, "math", ["agent_reinforce", "random"], range(2), say=told.append)
    )
    assert [scores.method for scores in found] == ["agent_reinforce", "random"]
    assert found[0].p is None
    assert found[1].p is not None
    assert smallest_p(2, 1) <= found[1].p <= 1
    assert all(len(scores.rows) == 2 for scores in found)
    assert all(units <= 8 for scores in found for units in scores.column("units"))
    assert [line.split(":")[0] for line in told] == [
        f"seed {s} {m}" for s in (0, 1) for m in ("agent_reinforce", "random")
    ]


def test_a_wrong_name_is_said_before_anything_is_asked(profile: Profile) -> None:
    with pytest.raises(SettingsError, match="unknown method 'magic'; known methods"):
        asyncio.run(compare_methods(profile, "math", ["random", "magic"], range(2)))
    with pytest.raises(InputError, match="expected different methods and at least 2 seeds"):
        asyncio.run(compare_methods(profile, "math", ["random", "random"], range(2)))


def test_the_least_p_halves_with_each_seed() -> None:
    assert [smallest_p(seeds, 1) for seeds in (2, 5, 10)] == [0.5, 0.0625, 2**-9]
