"""Results that came from elsewhere (`dvc pull`, a moved folder) brought into this folder's MLflow
and registry.

MLflow keeps absolute places. Where its files came along, their places are corrected; where they did
not, searches and tests are done again from the recorded calls, which takes no model and gives the
same files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ttsgraph.base.errors import DataError, DeploymentError, InputError
from ttsgraph.models.client import Completion
from ttsgraph.models.recording import Calls
from ttsgraph.runtime.clients import open_cache
from ttsgraph.settings.profile import Profile, load_params, load_profile
from ttsgraph_flows.registry import Registry
from ttsgraph_flows.tracking import database_file
from ttsgraph_flows.verify import read_lock, recorded_calls

ARTIFACTS = Path("mlruns")
PLACES = {
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "logged_models": ("artifact_location",),
    "model_versions": ("source", "storage_location"),
}
"""Tables of MLflow's database, and their columns that hold places."""


def register(tasks: Sequence[str] = ()) -> list[str]:
    """Make the champions of tasks (all of params.yaml) usable here; returns a line for each. Raises
    InputError when it can't.
    """
    from ttsgraph_flows import evaluate, search

    params = load_params()
    profile = load_profile(params.profile)
    relocate(params.tracking_uri)
    registry = Registry(params.tracking_uri)
    told = []
    for task in tasks or params.tasks:
        if not usable(registry, task):
            recorded = recorded_calls(params, task, read_lock())
            if recorded is None:
                raise InputError(
                    f"{task}: expected its recorded calls, found none; `dvc pull` gets them, `make"
                    " repro` makes them"
                )
            remember(profile, recorded.calls)
            for method in params.methods:
                search.search.fn(task, method)
                evaluate.evaluate.fn(task, method)
        champion = registry.champion(task)
        told.append(
            f"{task}: no version is the champion"
            if champion is None
            else f"{champion.label} is the champion of {task}"
        )
    return told


def usable(registry: Registry, task: str) -> bool:
    """Whether the task's champion can be read here."""
    try:
        registry.deployed(registry.find(task))
    except (DeploymentError, DataError):
        return False
    return True


def remember(profile: Profile, calls: Calls) -> None:
    """Put recorded answers into the call cache, so that no model is asked for them; a simulated
    pool needs none.
    """
    if profile.engine.kind == "simulated":
        return
    with closing(open_cache(profile)) as cache:
        for key, call in calls.items():
            if isinstance(call.outcome, Completion):
                cache.put(key, call.outcome, call.model)


def relocate(tracking_uri: str) -> bool:
    """Correct the places of MLflow's files if they came along to this folder from another; whether
    there was anything to correct.

    Concerns a database in a file, with its files in mlruns/ here.
    """
    database = database_file(tracking_uri)
    if database is None or not database.exists() or not ARTIFACTS.is_dir():
        return False
    here = str(ARTIFACTS.resolve())
    with closing(sqlite3.connect(database)) as store, store:
        rows = store.execute("select artifact_location from experiments").fetchall()
        places = [Path(location.removeprefix("file://")) for (location,) in rows if location]
        elsewhere = {str(place.parent) for place in places if (ARTIFACTS / place.name).is_dir()} - {
            here
        }
        for before in elsewhere:
            for table, columns in PLACES.items():
                for column in columns:
                    store.execute(
                        f"update {table} set {column} = replace({column}, ?, ?)",
                        (f"{before}/", f"{here}/"),
                    )
    return bool(elsewhere)
