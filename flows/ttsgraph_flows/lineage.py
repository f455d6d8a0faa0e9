"""From a version back to all it comes from, each link verified (docs/audit.md)."""

import contextlib
import io
import json
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import yaml
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from ttsgraph.base.errors import DataError, DeploymentError, TTSGraphError
from ttsgraph.base.journal import read_content
from ttsgraph.base.parsing import parse
from ttsgraph.base.wording import counted
from ttsgraph.deployment import provenance
from ttsgraph.deployment.bundle import BUNDLE, Deployed
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.schemas import Candidates, Evaluations, Questions, check
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import questions_of
from ttsgraph_flows import registry
from ttsgraph_flows.dvc_store import Store
from ttsgraph_flows.promotions import path_of, promotions
from ttsgraph_flows.stage import RESEARCH
from ttsgraph_flows.tracking import as_archive, client_of, git, logged_rows, steps

PROMOTION = "promotion"


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain; `unknown` where there is nothing to verify it by."""

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


def lineage(reference: str, tracking_uri: str) -> Lineage:
    """Walk and verify a version's chain. Raises DeploymentError when there is no such version."""
    known = registry.Registry(tracking_uri)
    return _Walk(known, known.find(reference)).run()


def require_intact(reference: str, tracking_uri: str) -> None:
    """Raises DeploymentError that names a version's broken links."""
    walked = lineage(reference, tracking_uri)
    # To promote a champion whose alias was moved in another way is what mends that link.
    broken = [link for link in walked.broken if link.name != PROMOTION]
    if broken:
        first = [f"{link.name} {link.subject}: {link.detail}" for link in broken[:3]]
        raise DeploymentError(
            f"{walked.version}: expected an intact lineage, found"
            f" {counted(len(broken), 'broken link')}: {'; '.join(first)}; `ttsgraph lineage"
            f" --check {walked.version}` lists all"
        )


class _Unknown(Exception):
    """There is nothing to verify a link by, and why."""


