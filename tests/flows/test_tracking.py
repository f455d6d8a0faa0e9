"""MLflow's database is made whole or not at all, and advice about a damaged one works."""

import os
import sqlite3
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from lab import python_path
from tests.support.project import ROOT, database_in
from ttsgraph.base.errors import InputError
from ttsgraph_flows import tracking
from ttsgraph_flows.tracking import SearchTracker, explained


def start(folder):
    uri = f"sqlite:///{folder}/mlflow.db"
    tracker = SearchTracker(uri, "experiment", "name", {"a": 1})
    assert MlflowClient(uri).get_run(tracker.run_id).data.params == {"a": "1"}


def test_a_database_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    def full(uri, root):
        Path(uri.removeprefix("sqlite:///")).write_bytes(b"half")
        raise tracking.SQLAlchemyError("(sqlite3.OperationalError) database or disk is full")

    said = "disk is full; what was computed is kept, free space and start again"
    with monkeypatch.context() as patch:
        patch.setattr(tracking, "SqlAlchemyStore", full)
        with pytest.raises(InputError, match=said):
            start(tmp_path)
    assert not (tmp_path / "mlflow.db").exists()
    start(tmp_path)


@pytest.mark.slow
def test_eight_stages_that_start_at_once_make_one_database(tmp_path):
    """Ten times, in processes that have imported all they need before the first."""
    code = "from ttsgraph_flows.tracking import SearchTracker\nfor k in range(10):\n"
    code += "    print('ready', flush=True)\n    input()\n"
    code += "    SearchTracker(f'sqlite:///{k}.db', 'x', 'y', {})"
    environment = os.environ | {"PYTHONPATH": python_path(ROOT)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for _ in range(10):
        ready = [process.stdout.readline() for process in started]
        assert ready == ["ready\n"] * 8, [process.communicate("\n")[1] for process in started]
        for process in started:
            process.stdin.write("\n")
            process.stdin.flush()
    for process in started:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    for k in range(10):
        client = MlflowClient(f"sqlite:///{tmp_path}/{k}.db")
        experiment = client.get_experiment_by_name("x")
        assert len(client.search_runs([experiment.experiment_id])) == 8


@pytest.mark.parametrize("damage", ["garbage", "half of the tables", "cut"])
def test_a_damaged_database_is_told_and_the_advice_works(tmp_path, damage):
    file = tmp_path / "mlflow.db"
    if damage == "garbage":
        file.write_bytes(os.urandom(4096))
    elif damage == "cut":
        database_in(tmp_path)
        os.truncate(file, 8192)
    else:
        with sqlite3.connect(file) as store:
            store.execute("create table experiments (experiment_id integer)")
    uri = f"sqlite:///{file}"
    tracking.SqlAlchemyStore._engine_map.pop(uri, None)
    advice = rf"if {file} is damaged, move it away and start again"
    with pytest.raises(InputError, match=advice), explained(uri):
        tracking.SqlAlchemyStore(uri, str(tmp_path))
    file.rename(tmp_path / "away")
    tracking.SqlAlchemyStore._engine_map.pop(uri, None)
    start(tmp_path)


def test_a_relative_path_is_the_database_of_the_folder_that_a_process_is_in(tmp_path):
    runs = {}
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        database_in(tmp_path / name)
        with chdir(tmp_path / name), SearchTracker("sqlite:///mlflow.db", "e", name, {}) as tracker:
            runs[name] = tracker.run_id
            tracker.client.log_text(tracker.run_id, name, "said.txt")
    for name, run in runs.items():
        client = MlflowClient(f"sqlite:///{tmp_path / name}/mlflow.db")
        experiment = client.get_experiment_by_name("e").experiment_id
        (found,) = client.search_runs([experiment])
        assert (found.info.run_id, found.info.run_name) == (run, name)
        assert str(tmp_path / name) in found.info.artifact_uri
    with chdir(tmp_path / "one"):
        tracking.client_of("sqlite:///mlflow.db").log_text(runs["one"], "{}", "later.json")
