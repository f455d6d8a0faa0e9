"""Verification of a version's provenance: its manifest against the stored data, and its parts
against each other (docs/audit.md).

A manifest has a digest of each item that the version depends on, by producer: the files of each
stage, the content of each MLflow run, and the version's own data. The manifest is stored as a tag,
which the version's test writes last.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE
from pydantic import TypeAdapter

from ttsgraph.base.errors import DataError, DeploymentError, TTSGraphError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.base.wording import counted, first_line
from ttsgraph.deployment.provenance import Parent, Provenance, sha256
from ttsgraph.stages.identity import digest
from ttsgraph_flows import registry
from ttsgraph_flows.dvc_store import Store
from ttsgraph_flows.promotions import path_of, promotions
from ttsgraph_flows.registry import Registry, Version
from ttsgraph_flows.tracking import HISTORY

Manifest = Mapping[str, Mapping[str, str]]
"""Map from a producer to the digests of its items, by path or name."""

_MANIFEST: TypeAdapter[Manifest] = TypeAdapter(Manifest)

VERSION = "version"
MODEL = "model/"
"""Keys for the version's own data: the producer, and the prefix of its logged model's files."""

RUN = "run "
CODE = "code/"

LATER = ("answer/", "charts/", "spent/")
"""Prefixes of a run's metrics and artefacts that a report rewrites, or that depend on the clock."""

PROMOTION = "promotion"

State = Literal["ok", "broken", "unknown"]


class Link(ClosedModel):
    """One link of the chain; its state is `unknown` if it can't be verified."""

    name: str
    subject: str
    state: State
    detail: str

    def __str__(self) -> str:
        return f"{self.name} {self.subject}: {self.detail}"


class Lineage(ClosedModel):
    """A version's chain of links, with its provenance record unless that is damaged."""

    version: str
    aliases: tuple[str, ...]
    links: tuple[Link, ...]
    record: Provenance | None = None

    @property
    def broken(self) -> tuple[Link, ...]:
        """The broken links."""
        return tuple(link for link in self.links if link.state == "broken")

    def require_intact(self) -> None:
        """Raise DeploymentError naming the first broken links, if there are any."""
        # A broken promotion link is allowed: if an alias was moved by other means, the next
        # promotion repairs the link.
        if broken := [link for link in self.broken if link.name != PROMOTION]:
            raise DeploymentError(
                f"{self.version}: expected an intact lineage, found"
                f" {counted(len(broken), 'broken link')}: {'; '.join(map(str, broken[:3]))}; run"
                f" `ttsgraph lineage --check {self.version}` to see all"
            )

    def lines(self, check: bool) -> list[str]:
        """Return the links as text; with `check`, only those that aren't ok."""
        heading = " ".join([self.version, *(f"@{alias}" for alias in self.aliases)])
        shown = (link for link in self.links if not check or link.state != "ok")
        return [heading, *(f"{link.state:8} {link}" for link in shown)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"intact": not self.broken, **self.model_dump(mode="json")}


def lineage(reference: str, tracking_uri: str) -> Lineage:
    """Verify a version's chain of links. Raises DeploymentError if there is no such version."""
    known = Registry(tracking_uri)
    walk = _Walk(known, known.find(reference))
    links, version = tuple(walk.links()), walk.version
    record = walk.record if links[0].state == "ok" else None
    return Lineage(version=version.label, aliases=version.aliases, links=links, record=record)


class _Unverifiable(Exception):
    """Reason why a link can't be verified."""


def _link(name: str, subject: str, verify: Callable[..., str], *given: Any) -> Link:
    """Return a link with the state that `verify` finds."""
    state: State = "ok"
    try:
        detail = verify(*given)
    except _Unverifiable as reason:
        state, detail = "unknown", str(reason)
    except (TTSGraphError, MlflowException, OSError, ValueError, KeyError, TypeError) as error:
        state, detail = "broken", first_line(error)
    return Link(name=name, subject=subject, state=state, detail=detail)


