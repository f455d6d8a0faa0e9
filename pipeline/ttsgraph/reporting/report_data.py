"""Data for a report: the results of each task and method, each with its file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ttsgraph.base.parsing import ClosedModel
from ttsgraph.evaluation.found_by import phrase
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.reporting.figures import Row, TableSource
from ttsgraph.reporting.units import Unit, unit_of
from ttsgraph.settings.profile import Profile
from ttsgraph.stages import records
from ttsgraph.stages.project import Folder


@dataclass(frozen=True, slots=True)
class MethodReport:
    """One search method's results on one task.

    `search` has P(best) as `p_best` if the search computed it. `graph_file` is the path of the
    graph's file.
    """

    name: str
    graph: CollaborationGraph
    graph_file: str
    search: Row
    test: TableSource
    answers: TableSource
    nodes: TableSource
    lineage: Row

    @property
    def finder(self) -> str:
        """Phrase that names the graph's finder, such as `found by the contest`."""
        return phrase(self.search.values.get("found_by", ""), self.name)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """All results on one task; `again` is the result of the last re-search, if there was one."""

    name: str
    questions: TableSource
    profile: TableSource
    pilot: TableSource
    preference: Row
    start: Row
    methods: tuple[MethodReport, ...]
    again: Row | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A profile's results on all its tasks.

    `file` is the path of the profile's file. `folder` is the folder of a whole search that ran in
    one call, without stages or a registry; it is "" for results of the stages.
    """

    name: str
    profile: Profile
    file: str
    tasks: Sequence[TaskReport]
    folder: str = ""

    @property
    def settings(self) -> Row:
        """Profile as a source of figures."""
        return Row(self.file, "", self.profile.model_dump(mode="json"))

    @property
    def tables(self) -> str:
        """Common prefix of all tables' paths, ending in a slash."""
        return f"{self.folder}/tables/" if self.folder else f"results/{self.name}/"

    @property
    def simulated(self) -> bool:
        """True if the answers come from simulated models, not from language models."""
        return self.profile.engine.kind == "simulated"

    @property
    def unit(self) -> Unit:
        """Unit of costs, by the budget's metric."""
        return unit_of(self.profile.budget.metric)


def read_task(
    task: str, questions: Path, folder: Path, methods: Sequence[str], again: Path | None = None
) -> TaskReport:
    """Return a task's results from the files that the stages, or one whole search, wrote to a
    folder.

    Raises InputError if a file is missing or invalid, or if the methods searched on different
    terms.
    """
    found = tuple(_read_method(folder / name, name) for name in methods)
    records.require_equal_terms({method.name: method.search["terms"] for method in found})
    tables = Folder(folder, questions)
    later = _json(records.ResearchRecord, again, "research") if again and again.exists() else None
    return TaskReport(
        name=task,
        methods=found,
        preference=_json(records.PreferenceRecord, folder / "preference.json", "init_family"),
        start=_json(records.StartRecord, folder / "start.json", "init_instances"),
        again=later,
        **{name: _table(tables, name) for name in ("questions", "profile", "pilot")},
    )


def _read_method(folder: Path, name: str) -> MethodReport:
    return MethodReport(
        name=name,
        graph=records.read_found(folder)[0],
        graph_file=(folder / "graph.json").as_posix(),
        search=_json(records.SearchRecord, folder / "search.json", "search"),
        lineage=_json(records.GateVerdict, folder / "verdict.json", "evaluate"),
        **{name: _table(Folder(folder), name) for name in ("test", "answers", "nodes")},
    )


def _table(folder: Folder, name: str) -> TableSource:
    return TableSource(folder.file(name).as_posix(), folder.table(name))


def _json(kind: type[ClosedModel], path: Path, made_by: str) -> Row:
    return Row(path.as_posix(), "", records.read_data(kind, path, made_by))
