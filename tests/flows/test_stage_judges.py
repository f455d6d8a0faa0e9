"""A stage asks nothing where its judges are worth nothing."""

import json
from contextlib import chdir

import pytest

from tests.support.answers import answer_of
from tests.support.project import Project
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import SettingsError
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import single
from ttsgraph.models.client import Client
from ttsgraph.runtime import asking as asking_module
from ttsgraph.tasks.base import Task
from ttsgraph_flows.sample import sample
from ttsgraph_flows.stage import load_stage


async def some_calls(environment: Environment) -> int:
    model = next(iter(environment.pool))
    return (
        await environment.evaluate(single(model), load_stage("math").questions["train"][:2])
    ).n_scored


async def worse_than_chance(task: Task, client: Client) -> list[str]:
    raise SettingsError("judges worse than chance")


def test_judges_are_checked_before_the_work_and_what_they_take_is_held_to_the_limits(
    tmp_path, monkeypatch
):
    stub = StubServer(("small", "large", "j"))
    stub.misbehave = lambda count, body: answer_of({"content": "Score: 7"})
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
            with stage.metered("one") as meter:
                assert meter.spent.tokens > 0
            asked = len(stub.requests)
            monkeypatch.setattr(asking_module, "checked", worse_than_chance)
            with pytest.raises(SettingsError, match="worse than chance"):
                stage.with_models(some_calls, account="one")
            assert len(stub.requests) == asked
    assert [body["model"] for body in stub.requests[:asked]].count("j") == 2
