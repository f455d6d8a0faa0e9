"""The model registry: versions of found graphs under `ttsgraph-<task>`, and the aliases that say
which one serves. A version is an MLflow pyfunc from code with two files beside it: bundle.json, all
that answering takes (ttsgraph/deployment/bundle.py), and lineage.json, where it comes from
(ttsgraph/deployment/provenance.py). Its tags hold the hashes of both, and what one wants to search
by.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import mlflow
import mlflow.artifacts
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

import ttsgraph
from ttsgraph.base.errors import DataError, DeploymentError, SettingsError
from ttsgraph.base.files import write_text
from ttsgraph.deployment.bundle import BUNDLE, Deployed, Drift, Loader
from ttsgraph.deployment.promotion import Decision, decide, successor
from ttsgraph.deployment.provenance import Provenance, sha256
from ttsgraph.evaluation.found_by import phrase
from ttsgraph.settings.profile import load_profile
from ttsgraph_flows.promotions import note
from ttsgraph_flows.tracking import NOT_THERE, client_of, explained, run_page

LIBRARY = Path(ttsgraph.__file__).parent
PREFIX = "ttsgraph-"
LINEAGE = "lineage.json"

CHAMPION = "champion"
CHALLENGER = "challenger"
DECISION = "decision"
PROMOTED = "promoted"
REPLACED = "replaced"
ROLLED_BACK = "rolled_back"
STANDS_IN = "stands_in"
TRIAL = "trial"
FIGURES = "figures"
MANIFEST = "manifest"
"""Tags: why a version was promoted or not; that it has been the champion; which one it replaced as
that; that it was rolled back; why it stands in for one, until the next search; what a trial in
service came to; its figures in the test; the digests of all that it rests on.
"""

DECIDED = (DECISION, PROMOTED, REPLACED, ROLLED_BACK, STANDS_IN, TRIAL, MANIFEST)
"""Tags that change after a version's test."""


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
        """As MLflow has it."""
        task = found.name.removeprefix(PREFIX)
        number = str(found.version)
        return cls(task, number, found.run_id or "", dict(found.tags), tuple(found.aliases))

    @property
    def label(self) -> str:
        """How people name it."""
        return f"{self.task}/{self.number}"

    @property
    def model(self) -> str:
        """The name in MLflow of the model that it is a version of."""
        return PREFIX + self.task


