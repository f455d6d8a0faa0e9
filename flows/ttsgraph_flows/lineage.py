"""Verification of a version's provenance: its manifest against the stored data, and its parts
against each other (docs/audit.md).

A manifest has a digest of each item that the version depends on, by producer: the files of each
stage, the content of each MLflow run, and the version's own data. The manifest is stored as a tag,
which the version's test writes last.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE
from pydantic import TypeAdapter

from ttsgraph.base.errors import DataError, DeploymentError, TTSGraphError
from ttsgraph.base.history import read_content
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.base.wording import counted, first_line
from ttsgraph.deployment.provenance import Parent, Provenance, agent_prompts_sha256, sha256
from ttsgraph.settings.profile import load_profile
from ttsgraph.stages.identity import digest, settings_sha256
from ttsgraph.stages.schemas import Questions, check
from ttsgraph_flows import registry
from ttsgraph_flows.dvc_store import Store, table_of
from ttsgraph_flows.promotions import last_digest, path_of, promotions
from ttsgraph_flows.registry import Registry, Version
from ttsgraph_flows.tracking import HISTORY, client_of, git

Digests = Mapping[str, str]
"""Map from an item's path or name to its digest."""

Manifest = Mapping[str, Digests]
"""Map from a producer to the digests of its items."""

_parsed = TypeAdapter(dict[str, dict[str, str]]).validate_json
"""Read a manifest. Raises ValueError if the text isn't one."""

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


PROMOTION = "promotion"
ARCHIVE = "archive.parquet"
SHOWN = ["candidate_id", "iteration", "split", "graph_hash", "status", "accuracy"]
"""Columns of the archive that the lineage has for each candidate."""

Check = tuple[str, str, Callable[[], str]]
"""Name and subject of a link, and the function that verifies the link: it returns a description, or
raises an error whose message says what is wrong.
"""


class Link(ClosedModel):
    """One link of the chain; its state is `unknown` if it can't be verified."""

    name: str
    subject: str
    state: Literal["ok", "broken", "unknown"]
    detail: str

    def __str__(self) -> str:
        return f"{self.name} {self.subject}: {self.detail}"


class Lineage(ClosedModel):
    """A version's chain of links, and the candidates and agent exchanges of its search, as plain
    data.
    """

    version: str
    aliases: tuple[str, ...]
    links: tuple[Link, ...]
    record: Provenance | None = None
    candidates: tuple[dict[str, Any], ...] = ()
    exchanges: tuple[dict[str, Any], ...] = ()

    @property
    def broken(self) -> tuple[Link, ...]:
        """The broken links."""
        return tuple(link for link in self.links if link.state == "broken")

    def lines(self, check: bool) -> list[str]:
        """Return the links as text; with `check`, only those that aren't ok."""
        shown = [link for link in self.links if not check or link.state != "ok"]
        heading = " ".join([self.version, *(f"@{alias}" for alias in self.aliases)])
        return [heading, *(f"{link.state:8} {link}" for link in shown)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"intact": not self.broken, **self.model_dump(mode="json")}


def lineage(reference: str, tracking_uri: str) -> Lineage:
    """Verify a version's chain of links. Raises DeploymentError if there is no such version."""
    known = Registry(tracking_uri)
    return _LineageCheck(known, known.find(reference)).run()


def require_intact(reference: str, tracking_uri: str) -> None:
    """Raise DeploymentError naming a version's first broken links, if there are any."""
    walked = lineage(reference, tracking_uri)
    # A broken promotion link is allowed: if an alias was moved by other means, the next promotion
    # repairs the link.
    broken = [link for link in walked.broken if link.name != PROMOTION]
    if broken:
        raise DeploymentError(
            f"{walked.version}: expected an intact lineage, found"
            f" {counted(len(broken), 'broken link')}: {'; '.join(map(str, broken[:3]))}; run"
            f" `ttsgraph lineage --check {walked.version}` to see all"
        )


class _Unverifiable(Exception):
    """Reason why a link can't be verified."""


