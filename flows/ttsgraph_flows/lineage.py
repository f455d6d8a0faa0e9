"""From a version back to all it comes from, each link verified; and from a dataset or a model to
the versions that use it.
"""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import yaml
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from ttsgraph.base.errors import DeploymentError, TTSGraphError
from ttsgraph.base.journal import read_content
from ttsgraph.base.parsing import parse
from ttsgraph.base.wording import counted
from ttsgraph.deployment.bundle import BUNDLE, Deployed
from ttsgraph.deployment.provenance import (
    Parent,
    Provenance,
    prompt_sha256,
    questions_sha256,
    revisions,
    settings_sha256,
    sha256,
)
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.stages.schemas import Candidates, Evaluations, Questions, check
from ttsgraph.tasks.questions import questions_of
from ttsgraph_flows import recorded
from ttsgraph_flows.dependents import dependents as dependents
from ttsgraph_flows.dvc_store import Store
from ttsgraph_flows.manifest import run_sha256
from ttsgraph_flows.registry import (
    DECISION,
    LADDER,
    LADDER_SHA256,
    LINEAGE,
    MANIFEST,
    TRIAL,
    Registry,
    Version,
    tags_of,
)
from ttsgraph_flows.stage import RESEARCH
from ttsgraph_flows.tracking import client_of

State = Literal["ok", "broken", "unknown"]


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain: what it is, which one, whether it holds, and what was seen. `unknown`:
    there is nothing to verify.
    """

    name: str
    subject: str
    state: State
    detail: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """A version's chain, and the candidates and agent exchanges behind it, as plain data."""

    version: str
    aliases: tuple[str, ...]
    links: tuple[Link, ...]
    record: Provenance | None = None
    candidates: tuple[dict[str, Any], ...] = ()
    exchanges: tuple[dict[str, Any], ...] = ()

    @property
    def broken(self) -> tuple[Link, ...]:
        """The links that do not hold."""
        return tuple(link for link in self.links if link.state == "broken")

    def lines(self, check: bool) -> list[str]:
        """The links in words, to `check` those that don't hold alone."""
        shown = [link for link in self.links if not check or link.state != "ok"]
        return [
            " ".join([self.version, *(f"@{alias}" for alias in self.aliases)]),
            *(f"{link.state:8} {link.name} {link.subject}: {link.detail}" for link in shown),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "version": self.version,
            "aliases": list(self.aliases),
            "intact": not self.broken,
            "links": [asdict(link) for link in self.links],
            "record": self.record.model_dump(mode="json") if self.record else None,
            "candidates": list(self.candidates),
            "exchanges": list(self.exchanges),
        }


def lineage(reference: str, tracking_uri: str, folder: Path = Path()) -> Lineage:
    """Walk and verify a version's chain. Raises DeploymentError when there is no such version."""
    registry = Registry(tracking_uri)
    return _Walk(registry, registry.find(reference), Store(folder), folder).run()


def require_intact(reference: str, tracking_uri: str) -> None:
    """Raises DeploymentError that names a version's broken links."""
    walked = lineage(reference, tracking_uri)
    if walked.broken:
        told = "; ".join(f"{link.name} {link.subject}: {link.detail}" for link in walked.broken[:3])
        raise DeploymentError(
            f"{walked.version}: expected an intact lineage, found"
            f" {counted(len(walked.broken), 'broken link')}: {told}; `ttsgraph lineage --check"
            f" {walked.version}` lists all"
        )


class _Broken(Exception):
    """A link does not hold, and why."""


class _Unknown(Exception):
    """There is nothing to verify a link by, and why."""


