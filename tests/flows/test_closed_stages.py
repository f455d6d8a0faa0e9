"""From names, prices, a URL and a key's variable to a version in the registry: three closed models,
one of them choosy, all of them wordy.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pandas as pd
import pytest
import yaml

from tests.support.habits import refusing, words_of
from tests.support.project import ROOT, Copy
from tests.support.stub_server import StubServer, serve
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.dialect import Habits

LIMIT = 0.0015
KEY = "sesame-sesame-sesame"


class Wordy(StubServer):
    """Answers with as many words as its model is wordy, the last of them the answer; a token is a
    word.
    """

    words: ClassVar = {"large": 60, "middle": 30, "small": 40}

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        answer = super().completion(body, count)
        message = answer["choices"][0]["message"]
        message["content"] = " ".join(
            ["so"] * (self.words[body["model"]] - 1) + [message["content"]]
        )
        prompt = len(words_of(body).split())
        written = len(message["content"].split())
        answer["usage"] = {"prompt_tokens": prompt, "completion_tokens": written}
        answer["usage"]["total_tokens"] = prompt + written
        return answer


def settings(url: str) -> dict[str, Any]:
    """The laptop profile's, on three closed models."""
    found = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    middle = {"prompt": 0.4, "completion": 1.6}
    prices = {"large": {"prompt": 2, "completion": 8}, "middle": middle, "small": 0.1}
    pool = {
        name: {"price": price, "base_url": url, "api_key_env": "CLOSED_KEY"}
        for name, price in prices.items()
    }
    task = found["tasks"]["math"] | {
        "splits": {"train": 20, "val": 10, "test": 10},
        "prompt": {"style": "chat"},
    }
    task["sampling"] = {"temperature": 0.9, "max_tokens": 200}
    task["lengths"] = {"prompt_tokens": 40, "generated_tokens": 4}  # ten times too short
    found |= {
        "engine": {"kind": "external", "max_retries": 0},
        "pool": pool,
        "tasks": {"math": task},
    }
    found["budget"] = {"metric": "dollars", "limit": LIMIT, "max_nodes": 12}
    found["search"] |= {"max_iterations": 2, "patience": 2}
    found["evaluate"] = {"ablation": 0}
    return found


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory):
    """A project on a stub whose large model refuses temperature, max_tokens and system roles,
    rebuilt by `make repro`'s program.
    """
    stub = Wordy(("large", "middle", "small"), skill=0.6)
    stub.misbehave = refusing(("temperature", "max_tokens"), system=True, model="large")
    with serve(stub) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOSED_KEY", KEY)
        project = Copy(tmp_path_factory.mktemp("closed"))
        params = {"profile": "closed", "tasks": ["math"], "methods": ["random"], "seed": 0}
        params["tracking_uri"] = "sqlite:///mlflow.db"
        project.write(params, "closed", settings(url))
        project.run("dvc", "init", "--no-scm", "-q")
        doctor = project.ttsgraph("doctor")
        done = project.stage("repro")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        yield project, stub, doctor, done, url


pytestmark = pytest.mark.slow


def test_the_doctor_says_what_each_model_takes(rebuilt):
    doctor = rebuilt[2]
    assert doctor.returncode == 0, doctor.stdout
    (large,) = [line for line in doctor.stdout.splitlines() if "model large" in line]
    assert (
        "asked without temperature; max_completion_tokens for max_tokens; system messages in the"
        " user's turn" in large
    )


def test_every_model_is_asked_in_the_way_it_wants(rebuilt):
    project, stub, _, _, url = rebuilt
    refused = [body for body in stub.requests if stub.misbehave(0, body) is not None]
    assert len(refused) == 3  # all of them the doctor's
    assert not Habits(project.folder / ".ttsgraph" / "endpoints.json").get(f"{url} large").system
    assert all("temperature" in body for body in stub.requests if body["model"] != "large")
    assert {headers["authorization"] for headers in stub.headers} == {f"Bearer {KEY}"}


def test_lengths_that_are_off_are_told_with_both_numbers_and_not_gone_by(rebuilt):
    project, _, _, done, _ = rebuilt
    (told,) = [line for line in (done.stdout + done.stderr).splitlines() if "warning: len" in line]
    assert "small: " in told
    assert "generated_tokens 4, measured 40.0" in told
    profile = pd.read_parquet(
        project.folder / "results" / "closed" / "math" / "profile.parquet"
    ).set_index("model")
    assert profile.loc["small", "mean_completion_tokens"] == 40
    assert profile.loc["small", "mean_read_tokens"] > 40
    assert profile.loc["small", "budget_units"] == pytest.approx(
        profile.loc["small", "dollars"] / 20
    )


def test_a_rebuild_ends_with_the_answer_and_logs_a_line_a_stage(rebuilt):
    project, _, _, done, _ = rebuilt
    told = json.loads((project.folder / "reports" / "closed" / "answers.json").read_text())[
        "tasks"
    ][0]
    *_, last = done.stdout.strip().splitlines()
    assert last == "report: reports/closed/index.html"
    ending = done.stdout[done.stdout.rindex("math: ") :]
    assert told["sentence"] in ending
    assert "$" in told["sentence"]
    assert "ttsgraph serve math@champion" in ending
    lines = (done.stdout + done.stderr).splitlines()
    for stage in ("profile math", "pilot math", "init_instances math", "search math random"):
        assert len([line for line in lines if line.startswith(stage)]) == 1, stage


def test_no_graph_costs_more_than_the_budget_that_was_asked_for(rebuilt):
    folder = rebuilt[0].folder / "results" / "closed" / "math"
    archive = pd.read_parquet(folder / "random" / "archive.parquet")
    asked = archive["n_scored"] + archive["n_unscored"]
    assert (archive["budget_units"] <= LIMIT).all()
    assert (archive["dollars"] / asked <= LIMIT).all()
    # What a graph is taken to cost is what it costs at most, and not far above.
    ratio = archive["dollars"] / asked / archive["budget_units"]
    assert 0.6 < ratio.min() <= ratio.max() <= 1
    found = CollaborationGraph.read(folder / "random" / "graph.json")
    assert len(found.nodes) > 1
    test = pd.read_parquet(folder / "random" / "test.parquet")
    assert (test["dollars"] / 10 <= LIMIT).all()