class _Walk:
    """One walk: what earlier links found is what later ones verify. A method that verifies a link
    returns what was seen; an error in it is what is wrong with the link.
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
    def bundle(self) -> Deployed:
        text = self.registry.registered(self.version, BUNDLE, "bundle_sha256")
        same(
            "the bundle's hash in the lineage record",
            self.record.bundle_sha256,
            provenance.sha256(text),
        )
        return Deployed.from_dict(json.loads(text), BUNDLE, self.version.number)

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        if (text := self.version.tags.get(registry.MANIFEST)) is None:
            raise DataError(
                "expected its tag manifest, which the test writes last, found none: it was taken"
                " away, or the test didn't end; `make repro` ends it"
            )
        try:
            found = dict(json.loads(text))
            complete = self.record.run_id in found["held"] and {"files", "tags", registry.DECISION}
        except (TypeError, ValueError, KeyError):
            complete = None
        if not complete or complete - found.keys():
            raise DataError("its manifest is not one that was registered")
        return found

    def run(self) -> Lineage:
        label = self.version.label
        readable = self._link("version", label, self._version)
        if readable:
            self._all_behind()
        return Lineage(
            label,
            self.version.aliases,
            tuple(self.links),
            self.record if readable else None,
            tuple(self.candidates),
            tuple(self.exchanges),
        )

    def _all_behind(self) -> None:
        """The links behind a record that could be read."""
        record = self.record
        label = self.version.label
        link = self._link
        link("tags", label, self._tags)
        link("model files", label, self._model_files)
        link("graph", record.graph_hash, self._graph)
        link("search run", record.run_id, self._search_run)
        for path, digest in (self.manifest["files"] | record.files).items():
            link("file", path, partial(self._file, path, digest))
        for run_id, digests in self.manifest["held"].items():
            link("run", run_id, partial(self._run, run_id, digests))
        link("decision", label, self._decision)
        if registry.CHAMPION in self.version.aliases:
            link(PROMOTION, label, self._promotion)
        if registry.LADDER_SHA256 in self.version.tags:
            link("ladder", label, self._ladder)
        link("candidates", f"{record.candidates} evaluations", self._candidates)
        if (baseline := record.baseline) is not None:
            why = f"put up instead of the graph {baseline.instead_of}: {baseline.reason}"
            link("baseline", f"{baseline.arm}: {baseline.label}", lambda: why)
        for stage, run_id in record.stage_runs.items():
            link("stage run", f"{stage} {run_id}", partial(self._stage_run, stage, run_id))
        link("models chosen", "start.json", self._why)
        link("agent exchanges", f"{record.agent_exchanges} exchanges", self._exchanges)
        link("dataset", f"{record.dataset.path} {record.dataset.md5}", self._dataset)
        link("test", f"{100 * record.test.accuracy:.1f} %", self._test)
        if not self._results.is_relative_to(RESEARCH):
            # A new search is tested against the champion alone, by its trial.
            link("rivals", "test.parquet", self._rivals)
        link("code", record.code.commit or "no commit", self._code)
        link("settings", record.settings_sha256[:16], self._settings)
        link("prompts", record.prompt_sha256[:16], self._prompts)
        for name, model in record.models.items():
            link("model", f"{name}@{model.revision}", partial(self._model, name))
        if (trial := self.version.tags.get(registry.TRIAL)) is not None:
            link("trial", label, lambda: trial)
        if (parent := record.parent) is not None:
            subject = f"{record.task}/{parent.version}"
            link("replaces", subject, partial(self._parent, subject, parent))

    def _link(self, name: str, subject: str, verify: Callable[[], str]) -> bool:
        """Verify one link; returns whether it holds."""
        try:
            link = Link(name, subject, "ok", verify())
        except _Unknown as reason:
            link = Link(name, subject, "unknown", str(reason))
        except (TTSGraphError, MlflowException, OSError, ValueError, KeyError, TypeError) as error:
            wrong = (str(error).strip().splitlines() or [type(error).__name__])[0]
            link = Link(name, subject, "broken", wrong)
        self.links.append(link)
        return link.state == "ok"

    def _version(self) -> str:
        same("the run of the version", self.record.run_id, self.version.run_id)
        files = len(self.record.files | self.manifest["files"])
        return f"its record of {counted(files, 'file')} is the one that was registered"

    def _tags(self) -> str:
        tags = self.version.tags
        for key, value in registry.tags_of(self.record).items():
            same(f"the version's tag {key}", value, tags.get(key))
        _unchanged(
            self.manifest["tags"], {key: provenance.sha256(tags[key]) for key in tags}, "tag "
        )
        return "those of its record, by which it is found"

    def _model_files(self) -> str:
        found = self.registry.files_sha256(self.version)
        what = "the hash of the logged model's files, which MLflow runs"
        same(what, self.version.tags.get("files_sha256"), found)
        return "the logged model, with the code that loads it, is the one that was registered"

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

    def _file(self, path: str, digest: str) -> str:
        kept = self.store.find(path, digest)
        if kept.content is not None:
            self.contents[path] = kept.content
        if not kept.intact:
            raise DataError(kept.where)
        known = self.store.recorded(path)
        if self._is_recorded and (path, known) not in self._registered:
            raise DataError(
                f"it was changed after the version was registered: expected {digest}, found {known}"
            )
        return kept.where

    @cached_property
    def _is_recorded(self) -> bool:
        """Whether dvc.lock has the results of this version's search, and not files of several runs.
        Of one search the history and the archive change together.
        """
        own = [self._results / name for name in ("history.jsonl", "archive.parquet")]
        wanted = self.record.files
        same = [self.store.recorded(path) == wanted.get(path.as_posix()) for path in own]
        return any(same) and self.store.is_settled([*wanted, *self.manifest["files"]])

    @cached_property
    def _registered(self) -> set[tuple[str, str | None]]:
        """Path and MD5 of all files that versions of the task were registered with."""
        known = [self.record.files, self.manifest["files"]]
        for version in self.registry.versions(self.record.task):
            with contextlib.suppress(ValueError, LookupError, TypeError):
                known.append(json.loads(version.tags[registry.MANIFEST])["files"])
        return {item for files in known for item in files.items()}

    @property
    def _results(self) -> Path:
        """The folder of the search's results."""
        found = next(path for path in self.record.files if Path(path).name == "search.json")
        return Path(found).parent

    def _run(self, run_id: str, digests: Mapping[str, str]) -> str:
        found = registry.run_digests(self.client, run_id)
        _unchanged(digests, found)
        if added := sorted(found.keys() - digests.keys()):
            raise _Unknown(f"{', '.join(added[:3])}: added after the version was registered")
        return (
            "its params, tags, metrics and artefacts are those of when the version was registered"
        )

    def _decision(self) -> str:
        now = self.version.tags.get(registry.DECISION)
        if now != self.manifest[registry.DECISION]:
            raise _Unknown(f"decided again since its test: {now}")
        return "that of its test"

    def _promotion(self) -> str:
        known = promotions(self.version.task)
        if not known:
            raise DataError(
                f"expected it in {path_of(self.version.task)}, found no promotion; `ttsgraph"
                f" promote {self.version.label}` promotes it"
            )
        last = known[-1]
        same("the version that was promoted last", last.version, self.version.number)
        own = self.version.tags.get("lineage_sha256")
        same("the hash of its lineage record", last.record_sha256, own)
        return f"promoted by {last.by}: {last.reason}"

    def _ladder(self) -> str:
        self.registry.registered(self.version, registry.LADDER, registry.LADDER_SHA256)
        return "the graphs that serve other prices are those that were registered"

    def _content(self, name: str) -> bytes:
        """A file of the record by its name. Raises DataError when it could not be had."""
        known = [*self.record.files, *self.contents]
        path = next((path for path in known if Path(path).name == name), name)
        if path not in self.contents:
            raise DataError(f"{path} can't be read, see above")
        return self.contents[path]

    def _table(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(io.BytesIO(self._content(name)))

    def _json(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self._content(name)))

    def _journal(self, kind: str) -> list[dict[str, Any]]:
        """The entries of a type in the search's history."""
        name = "history.jsonl"
        entries = read_content(self._content(name), name)
        return [entry for entry in entries if entry["type"] == kind]

    def _candidates(self) -> str:
        """Archive, journal and run have the same candidates, graphs and scores."""
        record = self.record
        table = check(self._table("archive.parquet"), Candidates, "archive.parquet")
        rows = table.to_dict("records")
        same("the archive's evaluations", record.candidates, len(rows))
        journal = self._journal("record")
        same("the journal's evaluations", len(rows), len(journal))
        check_candidates(self.client, record.run_id, table)
        for row, entry in zip(rows, journal, strict=True):
            where = f"of candidate {row['candidate_id']}"
            graph = CollaborationGraph.from_json(row["graph"])
            accuracy = _number(row["accuracy"])
            same(f"the graph {where}", row["graph_hash"], graph.content_hash)
            same(f"the journal's graph {where}", row["graph"], entry["graph"])
            same(f"the journal's accuracy {where}", accuracy, _number(entry["accuracy"]))
            shown = ("candidate_id", "iteration", "split", "graph_hash", "status")
            self.candidates.append({key: row[key] for key in shown} | {"accuracy": accuracy})
        wanted = record.baseline.instead_of if record.baseline else record.graph_hash
        validated = {r["graph_hash"]: r["found_by"] for r in rows if r["split"] == "val"}
        if wanted not in validated:
            raise DataError("the found graph is not among those that were validated")
        if not record.baseline:
            same("who found the graph", record.found_by, validated[wanted])
        found = CollaborationGraph.from_json(self._content("graph.json").decode(), "graph.json")
        same("the hash of the search's graph file", wanted, found.content_hash)
        return "archive, journal and run agree, and the found graph is among the validated ones"

    def _stage_run(self, stage: str, run_id: str) -> str:
        """The run of a stage has the graphs that it measured, and no others."""
        table = self._table(f"{stage}.parquet")
        check_candidates(self.client, run_id, as_archive(stage, table))
        return f"{counted(len(table), 'graph')} measured, as in {stage}.parquet"

    def _why(self) -> str:
        start = self._json("start.json")["counts"]
        if self.record.warm_from is not None:
            return f"{json.dumps(start)}: those of {self.record.warm_from}"
        trials = self._table("init_instances.parquet")
        return why_models(start, self._json("preference.json"), trials)

    def _exchanges(self) -> str:
        found = [*self._json("start.json").get("exchanges", []), *self._journal("agent")]
        same("the agent's exchanges", self.record.agent_exchanges, len(found))
        for each in found:
            shown = {key: each.get(key) for key in ("stage", "iteration", "attempt")}
            shown |= {
                "answer_sha256": provenance.sha256(each["answer"]),
                "refused": len(each["refused"]),
            }
            self.exchanges.append(shown)
        return "in the journal and in start.json" if found else "no language model was asked"

    def _dataset(self) -> str:
        dataset = self.record.dataset
        where = self._file(dataset.path, dataset.md5)
        sizes = {split: len(rows) for split, rows in self._questions.items()}
        same("the questions per split", dataset.splits, sizes)
        shown = ", ".join(f"{count} {split}" for split, count in sizes.items())
        return f"{where}; {shown}; source {dataset.source['kind']}"

    @cached_property
    def _questions(self) -> dict[str, list[Question]]:
        path = self.record.dataset.path
        return questions_of(check(self._table(path), Questions, path))

    def _test(self) -> str:
        test = self.record.test
        asked = provenance.questions_sha256(self._questions["test"])
        same("the hash of the test questions", test.questions, asked)
        scored = [correct for correct in test.outcomes.values() if correct is not None]
        same("the share of right answers", test.accuracy, sum(scored) / len(scored))
        interval = f"{100 * test.low:.1f} to {100 * test.high:.1f} %"
        return f"on {counted(len(scored), 'question')}, {interval}"

    def _rivals(self) -> str:
        table = check(self._table("test.parquet"), Evaluations, "test.parquet")
        own = table[table["graph_hash"] == self.record.graph_hash]["accuracy"]
        same("the graph's test score", [self.record.test.accuracy], [*own[:1]])
        return f"{counted(len(table), 'score')} in test.parquet"

    def _code(self) -> str:
        code = self.record.code
        if code.commit is None:
            raise _Unknown("it was not made in a git repository")
        if git("cat-file", "-e", f"{code.commit}^{{commit}}") is None:
            raise DataError("this repository does not have the commit")
        if code.changed:
            raise _Unknown("files differed from the commit")
        return "the commit exists, and no file differed from it"

    def _settings(self) -> str:
        record = self.record
        wanted = record.settings_sha256
        kept = settings_sha256(self.bundle.profile, record.task)
        same("the hash of the bundle's settings", wanted, kept)
        name = f"profiles/{record.profile}.yaml"
        now = load_profile(record.profile)
        if settings_sha256(now, record.task) != wanted:
            raise _Unknown(f"{name} has other settings now")
        if record.code.commit is None or record.code.changed:
            return f"those of the bundle, profile {record.profile}"
        text = git("show", f"{record.code.commit}:{name}")
        if text is None:
            raise DataError(f"the commit has no {name}")
        profile = parse(Profile, yaml.safe_load(text), name)
        known = profile.newcomers | profile.pool
        # The record lists variants too, which are settings of their models.
        pool = {model: known[model] for model in record.models if model in known}
        then = settings_sha256(profile.model_copy(update={"pool": pool}), record.task)
        same("the hash of the settings in the commit", wanted, then)
        return f"those of the bundle, and of {name} in the commit"

    def _prompts(self) -> str:
        record = self.record
        for what, shots in (
            ("the hash of the prompts", self._questions["shots"]),
            ("the bundle's worked examples", self.bundle.shots),
        ):
            found = provenance.prompt_sha256(self.bundle.profile, record.task, shots)
            same(what, record.prompt_sha256, found)
        if (
            record.agent_exchanges
            and record.agent_prompts_sha256 != provenance.agent_prompts_sha256()
        ):
            raise _Unknown("the agent is asked in other words now")
        return "from the settings and the dataset's worked examples"

    def _model(self, name: str) -> str:
        wanted = self.record.models[name]
        found = provenance.revisions(self.bundle.profile)[name]
        same("its revision", wanted.revision, found.revision)
        same("its identity in the call cache", wanted.identity, found.identity)
        if wanted.revision == "unpinned":
            raise _Unknown(
                "the profile pins no revision: what answered at its endpoint is all that is known"
            )
        used = name in {node.model for node in self.bundle.graph.nodes}
        return "used by the graph" if used else "in the pool, not used by the graph"

    def _parent(self, label: str, parent: provenance.Parent) -> str:
        version = self.registry.find(label)
        text = self.registry.registered(version, registry.LINEAGE, "lineage_sha256")
        same("the hash of its lineage record", parent.record_sha256, provenance.sha256(text))
        return "the champion that it was compared with; its record is unchanged"


