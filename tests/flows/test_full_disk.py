"""A search whose disk gets full goes on once there is space, and finds the same."""

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support.project import one_prefect_server
from tests.support.simulated_project import SimulatedProject
from ttsgraph.base.bookkeeping import BOOKKEEPING
from ttsgraph.base.history import read_history

COMMAND = ("-m", "ttsgraph_flows.search", "--task", "math", "--method", "random")
FULL_THEN_FREED = """
mount -t tmpfs -o size=$SIZE tmpfs $RESULTS || exit 99
"$@"; echo "first $?"
mount -o remount,size=64m $RESULTS
"$@"; echo "second $?"
cp -r $RESULTS $OUT
"""


def outcome(folder: Path) -> tuple[str, str, str]:
    """All that must be the same after a crash."""
    archive = pd.read_parquet(folder / "archive.parquet")
    assert not {*BOOKKEEPING} & {*archive.columns}
    return (
        (folder / "graph.json").read_text(),
        (folder / "trajectory.csv").read_text(),
        archive.to_json(),
    )


@pytest.mark.slow
def test_a_full_disk_stops_with_one_line_and_a_state_to_go_on_from(
    searched: SimulatedProject, tmp_path: Path
) -> None:
    mount = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("a small disk can't be had: this kernel lets no user mount one")
    project = searched.copy(tmp_path / "project")
    results = project.results / "random"
    expected = outcome(results)
    size = (results / "history.jsonl").stat().st_size // 2
    shutil.rmtree(results)
    results.mkdir()
    out = tmp_path / "out"
    with one_prefect_server(tmp_path / "server"):
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", FULL_THEN_FREED, "sh", sys.executable, *COMMAND],
            cwd=project.folder,
            env=project.environment | {"SIZE": str(size), "RESULTS": str(results), "OUT": str(out)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.splitlines()[-2:] == ["first 2", "second 0"], done.stderr
    assert f"error: {results.relative_to(project.folder)}" in done.stderr
    assert "free space and start again" in done.stderr
    assert "Traceback" not in done.stderr
    assert outcome(out) == expected
    ids = pd.read_parquet(out / "archive.parquet")["candidate_id"].tolist()
    assert ids == list(range(len(ids)))
    history = read_history(out / "history.jsonl")
    assert [entry["candidate_id"] for entry in history if entry["type"] == "record"] == ids