class _LineageCheck:
    """One verification of one version."""

    def __init__(self, known: Registry, version: Version) -> None:
        self.registry = known
        self.version = version
        self.store = Store()
        self.client = client_of(known.uri)
        self.contents: dict[str, bytes] = {}

    @cached_property
    def record(self) -> Provenance:
        return self.registry.provenance(self.version)

    @cached_property
    def manifest(self) -> Manifest:
        return manifest_of(self.version, self.record)

    @cached_property
    def own(self) -> Digests:
        return version_digests(self.registry, self.version)

    def run(self) -> Lineage:
        label, aliases = self.version.label, self.version.aliases
        links = [_verified("version", label, self._version)]
        if links[0].state != "ok":
            return Lineage(version=label, aliases=aliases, links=tuple(links))
        links += [_verified(*each) for each in (*self._held(), *self._semantic())]
        return Lineage(
            version=label,
            aliases=aliases,
            links=tuple(links),
            record=self.record,
            candidates=tuple(self._candidates()),
            exchanges=tuple(self._exchanges()),
        )

    def _held(self) -> Iterator[Check]:
        """Yield the checks that compare the manifest with the stored data."""
        label = self.version.label
        yield "tags", label, partial(self._of_version, TAGS)
        yield "model files", label, partial(self._of_version, MODEL)
        for path, md5 in files_of(self.manifest).items():
            yield "file", path, partial(self._file, path, md5)
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
        if registry.CHAMPION in self.version.aliases or self._was_promoted_last():
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

    def _of_version(self, kind: str) -> str:
        wanted, found = (
            {path: value for path, value in rows.items() if path.startswith(kind)}
            for rows in (self.manifest[VERSION], self.own)
        )
        if (more := added(wanted, found)) and kind == MODEL:
            raise DataError(f"{more}: added after the version was registered")
        return f"{len(wanted)} as registered"

    def _file(self, path: str, md5: str) -> str:
        kept = self.store.find(path, md5)
        if kept.content is not None:
            self.contents[path] = kept.content
        if not kept.intact:
            raise DataError(kept.where)
        known = self.store.recorded(path)
        if path in self._locked and (path, known) not in self._registered:
            raise DataError(
                f"it was changed after the version was registered: expected {md5}, found {known}"
            )
        return kept.where

    @cached_property
    def _locked(self) -> Collection[str]:
        """Files of the version that dvc.lock should list: none if another search replaced this one,
        all if the lock is from one run of the stages, else only the search's files.
        """
        wanted = self.record.files
        results = next(Path(path).parent for path in wanted if Path(path).name == "search.json")
        # Every search changes both of these files.
        both = [(results / name).as_posix() for name in (HISTORY, ARCHIVE)]
        if all(self.store.recorded(path) != wanted.get(path) for path in both):
            return ()
        if self.store.is_settled(files := files_of(self.manifest)):
            return files
        return [path for path in wanted if Path(path).parent == results]

    @cached_property
    def _registered(self) -> set[tuple[str, str | None]]:
        """Path and MD5 of every file with which a version of the task was registered."""
        found: set[tuple[str, str | None]] = {*files_of(self.manifest).items()}
        for version in self.registry.versions(self.record.task):
            with suppress(ValueError, LookupError):
                found |= files_of(_parsed(version.tags[registry.MANIFEST])).items()
        return found

    def _run(self, run_id: str, digests: Digests) -> str:
        if more := added(digests, run_digests(self.client, run_id)):
            raise _Unverifiable(f"{more}: added after the version was registered")
        return "its params, tags, metrics and artefacts are as registered"

    def _graph(self) -> str:
        graph = self.registry.deployed(self.version).graph
        same("the graph's hash", self.record.graph_hash, graph.content_hash)
        budget = self.record.budget
        used = f"{budget['used']:.3g} of {budget['limit']:g} ({budget['metric']})"
        return f"{counted(len(graph.nodes), 'node')}, {used}"

    def _search_run(self) -> str:
        record = self.record
        run = self.client.get_run(record.run_id)
        params = run.data.params
        for name, wanted, found in (
            ("stage in MLflow", "active", run.info.lifecycle_stage),
            ("status", "FINISHED", run.info.status),
            ("task", record.task, params.get("task")),
            ("profile", record.profile, params.get("profile")),
            ("method", record.search_method, params.get("method")),
            ("dataset's MD5", record.dataset.md5, run.data.tags.get("dvc_md5")),
        ):
            same(f"the run's {name}", wanted, found)
        return f"{record.search_method} on {record.task}, seed {record.seed}"

    def _content(self, name: str) -> bytes | None:
        """Return the content of a version's file by name, or None if it isn't available."""
        return next((data for path, data in self.contents.items() if Path(path).name == name), None)

    def _candidates(self) -> list[Any]:
        """Return the search's evaluations, or [] if its archive isn't available."""
        if (content := self._content(ARCHIVE)) is None:
            return []
        shown = table_of(content)[SHOWN].astype(object)
        return shown.where(shown.notna(), None).to_dict("records")

    def _exchanges(self) -> Iterator[dict[str, Any]]:
        """Yield the available exchanges of the agent before and during the search."""
        begun = json.loads(self._content("start.json") or "{}")
        history = read_content(self._content(HISTORY) or b"", HISTORY)
        for each in [*begun.get("exchanges", []), *(e for e in history if e["type"] == "agent")]:
            known = {key: each.get(key) for key in ("stage", "iteration", "attempt")}
            yield known | {
                "answer_sha256": sha256(each["answer"]),
                "refused": len(each["refused"]),
            }

    def _dataset(self) -> str:
        dataset = self.record.dataset
        if (content := self.contents.get(dataset.path)) is None:
            raise DataError(f"expected {dataset.path}, but it can't be read; see above")
        table = check(table_of(content), Questions, dataset.path)
        sizes = table["split"].value_counts()
        same("the questions per split", {k: n for k, n in dataset.splits.items() if n}, dict(sizes))
        same("the file's MD5", dataset.md5, files_of(self.manifest).get(dataset.path))
        shown = ", ".join(f"{count} {split}" for split, count in dataset.splits.items())
        return f"{shown}; source {dataset.source['kind']}"

    def _settings(self) -> str:
        record = self.record
        if settings_sha256(load_profile(record.profile), record.task) != record.settings_sha256:
            raise _Unverifiable(f"profiles/{record.profile}.yaml has different settings now")
        if record.agent_exchanges and record.agent_prompts_sha256 != agent_prompts_sha256():
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

    def _was_promoted_last(self) -> bool:
        try:
            known = promotions(self.version.task)
        except TTSGraphError:
            return True  # so that the promotion link is checked, and reports the error
        return bool(known) and known[-1].version == self.version.number

    def _promotion(self) -> str:
        task, again = self.version.task, f"run `ttsgraph promote {self.version.label}`"
        if not (known := promotions(task)):
            raise DataError(f"expected a promotion in {path_of(task)}, found none; {again}")
        if registry.CHAMPION not in self.version.aliases:
            raise DataError(
                "expected the version promoted last to be the champion, but the alias was moved or"
                f" deleted; {again}"
            )
        last, tags = known[-1], self.version.tags
        same("the version that was promoted last", last.version, self.version.number)
        same("its lineage record's hash", last.record_sha256, tags.get("lineage_sha256"))
        same("its promotion's digest", last_digest(task), tags.get(registry.PROMOTED, "no tag"))
        return f"promoted by {last.by}: {last.reason}"

    def _parent(self, label: str, parent: Parent) -> str:
        text = self.registry.registered(
            self.registry.find(label), registry.LINEAGE, "lineage_sha256"
        )
        same("the hash of its lineage record", parent.record_sha256, sha256(text))
        return "the champion it was compared with; its record is unchanged"


