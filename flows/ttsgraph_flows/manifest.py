"""Manifest of a version: a digest of each item that the version depends on, grouped by producer:
the files of each stage, the content of each MLflow run, and the version's own data from its test.

It is a tag that the test writes last; the lineage compares it with the stored data.
"""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from ttsgraph.base.errors import DataError
from ttsgraph.deployment.provenance import Provenance, sha256
from ttsgraph.stages.identity import digest
from ttsgraph_flows.registry import DECIDED, DECISION, MANIFEST, Registry, Version
from ttsgraph_flows.tracking import client_of

Digests = Mapping[str, str]
"""Path or name of an item -> digest."""

Manifest = Mapping[str, Digests]
"""Producer -> digests of its items."""

VERSION = "version"
MODEL = "model/"
TAGS = "tags/"
"""Keys for the version's own data: the producer, and the prefixes of its logged model's files and
of its tags.
"""

RUN = "run "
CODE = "code/"
MADE_WHEN_READ = "registered_model_meta"
"""File that MLflow adds when a model is downloaded."""

LATER = ("answer/", "charts/", "spent/")
"""Prefixes of a run's metrics and artefacts that a report rewrites, or that depend on the clock."""


def seal(registry: Registry, version: Version, files: Manifest, runs: Iterable[str]) -> None:
    """Store the manifest of a complete version: its files by stage, and the content of these MLflow
    runs.
    """
    client = client_of(registry.uri)
    now = registry.find(version.label)
    held = {RUN + run: run_digests(client, run) for run in sorted(set(runs))}
    own = version_digests(registry, now) | {DECISION: now.tags.get(DECISION, "")}
    registry.tag(now, MANIFEST, json.dumps({**files, **held, VERSION: own}, sort_keys=True))


def manifest_of(version: Version, record: Provenance) -> Manifest:
    """Return the manifest of a version. Raises DataError if it is missing, or if the version's test
    can't have written it.
    """
    if (text := version.tags.get(MANIFEST)) is None:
        raise DataError(
            "expected the version's tag 'manifest', which its test writes last, found none: the tag"
            " was removed, or the test didn't finish; run `make repro` to finish it"
        )
    with contextlib.suppress(ValueError, AttributeError, TypeError, KeyError):
        found: Manifest = json.loads(text)
        runs = {RUN + run for run in (record.run_id, *record.stage_runs.values())}
        whole = runs <= found.keys() and DECISION in found[VERSION]
        if whole and record.files.items() <= files_of(found).items():
            return found
    raise DataError("expected the manifest that the version's test wrote, found a different one")


def files_of(manifest: Manifest) -> dict[str, str]:
    """Return path -> MD5 of the files produced by stages."""
    made = (rows for by, rows in manifest.items() if by != VERSION and not by.startswith(RUN))
    return {path: md5 for rows in made for path, md5 in rows.items()}


def added(wanted: Digests, found: Digests) -> str:
    """Return the items in `found` that are not in `wanted`, as text. Raises DataError naming the
    wanted items that differ or are missing.
    """
    if odd := [path for path, value in wanted.items() if found.get(path) != value]:
        raise DataError(f"expected the registered content, found differences in {_named(odd)}")
    return _named(sorted(found.keys() - wanted.keys()))


def _named(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def version_digests(registry: Registry, version: Version) -> dict[str, str]:
    """Return the digests of a version's files (one for all of its code) and of the tags set by its
    test.
    """
    with registry.download(version) as folder:
        files = _digests_of(folder)
    files.pop(MADE_WHEN_READ, None)
    code = {path: files.pop(path) for path in [*files] if path.startswith(CODE)}
    files[CODE] = digest(code)
    tags = {TAGS + key: sha256(text) for key, text in version.tags.items() if key not in DECIDED}
    return {MODEL + path: value for path, value in files.items()} | tags


def run_digests(client: MlflowClient, run_id: str) -> dict[str, str]:
    """Return the digests of an MLflow run's content by name: state, params, tags and datasets, each
    metric with its whole history, and each artefact.
    """
    run = client.get_run(run_id)
    held: dict[str, Any] = {
        "state": [run.info.lifecycle_stage, run.info.status, run.info.run_name],
        "params": run.data.params,
        "tags": {key: value for key, value in run.data.tags.items() if key != MLFLOW_RUN_NOTE},
        "datasets": run.inputs and run.inputs.to_dictionary(),
    }
    for key, value in run.data.metrics.items():
        history = {(metric.step, metric.value) for metric in client.get_metric_history(run_id, key)}
        held[key] = [value, sorted(history)]
    with tempfile.TemporaryDirectory() as folder:
        held |= _digests_of(Path(client.download_artifacts(run_id, "", folder)))
    return {key: digest(value)[:16] for key, value in held.items() if not key.startswith(LATER)}


def _digests_of(folder: Path) -> dict[str, str]:
    """Return path relative to the folder -> SHA-256, for each file in the folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
