"""A stage asks nothing where its judges are worth nothing."""

from contextlib import chdir

import pytest

from tests.support.answers import answer_of
from tests.support.project import Project
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import SettingsError
from ttsgraph.scaffold.cells import json_lines
from ttsgraph_flows.profile import profile_models
from ttsgraph_flows.sample import sample
from ttsgraph_flows.stage import load_stage


def test_judges_are_checked_before_the_work_and_what_they_take_is_held_to_the_limits(tmp_path):
    stub = StubServer(("small", "large", "j"))
    stub.misbehave = lambda count, body: answer_of({"content": "Score: 7"})  # whatever it reads
    with serve(stub) as url:
        project = Project(tmp_path, url)
        rows = [{"question": f"{k} + 1", "answer": str(k + 1)} for k in range(60)]
        known = [row | {"reply": "1", "score": k % 2} for k, row in enumerate(rows[:12])]
        (tmp_path / "inputs" / "qa.jsonl").write_text(json_lines(rows))
        (tmp_path / "inputs" / "known.jsonl").write_text(json_lines(known))
        grading = {"rubric": "Is it right?", "models": {"j": {"base_url": url, "price": 1}}}
        project.profile["tasks"]["math"] |= {
            "kind": "judge",
            "grading": grading | {"known": "inputs/known.jsonl"},
            "source": {"kind": "jsonl", "path": "inputs/qa.jsonl"},
            "prompt": {"style": "chat"},
        }
        project.profile["limits"] = {"tokens": 10**9}
        project.save()
        with chdir(project.folder):
            sample.fn("math")
            with pytest.raises(SettingsError, match="kappa"):
                profile_models.fn("math")
            with load_stage("math").metered("profile") as meter:
                assert meter.spent.tokens > 0
    assert {body["model"] for body in stub.requests} == {"j"}
