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

Manifest = Mapping[str, Mapping[str, str]]
"""Producer -> path -> digest."""

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
        runs = {record.run_id, *record.stage_runs.values()}
        whole = {RUN + run for run in runs} <= found.keys() and DECISION in found[VERSION]
        if whole and record.files.items() <= files_of(found).items():
            return found
    raise DataError("expected the manifest that the version's test wrote, found a different one")


def files_of(manifest: Manifest) -> dict[str, str]:
    """Return path -> MD5 of the files produced by stages."""
    made = (rows for by, rows in manifest.items() if by != VERSION and not by.startswith(RUN))
    return {path: md5 for rows in made for path, md5 in rows.items()}


def changed(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Return the first paths whose digest in `found` differs or is missing, as text; "" if there
    are none.
    """
    return _named([path for path, value in wanted.items() if found.get(path) != value])


def added(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Return the first paths that are in `found` but not in `wanted`, as text; "" if there are
    none.
    """
    return _named(sorted(found.keys() - wanted.keys()))


def _named(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def version_digests(registry: Registry, version: Version) -> dict[str, str]:
    """Return the digests of a version's files (one for all of its code) and of the tags set by its
    test.
    """
    with registry.download(version) as folder:
        files = _digests_of(folder)
    code = {path: files.pop(path) for path in [*files] if path.startswith(CODE)}
    found = {MODEL + path: files[path] for path in files if path != MADE_WHEN_READ}
    found[MODEL + CODE] = digest(code)
    tags = {key: sha256(value) for key, value in version.tags.items() if key not in DECIDED}
    return found | {TAGS + key: tags[key] for key in tags}


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