@dataclass
class _Walk:
    """The state of one walk: what earlier links found is what later ones verify."""

    registry: Registry
    version: Version
    store: Store
    folder: Path
    links: list[Link] = field(default_factory=list)
    candidates: list[dict[str, Any]] = field(default_factory=list)
    exchanges: list[dict[str, Any]] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)

    def run(self) -> Lineage:
        record: Provenance | None = None
        deployed: Deployed | None = None

        def version() -> str:
            nonlocal record
            text = self._registered(LINEAGE, "lineage_sha256")
            record = Provenance.from_json(text, LINEAGE)
            return "its lineage record is the one that was registered"

        def graph() -> str:
            nonlocal deployed
            assert record is not None
            text = self._registered(BUNDLE, "bundle_sha256")
            _same(
                "the hash of the bundle in the lineage record", record.bundle_sha256, sha256(text)
            )
            deployed = Deployed.from_dict(json.loads(text), BUNDLE, self.version.number)
            _same("the graph's hash", record.graph_hash, deployed.graph.content_hash)
            budget = record.budget
            return (
                f"{counted(len(deployed.graph.nodes), 'node')}, {budget['used']:.3g} of"
                f" {budget['limit']:g} ({budget['metric']})"
            )

        self._link("version", self.version.label, version)
        if record is not None:
            self._link("tags", self.version.label, partial(self._tags, record))
            self._link("model files", self.version.label, self._model_files)
            self._link("graph", record.graph_hash, graph)
            self._walk(record, deployed)
        return Lineage(
            self.version.label,
            self.version.aliases,
            tuple(self.links),
            record,
            tuple(self.candidates),
            tuple(self.exchanges),
        )

    def _walk(self, record: Provenance, deployed: Deployed | None) -> None:
        """The links behind a record that could be read."""
        self._link("search run", record.run_id, lambda: self._run(record))
        manifest = json.loads(self.version.tags.get(MANIFEST, "{}"))
        for path, digest in (manifest.get("files", {}) | record.files).items():
            self._link("file", path, partial(self._file, path, digest))
        for run_id, digest in manifest.get("runs", {}).items():
            self._link("run", run_id, partial(self._run_settings, run_id, digest))
        self._link("decision", self.version.label, lambda: self._decision(manifest))
        if LADDER_SHA256 in self.version.tags:
            self._link("ladder", self.version.label, self._ladder)
        self._link(
            "candidates", f"{record.candidates} evaluations", lambda: self._candidates(record)
        )
        self._link("trajectory", record.run_id, lambda: self._trajectory(record))
        if (baseline := record.baseline) is not None:
            same = partial(recorded.check_baseline, self._client, record, baseline)
            self._link("baseline", f"{baseline.arm}: {baseline.label}", same)
        for stage, run_id in record.stage_runs.items():
            self._link(
                "stage run", f"{stage} {run_id}", partial(self._stage_run, record, stage, run_id)
            )
        self._link("models chosen", "start.json", lambda: self._why(record))
        self._link(
            "agent exchanges",
            f"{record.agent_exchanges} exchanges",
            lambda: self._exchanges(record),
        )
        self._link(
            "dataset", f"{record.dataset.path} {record.dataset.md5}", lambda: self._dataset(record)
        )
        self._link("test", f"{100 * record.test.accuracy:.1f} %", lambda: self._test(record))
        if not self._searched(record).is_relative_to(self.folder / RESEARCH):
            # A new search is tested against the champion alone, by its trial.
            self._link("rivals", "test.parquet", lambda: self._rivals(record))
        self._link("code", record.code.commit or "no commit", lambda: self._code(record))
        self._link(
            "settings", record.settings_sha256[:16], lambda: self._settings(record, deployed)
        )
        self._link("prompts", record.prompt_sha256[:16], lambda: self._prompts(record, deployed))
        for name, model in record.models.items():
            self._link(
                "model", f"{name}@{model.revision}", partial(self._model, record, deployed, name)
            )
        if (trial := self.version.tags.get(TRIAL)) is not None:
            self._link("trial", self.version.label, lambda: trial)
        if record.parent is not None:
            self._link(
                "replaces",
                f"{record.task}/{record.parent.version}",
                lambda: self._parent(record.task, record.parent),
            )

    def _link(self, name: str, subject: str, verify: Callable[[], str]) -> None:
        """Verify one link; whatever goes wrong in that is what is wrong with the link."""
        state: State = "ok"
        try:
            detail = verify()
        except _Unknown as reason:
            state = "unknown"
            detail = str(reason)
        except _Broken as reason:
            state = "broken"
            detail = str(reason)
        except (TTSGraphError, MlflowException, OSError, ValueError, KeyError, TypeError) as error:
            state = "broken"
            detail = (str(error).strip().splitlines() or [type(error).__name__])[0]
        self.links.append(Link(name, subject, state, detail))

    def _registered(self, name: str, tag: str) -> str:
        """One of the version's files, if it is what was registered."""
        text = self.registry.text(self.version, name)
        if sha256(text) != self.version.tags.get(tag):
            raise _Broken(
                f"{name} is not the file that was registered: its hash is {sha256(text)[:16]}"
            )
        return text

    def _run(self, record: Provenance) -> str:
        run = self._client.get_run(record.run_id)
        if run.info.lifecycle_stage != "active":
            raise _Broken("the run was deleted")
        if run.info.status != "FINISHED":
            raise _Broken(f"expected a finished run, found {run.info.status}")
        for key, value in (
            ("task", record.task),
            ("profile", record.profile),
            ("method", record.search_method),
        ):
            _same(f"the run's {key}", value, run.data.params.get(key))
        _same("the MD5 of the run's dataset", record.dataset.md5, run.data.tags.get("dvc_md5"))
        return f"{record.search_method} on {record.task}, seed {record.seed}"

    @property
    def _client(self) -> MlflowClient:
        return client_of(self.registry.uri)

    def _file(self, path: str, digest: str) -> str:
        kept = self.store.find(path, digest)
        if kept.content is not None:
            self.contents[path] = kept.content
        if not kept.intact:
            raise _Broken(kept.where)
        if self._is_last and (changed := self.store.changed(path, digest)):
            raise _Broken(changed)
        return kept.where

    @cached_property
    def _is_last(self) -> bool:
        """Whether the working tree has the results of this version, not of a later search."""
        try:
            record = self.registry.provenance(self.version)
            told = json.loads((self._searched(record) / "run.json").read_bytes())
        except (TTSGraphError, OSError, ValueError):
            return False
        return told.get("run_id") == record.run_id

    def _run_settings(self, run_id: str, digest: str) -> str:
        _same("the hash of its params and tags", digest, run_sha256(self._client, run_id))
        return "its params and tags are those of when the version was registered"

    def _decision(self, manifest: Mapping[str, Any]) -> str:
        if DECISION not in manifest:
            raise _Unknown("it was registered before manifests were kept")
        told = self.version.tags.get(DECISION)
        if told != manifest[DECISION]:
            raise _Unknown(f"decided again since its test: {told}")
        return "that of its test"

    def _ladder(self) -> str:
        self._registered(LADDER, LADDER_SHA256)
        return "the graphs that serve other prices are those that were registered"

    def _content(self, record: Provenance, name: str) -> bytes:
        """A file of the record by its name. Broken when it could not be had."""
        known = [*record.files, *self.contents]
        path = next((path for path in known if Path(path).name == name), name)
        if path not in self.contents:
            raise _Broken(f"{path} can't be read, see above")
        return self.contents[path]

    def _candidates(self, record: Provenance) -> str:
        """Every row of the archive is in the journal and in the run, with the same graph and score,
        and the other way round.
        """
        table = check(
            pd.read_parquet(io.BytesIO(self._content(record, "archive.parquet"))),
            Candidates,
            "archive.parquet",
        )
        rows = table.to_dict("records")
        _same("the archive's evaluations", record.candidates, len(rows))
        journal = [entry for entry in self._journal(record) if entry["type"] == "record"]
        _same("the journal's evaluations", len(rows), len(journal))
        recorded.check_candidates(self._client, record.run_id, table)
        for row, entry in zip(rows, journal, strict=True):
            number = int(row["candidate_id"])
            where = f"candidate {number}"
            _same(
                f"the graph of {where}",
                row["graph_hash"],
                CollaborationGraph.from_json(row["graph"]).content_hash,
            )
            _same(f"the journal's graph of {where}", row["graph"], entry["graph"])
            _same(
                f"the journal's accuracy of {where}",
                recorded.number(row["accuracy"]),
                recorded.number(entry["accuracy"]),
            )
            self.candidates.append(
                {
                    key: row[key]
                    for key in ("candidate_id", "iteration", "split", "graph_hash", "status")
                }
                | {"accuracy": recorded.number(row["accuracy"])}
            )
        wanted = record.baseline.instead_of if record.baseline else record.graph_hash
        validated = {r["graph_hash"]: r["found_by"] for r in rows if r["split"] == "val"}
        if wanted not in validated:
            raise _Broken("the found graph is not among those that were validated")
        if record.found_by and not record.baseline:
            _same("who found the graph", record.found_by, validated[wanted])
        found = CollaborationGraph.from_json(
            self._content(record, "graph.json").decode(), "graph.json"
        )
        _same("the hash of the search's graph file", wanted, found.content_hash)
        return "archive, journal and run agree, and the found graph is among the validated ones"

    def _stage_run(self, record: Provenance, stage: str, run_id: str) -> str:
        table = pd.read_parquet(io.BytesIO(self._content(record, f"{stage}.parquet")))
        return recorded.check_stage(self._client, run_id, table, stage)

    def _why(self, record: Provenance) -> str:
        """Why the search began with these models: what the first init stage said, and the best that
        the second one measured.
        """
        table = pd.read_parquet(io.BytesIO(self._content(record, "init_instances.parquet")))
        start = json.loads(self._content(record, "start.json"))["counts"]
        return recorded.why_models(
            start, json.loads(self._content(record, "preference.json")), table
        )

    def _tags(self, record: Provenance) -> str:
        for key, value in tags_of(record).items():
            _same(f"the version's tag {key}", value, self.version.tags.get(key))
        return "those of its record, by which it is found"

    def _model_files(self) -> str:
        _same(
            "the hash of the logged model's files, which MLflow runs",
            self.version.tags.get("files_sha256"),
            self.registry.files_sha256(self.version),
        )
        return "the logged model, with the code that loads it, is the one that was registered"

    def _trajectory(self, record: Provenance) -> str:
        table = pd.read_csv(io.BytesIO(self._content(record, "trajectory.csv")))
        recorded.check_trajectory(
            self._client, record.run_id, table, json.loads(self._content(record, "search.json"))
        )
        return f"{counted(len(table), 'iteration')}, as in the run"

    def _searched(self, record: Provenance) -> Path:
        """The folder of the search's results."""
        found = next(path for path in record.files if Path(path).name == "search.json")
        return self.folder / Path(found).parent

    def _rivals(self, record: Provenance) -> str:
        if not any(Path(path).name == "test.parquet" for path in self.contents):
            raise _Unknown("it was registered before the test was part of the manifest")
        table = pd.read_parquet(io.BytesIO(self._content(record, "test.parquet")))
        check(table, Evaluations, "test.parquet")
        _same(
            "the graph's test score",
            [record.test.accuracy],
            [*table[table["graph_hash"] == record.graph_hash]["accuracy"][:1]],
        )
        recorded.check_test(self._client, record.run_id, table)
        return f"{counted(len(table), 'score')} in test.parquet, as in the run"

    def _journal(self, record: Provenance) -> list[dict[str, Any]]:
        name = "history.jsonl"
        return [entry for _, entry in read_content(self._content(record, name), name).entries[1:]]

    def _exchanges(self, record: Provenance) -> str:
        start = json.loads(self._content(record, "start.json"))
        told = [
            *start.get("exchanges", []),
            *(entry for entry in self._journal(record) if entry["type"] == "agent"),
        ]
        _same("the agent's exchanges", record.agent_exchanges, len(told))
        self.exchanges += [
            {
                "stage": e["stage"],
                "iteration": e.get("iteration"),
                "attempt": e["attempt"],
                "answer_sha256": sha256(e["answer"]),
                "refused": len(e["refused"]),
            }
            for e in told
        ]
        return "in the journal and in start.json" if told else "no language model was asked"

    def _dataset(self, record: Provenance) -> str:
        where = self._file(record.dataset.path, record.dataset.md5)
        splits = self._questions(record)
        _same(
            "the questions per split",
            record.dataset.splits,
            {split: len(rows) for split, rows in splits.items()},
        )
        sizes = ", ".join(f"{count} {split}" for split, count in record.dataset.splits.items())
        return f"{where}; {sizes}; source {record.dataset.source['kind']}"

    def _questions(self, record: Provenance) -> dict[str, list[Any]]:
        table = pd.read_parquet(io.BytesIO(self._content(record, record.dataset.path)))
        return questions_of(check(table, Questions, record.dataset.path))

    def _test(self, record: Provenance) -> str:
        test = record.test
        _same(
            "the hash of the test questions",
            test.questions,
            questions_sha256(self._questions(record)["test"]),
        )
        scored = [correct for correct in test.outcomes.values() if correct is not None]
        _same("the share of right answers", test.accuracy, sum(scored) / len(scored))
        if record.baseline is None:  # whose score in the run is a link of its own
            metrics = self._client.get_run(record.run_id).data.metrics
            _same("the run's test score", test.accuracy, metrics.get("test_found_accuracy"))
        return (
            f"on {counted(len(scored), 'question')}, {100 * test.low:.1f} to"
            f" {100 * test.high:.1f} %"
        )

    def _code(self, record: Provenance) -> str:
        commit = record.code.commit
        if commit is None:
            raise _Unknown("it was not made in a git repository")
        if self._git("cat-file", "-e", f"{commit}^{{commit}}") is None:
            raise _Broken("this repository does not have the commit")
        if record.code.changed:
            raise _Unknown("files differed from the commit")
        return "the commit exists, and no file differed from it"

    def _settings(self, record: Provenance, deployed: Deployed | None) -> str:
        if deployed is None:
            raise _Broken(f"{BUNDLE} can't be read, see above")
        _same(
            "the hash of the bundle's settings",
            record.settings_sha256,
            settings_sha256(deployed.profile, record.task),
        )
        now = settings_sha256(load_profile(record.profile, self.folder / "profiles"), record.task)
        if now != record.settings_sha256:
            raise _Unknown(f"profiles/{record.profile}.yaml has other settings now")
        if record.code.commit is None or record.code.changed:
            return f"those of the bundle, profile {record.profile}"
        text = self._git("show", f"{record.code.commit}:profiles/{record.profile}.yaml")
        if text is None:
            raise _Broken(f"the commit has no profiles/{record.profile}.yaml")
        profile = parse(Profile, yaml.safe_load(text), f"profiles/{record.profile}.yaml")
        known = profile.newcomers | profile.pool
        # The record lists variants too, which are settings of their models.
        then = profile.model_copy(
            update={"pool": {name: known[name] for name in record.models if name in known}}
        )
        _same(
            "the hash of the settings in the commit",
            record.settings_sha256,
            settings_sha256(then, record.task),
        )
        return f"those of the bundle, and of profiles/{record.profile}.yaml in the commit"

    def _prompts(self, record: Provenance, deployed: Deployed | None) -> str:
        if deployed is None:
            raise _Broken(f"{BUNDLE} can't be read, see above")
        shots = self._questions(record)["shots"]
        _same(
            "the hash of the prompts",
            record.prompt_sha256,
            prompt_sha256(deployed.profile, record.task, shots),
        )
        _same(
            "the bundle's worked examples",
            prompt_sha256(deployed.profile, record.task, deployed.shots),
            record.prompt_sha256,
        )
        return "from the settings and the dataset's worked examples"

    def _model(self, record: Provenance, deployed: Deployed | None, name: str) -> str:
        if deployed is None:
            raise _Broken(f"{BUNDLE} can't be read, see above")
        recomputed = revisions(deployed.profile)[name]
        wanted = record.models[name]
        _same("its revision", wanted.revision, recomputed.revision)
        _same("its identity in the call cache", wanted.identity, recomputed.identity)
        if wanted.revision == "unpinned":
            raise _Unknown(
                "the profile pins no revision: what answered at its endpoint is all that is known"
            )
        used = name in {node.model for node in deployed.graph.nodes}
        return "used by the graph" if used else "in the pool, not used by the graph"

    def _parent(self, task: str, parent: Parent | None) -> str:
        assert parent is not None
        version = self.registry.find(f"{task}/{parent.version}")
        _same(
            "the hash of its lineage record",
            parent.record_sha256,
            version.tags.get("lineage_sha256"),
        )
        _same(
            "the hash of its lineage record",
            parent.record_sha256,
            sha256(self.registry.text(version, LINEAGE)),
        )
        return "the champion that it was compared with; its record is unchanged"

    def _git(self, *arguments: str) -> str | None:
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        return done.stdout if done.returncode == 0 else None


def _same(what: str, expected: Any, found: Any) -> None:
    """Raises _Broken when two values that should be one are not."""
    if expected != found:
        shown = [
            text if len(text := str(value)) <= 40 else text[:37] + "..."
            for value in (expected, found)
        ]
        raise _Broken(f"{what}: expected {shown[0]}, found {shown[1]}")
