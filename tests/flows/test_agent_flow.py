"""The stages with a language model as agent, both behind stub servers on real sockets."""

import json
import sys

import pytest
from mlflow.tracking import MlflowClient

from tests.support.agent_server import agent_server, follows_the_best
from tests.support.project import Project
from tests.support.stub_server import StubServer, serve

KEY = "sk-canary-agent-5678"


def script(body):
    name = body["response_format"]["json_schema"]["name"]
    if len(body["messages"]) == 1 and name != "update":
        return f"Is the key {KEY}?"
    if name == "family_size":
        return '{"ranking": ["large", "small"], "reason": "larger first"}'
    if name == "instances":
        chosen = {"instances": [{"model": "small", "count": 3}], "reason": "three"}
        return json.dumps({"combinations": [chosen]})
    return follows_the_best(body)


# One process, so one Prefect server: all stages; then, without the key, a method that needs no
# agent and one that does.
STAGES = """
import os
from ttsgraph_flows.init_family import init_family
from ttsgraph_flows.init_instances import init_instances
from ttsgraph_flows.pilot import pilot
from ttsgraph_flows.profile import profile_models
from ttsgraph_flows.sample import sample
from ttsgraph_flows.search import search
from ttsgraph.base.errors import EndpointError
for stage in (sample, profile_models, pilot, init_family, init_instances):
    stage("math")
search("math", "agent_reinforce")
del os.environ["AGENT_KEY"]
search("math", "random")
try:
    search("math", "agent_reinforce")
except EndpointError as error:
    print(error)
"""


@pytest.mark.slow
def test_an_agent_leads_all_stages_and_its_trace_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_KEY", KEY)
    stub = agent_server(script)
    with serve(StubServer(("small", "large"), skill=0.6)) as url, serve(stub) as agent_url:
        project = Project(tmp_path, url)
        project.profile["init"]["contest"] = {"enabled": False}  # with one, it chooses the start
        project.guided_by(agent_url, max_retries=0)
        done = project.run(sys.executable, "-c", STAGES)
    assert done.returncode == 0, done.stderr
    assert "AGENT_KEY, which is not set" in done.stdout.splitlines()[-1]
    results = tmp_path / "results" / "stub" / "math"
    preference, start = (
        json.loads((results / name).read_text()) for name in ("preference.json", "start.json")
    )
    assert (preference["models"], preference["reason"]) == (["large", "small"], "larger first")
    assert start["counts"] == {"small": 3}
    assert [e["stage"] for e in start["exchanges"]] == ["family_size"] * 2 + ["instances"] * 2
    summary = json.loads((results / "agent_reinforce" / "search.json").read_text())
    assert summary["agent_calls"] >= 1
    assert summary["agent_dollars"] == pytest.approx(summary["agent_tokens"] * 2e-6)
    mlflow = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    place = mlflow.get_experiment_by_name("stub/math").experiment_id
    finished = "attributes.run_name = 'agent_reinforce' and attributes.status = 'FINISHED'"
    (run,) = mlflow.search_runs([place], finished)
    run_id = run.info.run_id
    assert run.data.metrics["agent/calls"] == summary["agent_calls"]
    (tmp_path / "fetched").mkdir()
    monkeypatch.chdir(tmp_path)
    page = (tmp_path / mlflow.download_artifacts(run_id, "agent_trace.md", "fetched")).read_text()
    for part in (
        "1. family_size, attempt 1",
        "expected one JSON object with ranking",
        "3. instances",
        "5. update",
        "follow the best",
    ):
        assert part in page