class Registry:
    """Versions and aliases at one MLflow. Raises InputError when MLflow fails."""

    def __init__(self, tracking_uri: str) -> None:
        self.uri = tracking_uri
        with explained(tracking_uri):
            self._client = client_of(tracking_uri)

    def find(self, reference: str) -> Version:
        """`math@champion`, `math/3`, or `math` for its champion. Raises DeploymentError."""
        task, alias, number = _parts(reference)
        try:
            if number:
                return Version.of(self._client.get_model_version(PREFIX + task, number))
            return Version.of(self._client.get_model_version_by_alias(PREFIX + task, alias))
        except MlflowException as error:
            if error.error_code not in NOT_THERE:
                with explained(self.uri):
                    raise
        have = [
            version.label + "".join(f" (@{alias})" for alias in version.aliases)
            for version in self.versions(task)
        ]
        there = ", ".join(have) or f"no version of {task}: `make repro` registers the first"
        raise DeploymentError(f"nothing is registered as {reference!r}; there is {there}")

    def champion(self, task: str) -> Version | None:
        """The version that serves, or None."""
        try:
            return self.find(f"{task}@{CHAMPION}")
        except DeploymentError:
            return None

    def versions(self, task: str | None = None) -> list[Version]:
        """All versions of a task, or of all tasks, oldest first."""
        wanted = f"name = '{PREFIX}{task}'" if task is not None else f"name LIKE '{PREFIX}%'"
        with explained(self.uri):
            found = self._client.search_model_versions(wanted)  # 10,000 at most
            # A search does not fill in the aliases.
            return [
                Version.of(self._client.get_model_version(each.name, each.version))
                for each in sorted(found, key=lambda each: (each.name, int(each.version)))
            ]

    def registered(self, version: Version, name: str, tag: str) -> str:
        """One of a version's files. Raises DataError when it can't be had, or its hash is not the
        one of the tag.
        """
        with self.download(version, name) as path:
            text = path.read_text(encoding="utf-8")
        if sha256(text) != version.tags.get(tag):
            raise DataError(
                f"version {version.label}: {name} is not the file that was registered; `ttsgraph"
                f" lineage --check {version.label}` lists what else is not"
            )
        return text

    def provenance(self, version: Version) -> Provenance:
        """Where a version comes from. Raises DataError when its record was changed."""
        text = self.registered(version, LINEAGE, "lineage_sha256")
        return Provenance.from_json(text, f"version {version.label}: {LINEAGE}")

    @contextlib.contextmanager
    def download(self, version: Version, name: str = "") -> Iterator[Path]:
        """One of a version's files, or the folder of all that was logged with it. Raises
        DataError.
        """
        at = self._client.tracking_uri
        try:
            # Not models:/..., which MLflow resolves at the process's own tracking URI.
            kept = self._client.get_model_version_download_uri(version.model, version.number)
            uri = f"{kept}/artifacts/{name}" if name else kept
            with tempfile.TemporaryDirectory() as folder:
                yield Path(
                    mlflow.artifacts.download_artifacts(uri, dst_path=folder, tracking_uri=at)
                )
        except (MlflowException, OSError, ValueError) as error:
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise DataError(
                f"version {version.label}: expected its {name or 'files'}, but {why}"
            ) from None

    def deployed(self, version: Version) -> Deployed:
        """All that answering takes. Raises InputError when the bundle was changed."""
        text = self.registered(version, BUNDLE, "bundle_sha256")
        where = f"version {version.label}: {BUNDLE}"
        read = Deployed.from_dict(json.loads(text), where, version.number)
        return replace(read, found_by=version.tags.get("found_by", ""))

    def register(self, deployed: Deployed, provenance: Provenance) -> Version:
        """Add a version as challenger; one with the same content is only found."""
        with explained(self.uri), tempfile.TemporaryDirectory() as name:
            bundle = deployed.write(Path(name))
            bundle_sha256 = sha256(bundle.read_text(encoding="utf-8"))
            record = provenance.model_copy(update={"bundle_sha256": bundle_sha256})
            content = sha256(record.model_copy(update={"parent": None, "stage_runs": {}}).to_json())
            known = [v for v in self.versions(record.task) if v.tags.get("content") == content]
            if known:
                version = known[-1]
            else:
                tags = tags_of(record) | {
                    "content": content,
                    "uses": json.dumps(deployed.used_models),
                    FIGURES: json.dumps(asdict(deployed.tested)),
                }
                write_text(bundle.with_name(LINEAGE), record.to_json())
                tags["lineage_sha256"] = sha256(record.to_json())
                version = self._log(record, bundle.parent, tags)
            if CHAMPION not in version.aliases and PROMOTED not in version.tags:
                self._client.set_registered_model_alias(version.model, CHALLENGER, version.number)
        return self.find(version.label)

    def _log(self, record: Provenance, folder: Path, tags: dict[str, str]) -> Version:
        """A new version with the files of a folder, in the run of its search."""
        name = PREFIX + record.task
        before = mlflow.get_tracking_uri()
        mlflow.set_tracking_uri(self._client.tracking_uri)
        try:
            with mlflow.start_run(run_id=record.run_id):
                info = mlflow.pyfunc.log_model(
                    name="graph",
                    python_model=str(Path(__file__).with_name("served_model.py")),
                    artifacts={path.stem: str(path) for path in sorted(folder.iterdir())},
                    code_paths=[str(LIBRARY)],
                    pip_requirements=["ttsgraph"],  # given, because to infer them takes minutes
                )
            with contextlib.suppress(MlflowException):  # it exists already
                self._client.create_registered_model(name)
            return Version.of(
                self._client.create_model_version(
                    name, info.model_uri, record.run_id, tags, model_id=info.model_id
                )
            )
        finally:
            mlflow.set_tracking_uri(before)

    def judge(self, version: Version, promote: str, confidence: float) -> Decision:
        """Compare a version with the champion, promote it if the rule says so, and tag it with the
        decision. A version that was promoted already keeps that decision: it is not compared with
        itself, nor with what replaced it since.
        """
        champion = self.champion(version.task)
        if champion is not None and champion.number == version.number:
            # Which a start before this one may not have ended.
            self._crown(version, version.tags[DECISION])
            return Decision(True, version.tags[DECISION])
        if ROLLED_BACK in version.tags:
            decision = Decision(False, "it was rolled back; promote by hand")
        elif PROMOTED in version.tags:
            return Decision(True, version.tags[DECISION])
        elif champion is not None and (why := self.unservable(champion)):
            decision = Decision(True, why)
        else:
            before = self.provenance(champion).test if champion else None
            decision = decide(self.provenance(version).test, before, confidence)
        decision = _left_to_people(decision, promote)
        self.tag(version, DECISION, decision.reason)
        if decision.promote:
            self.promote(version, decision.reason)
        return decision

    def promote(self, version: Version, reason: str = "promoted by hand") -> Version | None:
        """Make a version the champion; returns the one that it replaces, which `rollback` goes back
        to. Raises DeploymentError when its models have left the pool.
        """
        before = self.champion(version.task)
        if before is not None and before.number == version.number:
            self._crown(version, reason)  # its alias may have been moved in another way
            return None
        self._require_servable(version)
        self.tag(version, DECISION, reason)
        if before is not None:
            self.tag(version, REPLACED, before.number)
        self.untag(version, ROLLED_BACK, STANDS_IN)
        self._crown(version, reason)
        if before is not None:
            self.untag(before, STANDS_IN)
        return before

    def _crown(self, version: Version, reason: str) -> None:
        """Let the champion's alias point to a version, and to nothing else of it: a stop in between
        leaves one alias at most. Each promotion is noted first (ttsgraph_flows/promotions.py).
        """
        note(version.task, version.number, version.tags["lineage_sha256"], reason)
        with explained(self.uri):
            now = self.find(version.label)
            if CHALLENGER in now.aliases:
                self._client.delete_registered_model_alias(now.model, CHALLENGER)
            if CHAMPION not in now.aliases:
                self._client.set_registered_model_alias(now.model, CHAMPION, now.number)
        if PROMOTED not in now.tags:
            self.tag(version, PROMOTED, "yes")

    def unservable(self, version: Version) -> str:
        """Which models a version's graph calls that its profile has no more, neither in the pool
        nor as newcomers; nothing where all are there, or the profile can't be read here: then there
        is nothing to go by.
        """
        name = version.tags.get("profile", "")
        try:
            profile = load_profile(name)
        except SettingsError:
            return ""
        there = {*profile.model_pool(), *profile.newcomers}
        left = [model for model in json.loads(version.tags["uses"]) if model not in there]
        gone = f"{version.label} uses {', '.join(left)}, which left the pool of {name}"
        return gone if left else ""

    def serving(self, task: str) -> Version:
        """The champion; where a model of it has left the pool, the best version that can be served,
        which takes its place. The alias moves, and the version's tags say why. What was rolled back
        takes no place. Raises DeploymentError when there is no champion, or nothing that can be
        served.
        """
        champion = self.find(f"{task}@{CHAMPION}")
        why = self.unservable(champion)
        if not why:
            return champion
        others = [
            v for v in self.versions(task) if ROLLED_BACK not in v.tags and not self.unservable(v)
        ]
        if not others:
            raise DeploymentError(
                f"{why}, and no other version of {task} can be served; put it back, or search again"
            )
        tests = [self.provenance(version).test for version in others]
        taken = others[successor(self.provenance(champion).test, tests)]
        for tag in (STANDS_IN, DECISION):
            self.tag(taken, tag, why)
        self._crown(taken, why)
        return self.find(taken.label)

    def settled(self, task: str) -> Version | None:
        """As `serving`; where nothing can be served, the champion as it is, or None."""
        try:
            return self.serving(task)
        except DeploymentError:
            return self.champion(task)

    def _require_servable(self, version: Version) -> None:
        if why := self.unservable(version):
            raise DeploymentError(f"{why}: it can't be served")

    def rollback(self, task: str) -> tuple[Version, Version]:
        """Make the version before the champion the champion again; returns both. The rule does not
        promote what was rolled back. Raises DeploymentError when there is no champion, or none
        before it.
        """
        champion = self.find(f"{task}@{CHAMPION}")
        if REPLACED not in champion.tags:
            raise DeploymentError(
                f"{champion.label}, the champion, replaced no other version: there is nothing to go"
                " back to"
            )
        before = self.find(f"{task}/{champion.tags[REPLACED]}")
        self._require_servable(before)
        self.tag(champion, ROLLED_BACK, f"to {before.label}")
        self._crown(before, f"{champion.label} was rolled back")
        return champion, before

    def settle(self, task: str, number: str, decision: Decision) -> None:
        """What a trial in service came to: a challenger that is better becomes the champion, if its
        profile does not leave that to people; the reason is kept with the version either way.
        """
        version = self.find(f"{task}/{number}")
        decided = _left_to_people(decision, self.deployed(version).profile.deploy.promote)
        if decided.promote and ROLLED_BACK not in version.tags:
            self.promote(version, decided.reason)
        else:
            self.tag(version, DECISION, decided.reason)
        self.tag(version, TRIAL, decision.reason)

    def describe(self, label: str, sentence: str, table: Sequence[Sequence[str]]) -> None:
        """Describe a version for MLflow's page: the answer's sentence, a link to its run, and a
        table, whose first row has the heads.
        """
        version = self.find(label)
        heads, *rows = (f"| {' | '.join(cells)} |" for cells in table)
        with explained(self.uri):
            run = self._client.get_run(version.run_id)
            page = run_page(self.uri, run.info.experiment_id, version.run_id)
            lines = [sentence, "", f"[The run of its search]({page})", "", heads]
            text = "\n".join([*lines, "|---" * len(table[0]) + "|", *rows])
            self._client.update_model_version(version.model, version.number, text)
            about = f"Graphs that ttsgraph found for the task {version.task}; @{CHAMPION} serves."
            self._client.update_registered_model(version.model, about)

    def tag(self, version: Version, key: str, value: str) -> None:
        """Set a tag of a version."""
        with explained(self.uri):
            self._client.set_model_version_tag(version.model, version.number, key, value)

    def untag(self, version: Version, *keys: str) -> None:
        """Take tags from a version, as far as it has them."""
        for key in version.tags.keys() & keys:
            with explained(self.uri):
                self._client.delete_model_version_tag(version.model, version.number, key)


