"""Model registry: versions of found graphs under `ttsgraph-<task>`, and aliases that name the
version in service.

A version is an MLflow pyfunc model, defined by code, with two files: bundle.json, which has
everything needed to answer (ttsgraph/deployment/bundle.py), and lineage.json, its provenance
(ttsgraph/deployment/provenance.py). Its tags have the hashes of both files, and values to search
by.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import mlflow
import mlflow.artifacts
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

import ttsgraph
from ttsgraph.base.errors import DataError, DeploymentError, SettingsError
from ttsgraph.base.files import write_text
from ttsgraph.base.parsing import parse
from ttsgraph.base.wording import first_line
from ttsgraph.deployment.bundle import BUNDLE, DeployedVersion, Loader
from ttsgraph.deployment.promotion import Decision, decide
from ttsgraph.deployment.provenance import Provenance, sha256
from ttsgraph.evaluation.found_by import phrase
from ttsgraph.settings.profile import load_profile
from ttsgraph_flows.promotions import note
from ttsgraph_flows.tracking import NOT_THERE, explained, run_page

PREFIX = "ttsgraph-"
LINEAGE = "lineage.json"

CHAMPION = "champion"
CHALLENGER = "challenger"
DECISION = "decision"
PROMOTED = "promoted"
REPLACED = "replaced"
ROLLED_BACK = "rolled_back"
MANIFEST = "manifest"
"""Tags of a version, from DECISION on: the reason for its promotion or rejection; the digest of its
last promotion's line in the log; the version that it replaced; the note that it was rolled back;
digests of everything that it depends on.
"""

DECIDED = (DECISION, PROMOTED, REPLACED, ROLLED_BACK, MANIFEST)
"""Tags that can change after a version's test."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Version:
    """One version in the registry."""

    task: str
    number: str
    run_id: str
    tags: Mapping[str, str]
    aliases: tuple[str, ...]

    @classmethod
    def of(cls, found: ModelVersion) -> Version:
        """Return the version that an MLflow entry describes."""
        task, number = found.name.removeprefix(PREFIX), str(found.version)
        return cls(task, number, found.run_id or "", dict(found.tags), tuple(found.aliases))

    @property
    def label(self) -> str:
        """Name of the version for display."""
        return f"{self.task}/{self.number}"

    @property
    def model(self) -> str:
        """Name of the registered model in MLflow."""
        return PREFIX + self.task

    def fact(self, key: str) -> str:
        """Return a tag that registering sets. Raises DataError if the tag is missing."""
        if key not in self.tags:
            raise self.changed(f"the tag {key!r}")
        return self.tags[key]

    def changed(self, what: str) -> DataError:
        """Return the error for a part of the version that isn't as registered."""
        return DataError(
            f"version {self.label}: {what} differs from what was registered; run `ttsgraph lineage"
            f" --check {self.label}` for all differences, and promote another version"
        )


