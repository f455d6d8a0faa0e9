"""A found graph with everything that it needs to answer, as one value and as one JSON file
(bundle.json) for a registry or a folder. The bundle also has other results of the same search: the
front of cost and score. Three graphs on the front serve as the rungs low, medium and high.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, get_args

from pydantic import ConfigDict, Field, PlainSerializer, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ttsgraph.base.errors import DeploymentError, InputError, RunStopped
from ttsgraph.base.files import json_text, read_json, write_text
from ttsgraph.base.parsing import parse
from ttsgraph.deployment.provenance import sha256
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer
from ttsgraph.graphs.field import Graph
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import check_roles, get_role
from ttsgraph.models.client import Client
from ttsgraph.runtime.clients import open_client
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.stages.project import Folder, as_measured
from ttsgraph.tasks import get_grader
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.prompts import Prompt
from ttsgraph.tasks.sources import questions_of, questions_path

if TYPE_CHECKING:
    from ttsgraph.deployment.promotion import Decision
    from ttsgraph.evaluation.environment import Feedback

BUNDLE = "bundle.json"
GRAPH = "graph.json"
Effort = Literal["low", "medium", "high"]


Spelled = Annotated[
    Profile, PlainSerializer(lambda profile: profile.model_dump(mode="json", exclude_none=True))
]
"""Profile that is stored with every setting spelled out, so that later changes to defaults don't
alter it.
"""


@dataclass(frozen=True, slots=True)
class Rung:
    """A graph on the front: its cost in budget units, and its score minus the found graph's score
    on the split `split`.
    """

    graph: Graph
    units: float
    ahead: float
    split: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Test figures of a version: accuracy, dollars per answer, and how often two inputs of its last
    node agree; None if unknown. The other two are only in bundles of earlier versions.
    """

    accuracy: float | None = None
    cost: float | None = None
    agreement: float | None = None
    plain: str = ""
    plain_cost: float | None = None


def agreement_of(answers: Iterable[Sequence[str | None]]) -> float | None:
    """Return how often two inputs of the last node agree: the share of pairs of inputs that agree,
    averaged over questions. `answers` has the inputs for each question. None if no question has two
    inputs.
    """
    agree = ([bool(a) and a == b for a, b in combinations(forms, 2)] for forms in answers)
    shares = [sum(pairs) / len(pairs) for pairs in agree if pairs]
    return sum(shares) / len(shares) if shares else None


def figures_of(feedback: Feedback, graph: CollaborationGraph) -> Figures:
    """Return the figures of a graph, from its feedback on the test questions."""
    reads = graph.reads[graph.sink]
    forms = [[r.nodes[i].form for i in reads if i in r.nodes] for r in feedback.results]
    return Figures(
        feedback.accuracy if feedback.n_scored else None,
        feedback.usage.dollars / len(feedback.results) if feedback.results else None,
        agreement_of(forms),
    )


HASHED = {"task", "graph", "profile", "shots"}
"""Fields that determine the answers; the bundle's hash covers only these."""


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class DeployedVersion:
    """One version that answers a task, and the content of its bundle.json: the graph, the settings
    under which it was found, and the worked examples of its prompts; the test figures with which
    the service is compared, and the front.

    `version` is the registry's number or, for files, the start of the bundle's hash, and isn't in
    the file. `found_by` is the part of the search that found the graph
    (ttsgraph/evaluation/found_by.py). Raises GraphError for an unknown role, and SettingsError for
    an unknown task or a model outside the profile's pool.
    """

    task: str
    graph: Graph
    profile: Spelled
    shots: tuple[Question, ...] = ()
    version: str = Field(default="", exclude=True)
    tested: Figures = Field(default=Figures(), exclude_if=lambda figures: figures == Figures())
    front: tuple[Rung, ...] = Field(default=(), exclude_if=not_)
    found_by: str = Field(default="", exclude_if=not_)

    def __post_init__(self) -> None:
        self.profile.task(self.task)
        check_roles(self.graph)
        pool = self.profile.model_pool()
        for node in self.graph.nodes:
            _ = pool[node.model]

    @property
    def grader(self) -> Task:
        """Task that extracts and checks the answers of the graph's nodes. Raises IsolationError if
        one of the graph's verifiers would run programs that can't be isolated here.
        """
        settings = self.profile.task(self.task)
        if any(get_role(node.role).checks for node in self.graph.nodes):  # may run programs
            return get_grader(settings.kind, self.profile.sandbox.accept_weaker, settings.grading)
        return settings.task

    @property
    def prompt(self) -> Prompt:
        """Prompt of the graph's nodes."""
        settings = self.profile.task(self.task)
        return settings.prompt.prompt(settings.task, self.shots)

    @property
    def used_models(self) -> tuple[str, ...]:
        """Names of the pool members (models and variants) that the graph calls."""
        calling = (node for node in self.graph.nodes if get_role(node.role).calls_model)
        return tuple(sorted({node.model for node in calling}))

    def profile_with(self, *more: str) -> Profile:
        """Return the profile with only the models that the graph calls and the models of the
        members in `more`, so that no other server is needed. Raises SettingsError for a member
        outside the pool.
        """
        pool = self.profile.model_pool()
        models = sorted({pool[name].model for name in (*self.used_models, *more)})
        needed = {name: self.profile.pool[name] for name in models}
        return self.profile.model_copy(update={"pool": needed})

    @property
    def rungs(self) -> dict[Effort, DeployedVersion]:
        """Versions with the cheapest and the best graph of the front, and between them the graph
        whose cost is nearest to the geometric mean of their costs (the best graph if none is
        between them), by effort. Empty for a front of fewer than two graphs.
        """
        if len(self.front) < 2:
            return {}
        low, *between, high = self.front
        middle = (low.units * high.units) ** 0.5
        medium = min(between, key=lambda rung: abs(rung.units - middle), default=high)
        plain = replace(self, tested=Figures(), front=())
        return {
            effort: replace(plain, graph=rung.graph, version=f"{self.version}-{effort}")
            for effort, rung in zip(get_args(Effort), (low, medium, high), strict=True)
        }

    def runner(self, client: Client) -> GraphRunner:
        """Return a runner for the graph."""
        inputs = self.grader, self.prompt, self.profile.task(self.task).sampling.sampling()
        return GraphRunner(self.graph, *inputs, self.profile.model_pool(self.task), client)

    async def answer(self, question: str) -> NodeAnswer:
        """Return the graph's answer to one question; its models are called or started as the
        profile says. Raises RunStopped if a call failed permanently.
        """
        async with open_client(self.profile_with()) as client:
            answer = await self.runner(client).answer(Question("asked", question, ""))
        if answer.text is None:
            raise RunStopped(f"the graph gave no answer: {answer.error}")
        return answer

    @cached_property
    def bundle_hash(self) -> str:
        """SHA-256 of the canonical JSON of the fields in HASHED, in hex."""
        hashed = _BUNDLE_FILE.dump_python(self, mode="json", include=HASHED)
        return sha256(json.dumps(hashed, sort_keys=True))

    def write(self, folder: Path) -> Path:
        """Write bundle.json into a folder and return the file's path."""
        path = folder / BUNDLE
        data = _BUNDLE_FILE.dump_python(self, mode="json")
        write_text(path, json_text(data, sort_keys=True) + "\n")
        return path

    @classmethod
    def read(cls, path: Path) -> DeployedVersion:
        """Read a bundle.json. Raises InputError naming the file if it is missing or damaged."""
        read = parse(cls, read_json(path, "evaluate"), str(path))
        return replace(read, version=read.bundle_hash[:12])


