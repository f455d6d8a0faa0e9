"""A stage that asks models says first what its judges are worth, and asks nothing where they are
worth nothing.
"""

from __future__ import annotations

import json
from contextlib import chdir
from typing import Any

import pytest

from tests.support.project import Project
from tests.support.simulated_project import SimulatedProject
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import SettingsError
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import single
from ttsgraph.models.client import Client
from ttsgraph.tasks.base import Task
from ttsgraph_flows import stage as stage_module
from ttsgraph_flows.sample import sample
from ttsgraph_flows.stage import load_stage


async def some_calls(environment: Environment) -> int:
    model = next(iter(environment.pool))
    return (
        await environment.evaluate(single(model), load_stage("math").questions["train"][:2])
    ).n_scored


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


class Scoring(StubServer):
    """Whatever it is asked, it gives a score."""

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        answer = super().completion(body, count)
        answer["choices"][0]["message"]["content"] = "Score: 7"
        return answer


def test_what_judges_take_is_held_to_the_limits_of_the_profile(tmp_path) -> None:
    stub = Scoring(("small", "large", "j"))
    with serve(stub) as url:
        project = Project(tmp_path, url)
        rows = [{"question": f"{k} + 1", "answer": str(k + 1)} for k in range(60)]
        source = {"kind": "jsonl", "path": "inputs/qa.jsonl"}
        (tmp_path / source["path"]).write_text("\n".join(map(json.dumps, rows)))
        grading = {"rubric": "Is it right?", "models": {"j": {"base_url": url, "price": 1}}}
        math = {"kind": "judge", "grading": grading, "source": source, "prompt": {"style": "chat"}}
        project.profile["tasks"]["math"] |= math
        project.profile["limits"] = {"tokens": 10**9}
        project.save()
        with chdir(project.folder):
            sample.fn("math")
            stage = load_stage("math")
            assert stage.with_models(some_calls, account="one") == 2
            meter = stage.meter("one")
    assert [body["model"] for body in stub.requests].count("j") == 2
    assert meter is not None
    assert meter.spent.tokens > 0
