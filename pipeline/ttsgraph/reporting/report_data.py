"""What a report is made of: the results of each task and method, each with the file it is from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ttsgraph.evaluation.found_by import phrase
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.reporting.sources import Row, TableSource
from ttsgraph.settings.profile import Profile

UNITS = {"flops": "budget units", "dollars": "$ per 1,000 questions", "runtime": "s a question"}


@dataclass(frozen=True, slots=True)
class MethodReport:
    """One search method's results on one task. `search` has P(best), `p_best`, where the search
    worked it out.

    `graph_file` is where the graph is from.
    """

    name: str
    graph: CollaborationGraph
    graph_file: str
    search: Row
    archive: TableSource
    trajectory: TableSource
    edges: TableSource
    test: TableSource
    answers: TableSource
    nodes: TableSource
    lineage: Row

    @property
    def finder(self) -> str:
        """Who found the graph: `found by the contest`."""
        return phrase(self.search.values.get("found_by", ""), self.name)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """All results on one task; `again` is what the last re-search came to, if there was one."""

    name: str
    questions: TableSource
    profile: TableSource
    pilot: TableSource
    preference: Row
    family_trials: TableSource
    trials: TableSource
    start: Row
    methods: tuple[MethodReport, ...]
    again: Row | None = None

    @property
    def names(self) -> list[str]:
        """The methods' names."""
        return [method.name for method in self.methods]


@dataclass(frozen=True, slots=True)
class Report:
    """A profile's results on all its tasks; `settings` is the profile as a source of figures.

    `folder` is given where one call made all of it, without stages and a registry.
    """

    name: str
    profile: Profile
    settings: Row
    tasks: Sequence[TaskReport]
    folder: str = ""

    @property
    def tables(self) -> str:
        """Where its tables are."""
        return f"{self.folder}/tables/" if self.folder else f"results/{self.name}/"

    @property
    def simulated(self) -> bool:
        """Whether no language model answered."""
        return self.profile.engine.kind == "simulated"

    @property
    def metric(self) -> str:
        """What the budget bounds: flops, dollars or runtime."""
        return self.profile.budget.metric

    @property
    def unit(self) -> str:
        """What costs are counted in."""
        return UNITS[self.profile.budget.metric]
