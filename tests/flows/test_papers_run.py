"""The paper's profile, small, in the four steps of the docs; GPUs and vLLM are stand-ins."""

import json
import os
import shutil
import subprocess
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
from tests.support.project import HANGS_S, ROOT, Copy
from tests.support.stub_server import serve

TASKS = ("math", "humaneval")


def with_gpus(folder: Path) -> dict[str, str]:
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
    return {
        "PATH": f"{driver.parent}{os.pathsep}",
        "HF_TOKEN": "given",
        "HF_HOME": str(folder / "hf"),
    }


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


def exchanges(start: Path) -> list[dict[str, Any]]:
    return json.loads(start.read_text())["exchanges"]


@pytest.mark.slow
def test_four_steps_lead_from_a_bare_machine_to_results(tmp_path: Path) -> None:
    project = Copy(tmp_path)  # the first: the code is there
    machine = with_gpus(tmp_path)
    environment = project.environment | machine | {"DEEPSEEK_API_KEY": "key"}  # the second: tokens
    environment["PATH"] = os.pathsep.join([machine["PATH"], project.environment["PATH"]])
    shutil.copy(ROOT / "profiles" / "laptop.yaml", tmp_path / "profiles")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANGS_S
        )

    with serve(agent_server(lambda body: NOTHING)) as agent_url:
        params = {"profile": "laptop", "tasks": list(TASKS), "methods": ["agent_reinforce"]}
        more = {"seed": 0, "tracking_uri": "sqlite:///mlflow.db"}
        project.write(params | more, "paper", small(agent_url))
        assert run("dvc", "init", "--no-scm", "-q").returncode == 0
        # The third: what `make repro PROFILE=paper` runs.
        done = run(sys.executable, "-m", "ttsgraph_flows.repro", "--profile", "paper")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Highs" not in done.stdout
    assert done.stdout.count("ok       server ") >= 6
    assert "the cache holds" in done.stdout
    for task in TASKS:
        folder = tmp_path / "results" / "paper" / task / "agent_reinforce"
        archive = pd.read_parquet(folder / "archive.parquet")
        assert set(archive["status"]) == {"ok"}
        assert archive["n_unscored"].sum() == 0
        assert json.loads((folder / "search.json").read_text())["found_by"].startswith("loop")
        assert (folder / "verdict.json").exists()
        asked = {each["stage"] for each in exchanges(folder.parent / "start.json")}
        assert {"family_size", "instances"} <= asked
        summary = json.loads((folder / "search.json").read_text())
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
