"""A simulated profile through the stages: what they make says that it is simulated."""

from pathlib import Path

import pytest
import yaml

from tests.support.project import ROOT
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import parse
from ttsgraph.settings.profile import Profile, load_profile

SIMULATED = yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())


def test_a_simulated_profile_has_simulated_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(SIMULATED))
    with pytest.raises(SettingsError, match=r"mine\.yaml: expected a name with simulated in it"):
        load_profile("mine", tmp_path)


def test_tasks_that_can_not_be_simulated_are_named() -> None:
    math = SIMULATED["tasks"]["math"]
    for change in (
        {"prompt": {"style": "few_shot"}},
        {"source": {"kind": "synthetic", "task": "mmlu", "size": 2000}},
    ):
        with pytest.raises(
            SettingsError,
            match="task 'math': expected a synthetic source of its kind and chat prompts",
        ):
            parse(Profile, SIMULATED | {"tasks": {"math": math | change}}, "profile")
    with pytest.raises(
        SettingsError, match=r"task 'math': expected its kind, math, among simulation\.tasks"
    ):
        parse(Profile, SIMULATED | {"tasks": {"math": math}, "simulation": {}}, "profile")
