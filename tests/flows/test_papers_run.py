"""The paper's profile, small, in the four steps of the docs; GPUs and vLLM are stand-ins."""

import json
import os
import shutil
import sys
import venv
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import yaml
from mlflow import MlflowClient

from tests.support.agent_server import NOTHING, agent_server
from tests.support.processes import said_by
from tests.support.project import ROOT, Copy
from tests.support.stub_server import serve

TASKS = ("math", "humaneval")


def with_gpus(folder: Path) -> Path:
    """Put stand-ins for two GPUs and vLLM there; return the folder of the driver's command."""
    driver = folder / "bin" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text("#!/bin/sh\necho 81920\necho 81920\n")
    driver.chmod(0o755)
    venv.create(folder / ".venv-serve", symlinks=True)
    (packages,) = (folder / ".venv-serve").glob("lib/python*/site-packages")
    server = packages / "vllm" / "entrypoints" / "cli"
    server.mkdir(parents=True)
    support = ROOT / "tests" / "support"
    shutil.copy(support / "stub_vllm.py", server / "main.py")
    shutil.copy(support / "stub_server.py", server)
    known = packages / "vllm-0.32.0.dist-info"
    known.mkdir()
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
    return driver.parent


def small(agent_url: str) -> dict[str, Any]:
    """The paper's profile with few questions that need no hub, led by an agent at this URL."""
    paper = yaml.safe_load((ROOT / "profiles" / "paper.yaml").read_text())
    laptop = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    for name, task in paper["tasks"].items():
        task["source"] = laptop["tasks"][name]["source"]
        task["splits"] = {"train": 8, "val": 4, "test": 6}
    paper["pilot"] = {"questions": 2, "widths": [1, 2], "depths": [1], "max_nodes": 3}
    paper["budget"] |= {"limit": 18, "max_nodes": 18}
    paper["init"] = {"questions": 2, "candidates": 2, "topologies": 1}
    paper["search"] |= {"max_iterations": 2, "candidates": 2, "batch": 4}
    paper["evaluate"] = {"ablation": 4}
    paper["agent"] |= {"base_url": agent_url, "model": "guide"}
    return paper


@pytest.mark.slow
def test_four_steps_lead_from_a_bare_machine_to_results(tmp_path):
    project = Copy(tmp_path)  # the first: the code is there
    tokens = {"DEEPSEEK_API_KEY": "key", "HF_TOKEN": "given", "HF_HOME": str(tmp_path / "hf")}
    environment = project.environment | tokens  # the second
    environment["PATH"] = f"{with_gpus(tmp_path)}{os.pathsep}{environment['PATH']}"
    shutil.copy(ROOT / "profiles" / "laptop.yaml", tmp_path / "profiles")

    with serve(agent_server(lambda body: NOTHING)) as agent_url:
        params = {"profile": "laptop", "tasks": list(TASKS), "methods": ["agent_reinforce"]}
        more = {"seed": 0, "tracking_uri": "sqlite:///mlflow.db"}
        project.write(params | more, "paper", small(agent_url))
        project.said_by("dvc", "init", "--no-scm", "-q")
        # The third: what `make repro PROFILE=paper` runs.
        repro = [sys.executable, "-m", "ttsgraph_flows.repro", "--profile", "paper"]
        said = said_by(repro, tmp_path, environment)
    assert "Highs" not in said
    assert said.count("ok       server ") >= 6
    assert "the cache holds" in said
    for task in TASKS:
        folder = tmp_path / "results" / "paper" / task / "agent_reinforce"
        archive = pd.read_parquet(folder / "archive.parquet")
        assert set(archive["status"]) == {"ok"}
        assert archive["n_unscored"].sum() == 0
        assert (folder / "verdict.json").exists()
        start = json.loads((folder.parent / "start.json").read_text())
        assert {"family_size", "instances"} <= {each["stage"] for each in start["exchanges"]}
        summary = json.loads((folder / "search.json").read_text())
        assert summary["found_by"].startswith("loop")
        assert summary["agent_dollars"] > 0
        mlflow = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
        place = mlflow.get_experiment_by_name(f"paper/{task}").experiment_id
        (run,) = mlflow.search_runs([place], "attributes.run_name = 'agent_reinforce'")
        assert run.data.metrics["agent/calls"] == summary["agent_calls"] >= 1
    # The fourth: look.
    assert (tmp_path / "reports" / "index.html").exists()
    left = psutil.process_iter(["cmdline", "cwd"])
    here = [one.info["cmdline"] for one in left if one.info["cwd"] == str(tmp_path)]
    assert here == []
