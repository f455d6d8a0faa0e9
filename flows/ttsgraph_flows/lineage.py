"""Verification of a version's provenance: its manifest against the stored data, and its parts
against each other (docs/audit.md).
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from mlflow.exceptions import MlflowException

from ttsgraph.base.errors import DataError, DeploymentError, TTSGraphError
from ttsgraph.base.history import read_content
from ttsgraph.base.wording import counted, first_line
from ttsgraph.deployment import provenance
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.settings.profile import load_profile
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.schemas import Questions, check
from ttsgraph_flows import registry
from ttsgraph_flows.dvc_store import Store
from ttsgraph_flows.manifest import (
    MODEL,
    RUN,
    TAGS,
    VERSION,
    Manifest,
    added,
    changed,
    files_of,
    manifest_of,
    run_digests,
    version_digests,
)
from ttsgraph_flows.promotions import last_digest, path_of, promotions
from ttsgraph_flows.tracking import client_of, git

PROMOTION = "promotion"
SHOWN = ["candidate_id", "iteration", "split", "graph_hash", "status", "accuracy"]
"""Columns of the archive that the lineage has for each candidate."""

Check = tuple[str, str, Callable[[], str]]
"""Name and subject of a link, and the function that verifies the link: it returns a description, or
raises an error whose message says what is wrong.
"""


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain; its state is `unknown` if it can't be verified."""

    name: str
    subject: str
    state: Literal["ok", "broken", "unknown"]
    detail: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """A version's chain of links, and the candidates and agent exchanges of its search, as plain
    data.
    """

    version: str
    aliases: tuple[str, ...]
    links: tuple[Link, ...]
    record: provenance.Provenance | None = None
    candidates: tuple[dict[str, Any], ...] = ()
    exchanges: tuple[dict[str, Any], ...] = ()

    @property
    def broken(self) -> tuple[Link, ...]:
        """The broken links."""
        return tuple(link for link in self.links if link.state == "broken")

    def lines(self, check: bool) -> list[str]:
        """Return the links as text; with `check`, only those that aren't ok."""
        shown = [link for link in self.links if not check or link.state != "ok"]
        return [
            " ".join([self.version, *(f"@{alias}" for alias in self.aliases)]),
            *(f"{link.state:8} {link.name} {link.subject}: {link.detail}" for link in shown),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "version": self.version,
            "aliases": list(self.aliases),
            "intact": not self.broken,
            "links": [asdict(link) for link in self.links],
            "record": self.record.model_dump(mode="json") if self.record else None,
            "candidates": list(self.candidates),
            "exchanges": list(self.exchanges),
        }


def lineage(reference: str, tracking_uri: str) -> Lineage:
    """Verify a version's chain of links. Raises DeploymentError if there is no such version."""
    known = registry.Registry(tracking_uri)
    return _LineageCheck(known, known.find(reference)).run()


def require_intact(reference: str, tracking_uri: str) -> None:
    """Raise DeploymentError naming a version's first broken links, if there are any."""
    walked = lineage(reference, tracking_uri)
    # A broken promotion link is allowed: if an alias was moved by other means, the next promotion
    # repairs the link.
    broken = [link for link in walked.broken if link.name != PROMOTION]
    if broken:
        first = [f"{link.name} {link.subject}: {link.detail}" for link in broken[:3]]
        raise DeploymentError(
            f"{walked.version}: expected an intact lineage, found"
            f" {counted(len(broken), 'broken link')}: {'; '.join(first)}; run `ttsgraph"
            f" lineage --check {walked.version}` to see all"
        )


class _Unverifiable(Exception):
    """Reason why a link can't be verified."""