def _left_to_people(decision: Decision, promote: str) -> Decision:
    """The decision; none to promote where the profile leaves that to people."""
    if not decision.promote or promote != "by_hand":
        return decision
    return replace(decision, promote=False, reason=f"the settings say by hand; {decision.reason}")


def dependents(
    tracking_uri: str, dataset: str | None = None, model: str | None = None
) -> list[Version]:
    """Versions made with a dataset (MD5) or a model (`name`, `name@revision`), oldest first."""
    name, _, revision = (model or "").partition("@")

    def made_with(tags: Mapping[str, str]) -> bool:
        models = json.loads(tags.get("models", "{}"))
        of_model = model is None or (name in models and revision in ("", models[name]))
        return of_model and dataset in (None, tags.get("dataset"))

    return [version for version in Registry(tracking_uri).versions() if made_with(version.tags)]


class RegistryLoader(Loader):
    """Deployed versions by alias or number (`math@champion`); a version is read once, an alias is
    asked for each time. A champion whose models have left the pool is skipped for what stands in
    for it.
    """

    def __init__(self, tracking_uri: str) -> None:
        self._registry = Registry(tracking_uri)
        self._read: dict[str, Deployed] = {}

    def __reduce__(self) -> tuple[type[RegistryLoader], tuple[str]]:
        # Another process makes its own: connections can't be sent there.
        return RegistryLoader, (self._registry.uri,)

    def resolve(self, name: str) -> Deployed:
        """The version of this name now. Raises DeploymentError, InputError."""
        task, alias, _ = _parts(name)
        version = self._registry.serving(task) if alias == CHAMPION else self._registry.find(name)
        if version.label not in self._read:
            self._read[version.label] = self._registry.deployed(version)
        return self._read[version.label]

    def settled(self, task: str, version: str, decision: Decision) -> None:
        """As `Registry.settle`."""
        self._registry.settle(task, version, decision)

    def drifted(self, drift: Drift) -> None:
        """Tell Prefect, which may start a search."""
        from ttsgraph_flows.alerts import tell_of_drift  # Prefect is slow to import

        tell_of_drift(drift)


