"""A simulated profile through the stages: what they make says that it is simulated."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml
from mlflow.tracking import MlflowClient

from tests.support.project import ROOT, Project
from tests.support.simulated_project import SimulatedProject
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import parse
from ttsgraph.settings.profile import Profile, load_profile

SIMULATED = yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())


@pytest.mark.slow
def test_the_pictures_of_a_simulated_pilot_say_so(searched: SimulatedProject) -> None:
    plots = sorted((searched.results / "pilot_plots").glob("*.svg"))
    assert len(plots) > 3
    assert all(">simulated<" in plot.read_text() for plot in plots)


@pytest.mark.slow
def test_a_search_after_a_contest_loops_and_says_who_found_its_graph(tmp_path: Path) -> None:
    project = Project(tmp_path, "http://127.0.0.1:9/v1")
    tasks = SIMULATED["tasks"]
    math = tasks["math"] | {"splits": {"train": 60, "val": 20, "test": 20}}
    settings = SIMULATED | {
        "tasks": {"math": math},
        "pilot": {"questions": 4, "widths": [1], "depths": [1], "max_nodes": 2},
        "budget": {"metric": "flops", "limit": 18, "max_nodes": 12},
        "init": {"contest": {"calls": 900}},
        "search": {"max_iterations": 6, "patience": 5, "candidates": 2, "batch": 8},
        "simulation": {"tasks": {"math": SIMULATED["simulation"]["tasks"]["math"]}},
    }
    (tmp_path / "profiles" / "simulated.yaml").write_text(yaml.safe_dump(settings))
    project.params["profile"] = "simulated"
    project.save()
    for stage in ("sample", "profile", "pilot", "init_family", "init_instances"):
        done = project.stage(stage, "--task", "math")
        assert done.returncode == 0, done.stderr
    done = project.stage("search", "--task", "math", "--method", "agent_reinforce")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "results" / "simulated" / "math" / "agent_reinforce"
    archive = pd.read_parquet(folder / "archive.parquet")
    assert archive[archive["split"] == "train"]["iteration"].nunique() >= 5
    assert pd.read_parquet(folder / "edges.parquet")["iteration"].nunique() >= 5
    summary = json.loads((folder / "search.json").read_text())
    run = json.loads((folder / "run.json").read_text())["run_id"]
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    parent = client.get_run(run).data
    assert parent.tags["found_by"] == summary["found_by"]
    credited = archive.set_index("graph_hash")["found_by"].to_dict()
    assert credited[summary["found_hash"]] == summary["found_by"]
    assert parent.params["search.batch"] == "8"


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
