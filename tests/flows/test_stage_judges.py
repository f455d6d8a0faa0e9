"""A stage that asks models says first what its judges are worth, and asks nothing where they are
worth nothing.
"""

from __future__ import annotations

from contextlib import chdir

import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph.base.errors import SettingsError
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import single
from ttsgraph.models.client import Client
from ttsgraph.tasks.base import Question, Task
from ttsgraph_flows import stage as stage_module
from ttsgraph_flows.sample import sample
from ttsgraph_flows.stage import load_stage


async def some_calls(environment: Environment, questions: dict[str, list[Question]]) -> int:
    return (await environment.evaluate(single("llama-3.2-1b"), questions["train"][:2])).n_scored


def test_judges_are_checked_before_the_work(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def agreeing(task: Task, client: Client) -> list[str]:
        return [f"judges of {task.name} agree"]

    async def useless(task: Task, client: Client) -> list[str]:
        raise SettingsError("judges worse than chance")

    project = SimulatedProject(tmp_path)
    project.settings["limits"] = {"tokens": 10**9}
    project.save()
    with chdir(project.folder):
        sample.fn("math")
        stage = load_stage("math")
        monkeypatch.setattr(stage_module, "checked", agreeing)
        assert stage.with_models(some_calls, account="one") == 2
        assert "math: judges of " in capsys.readouterr().err
        monkeypatch.setattr(stage_module, "checked", useless)
        with pytest.raises(SettingsError, match="worse than chance"):
            stage.with_models(some_calls, account="one")