_BUNDLE_FILE = TypeAdapter(DeployedVersion)


def read_shots(profile_name: str, profile: Profile, task: str) -> tuple[Question, ...]:
    """Return the worked examples of the task's prompts, from the sample stage's table; empty if the
    task has none.
    """
    if profile.task(task).splits.shots == 0:
        return ()
    folder = Folder(Path(), questions_path(profile_name, task))
    return tuple(questions_of(folder.table("questions"))["shots"])


class Loader(Protocol):
    """Source of deployed versions by name; a name may refer to a different version later."""

    def resolve(self, name: str) -> DeployedVersion:
        """Return the version that this name (`math@champion`) refers to now. The method may
        block, and several threads may call it. A loader caches immutable data, so frequent calls
        are cheap. Raises DeploymentError if there is no such name (any more), and another
        InputError if the version can't be determined or read now.
        """

    def settled(self, task: str, version: str, decision: Decision) -> None:
        """Record the outcome of a challenger's trial in service. The call may block; after a
        TTSGraphError it is repeated.
        """
        return


class FileLoader(Loader):
    """Loader of deployed versions from folders, without a registry. The name `<task>@<folder name>`
    refers to a results folder, or to a folder with a bundle.json; `names` has all names. Raises
    InputError if two folders have the same name.
    """

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self._folders = {
            f"{_read_folder(folder).task}@{folder.resolve().name}": folder for folder in folders
        }
        self.names = tuple(self._folders)
        if len(self._folders) < len(folders):
            raise InputError(
                f"expected folders that give different names, found {', '.join(map(str, folders))}"
            )

    def resolve(self, name: str) -> DeployedVersion:
        """Return the version that is in the folder now. Raises DeploymentError for an unknown
        name.
        """
        if name not in self._folders:
            raise DeploymentError(f"unknown model {name!r}; known: {', '.join(self._folders)}")
        return _read_folder(self._folders[name])


def _read_folder(folder: Path) -> DeployedVersion:
    """Return the version in a folder with a bundle.json, or the graph that a search found, from its
    folder results/<profile>/<task>/<method>/. The latter has the profile and the questions from the
    working directory, and no test figures and graphs for other efforts. Raises SettingsError if the
    path of such a folder names no profile and task.
    """
    if (folder / BUNDLE).exists():
        return DeployedVersion.read(folder / BUNDLE)
    if not (folder / GRAPH).exists():
        inside = " or ".join(sorted(str(path.parent) for path in folder.glob(f"*/{BUNDLE}")))
        advice = f"name {inside} instead" if inside else "correct the path"
        raise InputError(
            f"{folder}: expected a folder with {BUNDLE} or {GRAPH}, found neither; {advice}"
        )
    task, name = (parent.name for parent in folder.resolve().parents[:2])
    profile = as_measured(load_profile(name), task, folder.parent)
    graph = CollaborationGraph.read(folder / GRAPH)
    read = DeployedVersion(task, graph, profile, read_shots(name, profile, task))
    return replace(read, version=read.bundle_hash[:12])
