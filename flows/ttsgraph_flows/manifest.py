"""All that the claim of a version rests on beside its own files, with a digest each: what every
stage before it wrote, and what its runs in MLflow say of themselves.

Written once all of it is there, and kept as a tag of the version.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mlflow.tracking import MlflowClient

from ttsgraph.base.files import md5
from ttsgraph.deployment.provenance import canonical, sha256
from ttsgraph.stages.plan import STAGES
from ttsgraph_flows.stage import Stage

COMMIT = "mlflow.source.git.commit"


def manifest_of(
    stage: Stage, method: str, runs: Iterable[str], client: MlflowClient
) -> dict[str, Any]:
    """{"files": path -> MD5, "runs": run id -> SHA-256 of its params and tags}."""
    names = {"profile": stage.params.profile, "task": stage.task, "method": method}
    paths = [
        Path(path.format(**names))
        for plan in STAGES
        if "task" in plan.per
        for path in (*plan.writes, *plan.plots, *plan.metrics)
    ]
    files = {path.as_posix(): md5(path) for path in paths if path.is_file()}
    return {"files": files, "runs": {run: run_sha256(client, run) for run in runs}}


def run_sha256(client: MlflowClient, run_id: str) -> str:
    """A hash of a run's params and of its tags, without those that MLflow and reports add later."""
    run = client.get_run(run_id)
    tags = {
        key: value
        for key, value in run.data.tags.items()
        if key == COMMIT or not key.startswith("mlflow.")
    }
    return sha256(canonical([run.info.status, run.data.params, tags]))