class _LineageCheck:
    """One verification of one version."""

    def __init__(self, known: registry.Registry, version: registry.Version) -> None:
        self.registry = known
        self.version = version
        self.store = Store()
        self.client = client_of(known.uri)
        self.contents: dict[str, bytes] = {}

    @cached_property
    def record(self) -> provenance.Provenance:
        return self.registry.provenance(self.version)

    @cached_property
    def bundle(self) -> DeployedVersion:
        return self.registry.deployed(self.version)

    @cached_property
    def manifest(self) -> Manifest:
        return manifest_of(self.version, self.record)

    def run(self) -> Lineage:
        label = self.version.label
        own = (label, self.version.aliases)
        links = [_verified("version", label, self._version)]
        if links[0].state != "ok":
            return Lineage(*own, tuple(links))
        links += [_verified(*each) for each in (*self._held(), *self._semantic())]
        return Lineage(*own, tuple(links), self.record, self._candidates(), self._exchanges())

    def _held(self) -> Iterator[Check]:
        """Yield the checks that compare the manifest with the stored data."""
        label = self.version.label
        yield "tags", label, partial(self._of_version, TAGS)
        yield "model files", label, partial(self._of_version, MODEL)
        for path, digest in files_of(self.manifest).items():
            yield "file", path, partial(self._file, path, digest)
        for made_by, digests in self.manifest.items():
            if made_by.startswith(RUN):
                run_id = made_by.removeprefix(RUN)
                yield "run", run_id, partial(self._run, run_id, digests)

    def _semantic(self) -> Iterator[Check]:
        """Yield the checks that compare a version's record with the items that it names."""
        record = self.record
        label = self.version.label
        yield "graph", record.graph_hash, self._graph
        yield "dataset", f"{record.dataset.path} {record.dataset.md5}", self._dataset
        yield "search run", record.run_id, self._search_run
        if (baseline := record.baseline) is not None:
            why = f"selected in place of the graph {baseline.instead_of}: {baseline.reason}"
            yield "baseline", f"{baseline.arm}: {baseline.label}", lambda: why
        yield "settings", record.settings_sha256[:16], self._settings
        yield "models", counted(len(record.models), "model"), self._models
        yield "code", record.code.commit or "no commit", self._code
        yield "decision", label, self._decision
        if registry.CHAMPION in self.version.aliases or self._was_promoted_last:
            yield PROMOTION, label, self._promotion
        if (trial := self.version.tags.get(registry.TRIAL)) is not None:
            yield "trial", label, lambda: trial
        if (parent := record.parent) is not None:
            subject = f"{record.task}/{parent.version}"
            yield "replaces", subject, partial(self._parent, subject, parent)

    def _version(self) -> str:
        same("the run of the version", self.record.run_id, self.version.run_id)
        files = counted(len(files_of(self.manifest)), "file")
        return f"its record and its manifest of {files} are as registered"

    @cached_property
    def _own(self) -> Mapping[str, str]:
        return version_digests(self.registry, self.version)

    def _of_version(self, kind: str) -> str:
        wanted, found = (
            {path: value for path, value in rows.items() if path.startswith(kind)}
            for rows in (self.manifest[VERSION], self._own)
        )
        _require_unchanged(wanted, found)
        if (more := added(wanted, found)) and kind == MODEL:
            raise DataError(f"{more}: added after the version was registered")
        return f"{len(wanted)} as registered"

    def _file(self, path: str, digest: str) -> str:
        kept = self.store.find(path, digest)
        if kept.content is not None:
            self.contents[path] = kept.content
        if not kept.intact:
            raise DataError(kept.where)
        known = self.store.recorded(path)
        is_of_search = path in self.record.files and Path(path).parent == self._results
        is_own = self._has_search and (is_of_search or self._is_settled)
        if is_own and (path, known) not in self._registered:
            raise DataError(
                f"it was changed after the version was registered: expected {digest}, found {known}"
            )
        return kept.where

    @cached_property
    def _has_search(self) -> bool:
        """True if dvc.lock has the history or the archive of this version's search. These two only
        change together.
        """
        own = [self._results / name for name in ("history.jsonl", "archive.parquet")]
        wanted = self.record.files
        alike = [self.store.recorded(path) == wanted.get(path.as_posix()) for path in own]
        return any(alike)

    @cached_property
    def _is_settled(self) -> bool:
        """True if the manifest's files in dvc.lock are from one run of the stages."""
        return self.store.is_settled(files_of(self.manifest))

    @cached_property
    def _registered(self) -> set[tuple[str, str | None]]:
        """Path and MD5 of every file with which a version of the task was registered."""
        found: set[tuple[str, str | None]] = {*files_of(self.manifest).items()}
        for version in self.registry.versions(self.record.task):
            with suppress(ValueError, LookupError, AttributeError):
                found |= files_of(json.loads(version.tags[registry.MANIFEST])).items()
        return found

    @property
    def _results(self) -> Path:
        """Folder of the search's results."""
        found = next(path for path in self.record.files if Path(path).name == "search.json")
        return Path(found).parent

    def _run(self, run_id: str, digests: Mapping[str, str]) -> str:
        found = run_digests(self.client, run_id)
        _require_unchanged(digests, found)
        if more := added(digests, found):
            raise _Unverifiable(f"{more}: added after the version was registered")
        return "its params, tags, metrics and artefacts are as registered"

    def _graph(self) -> str:
        graph = self.bundle.graph
        same("the graph's hash", self.record.graph_hash, graph.content_hash)
        budget = self.record.budget
        used = f"{budget['used']:.3g} of {budget['limit']:g} ({budget['metric']})"
        return f"{counted(len(graph.nodes), 'node')}, {used}"

    def _search_run(self) -> str:
        record = self.record
        run = self.client.get_run(record.run_id)
        same("the run's stage in MLflow", "active", run.info.lifecycle_stage)
        same("the run's status", "FINISHED", run.info.status)
        wanted = {"task": record.task, "profile": record.profile, "method": record.search_method}
        for name, value in wanted.items():
            same(f"the run's {name}", value, run.data.params.get(name))
        same("the MD5 of the run's dataset", record.dataset.md5, run.data.tags.get("dvc_md5"))
        return f"{record.search_method} on {record.task}, seed {record.seed}"

    def _content(self, name: str) -> bytes | None:
        """Return the content of a version's file by name, or None if it isn't available."""
        return next((data for path, data in self.contents.items() if Path(path).name == name), None)

    def _candidates(self) -> tuple[dict[str, Any], ...]:
        """Return the search's evaluations, or () if its archive isn't available."""
        if (content := self._content("archive.parquet")) is None:
            return ()
        shown = pd.read_parquet(io.BytesIO(content))[SHOWN].astype(object)
        rows: list[Any] = shown.where(shown.notna(), None).to_dict("records")
        return tuple(rows)

    def _exchanges(self) -> tuple[dict[str, Any], ...]:
        """Return the available exchanges of the agent before and during the search."""
        begun = json.loads(self._content("start.json") or "{}")
        history = read_content(self._content("history.jsonl") or b"", "history.jsonl")
        found = [*begun.get("exchanges", []), *(e for e in history if e["type"] == "agent")]
        return tuple(
            {key: each.get(key) for key in ("stage", "iteration", "attempt")}
            | {"answer_sha256": provenance.sha256(each["answer"]), "refused": len(each["refused"])}
            for each in found
        )

    def _dataset(self) -> str:
        dataset = self.record.dataset
        if (content := self.contents.get(dataset.path)) is None:
            raise DataError(f"expected {dataset.path}, but it can't be read; see above")
        table = check(pd.read_parquet(io.BytesIO(content)), Questions, dataset.path)
        sizes = table["split"].value_counts()
        same("the questions per split", {k: n for k, n in dataset.splits.items() if n}, dict(sizes))
        same("the file's MD5", dataset.md5, files_of(self.manifest).get(dataset.path))
        shown = ", ".join(f"{count} {split}" for split, count in dataset.splits.items())
        return f"{shown}; source {dataset.source['kind']}"

    def _settings(self) -> str:
        record = self.record
        if settings_sha256(load_profile(record.profile), record.task) != record.settings_sha256:
            raise _Unverifiable(f"profiles/{record.profile}.yaml has different settings now")
        asked = record.agent_exchanges > 0
        if asked and record.agent_prompts_sha256 != provenance.agent_prompts_sha256():
            raise _Unverifiable("the agent's prompts have changed since")
        return f"profiles/{record.profile}.yaml has the same settings"

    def _models(self) -> str:
        wanted = self.record.models
        unpinned = [name for name, model in wanted.items() if model.revision == "unpinned"]
        if unpinned:
            raise _Unverifiable(
                f"the profile pins no revision of {', '.join(unpinned)}: only the endpoint that"
                " answered is known"
            )
        return ", ".join(f"{name}@{model.revision}" for name, model in wanted.items())

    def _code(self) -> str:
        code = self.record.code
        if code.commit is None:
            raise _Unverifiable("the version was not made in a git repository")
        if git("cat-file", "-e", f"{code.commit}^{{commit}}") is None:
            raise DataError("expected the commit in this repository, but it is missing")
        if code.changed:
            raise _Unverifiable("files differed from the commit")
        return "the commit exists, and no file differed from it"

    def _decision(self) -> str:
        now = self.version.tags.get(registry.DECISION)
        if now is None:
            raise DataError(
                "expected the version's tag 'decision', which its test sets, found none"
            )
        if now != self.manifest[VERSION][registry.DECISION]:
            raise _Unverifiable(f"decided again since its test: {now}")
        return "unchanged since its test"

    @property
    def _was_promoted_last(self) -> bool:
        try:
            known = promotions(self.version.task)
        except TTSGraphError:
            return True  # so that the promotion link is checked, and reports the error
        return bool(known) and known[-1].version == self.version.number

    def _promotion(self) -> str:
        known = promotions(self.version.task)
        if not known:
            raise DataError(
                f"expected a promotion in {path_of(self.version.task)}, found none; run `ttsgraph"
                f" promote {self.version.label}`"
            )
        if registry.CHAMPION not in self.version.aliases:
            raise DataError(
                "expected the version promoted last to be the champion, but the alias was moved or"
                f" deleted; run `ttsgraph promote {self.version.label}`"
            )
        last = known[-1]
        same("the version that was promoted last", last.version, self.version.number)
        own = self.version.tags.get("lineage_sha256")
        same("the hash of its lineage record", last.record_sha256, own)
        line = last_digest(self.version.task)
        tag = self.version.tags.get(registry.PROMOTED, "no tag 'promoted'")
        same("the digest of its promotion", line, tag)
        return f"promoted by {last.by}: {last.reason}"

    def _parent(self, label: str, parent: provenance.Parent) -> str:
        version = self.registry.find(label)
        text = self.registry.registered(version, registry.LINEAGE, "lineage_sha256")
        same("the hash of its lineage record", parent.record_sha256, provenance.sha256(text))
        return "the champion it was compared with; its record is unchanged"


def _verified(name: str, subject: str, verify: Callable[[], str]) -> Link:
    try:
        return Link(name, subject, "ok", verify())
    except _Unverifiable as reason:
        return Link(name, subject, "unknown", str(reason))
    except (TTSGraphError, MlflowException, OSError, ValueError, KeyError, TypeError) as error:
        return Link(name, subject, "broken", first_line(error))


def same(what: str, expected: Any, found: Any) -> None:
    """Raise DataError if two values that should be equal differ."""
    if expected != found:
        shown = [str(value) for value in (expected, found)]
        brief = [text if len(text) <= 40 else f"{text[:37]}..." for text in shown]
        raise DataError(f"{what}: expected {brief[0]}, found {brief[1]}")


def _require_unchanged(wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise DataError naming the items whose digest has changed since the version was registered,
    if there are any.
    """
    if odd := changed(wanted, found):
        raise DataError(f"expected the registered content, found differences in {odd}")