def origin(tracking_uri: str, deployed: Deployed) -> str:
    """Who made a version's graph, in a line: a search, or why a baseline was selected."""
    registry = Registry(tracking_uri)
    version = registry.find(f"{deployed.task}/{deployed.version}")
    record = registry.provenance(version)
    if (baseline := record.baseline) is None:
        found = phrase(record.found_by, record.method)
        return f"{version.label}, {found} in the profile {record.profile}"
    return (
        f"{version.label}, a baseline ({baseline.label}), put up instead of what {baseline.beside}"
        f" found in the profile {record.profile}: {baseline.reason}"
    )


def tags_of(record: Provenance) -> dict[str, str]:
    """The tags of a version that follow from its record; one searches by some of them."""
    return {
        "bundle_sha256": record.bundle_sha256,
        "graph_hash": record.graph_hash,
        "dataset": record.dataset.md5,
        "models": json.dumps({name: model.revision for name, model in record.models.items()}),
        "profile": record.profile,
        "search": record.search_method,
        "found_by": record.found_by,
        "test_accuracy": f"{record.test.accuracy:.4f}",
        "test_interval": f"{record.test.low:.4f} {record.test.high:.4f}",
        "budget": json.dumps(record.budget),
    }


def _parts(reference: str) -> tuple[str, str, str]:
    """Task, alias and version number of a reference; one of the last two is empty."""
    task, at, alias = reference.partition("@")
    if at:
        return task, alias, ""
    task, slash, number = reference.partition("/")
    return (task, "", number) if slash else (task, CHAMPION, "")