class Registry(Loader):
    """Versions and aliases at one MLflow tracking URI. Methods raise InputError if MLflow fails."""

    def __init__(self, tracking_uri: str) -> None:
        self.uri = tracking_uri
        self._read: dict[str, DeployedVersion] = {}
        with explained(tracking_uri) as client:
            self.client = client

    def find(self, reference: str) -> Version:
        """Return the version named by `math@champion`, `math/3`, or `math` (the champion). Raises
        DeploymentError if there is no such version.
        """
        task, slash, number = reference.partition("/")
        task, at, alias = task.partition("@")
        name, alias = PREFIX + task, alias if at else CHAMPION
        with explained(self.uri):
            try:
                if slash:
                    return Version.of(self.client.get_model_version(name, number))
                return Version.of(self.client.get_model_version_by_alias(name, alias))
            except MlflowException as error:
                if error.error_code not in NOT_THERE:
                    raise
        have = [
            version.label + "".join(f" (@{alias})" for alias in version.aliases)
            for version in self.versions(task)
        ]
        there = ", ".join(have) or f"no version of {task}; run `make repro` to register the first"
        raise DeploymentError(f"nothing is registered as {reference!r}; available: {there}")

    def champion(self, task: str) -> Version | None:
        """Return the champion of a task, or None if the task has no champion."""
        with contextlib.suppress(DeploymentError):
            return self.find(f"{task}@{CHAMPION}")
        return None

    def versions(self, task: str) -> list[Version]:
        """Return all versions of a task, oldest first."""
        with explained(self.uri):
            found = self.client.search_model_versions(f"name = '{PREFIX}{task}'")
            # MLflow's search leaves the aliases out, so each version is read again.
            return [
                Version.of(self.client.get_model_version(each.name, each.version))
                for each in sorted(found, key=lambda each: int(each.version))
            ]

    def _registered(self, kind: type[T], version: Version, name: str) -> T:
        """Return one of a version's JSON files. Raises DataError if the file isn't available, or if
        its hash differs from the one in the version's tag, and SettingsError if it is invalid.
        """
        with self.download(version, name) as path:
            text = path.read_text(encoding="utf-8")
        if sha256(text) != version.tags.get(f"{path.stem}_sha256"):
            raise version.changed(name)
        return parse(kind, json.loads(text), f"version {version.label}: {name}")

    def provenance(self, version: Version) -> Provenance:
        """Return a version's provenance. Raises InputError if its record isn't available, was
        changed or is invalid.
        """
        return self._registered(Provenance, version, LINEAGE)

    @contextlib.contextmanager
    def download(self, version: Version, name: str = "") -> Iterator[Path]:
        """Download one of a version's files, or all of its logged files; yield the path. Raises
        DataError if they can't be read.
        """
        at = self.client.tracking_uri
        try:
            # Not a `models:/...` URI: MLflow resolves it against the process's own tracking URI.
            kept = self.client.get_model_version_download_uri(version.model, version.number)
            uri = f"{kept}/artifacts/{name}" if name else kept
            with tempfile.TemporaryDirectory() as folder:
                got = mlflow.artifacts.download_artifacts(uri, dst_path=folder, tracking_uri=at)
                yield Path(got)
        except (MlflowException, OSError, ValueError) as error:
            what = f"version {version.label}: expected its {name or 'files'}, but reading failed"
            raise DataError(f"{what}: {first_line(error)}") from None

    def deployed(self, version: Version) -> DeployedVersion:
        """Return everything needed to answer with a version, which is read only once. Raises
        InputError if its bundle isn't available or was changed.
        """
        if version.label not in self._read:
            read = self._registered(DeployedVersion, version, BUNDLE)
            self._read[version.label] = replace(read, version=version.number)
        return self._read[version.label]

    def resolve(self, name: str) -> DeployedVersion:
        """Return the version that a name (as in `find`) refers to now. Raises DeploymentError if
        there is none, and another InputError if the version can't be read.
        """
        return self.deployed(self.find(name))

    def register(self, deployed: DeployedVersion, provenance: Provenance) -> Version:
        """Add a version as challenger, or reuse the version that has the same content."""
        with explained(self.uri), tempfile.TemporaryDirectory() as name:
            bundle = replace(deployed, found_by=provenance.found_by).write(Path(name))
            digest = sha256(bundle.read_text(encoding="utf-8"))
            record = provenance.model_copy(update={"bundle_sha256": digest})
            content = sha256(record.model_dump_json(exclude={"parent", "stage_runs", "run_id"}))
            known = [v for v in self.versions(record.task) if v.tags.get("content") == content]
            if not known:
                write_text(bundle.with_name(LINEAGE), record.model_dump_json(indent=1))
                tags = tags_of(record, deployed) | {"content": content}
                known = [self._log(record, bundle.parent, tags)]
            version = known[-1]
            if CHAMPION not in version.aliases and PROMOTED not in version.tags:
                self.client.set_registered_model_alias(version.model, CHALLENGER, version.number)
        return self.find(version.label)

    def _log(self, record: Provenance, folder: Path, tags: dict[str, str]) -> Version:
        """Log a new version with the files of a folder, in the MLflow run of its search."""
        mlflow.set_tracking_uri(self.client.tracking_uri)
        with mlflow.start_run(run_id=record.run_id):
            info = mlflow.pyfunc.log_model(
                name="graph",
                python_model=str(Path(__file__).with_name("served_model.py")),
                artifacts={path.stem: str(path) for path in sorted(folder.iterdir())},
                code_paths=[str(Path(ttsgraph.__file__).parent)],
                pip_requirements=["ttsgraph"],  # given, because inferring them takes minutes
            )
        name = PREFIX + record.task
        with contextlib.suppress(MlflowException):  # it may already exist
            self.client.create_registered_model(name)
        known = name, info.model_uri, record.run_id, tags
        return Version.of(self.client.create_model_version(*known, model_id=info.model_id))

    def judge(self, version: Version, promote: str, confidence: float) -> Decision:
        """Compare a version with the champion, promote it if the rule says so, and tag it with the
        decision.

        A version that was already promoted keeps that decision, so it is not compared with itself
        or with its successors.
        """
        champion = self.champion(version.task)
        before = Decision(True, version.tags.get(DECISION, "promoted before"))
        if champion is not None and champion.number == version.number:
            self._crown(version, before.reason)  # an earlier process may not have finished this
            return before
        if ROLLED_BACK in version.tags:
            decision = Decision(False, "it was rolled back; promote it by hand")
        elif PROMOTED in version.tags:
            return before
        elif champion is not None and (why := left_the_pool(champion)):
            decision = Decision(True, why)
        else:
            rival = self.provenance(champion).test if champion else None
            decision = decide(self.provenance(version).test, rival, confidence)
        return self._apply(version, decision, promote)

    def _apply(self, version: Version, decision: Decision, promote: str) -> Decision:
        """Promote a version, or tag it with the reason why it isn't promoted. Return the decision,
        without the promotion if the profile leaves promotions to people.
        """
        if decision.promote and promote == "by_hand":
            decision = Decision(False, f"deploy.promote is by_hand; {decision.reason}")
        if decision.promote and ROLLED_BACK not in version.tags:
            self.promote(version, decision.reason)
        else:
            self.tag(version, DECISION, decision.reason)
        return decision

    def promote(self, version: Version, reason: str = "promoted by hand") -> Version | None:
        """Make a version the champion; return the version that it replaced, which `rollback`
        restores.
        """
        before = self.champion(version.task)
        if before is not None and before.number == version.number:
            before = None  # its alias may have been moved by other means, so it is crowned again
        else:
            self.tag(version, DECISION, reason)
        if before is not None:
            self.tag(version, REPLACED, before.number)
        self._crown(version, reason)
        return before

    def _crown(self, version: Version, reason: str) -> None:
        """Move the champion's alias to a version, and remove the version's challenger alias. An
        interruption leaves the version with at most one of these aliases.

        The promotion is logged first (ttsgraph_flows/promotions.py).
        """
        line = note(version.task, version.number, version.fact("lineage_sha256"), reason)
        with explained(self.uri):
            now = self.find(version.label)
            if CHALLENGER in now.aliases:
                self.client.delete_registered_model_alias(now.model, CHALLENGER)
            self.client.set_registered_model_alias(now.model, CHAMPION, now.number)
        self.tag(version, PROMOTED, line)

    def rollback(self, task: str) -> tuple[Version, Version]:
        """Restore as champion the version that the current champion replaced; return the
        rolled-back version and the restored one.

        The promotion rule never promotes a rolled-back version again. Raises DeploymentError if
        there is no champion, or if it replaced no other version.
        """
        champion = self.find(f"{task}@{CHAMPION}")
        if REPLACED not in champion.tags:
            raise DeploymentError(
                f"{champion.label} replaced no version: there is nothing to restore"
            )
        before = self.find(f"{task}/{champion.tags[REPLACED]}")
        self.tag(champion, ROLLED_BACK, f"to {before.label}")
        self._crown(before, f"{champion.label} was rolled back")
        return champion, before

    def settled(self, task: str, version: str, decision: Decision) -> None:
        """Apply the result of a trial in service: a better challenger becomes the champion, unless
        its profile leaves promotions to people.
        """
        tried = self.find(f"{task}/{version}")
        self._apply(tried, decision, self.deployed(tried).profile.deploy.promote)

    def describe(self, label: str, sentence: str, table: Sequence[Sequence[str]]) -> None:
        """Write a version's description for its page in MLflow: the answer's sentence, a link to
        the search's run, and a table whose first row has the headings.
        """
        version = self.find(label)
        heads, *rows = (f"| {' | '.join(cells)} |" for cells in table)
        about = f"Graphs that ttsgraph found for the task {version.task}; @{CHAMPION} serves."
        with explained(self.uri):
            run = self.client.get_run(version.run_id)
            page = run_page(self.uri, run.info.experiment_id, version.run_id)
            link = f"[The run of its search]({page})"
            text = "\n".join([sentence, "", link, "", heads, "|---" * len(table[0]) + "|", *rows])
            self.client.update_model_version(version.model, version.number, text)
            self.client.update_registered_model(version.model, about)

    def tag(self, version: Version, key: str, value: str) -> None:
        """Set a tag of a version."""
        with explained(self.uri):
            self.client.set_model_version_tag(version.model, version.number, key, value)