def _verified(name: str, subject: str, verify: Callable[[], str]) -> Link:
    state: Literal["ok", "broken", "unknown"]
    try:
        state, detail = "ok", verify()
    except _Unverifiable as reason:
        state, detail = "unknown", str(reason)
    except (TTSGraphError, MlflowException, OSError, ValueError, KeyError, TypeError) as error:
        state, detail = "broken", first_line(error)
    return Link(name=name, subject=subject, state=state, detail=detail)


def same(what: str, expected: Any, found: Any) -> None:
    """Raise DataError if two values that should be equal differ."""
    if expected != found:
        shown = (str(value) for value in (expected, found))
        wanted, other = (text if len(text) <= 40 else f"{text[:37]}..." for text in shown)
        raise DataError(f"{what}: expected {wanted}, found {other}")


def seal(known: Registry, version: Version, files: Manifest, runs: Iterable[str]) -> None:
    """Store the manifest of a complete version: its files by stage, and the content of these MLflow
    runs.
    """
    client = client_of(known.uri)
    now = known.find(version.label)
    held = {RUN + run: run_digests(client, run) for run in sorted(set(runs))}
    own = version_digests(known, now) | {registry.DECISION: now.tags.get(registry.DECISION, "")}
    known.tag(now, registry.MANIFEST, json.dumps({**files, **held, VERSION: own}, sort_keys=True))


def manifest_of(version: Version, record: Provenance) -> Manifest:
    """Return the manifest of a version. Raises DataError if it is missing, or if the version's test
    can't have written it.
    """
    if (text := version.tags.get(registry.MANIFEST)) is None:
        raise DataError(
            "expected the version's tag 'manifest', which its test writes last, found none: the tag"
            " was removed, or the test didn't finish; run `make repro` to finish it"
        )
    with suppress(ValueError, LookupError):
        found = _parsed(text)
        runs = {RUN + run for run in (record.run_id, *record.stage_runs.values())}
        whole = runs <= found.keys() and registry.DECISION in found[VERSION]
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


def version_digests(known: Registry, version: Version) -> dict[str, str]:
    """Return the digests of a version's files (one for all of its code) and of the tags set by its
    test.
    """
    with known.download(version) as folder:
        files = _digests_of(folder)
    files.pop(MADE_WHEN_READ, None)
    code = {path: files.pop(path) for path in [*files] if path.startswith(CODE)}
    files[CODE] = digest(code)
    tags = {
        TAGS + key: sha256(text)
        for key, text in version.tags.items()
        if key not in registry.DECIDED
    }
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
