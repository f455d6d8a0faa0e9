"""Copies of the project in a temporary folder, on a stub server or without models."""

import fcntl
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
import yaml

from lab import python_path
from tests.support.processes import HANGS_S as HANGS_S
from tests.support.processes import ran, said_by

ROOT = Path(__file__).parents[2]
Made = TypeVar("Made")
MODEL = {"family": "f", "total": 1e8, "non_embedding": 1e8, "layers": 2, "hidden": 8, "price": 0.1}


def merged(old: Any, new: Any) -> Any:
    """Settings with changes at any depth; None takes a key out."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    found = old | {key: merged(old.get(key), value) for key, value in new.items()}
    return {key: value for key, value in found.items() if value is not None}


def copy_folder(name: str, to: Path) -> None:
    shutil.copytree(
        ROOT / name, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
    )


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]) -> Made:
    """Make something in a folder, in the first of the processes that want it; return it to all."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    made = shared / f"{name}.pickle"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            made.write_bytes(pickle.dumps(make(factory.mktemp(name))))
    found: Made = pickle.loads(made.read_bytes())
    return found


@cache
def _empty_database() -> bytes:
    from ttsgraph_flows.tracking import make_database  # which few tests need

    with TemporaryDirectory() as folder:
        file = Path(folder) / "mlflow.db"
        make_database(file)
        return file.read_bytes()


def database_in(folder: Path) -> str:
    """The URI of a folder's MLflow database, a copy of one that was made once."""
    (folder / "mlflow.db").write_bytes(_empty_database())
    return f"sqlite:///{folder}/mlflow.db"


@contextmanager
def one_prefect_server(state: Path) -> Iterator[None]:
    """A Prefect server for all stages that are started meanwhile: without it each starts its own,
    which takes longer than most of them.
    """
    from ttsgraph_flows.repro import prefect_server  # which takes a second that few tests need

    with prefect_server(state) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_API_URL", url)
        yield


def laptop_on(pool: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """The laptop profile's settings on a pool of endpoints, with these sections."""
    settings: dict[str, Any] = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    external = {"engine": {"kind": "external", "max_retries": 0}, "pool": pool}
    return settings | external | sections


class Copy:
    """The code of a temporary copy, and commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("checker", "flows", "pipeline", "plugins", "reader", "requirements"):
            copy_folder(name, folder)
        for name in ("dvc.yaml", ".dvcignore"):
            shutil.copy(ROOT / name, folder)
        (folder / "profiles").mkdir()
        (folder / "inputs").mkdir()
        (folder / "inputs" / "README.md").write_text("nothing yet\n")

    def write(self, params: dict[str, Any], profile: str, settings: dict[str, Any]) -> None:
        (self.folder / "params.yaml").write_text(yaml.safe_dump(params))
        (self.folder / "profiles" / f"{profile}.yaml").write_text(yaml.safe_dump(settings))

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return os.environ | {"PYTHONPATH": python_path(self.folder), "PATH": path}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy, with the copy's code."""
        return ran(command, self.folder, self.environment)

    def said_by(self, *command: str) -> str:
        """What a command prints that has to succeed."""
        return said_by(command, self.folder, self.environment)

    def stage(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", f"ttsgraph_flows.{name}", *arguments)

    def ttsgraph(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "ttsgraph", *arguments)

    @contextmanager
    def ready_to_search(self) -> Iterator[None]:
        """Math up to the start of its search, and a Prefect server for the stages."""
        with one_prefect_server(self.folder / ".ttsgraph"):
            for stage in ("sample", "profile", "pilot", "init_family", "init_instances"):
                self.said_by(sys.executable, "-m", f"ttsgraph_flows.{stage}", "--task", "math")
            yield


class Project(Copy):
    """A copy with the profile `stub`, whose models are served at a URL."""

    def __init__(self, folder: Path, base_url: str) -> None:
        super().__init__(folder)
        large = {"base_url": base_url, "family": "g", "total": 2e8}
        laptop = laptop_on({"small": MODEL | {"base_url": base_url}, "large": MODEL | large})
        laptop["search"] |= {"max_iterations": 2, "patience": 2}
        splits = {"shots": 4, "train": 20, "val": 10, "test": 10}
        math = laptop["tasks"]["math"] | {"splits": splits, "prompt": {"style": "few_shot"}}
        self.profile: dict[str, Any] = laptop | {"tasks": {"math": math}}
        self.params: dict[str, Any] = {"profile": "stub", "tasks": ["math"], "seed": 0}
        self.params["methods"] = ["agent_reinforce", "random"]
        self.params["tracking_uri"] = "sqlite:///mlflow.db"
        self.save()

    def save(self) -> None:
        self.write(self.params, "stub", self.profile)

    def guided_by(self, agent_url: str, **more: Any) -> None:
        """Let the search be led by a language model, whose key is in AGENT_KEY."""
        agent = {"base_url": agent_url, "model": "guide", "price": 2}
        self.profile["agent"] = agent | {"api_key_env": "AGENT_KEY"} | more
        self.save()