class _Walk:
    """One verification of one version: its manifest, item by item, and the links between items.
    A method that verifies a link returns a description, or raises an error that says what is wrong.
    """

    def __init__(self, known: Registry, version: Version) -> None:
        self.registry = known
        self.version = version
        self.store = Store()

    def links(self) -> Iterator[Link]:
        """Verify and yield all links, or only the first one if the version's record or manifest
        can't be read.
        """
        label = self.version.label
        first = _link("version", label, self._readable)
        yield first
        if first.state != "ok":
            return
        record = self.record
        yield _link("model and tags", label, self._own)
        for path, md5 in files_of(self.manifest).items():
            name = "dataset" if path == record.dataset.path else "file"
            yield _link(name, path, self._file, path, md5)
        for run_id in (by.removeprefix(RUN) for by in self.manifest if by.startswith(RUN)):
            yield _link("run", run_id, self._run, run_id)
        yield _link("search run", record.run_id, self._search_run)
        yield _link("decision", label, self._decision)
        yield _link(PROMOTION, label, self._promotion)
        if (parent := record.parent) is not None:
            yield _link("replaces", f"{record.task}/{parent.version}", self._parent, parent)

    @cached_property
    def record(self) -> Provenance:
        return self.registry.provenance(self.version)

    @cached_property
    def manifest(self) -> Manifest:
        """The version's manifest. Raises DataError if the version's test can't have written it."""
        record, found = self.record, manifest_of(self.version)
        runs = {RUN + run for run in (record.run_id, *record.stage_runs.values())}
        whole = runs <= found.keys() and registry.DECISION in found.get(VERSION, ())
        if not whole or not record.inputs.items() <= files_of(found).items():
            raise DataError(
                "expected the tag 'manifest' that the version's test writes last, found none or"
                " another one; run `make repro`"
            )
        return found

    def _readable(self) -> str:
        _same("the run of the version", self.record.run_id, self.version.run_id)
        return f"its record is as registered, its manifest has {len(files_of(self.manifest))} files"

    def _own(self) -> str:
        wanted = {k: v for k, v in self.manifest[VERSION].items() if k != registry.DECISION}
        return _compared(wanted, _version_digests(self.registry, self.version))

    def _file(self, path: str, md5: str) -> str:
        kept = self.store.find(path, md5)
        if not kept.intact:
            raise DataError(kept.where)
        now = self.store.recorded(path)
        if self._is_current and now is not None and (path, now) not in self._registered:
            found = f"DVC has {now or 'no digest'}, not {md5}"
            raise DataError(f"{found}; restore dvc.lock, or run `make repro`")
        return kept.where

    @cached_property
    def _is_current(self) -> bool:
        """True unless another search has replaced the version's search: every search changes both
        its history and its archive.
        """
        own = [path for path in self.record.files if path.endswith((HISTORY, "archive.parquet"))]
        return any(self.store.recorded(path) in ("", self.record.files[path]) for path in own)

    @cached_property
    def _registered(self) -> set[tuple[str, str]]:
        """Path and MD5 of every file with which a version of the task was registered."""
        versions = self.registry.versions(self.record.task)
        return {pair for each in versions for pair in files_of(manifest_of(each)).items()}

    def _run(self, run_id: str) -> str:
        return _compared(self.manifest[RUN + run_id], _run_digests(self.registry.client, run_id))

    def _search_run(self) -> str:
        record = self.record
        run = self.registry.client.get_run(record.run_id)
        info, params = run.info, run.data.params
        expected = "active", "FINISHED", record.task, record.search_method, record.dataset.md5
        named = params.get("task"), params.get("method"), run.data.tags.get("dvc_md5")
        found = info.lifecycle_stage, info.status, *named
        _same("the run's state, task, method and dataset", expected, found)
        code = f"commit {record.code.commit or 'unknown'}"
        code += ", with files that differ from it" if record.code.changed else ""
        return f"{record.search_method} on {record.task}, seed {record.seed}; {code}"

    def _decision(self) -> str:
        now = self.version.fact(registry.DECISION)
        if now != self.manifest[VERSION][registry.DECISION]:
            raise _Unverifiable(f"decided again since its test: {now}")
        return now

    def _promotion(self) -> str:
        version, tags = self.version, self.version.tags
        last = next(reversed(promotions(version.task)), None)
        is_champion = registry.CHAMPION in version.aliases
        if not is_champion and (last is None or last.version != version.number):
            return "neither the champion nor promoted last"
        own = version.number, tags.get("lineage_sha256"), tags.get(registry.PROMOTED)
        logged = last and (last.version, last.record_sha256, last.digest)
        if last is None or not is_champion or own != logged:
            raise DataError(
                "expected the champion to be the version promoted last, according to"
                f" {path_of(version.task)} and the version's tags, but they differ; run `ttsgraph"
                f" promote {version.label}`"
            )
        return f"promoted by {last.by}: {last.reason}"

    def _parent(self, parent: Parent) -> str:
        before = self.registry.find(f"{self.record.task}/{parent.version}")
        self.registry.provenance(before)  # raises if the record's hash isn't the one in the tag
        _same("the record's hash", parent.record_sha256, before.tags["lineage_sha256"])
        return "the champion it was compared with; its record is unchanged"


