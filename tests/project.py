"""A copy of the project in a temporary folder, with a profile whose models are a stub server on a real socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
MODEL = {"family": "f", "total": 1e8, "non_embedding": 1e8, "layers": 2, "hidden": 8, "price": 0.1}


class Project:
    """Files and commands of a temporary copy."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self.folder = folder
        for name in ("flows", "pipeline"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("dvc.yaml", ".dvcignore", "ttsgraph.py"):
            shutil.copy(ROOT / name, folder)
        (folder / "profiles").mkdir()
        (folder / "inputs").mkdir()
        laptop = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
        laptop["pool"] = {
            "small": MODEL | {"base_url": base_url},
            "large": MODEL | {"base_url": base_url, "family": "g", "total": 2e8},
        }
        laptop["engine"] = {"kind": "external", "max_retries": 0}
        laptop["search"] |= {"max_iterations": 2, "patience": 2}
        laptop["tasks"] = {"math": laptop["tasks"]["math"]}
        laptop["tasks"]["math"]["splits"] = {"shots": 4, "train": 20, "val": 10, "test": 10}
        laptop["tasks"]["math"]["prompt"] = {"style": "few_shot"}
        self.profile: dict[str, Any] = laptop
        self.params: dict[str, Any] = {
            "profile": "stub",
            "tasks": ["math"],
            "methods": ["agent_reinforce", "random"],
            "seed": 0,
            "tracking_uri": "sqlite:///mlflow.db",
        }
        self.save()

    def save(self) -> None:
        """Write params.yaml and the profile."""
        (self.folder / "params.yaml").write_text(yaml.safe_dump(self.params))
        (self.folder / "profiles" / "stub.yaml").write_text(yaml.safe_dump(self.profile))

    def run(self, *command: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy, with the copy's code."""
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=timeout, env=self.environment, check=False
        )

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that commands in the copy have."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return os.environ | {"PYTHONPATH": str(self.folder), "PATH": path}

    def stage(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one stage alone."""
        return self.run(sys.executable, "-m", f"flows.{name}", *arguments)
