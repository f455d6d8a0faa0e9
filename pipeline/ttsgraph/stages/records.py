"""JSON files that stages exchange, as closed models, and the functions that write and read them.
Each record stores a checksum of its content, so any change on disk is detected. Tables are in
ttsgraph/stages/schemas.py.
"""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, PositiveInt

from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.base.files import (
    checked_json,
    checked_text,
    finite,
    json_text,
    makes,
    md5,
    write_text,
)
from ttsgraph.base.parsing import ClosedModel, parse
from ttsgraph.evaluation.found_by import PATTERN
from ttsgraph.graphs.field import Graph
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.response.calibration import Candidate
from ttsgraph.stages.bookkeeping import beside, without_bookkeeping


class PreferenceRecord(ClosedModel):
    """preference.json: models from most to least preferred, the reason for this order, and the
    agent's exchanges (agent.base.Exchange).
    """

    models: list[str]
    reason: str
    exchanges: tuple[Mapping[str, Any], ...] = ()


class RankedGraph(ClosedModel):
    """A contest's graph, with the figures that determine its rank; unknown figures are None. Other
    figures are only shown (stages/steps.py).
    """

    model_config = ConfigDict(extra="allow")

    label: str
    value: float | None
    spread: float | None
    graph: Graph

    def contender(self) -> Candidate:
        """Return the graph as a search candidate, with NaN for an unknown value or spread."""
        value, spread = (math.nan if x is None else x for x in (self.value, self.spread))
        return Candidate(self.graph, self.label, value, spread)


class StartRecord(ClosedModel):
    """start.json: the models from which each search starts; the contenders that every search
    includes, best first; and the router of single calls, if one was trained.
    """

    counts: dict[str, PositiveInt]
    mean_accuracy: float | None = None
    best: str | None = None
    contest_calls: int | None = None
    contest_graphs: int | None = None
    router: RankedGraph | None = None
    contenders: tuple[RankedGraph, ...] = ()
    standings: tuple[RankedGraph, ...] = ()
    exchanges: tuple[Mapping[str, Any], ...] = ()

    @property
    def routed(self) -> CollaborationGraph | None:
        """Graph of the router of single calls, or None if there is no router."""
        return None if self.router is None else self.router.graph

    def leaders(self) -> tuple[Candidate, ...]:
        """Return the stored graphs that have a known value and no route, best first."""
        candidates = [row.contender() for row in (*self.contenders, *self.standings)]
        plain = [each for each in candidates if each.graph.route is None]
        return tuple(each for each in plain if not math.isnan(each.value + each.spread))


class SearchRecord(ClosedModel):
    """search.json: figures of a search (searching/methods/summary.py), of which these are read."""

    model_config = ConfigDict(extra="allow")

    found_hash: str
    found_by: str = Field(pattern=PATTERN)
    candidates: int
    trajectory_md5: str | None = None
    """MD5 of trajectory.csv, because a CSV file, unlike a parquet table, stores no checksum."""


def require_equal_terms(terms: Mapping[str, Mapping[str, object]]) -> None:
    """Raise DataError naming the first difference if the searches with these methods ran on
    different terms. `terms` maps each method to its terms as plain data.
    """
    (first, reference), *others = terms.items()
    for name, other in others:
        for key in reference.keys() | other.keys():
            if reference.get(key) != other.get(key):
                raise DataError(
                    f"expected searches on the same terms, but {key!r} is {reference.get(key)} for"
                    f" {first} and {other.get(key)} for {name}; run both searches again"
                )


class GateVerdict(ClosedModel):
    """verdict.json of a test: the graph that the gate selected, the reason, and the provenance
    record without the data that depend on a particular registry.
    """

    gate: dict[str, str] | None = None
    record: dict[str, Any]


class GateRecord(GateVerdict):
    """lineage.json of a test: the content of verdict.json, but with the whole provenance record;
    the version; whether the version was promoted; and why.
    """

    version: str
    promoted: bool
    reason: str


class ResearchRecord(ClosedModel):
    """outcome.json: the result of a re-search. `calls` is how many model calls the search made;
    `champion` is the version that serves afterwards.
    """

    plan: str
    reason: str
    pool: str
    champion: str
    promoted: bool = False
    version: str = ""
    calls: int = 0


AnyRecord = TypeVar("AnyRecord", bound=ClosedModel)


def write_record(
    kind: type[ClosedModel], path: Path, data: Mapping[str, Any], apart: Collection[str] | None = ()
) -> None:
    """Write plain data as a record, atomically. Bookkeeping keys, and keys named in `apart`, are
    left out, and a separate file gets all the data if there are such keys; with None, all keys are
    kept. Raises SettingsError if the data don't match the kind of record.
    """
    plain = finite(data)
    kept = plain if apart is None else without_bookkeeping(plain, apart)
    parse(kind, kept, str(path))
    write_text(path, checked_text(kept))
    if kept != plain:
        write_text(beside(path), json_text(plain))


def read_data(kind: type[AnyRecord], path: Path, made_by: str) -> dict[str, Any]:
    """Read a record's plain data. Raises DataError as `read_record` does."""
    data = checked_json(path, made_by)
    try:
        parse(kind, data, str(path))
    except SettingsError as error:
        raise DataError(f"{error}; {makes(made_by, path)}") from None
    return dict(data)


def read_record(kind: type[AnyRecord], path: Path, made_by: str) -> AnyRecord:
    """Read a record. Raises DataError if that fails; the message names the file, the expected
    content, and the command that makes the file again.
    """
    return parse(kind, read_data(kind, path, made_by), str(path))


def read_found(folder: Path) -> tuple[CollaborationGraph, SearchRecord]:
    """Return the graph that a search found, and the search's figures. Raises InputError if the
    search has not run, or if a file belongs to another search.
    """
    summary = read_record(SearchRecord, folder / "search.json", "search")
    path = folder / "graph.json"
    graph = CollaborationGraph.read(path)
    again = makes("search", path)
    if graph.content_hash != summary.found_hash:
        raise DataError(f"{path}: its graph is not the one that the search found; {again}")
    path = folder / "trajectory.csv"
    if not path.exists() or summary.trajectory_md5 not in (None, md5(path)):
        raise DataError(f"{path}: is missing, or is not the file that the search wrote; {again}")
    return graph, summary