def same(what: str, expected: Any, found: Any) -> None:
    """Raises DataError when two values that should be one are not."""
    if expected != found:
        shown = [str(value) for value in (expected, found)]
        brief = [text if len(text) <= 40 else f"{text[:37]}..." for text in shown]
        raise DataError(f"{what}: expected {brief[0]}, found {brief[1]}")


def _unchanged(wanted: Mapping[str, str], found: Mapping[str, str], what: str = "") -> None:
    """Raises DataError that names what has another digest than when a version was registered."""
    if odd := [key for key, digest in wanted.items() if found.get(key) != digest]:
        more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
        raise DataError(
            f"expected what was registered, found another {what}{', '.join(odd[:3])}{more}"
        )


def check_candidates(client: MlflowClient, run_id: str, table: pd.DataFrame) -> None:
    """Compare the rows of an archive, or of a stage, with the steps and the table of a run: all
    values that a metric ever had, where the same one may have been logged again. Raises DataError.
    """
    for key, wanted in steps(table.to_dict("records")).items():
        history = {(metric.step, metric.value) for metric in client.get_metric_history(run_id, key)}
        if odd := sorted(history ^ set(wanted.items())):
            raise DataError(
                f"the {key.replace('_', ' ')} of the candidates: the run's history has other"
                f" values, at step {odd[0][0]} for one"
            )
    with tempfile.TemporaryDirectory() as folder:
        logged = logged_rows(client, run_id, Path(folder))
    same("the candidates in the run's table", len(table), len(logged))
    for column in ("candidate_id", *table.select_dtypes(exclude=["number", "bool"])):
        for place, (one, other) in enumerate(zip(table[column], logged[column], strict=True)):
            what = f"the {column.replace('_', ' ')} of candidate {place} in the run's table"
            same(what, one, other)


def why_models(
    start: Mapping[str, int], preference: Mapping[str, Any], trials: pd.DataFrame
) -> str:
    """Why a search began with its models: what both init stages said."""
    mean = trials.groupby("counts")["accuracy"].mean().dropna()
    ranked = mean.sort_values(ascending=False, kind="stable").head(3)
    best = "; ".join(f"{counts} {100 * accuracy:.1f} %" for counts, accuracy in ranked.items())
    return (
        f"{json.dumps(start)}: {preference['reason']}; of {counted(len(mean), 'multiset')} tried,"
        f" the best on average: {best}"
    )


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
