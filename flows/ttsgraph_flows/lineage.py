"""Verify a version's provenance: its manifest against the stored data, and its parts against each
other (docs/audit.md).
"""

import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from mlflow.exceptions import MlflowException

from ttsgraph.base.errors import DataError, DeploymentError, TTSGraphError
from ttsgraph.base.journal import read_content
from ttsgraph.base.wording import counted
from ttsgraph.deployment import provenance
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.settings.profile import load_profile
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.schemas import Candidates, Evaluations, Questions, check
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import questions_of
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
from ttsgraph_flows.stage import RESEARCH
from ttsgraph_flows.tracking import client_of, git

PROMOTION = "promotion"


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain; `unknown` if it can't be verified."""

    name: str
    subject: str
    state: Literal["ok", "broken", "unknown"]
    detail: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """A version's chain, and the candidates and agent exchanges behind it, as plain data."""

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
    """Verify a version's chain. Raises DeploymentError if there is no such version."""
    known = registry.Registry(tracking_uri)
    return _LineageCheck(known, known.find(reference)).run()


def require_intact(reference: str, tracking_uri: str) -> None:
    """Raise DeploymentError that names a version's broken links."""
    walked = lineage(reference, tracking_uri)
    # A promotion repairs this link for a champion whose alias was moved by other means.
    broken = [link for link in walked.broken if link.name != PROMOTION]
    if broken:
        first = [f"{link.name} {link.subject}: {link.detail}" for link in broken[:3]]
        raise DeploymentError(
            f"{walked.version}: expected an intact lineage, found"
            f" {counted(len(broken), 'broken link')}: {'; '.join(first)}; run `ttsgraph"
            f" lineage --check {walked.version}` for all"
        )


class _Unverifiable(Exception):
    """Reason why a link can't be verified."""