def _same(what: str, expected: Any, found: Any) -> None:
    """Raise DataError if two values that should be equal differ."""
    if expected != found:
        raise DataError(f"{what}: expected {expected}, found {found}")


def seal(known: Registry, version: Version, files: Manifest, runs: Iterable[str]) -> None:
    """Store the manifest of a complete version: its files by stage, and the content of these MLflow
    runs.
    """
    now = known.find(version.label)
    held = {RUN + run: _run_digests(known.client, run) for run in sorted(set(runs))}
    own = _version_digests(known, now) | {registry.DECISION: now.tags.get(registry.DECISION, "")}
    known.tag(now, registry.MANIFEST, json.dumps({**files, **held, VERSION: own}, sort_keys=True))


def manifest_of(version: Version) -> Manifest:
    """Return a version's manifest, or an empty one if it is missing or damaged."""
    with suppress(ValueError):
        return _MANIFEST.validate_json(version.tags.get(registry.MANIFEST, ""))
    return {}


def files_of(manifest: Manifest) -> dict[str, str]:
    """Return path -> MD5 of the files produced by stages."""
    made = (rows for by, rows in manifest.items() if by != VERSION and not by.startswith(RUN))
    return {path: md5 for rows in made for path, md5 in rows.items()}


def _compared(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Compare items with the registered ones, and return their number as text. Raises DataError
    naming registered items that differ or are missing, or files that were added to the model, and
    _Unverifiable naming other items that were added.
    """
    if odd := [path for path, value in wanted.items() if found.get(path) != value]:
        raise DataError(f"expected the registered content, found differences in {_named(odd)}")
    if more := sorted(found.keys() - wanted.keys()):
        kind = DataError if any(each.startswith(MODEL) for each in more) else _Unverifiable
        raise kind(f"{_named(more)}: added after the version was registered")
    return f"{counted(len(wanted), 'item')} as registered"


def _named(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _version_digests(known: Registry, version: Version) -> dict[str, str]:
    """Return the digests of a version's files (one for all of its code) and of the tags set by its
    test.
    """
    with known.download(version) as folder:
        files = _digests_of(folder)
    files.pop("registered_model_meta", None)  # MLflow adds this file to a downloaded model
    code = {path: files.pop(path) for path in [*files] if path.startswith(CODE)}
    files[CODE] = digest(code)
    kept = version.tags.keys() - {*registry.DECIDED}
    tags = {f"tags/{key}": sha256(version.tags[key]) for key in kept}
    return {MODEL + path: value for path, value in files.items()} | tags


def _run_digests(client: MlflowClient, run_id: str) -> dict[str, str]:
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
