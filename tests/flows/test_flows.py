"""The stages and `make repro` for real, except that the language model is a stub server on a real
socket.
"""

import json
import re
import shutil

import pandas as pd
import pytest
from mlflow.tracking import MlflowClient

from tests.support.processes import refusing
from tests.support.project import Project
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.files import md5
from ttsgraph.settings.profile import load_profile
from ttsgraph.stages.records import Searched, write_record
from ttsgraph.stages.schemas import Candidates, check
from ttsgraph_flows.lineage import check_candidates

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A project in which everything has been rebuilt once."""
    stub = StubServer(("small", "large"), skill=0.6)
    with serve(stub) as url:
        project = Project(tmp_path_factory.mktemp("project"), url)
        assert project.run("dvc", "init", "--no-scm", "-q").returncode == 0
        done = project.run("python", "-m", "ttsgraph_flows.repro")
        assert done.returncode == 0, done.stdout + done.stderr
        yield project, stub


def stages_run(output: str) -> list[str]:
    return re.findall(r"Running stage '([^']+)'", output)


def results(project: Project, method: str):
    return project.folder / "results" / "stub" / "math" / method


@pytest.mark.parametrize("method", ["agent_reinforce", "random"])
def test_rows_in_the_archive_are_steps_and_rows_of_the_run_in_mlflow(built, method):
    project, _ = built
    folder = results(project, method)
    archive = check(pd.read_parquet(folder / "archive.parquet"), Candidates, "archive")
    summary = json.loads((folder / "search.json").read_text())
    run_id = json.loads((folder / "run.json").read_text())["run_id"]
    client = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")
    parent = client.get_run(run_id)
    check_candidates(client, run_id, archive)
    assert len(archive) == summary["candidates"]
    assert {"train/accuracy_low", "val/latency_s", "val/budget_units"} <= set(parent.data.metrics)
    assert parent.info.status == "FINISHED"
    assert "test_found_accuracy" in parent.data.metrics
    assert {"search/candidates", "spent/tokens", "agent/calls", "val_accuracy"} <= set(
        parent.data.metrics
    )
    assert {"budget.metric", "budget.limit", "search.batch"} <= set(parent.data.params)
    assert "right (" in parent.data.tags["mlflow.note.content"]
    assert parent.data.tags["found_by"] == summary["found_by"]


def test_the_questions_are_the_runs_input_under_their_dvc_hash(built):
    project, _ = built
    run_id = json.loads((results(project, "random") / "run.json").read_text())["run_id"]
    run = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}").get_run(run_id)
    digest = run.inputs.dataset_inputs[0].dataset.digest
    assert digest == md5(project.folder / "data" / "stub" / "math" / "questions.parquet")
    assert digest in (project.folder / "dvc.lock").read_text()


def test_the_report_says_when_programs_ran_with_weaker_isolation(built, tmp_path):
    whole, _ = built
    project = Project(tmp_path, "http://127.0.0.1:9/v1")
    for name in ("data", "results"):
        shutil.copytree(whole.folder / name, project.folder / name)
    summary = json.loads((results(project, "random") / "search.json").read_text())
    assert summary["isolation_missing"] == {}
    del summary["checksum"]
    write_record(
        Searched,
        results(project, "random") / "search.json",
        summary | {"isolation_missing": {"files": "not here"}},
    )
    assert project.stage("report").returncode == 0
    page = (project.folder / "reports" / "stub" / "index.html").read_text()
    assert page.count("Weaker isolation.") == 1
    assert "this was missing: files" in page


def test_nothing_changed_means_nothing_runs_and_no_call_is_made(built):
    project, stub = built
    before = len(stub.requests)
    done = project.run("python", "-m", "ttsgraph_flows.repro")
    assert done.returncode == 0
    assert stages_run(done.stdout) == []
    assert len(stub.requests) == before


def test_a_search_parameter_reruns_search_and_what_follows_only(built):
    project, _ = built
    project.profile["search"]["patience"] = 1
    project.save()
    done = project.run("python", "-m", "ttsgraph_flows.repro")
    assert done.returncode == 0, done.stderr
    assert {name.split("@")[0] for name in stages_run(done.stdout)} <= {
        "identity",
        "search",
        "evaluate",
        "report",
    }
    assert "search@math-random" in stages_run(done.stdout)


def test_a_stage_runs_alone_and_answers_from_the_call_cache(built):
    project, stub = built
    before = len(stub.requests)
    first = (results(project, "random") / "graph.json").read_text()
    done = project.stage("search", "--task", "math", "--method", "random")
    assert done.returncode == 0, done.stderr
    assert len(stub.requests) == before
    assert (results(project, "random") / "graph.json").read_text() == first
    assert "search math random" in done.stderr


class TestBadInputGetsOneLineAndExitCode2:
    def fails(self, done, *expected: str) -> None:
        assert done.returncode == 2, done.stdout + done.stderr
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
        assert "Traceback" not in done.stderr
        for part in expected:
            assert part in lines[-1]

    @pytest.fixture
    def project(self, tmp_path):
        return Project(tmp_path, "http://127.0.0.1:9/v1")

    def test_a_stage_before_its_inputs(self, project):
        self.fails(
            project.stage("profile", "--task", "math"),
            "questions.parquet",
            "the stage 'sample' makes it",
        )

    def test_unknown_task_method_and_key(self, project, built):
        self.fails(project.stage("sample", "--task", "chess"), "unknown task 'chess'")
        whole, _ = built
        self.fails(
            whole.stage("search", "--task", "math", "--method", "magic"),
            "unknown method 'magic'; known methods",
        )
        project.profile["pool"]["small"]["colour"] = "red"
        project.save()
        self.fails(
            project.stage("sample", "--task", "math"), "stub.yaml: unknown key 'pool.small.colour'"
        )

    def test_budget_below_one_call_is_found_before_anything_runs(self, project):
        project.profile["budget"]["limit"] = 0.1
        project.save()
        self.fails(project.run("python", "-m", "ttsgraph_flows.repro"), "holds no call")

    def test_a_folder_that_dvc_does_not_keep(self, project):
        self.fails(
            project.run("python", "-m", "ttsgraph_flows.repro"),
            "not inside of a DVC repository",
            "`dvc init --no-scm` first",
        )

    def test_a_file_where_a_folder_has_to_be(self, project):
        (project.folder / "data").touch()
        self.fails(
            project.stage("sample", "--task", "math"),
            "data",
            "expected to use this place",
            "move away what stands there",
        )

    @pytest.mark.parametrize(
        "uri", ["postgresql://127.0.0.1:9/none", "sqlite:///dvc.yaml/mlflow.db"]
    )
    def test_a_tracking_uri_that_cannot_be_opened(self, project, uri):
        project.params["tracking_uri"] = uri
        project.save()
        self.fails(
            project.ttsgraph("promote", "math/1"), f"MLflow at tracking_uri '{uri}' (params.yaml)"
        )

    def test_missing_data_file_and_question_without_an_answer(self, project):
        project.profile["tasks"]["math"]["source"] = {"kind": "jsonl", "path": "mine.jsonl"}
        project.save()
        self.fails(project.stage("sample", "--task", "math"), "mine.jsonl")
        (project.folder / "mine.jsonl").write_text(
            '{"question": "1 + 1", "answer": "2"}\n{"question": "1 + 2"}\n'
        )
        self.fails(project.stage("sample", "--task", "math"), "mine.jsonl", "2", "answer")

    def test_programs_that_cannot_be_isolated_are_refused_before_any_call(self, project):
        humaneval = load_profile("laptop").model_dump(mode="json")["tasks"]["humaneval"]
        project.profile["tasks"]["humaneval"] = humaneval
        project.save()
        assert project.stage("sample", "--task", "humaneval").returncode == 0
        program = (
            "import runpy, sys\nsys.argv[1:] = ['--task',"
            " 'humaneval']\nrunpy.run_module('ttsgraph_flows.profile', run_name='__main__')"
        )
        done = project.run(*refusing(["landlock_create_ruleset"], program))
        self.fails(done, "can't be isolated here (files: ", "sandbox.accept_weaker: true")
        project.profile["sandbox"] = {"accept_weaker": True}
        project.save()
        self.fails(
            project.run(*refusing(["landlock_create_ruleset"], program)),
            "127.0.0.1:9",
            "Connection error",
        )

    def test_endpoint_that_refuses_loses_nothing(self, project):
        assert project.stage("sample", "--task", "math").returncode == 0
        questions = project.folder / "data" / "stub" / "math" / "questions.parquet"
        before = md5(questions)
        self.fails(project.stage("profile", "--task", "math"), "127.0.0.1:9", "Connection error")
        assert md5(questions) == before


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
    folder = project.folder / "results" / "stub" / "math"
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


def test_a_limit_ends_a_search_with_a_code_of_its_own_and_a_higher_one_goes_on(built):
    project, _ = built
    project.profile["search"]["batch"] += (
        1  # another search, with calls that the cache has not seen
    )
    project.profile["limits"] = {"tokens": 1}
    project.save()
    done = project.stage("search", "--task", "math", "--method", "random")
    assert done.returncode == 4, done.stderr
    assert done.stderr.splitlines()[-1].startswith("stopped: limits.tokens of 1 reached")
    assert "Traceback" not in done.stderr
    project.profile["limits"] = {"tokens": 10**9, "dollars": 100, "wall_s": 10_000}
    project.save()
    done = project.stage("search", "--task", "math", "--method", "random")
    assert done.returncode == 0, done.stderr
    summary = json.loads((results(project, "random") / "bookkeeping" / "search.json").read_text())
    assert summary["spent_tokens"] >= 1
    assert summary["spent_seconds"] > 0
    assert "4 a limit of the profile was reached" in " ".join(
        project.stage("search", "--help").stdout.split()
    )