class _LineageCheck:
    """One verification. A method that verifies a link returns a description; an error in it
    describes what is wrong.
    """

    def __init__(self, known: registry.Registry, version: registry.Version) -> None:
        self.registry = known
        self.version = version
        self.store = Store()
        self.client = client_of(known.uri)
        self.links: list[Link] = []
        self.candidates: list[dict[str, Any]] = []
        self.exchanges: list[dict[str, Any]] = []
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

    @cached_property
    def questions(self) -> dict[str, list[Question]]:
        path = self.record.dataset.path
        return questions_of(check(self._table(path), Questions, path))

    def run(self) -> Lineage:
        label = self.version.label
        readable = self._link("version", label, self._version)
        if readable:
            self._table_links()
            self._semantic_links()
        return Lineage(
            label,
            self.version.aliases,
            tuple(self.links),
            self.record if readable else None,
            tuple(self.candidates),
            tuple(self.exchanges),
        )

    def _table_links(self) -> None:
        """Verify the manifest against the stored data."""
        label = self.version.label
        self._link("tags", label, partial(self._of_version, TAGS))
        self._link("model files", label, partial(self._of_version, MODEL))
        for path, digest in files_of(self.manifest).items():
            self._link("file", path, partial(self._file, path, digest))
        for made_by, digests in self.manifest.items():
            if made_by.startswith(RUN):
                run_id = made_by.removeprefix(RUN)
                self._link("run", run_id, partial(self._run, run_id, digests))

    def _semantic_links(self) -> None:
        """Verify the parts of a version against each other."""
        record = self.record
        label = self.version.label
        link = self._link
        link("graph", record.graph_hash, self._graph)
        link("dataset", f"{record.dataset.path} {record.dataset.md5}", self._dataset)
        link("search run", record.run_id, self._search_run)
        link("candidates", f"{record.candidates} evaluations", self._candidates)
        link("agent exchanges", f"{record.agent_exchanges} exchanges", self._exchanges)
        link("test", f"{100 * record.test.accuracy:.1f} %", self._test)
        if (baseline := record.baseline) is not None:
            why = f"selected in place of the graph {baseline.instead_of}: {baseline.reason}"
            link("baseline", f"{baseline.arm}: {baseline.label}", lambda: why)
        link("settings", record.settings_sha256[:16], self._settings)
        link("models", counted(len(record.models), "model"), self._models)
        link("code", record.code.commit or "no commit", self._code)
        link("decision", label, self._decision)
        if registry.CHAMPION in self.version.aliases or self._was_promoted_last:
            link(PROMOTION, label, self._promotion)
        if (trial := self.version.tags.get(registry.TRIAL)) is not None:
            link("trial", label, lambda: trial)
        if (parent := record.parent) is not None:
            subject = f"{record.task}/{parent.version}"
            link("replaces", subject, partial(self._parent, subject, parent))

    def _link(self, name: str, subject: str, verify: Callable[[], str]) -> bool:
        """Verify one link; return True if it is ok."""
        try:
            link = Link(name, subject, "ok", verify())
        except _Unverifiable as reason:
            link = Link(name, subject, "unknown", str(reason))
        except (TTSGraphError, MlflowException, OSError, ValueError, KeyError, TypeError) as error:
            wrong = (str(error).strip().splitlines() or [type(error).__name__])[0]
            link = Link(name, subject, "broken", wrong)
        self.links.append(link)
        return link.state == "ok"

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
        """True if dvc.lock has this version's search: its history and archive change together."""
        own = [self._results / name for name in ("history.jsonl", "archive.parquet")]
        wanted = self.record.files
        alike = [self.store.recorded(path) == wanted.get(path.as_posix()) for path in own]
        return any(alike)

    @cached_property
    def _is_settled(self) -> bool:
        """True if dvc.lock has no files of several runs."""
        return self.store.is_settled(files_of(self.manifest))

    @cached_property
    def _registered(self) -> set[tuple[str, str | None]]:
        """Path and MD5 of all files with which versions of the task were registered."""
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

    def _content(self, name: str) -> bytes:
        """Return a file of the record by its name. Raises DataError if it isn't available."""
        known = [*self.record.files, *self.contents]
        path = next((path for path in known if Path(path).name == name), name)
        if path not in self.contents:
            raise DataError(f"can't read {path}, see above")
        return self.contents[path]

    def _table(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(io.BytesIO(self._content(name)))

    def _history(self, kind: str) -> list[dict[str, Any]]:
        """Return the entries of a type in the search's history."""
        entries = read_content(self._content("history.jsonl"), "history.jsonl")
        return [entry for entry in entries if entry["type"] == kind]

    def _candidates(self) -> str:
        record = self.record
        table = check(self._table("archive.parquet"), Candidates, "archive.parquet")
        same("the archive's evaluations", record.candidates, len(table))
        same("the history's evaluations", len(table), len(self._history("record")))
        wanted = record.baseline.instead_of if record.baseline else record.graph_hash
        validated = table[table["split"] == "val"]
        found_by = dict(zip(validated["graph_hash"], validated["found_by"], strict=True))
        if wanted not in found_by:
            raise DataError("the found graph is not among the validated ones")
        if not record.baseline:
            same("who found the graph", record.found_by, found_by[wanted])
        found = CollaborationGraph.from_json(self._content("graph.json").decode(), "graph.json")
        same("the hash of the search's graph file", wanted, found.content_hash)
        names = ["candidate_id", "iteration", "split", "graph_hash", "status", "accuracy"]
        shown = table[names].astype(object)
        rows: list[Any] = shown.where(shown.notna(), None).to_dict("records")
        self.candidates += rows
        return "archive and history agree, and the found graph is among the validated ones"

    def _exchanges(self) -> str:
        begun = json.loads(self._content("start.json"))
        found = [*begun.get("exchanges", []), *self._history("agent")]
        same("the agent's exchanges", self.record.agent_exchanges, len(found))
        for each in found:
            shown = {key: each.get(key) for key in ("stage", "iteration", "attempt")}
            answer = provenance.sha256(each["answer"])
            shown |= {"answer_sha256": answer, "refused": len(each["refused"])}
            self.exchanges.append(shown)
        return "in the history and in start.json" if found else "no language model was called"

    def _dataset(self) -> str:
        dataset = self.record.dataset
        sizes = {split: len(rows) for split, rows in self.questions.items()}
        same("the questions per split", dataset.splits, sizes)
        same("the file's MD5", dataset.md5, files_of(self.manifest).get(dataset.path))
        shown = ", ".join(f"{count} {split}" for split, count in sizes.items())
        return f"{shown}; source {dataset.source['kind']}"

    def _test(self) -> str:
        test = self.record.test
        asked = provenance.questions_sha256(self.questions["test"])
        same("the hash of the test questions", test.questions, asked)
        scored = [correct for correct in test.outcomes.values() if correct is not None]
        same("the share of right answers", test.accuracy, sum(scored) / len(scored))
        if not self._results.is_relative_to(RESEARCH):
            # A new search is tested against the champion only, by its trial.
            table = check(self._table("test.parquet"), Evaluations, "test.parquet")
            own = table[table["graph_hash"] == self.record.graph_hash]["accuracy"]
            same("the graph's score in test.parquet", [test.accuracy], [*own[:1]])
        interval = f"{100 * test.low:.1f} to {100 * test.high:.1f} %"
        return f"on {counted(len(scored), 'question')}, {interval}"

    def _settings(self) -> str:
        record = self.record
        profile = self.bundle.profile
        wanted = record.settings_sha256
        same("the hash of the bundle's settings", wanted, settings_sha256(profile, record.task))
        for shots in (self.questions["shots"], self.bundle.shots):
            prompts = provenance.prompt_sha256(profile, record.task, shots)
            same("the hash of the prompts", record.prompt_sha256, prompts)
        if settings_sha256(load_profile(record.profile), record.task) != wanted:
            raise _Unverifiable(f"profiles/{record.profile}.yaml has other settings now")
        asked = record.agent_exchanges > 0
        if asked and record.agent_prompts_sha256 != provenance.agent_prompts_sha256():
            raise _Unverifiable("the agent's prompts have changed since")
        return f"those of the bundle, profile {record.profile}"

    def _models(self) -> str:
        wanted = self.record.models
        found = provenance.revisions(self.bundle.profile)
        for name, model in wanted.items():
            same(f"revision and identity of {name}", model, found.get(name))
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
            raise _Unverifiable("it was not made in a git repository")
        if git("cat-file", "-e", f"{code.commit}^{{commit}}") is None:
            raise DataError("this repository does not have the commit")
        if code.changed:
            raise _Unverifiable("files differed from the commit")
        return "the commit exists, and no file differed from it"

    def _decision(self) -> str:
        now = self.version.tags.get(registry.DECISION)
        if now is None:
            raise DataError("expected its tag decision, which the test sets, found none")
        if now != self.manifest[VERSION][registry.DECISION]:
            raise _Unverifiable(f"decided again since its test: {now}")
        return "as at its test"

    @property
    def _was_promoted_last(self) -> bool:
        with suppress(TTSGraphError, IndexError):  # the link for promotions reports the error
            return promotions(self.version.task)[-1].version == self.version.number
        return False

    def _promotion(self) -> str:
        known = promotions(self.version.task)
        if not known:
            raise DataError(
                f"expected it in {path_of(self.version.task)}, found no promotion; run `ttsgraph"
                f" promote {self.version.label}`"
            )
        if registry.CHAMPION not in self.version.aliases:
            raise DataError(
                "it was promoted last, but isn't the champion: the alias was moved or deleted; run"
                f" `ttsgraph promote {self.version.label}`"
            )
        last = known[-1]
        same("the version that was promoted last", last.version, self.version.number)
        own = self.version.tags.get("lineage_sha256")
        same("the hash of its lineage record", last.record_sha256, own)
        line = last_digest(self.version.task)
        tag = self.version.tags.get(registry.PROMOTED, "no tag promoted")
        same("the digest of its promotion", line, tag)
        return f"promoted by {last.by}: {last.reason}"

    def _parent(self, label: str, parent: provenance.Parent) -> str:
        version = self.registry.find(label)
        text = self.registry.registered(version, registry.LINEAGE, "lineage_sha256")
        same("the hash of its lineage record", parent.record_sha256, provenance.sha256(text))
        return "the champion it was compared with; its record is unchanged"


def same(what: str, expected: Any, found: Any) -> None:
    """Raise DataError if two values that should be equal differ."""
    if expected != found:
        shown = [str(value) for value in (expected, found)]
        brief = [text if len(text) <= 40 else f"{text[:37]}..." for text in shown]
        raise DataError(f"{what}: expected {brief[0]}, found {brief[1]}")


def _require_unchanged(wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise DataError that names items whose digest has changed since a version was registered."""
    if odd := changed(wanted, found):
        raise DataError(f"expected the registered content, found another {odd}")