def left_the_pool(version: Version) -> str:
    """Return the models of a version's graph that are no longer in its profile, as the reason to
    replace it; "" if there are none, or if the profile can't be read here.
    """
    name = version.tags.get("profile", "")
    try:
        profile, used = load_profile(name), json.loads(version.fact("uses"))
    except SettingsError:
        return ""
    except ValueError:
        raise version.changed("the tag 'uses'") from None
    there = {*profile.model_pool(), *profile.newcomers}
    left = ", ".join(model for model in used if model not in there)
    return left and f"{version.label} uses {left}, which left the pool of {name}"


def origin(tracking_uri: str, deployed: DeployedVersion) -> str:
    """Return one line on the origin of a version's graph: its search or, for a baseline, the reason
    for its selection.
    """
    registry = Registry(tracking_uri)
    version = registry.find(f"{deployed.task}/{deployed.version}")
    record = registry.provenance(version)
    where = f"in the profile {record.profile}"
    if (baseline := record.baseline) is None:
        return f"{version.label}, {phrase(record.found_by, record.method)} {where}"
    beside = f"selected in place of the graph that {baseline.beside} found {where}"
    return f"{version.label}, a baseline ({baseline.label}), {beside}: {baseline.reason}"


def tags_of(record: Provenance, deployed: DeployedVersion) -> dict[str, str]:
    """Return the tags that a version gets from its record and its bundle: the hashes of both, and
    values to search by.
    """
    return record.model_dump(include={"bundle_sha256", "graph_hash", "profile", "found_by"}) | {
        "lineage_sha256": sha256(record.model_dump_json(indent=1)),
        "dataset": record.dataset.md5,
        "models": json.dumps({name: model.revision for name, model in record.models.items()}),
        "uses": json.dumps(deployed.used_models),
        "search": record.search_method,
        "test_accuracy": f"{record.test.accuracy:.4f}",
    }
