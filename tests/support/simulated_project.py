"""A small project under the simulated profile, its stages run in this process."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import chdir, closing, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from tests.support.project import ROOT, Copy, database_in
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import questions_of
from ttsgraph_flows.dvc_stages import flow_of
from ttsgraph_flows.registry import Registry

PLACES = "experiments.artifact_location runs.artifact_uri logged_models.artifact_location"
PLACES += " model_versions.source model_versions.storage_location"
"""Where MLflow's database names folders."""

STAGES = {
    "sample": "../../../data/simulated-small/math/questions.parquet",
    "profile": "profile.parquet",
    "pilot": "pilot.parquet",
    "pilot_plots": "pilot_plots",
    "init_family": "init_family.parquet",
    "init_instances": "start.json",
}
"""The stages before the search, and what each makes in the folder of results."""

POOL = ("llama-3.2-1b", "llama-3.2-3b", "gemma-3-1b")


class SimulatedProject(Copy):
    """Settings and stages of a temporary copy."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        profile = (ROOT / "profiles" / "simulated.yaml").read_text()
        self.settings: dict[str, Any] = yaml.safe_load(profile)
        self.whole_pool = dict(self.settings["pool"])
        self.settings["pool"] = {name: self.whole_pool[name] for name in POOL}
        math = self.settings["tasks"]["math"]
        math["source"]["size"] = 500
        math["splits"] = {"train": 40, "val": 30, "test": 200}
        self.settings["tasks"] = {"math": math}
        pilot = {"questions": 8, "widths": [1, 2], "depths": [1, 2], "max_nodes": 4}
        self.settings["pilot"] = pilot
        self.settings["init"] = {"questions": 16, "candidates": 3, "topologies": 2}
        short = {"max_iterations": 3, "patience": 2, "candidates": 3, "batch": 16}
        self.settings["search"] |= short
        self.settings["budget"]["limit"] = 20
        # A model outside the pool that beats any graph of it by far, so that a small test can tell.
        self.settings["simulation"]["skill"] = {"llama-3.1-8b": 3.0}
        self.uri = database_in(folder)
        self.seed = 0
        self.method = "random"
        self.save()
        self.dvc("init", "--no-scm", "-q")

    def save(self) -> None:
        params = {"profile": "simulated-small", "tasks": ["math"], "methods": [self.method]}
        params |= {"seed": self.seed, "tracking_uri": self.uri}
        self.write(params, "simulated-small", self.settings)

    @property
    def results(self) -> Path:
        return self.folder / "results" / "simulated-small" / "math"

    def build(self, method: str = "random") -> None:
        """Run the stages that have not run, up to evaluate, and commit them to DVC."""
        self.method = method
        self.save()
        with chdir(self.folder):
            for stage, made in STAGES.items():
                if not (self.results / made).exists():
                    flow_of(stage)("math")
        self.search(method)

    def search(self, method: str = "random") -> None:
        """Search anew and register what is found."""
        with chdir(self.folder):
            flow_of("search")("math", method)
            flow_of("evaluate")("math", method)
        self.commit()

    def commit(self) -> None:
        """Tell DVC what the stages made."""
        made = [f"{name}@math" for name in STAGES]
        made += [f"{name}@math-{self.method}" for name in ("search", "evaluate")]
        self.dvc("commit", "-f", "-q", *made)

    def copy(self, folder: Path) -> SimulatedProject:
        """The project with all that was made in it, in another folder that does not exist yet."""
        shutil.copytree(self.folder, folder, symlinks=True)
        other = deepcopy(self)
        other.folder, other.uri = folder, f"sqlite:///{folder}/mlflow.db"
        other.save()
        with closing(sqlite3.connect(folder / "mlflow.db")) as store, store:
            for table, column in (place.split(".") for place in PLACES.split()):
                change = f"update {table} set {column} = replace({column}, ?, ?)"
                store.execute(change, (f"{self.folder}/", f"{folder}/"))
        return other

    def dvc(self, *arguments: str) -> str:
        return self.said_by("dvc", *arguments)

    def questions(self, split: str) -> list[Question]:
        kept = self.folder / "data" / "simulated-small" / "math" / "questions.parquet"
        return questions_of(pd.read_parquet(kept))[split]

    @contextmanager
    def registry(self) -> Iterator[Registry]:
        """The registry, from inside the project: its artefacts are named relative to it."""
        with chdir(self.folder):
            yield Registry(self.uri)
