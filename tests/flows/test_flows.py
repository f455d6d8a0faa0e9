"""The stages and `make repro` for real, but for a stub server as the language model."""

import json
from contextlib import chdir
from pathlib import Path
from typing import Any, ClassVar

import mlflow
import pandas as pd
import pytest

from tests.support.habits import refusing as refusing_parameters
from tests.support.habits import words_of
from tests.support.processes import refusing
from tests.support.project import Project
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.files import md5
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.settings.profile import load_profile
from ttsgraph.stages.schemas import Candidates, check
from ttsgraph_flows.stage import load_stage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect")]


LIMIT = 0.0015


class Wordy(StubServer):
    """Answers with as many words as its model is wordy; a token is a word."""

    words: ClassVar = {"large": 60, "middle": 30, "small": 40}

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        answer = super().completion(body, count)
        message = answer["choices"][0]["message"]
        message["content"] = "so " * (self.words[body["model"]] - 1) + message["content"]
        read, written = (len(text.split()) for text in (words_of(body), message["content"]))
        usage = {"prompt_tokens": read, "completion_tokens": written}
        return answer | {"usage": usage | {"total_tokens": read + written}}


CLOSED_TASK = {
    "splits": {"train": 20, "val": 10, "test": 10},
    "prompt": {"style": "chat"},
    "sampling": {"temperature": 0.9, "max_tokens": 200},
    "lengths": {"prompt_tokens": 40, "generated_tokens": 4},  # ten times too short
}
PRICES = {"large": {"prompt": 2, "completion": 8}, "middle": {"prompt": 0.4, "completion": 1.6}}
PRICES |= {"small": 0.1}
BUDGET = {"metric": "dollars", "limit": LIMIT, "max_nodes": 12}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Rebuilt on three closed models; the large one refuses temperature, max_tokens and system
    roles.
    """
    stub = Wordy(("large", "middle", "small"), skill=0.6)
    stub.misbehave = refusing_parameters(("temperature", "max_tokens"), system=True, model="large")
    with serve(stub) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOSED_KEY", "sesame-sesame-sesame")
        project = Project(tmp_path_factory.mktemp("project"), url)
        there = {"base_url": url, "api_key_env": "CLOSED_KEY"}
        project.profile["pool"] = {name: there | {"price": PRICES[name]} for name in PRICES}
        project.profile["tasks"]["math"] |= CLOSED_TASK
        project.profile |= {"budget": BUDGET, "evaluate": {"ablation": 0}}
        project.save()
        project.said_by("dvc", "init", "--no-scm", "-q")
        assert project.ttsgraph("doctor").returncode == 0  # it learns what the large one refuses
        done = project.stage("repro")
        assert done.returncode == 0, done.stdout + done.stderr
        yield project, stub, done


RESULTS = Path("results", "stub", "math")


@pytest.mark.parametrize("method", ["agent_reinforce", "random"])
def test_rows_in_the_archive_are_steps_and_rows_of_the_run_in_mlflow(built, method):
    project = built[0]
    folder = project.folder / RESULTS / method
    archive = check(pd.read_parquet(folder / "archive.parquet"), Candidates, "archive")
    summary = json.loads((folder / "search.json").read_text())
    mlflow.set_tracking_uri(f"sqlite:///{project.folder}/mlflow.db")  # by which it finds tables
    client = mlflow.MlflowClient()
    place = client.get_experiment_by_name("stub/math").experiment_id
    (parent,) = client.search_runs([place], f"attributes.run_name = '{method}'")
    run_id = parent.info.run_id
    table = client.load_table(parent.info.experiment_id, "table.json", [run_id])
    assert list(table["graph_hash"]) == list(archive["graph_hash"])
    logged = {
        each.step: each.value
        for split in ("train", "val")
        for each in client.get_metric_history(run_id, f"{split}/n_scored")
    }
    assert logged == dict(zip(archive["candidate_id"], archive["n_scored"], strict=True))
    assert len(archive) == summary["candidates"]
    assert parent.info.status == "FINISHED"
    series = {"train/accuracy_low", "val/latency_s", "val/budget_units"}
    figures = {"search/candidates", "spent/tokens", "agent/calls", "val_accuracy"}
    assert series | figures | {"test_found_accuracy"} <= set(parent.data.metrics)
    assert {"budget.metric", "budget.limit", "search.batch"} <= set(parent.data.params)
    assert "right (" in parent.data.tags["mlflow.note.content"]
    assert parent.data.tags["found_by"] == summary["found_by"]
    digest = parent.inputs.dataset_inputs[0].dataset.digest
    assert digest == md5(project.folder / "data" / "stub" / "math" / "questions.parquet")
    assert digest in (project.folder / "dvc.lock").read_text()


def test_a_rebuild_logs_a_line_a_stage_and_ends_with_the_answer_that_mlflow_has(built):
    folder, done = built[0].folder, built[2]
    lines = (done.stdout + done.stderr).splitlines()
    for stage in ("profile math", "pilot math", "init_instances math", "search math random"):
        assert len([line for line in lines if line.startswith(stage)]) == 1, stage
    answers = json.loads((folder / "reports" / "stub" / "answers.json").read_text())["tasks"][0]
    assert "$" in answers["sentence"]
    ending = done.stdout[done.stdout.rindex("math: ") :]
    assert answers["sentence"] in ending
    assert "ttsgraph serve math@champion" in ending
    assert ending.strip().endswith("report: reports/stub/index.html")
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    version = client.get_model_version_by_alias("ttsgraph-math", "champion")
    assert answers["sentence"] in version.description
    assert f"/runs/{version.run_id})" in version.description
    assert all(" | ".join(row) in version.description for row in answers["rows"])
    assert "math" in client.get_registered_model("ttsgraph-math").description


def test_no_graph_costs_more_than_the_budget_that_was_asked_for(built):
    folder = built[0].folder / RESULTS
    small = pd.read_parquet(folder / "profile.parquet").set_index("model").loc["small"]
    assert small["mean_completion_tokens"] == 40  # measured, not what the settings say
    assert small["budget_units"] == pytest.approx(small["dollars"] / 20)
    archive = pd.read_parquet(folder / "random" / "archive.parquet")
    asked = archive["n_scored"] + archive["n_unscored"]
    assert (archive["budget_units"] <= LIMIT).all()
    # What a graph is taken to cost is what it costs at most, and mostly not far above: the cost of
    # one that asks on demand depends on the answers.
    ratio = archive["dollars"] / asked / archive["budget_units"]
    assert 0.8 < ratio.median() <= ratio.max() <= 1
    assert len(CollaborationGraph.read(folder / "random" / "graph.json").nodes) > 1
    test = pd.read_parquet(folder / "random" / "test.parquet")
    assert (test["dollars"] / 10 <= LIMIT).all()


def test_nothing_changed_means_no_call_also_where_a_stage_runs_alone(built):
    project, stub, _ = built
    before = len(stub.requests)
    graph = project.folder / RESULTS / "random" / "graph.json"
    first = graph.read_text()
    done = project.run("python", "-m", "ttsgraph_flows.repro")
    assert (done.returncode, "Running stage" in done.stdout) == (0, False)
    done = project.stage("search", "--task", "math", "--method", "random")
    assert done.returncode == 0, done.stderr
    assert len(stub.requests) == before
    assert graph.read_text() == first
    assert "search math random" in done.stderr


def fails(done, *expected: str) -> None:
    """Whether a command ended with exit code 2 and one line that has these parts."""
    assert done.returncode == 2, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    assert "Traceback" not in done.stderr
    assert [part for part in expected if part not in lines[-1]] == []


@pytest.fixture
def bare(tmp_path):
    """A project in which nothing was run, whose models are not there."""
    return Project(tmp_path, "http://127.0.0.1:9/v1")


def test_a_stage_says_what_is_wrong_with_names_and_settings(bare, built):
    fails(bare.stage("profile", "--task", "math"), "questions.parquet", "the stage 'sample' makes")
    fails(bare.stage("sample", "--task", "chess"), "unknown task 'chess'")
    magic = built[0].stage("search", "--task", "math", "--method", "magic")
    fails(magic, "unknown method 'magic'; known methods")
    (bare.folder / "data").touch()
    fails(
        bare.stage("sample", "--task", "math"), "Not a directory", "move away what is in its place"
    )
    bare.profile["pool"]["small"]["colour"] = "red"
    bare.save()
    fails(bare.stage("sample", "--task", "math"), "stub.yaml: unknown key 'pool.small.colour'")


def test_a_stage_that_runs_here_already_is_not_started_again(bare):
    assert bare.stage("sample", "--task", "math").returncode == 0
    with chdir(bare.folder), load_stage("math").metered("profile"):
        fails(bare.stage("profile", "--task", "math"), "another run works here")


def test_a_folder_that_dvc_does_not_keep(bare):
    done = bare.run("python", "-m", "ttsgraph_flows.repro")
    fails(done, "not inside of a DVC repository", "`dvc init --no-scm` first")


def test_programs_that_cannot_be_isolated_are_refused_before_any_call(bare):
    humaneval = load_profile("laptop").model_dump(mode="json")["tasks"]["humaneval"]
    bare.profile["tasks"]["humaneval"] = humaneval
    bare.save()
    assert bare.stage("sample", "--task", "humaneval").returncode == 0
    program = "import runpy, sys\nsys.argv[1:] = ['--task', 'humaneval']\n"
    program += "runpy.run_module('ttsgraph_flows.profile', run_name='__main__')"
    without_landlock = refusing(["landlock_create_ruleset"], program)
    done = bare.run(*without_landlock)
    fails(done, "can't be isolated here (files: ", "sandbox.accept_weaker: true")
    bare.profile["sandbox"] = {"accept_weaker": True}
    bare.save()
    fails(bare.run(*without_landlock), "no server at http://127.0.0.1:9")


def test_an_endpoint_that_dies_stops_the_run_with_its_state_kept(tmp_path):
    stub = StubServer(("small", "large"), skill=0.6)
    with serve(stub) as url:
        project = Project(tmp_path, url)
        assert project.stage("sample", "--task", "math").returncode == 0
        stub.misbehave = lambda count, body: (500, {}, "{}") if count > 10 else None
        done = project.stage("profile", "--task", "math")
        assert done.returncode == 3
        assert done.stderr.splitlines()[-1].startswith("stopped: ")
        stub.misbehave = lambda count, body: None
        assert project.stage("profile", "--task", "math").returncode == 0
    folder = project.folder / RESULTS
    assert pd.read_parquet(folder / "bookkeeping" / "profile.parquet")["cached_calls"].sum() == 10
    assert pd.read_parquet(folder / "profile.parquet")["n_unscored"].sum() == 0


def test_a_prefect_server_that_is_away_stops_a_stage_with_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    done = Project(tmp_path, "http://127.0.0.1:9/v1").stage("sample", "--task", "math")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "stopped: Failed to reach API at http://127.0.0.1:9/api"
    )
    assert "unset PREFECT_API_URL" in done.stderr.splitlines()[-1]


def test_a_limit_ends_a_search_with_a_code_of_its_own(built):
    project = built[0]
    project.profile["search"]["batch"] += 1  # with calls that the cache has not seen
    project.profile["limits"] = {"tokens": 1}
    project.save()
    done = project.stage("search", "--task", "math", "--method", "random")
    assert done.returncode == 4, done.stderr
    assert done.stderr.splitlines()[-1].startswith("stopped: limits.tokens of 1 reached")
    assert "Traceback" not in done.stderr
