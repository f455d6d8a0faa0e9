"""A task's results read back from the files that they were left in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ttsgraph.base.parsing import Closed
from ttsgraph.methods.base import require_equal_terms
from ttsgraph.reporting.report_data import MethodReport, TaskReport
from ttsgraph.reporting.sources import Row, TableSource
from ttsgraph.stages import schemas
from ttsgraph.stages.records import (
    GateVerdict,
    Preferred,
    Researched,
    Searched,
    Started,
    read_data,
    read_found,
)
from ttsgraph.stages.schemas import Table, read_table


def read_task(
    task: str, questions: Path, folder: Path, methods: Sequence[str], again: Path | None = None
) -> TaskReport:
    """A task's results from the files that the stages, or one whole search, left in a folder.

    Raises InputError where a file is missing or wrong, or the methods had different terms.
    """
    found = tuple(_read_method(folder / name, name) for name in methods)
    require_equal_terms({method.name: method.search["terms"] for method in found})
    return TaskReport(
        task,
        _table(schemas.Questions, questions, "sample"),
        _table(schemas.Profiles, folder / "profile.parquet", "profile"),
        _table(schemas.Pilots, folder / "pilot.parquet", "pilot"),
        _json(Preferred, folder / "preference.json", "init_family"),
        _table(schemas.Trials, folder / "init_family.parquet", "init_family"),
        _table(schemas.Trials, folder / "init_instances.parquet", "init_instances"),
        _json(Started, folder / "start.json", "init_instances"),
        found,
        _json(Researched, again, "research") if again is not None and again.exists() else None,
    )


def _read_method(folder: Path, name: str) -> MethodReport:
    return MethodReport(
        name,
        read_found(folder)[0],
        (folder / "graph.json").as_posix(),
        _json(Searched, folder / "search.json", "search"),
        _table(schemas.Candidates, folder / "archive.parquet", "search"),
        _table(schemas.Trajectory, folder / "trajectory.csv", "search"),
        _table(schemas.Edges, folder / "edges.parquet", "search"),
        _table(schemas.Evaluations, folder / "test.parquet", "evaluate"),
        _table(schemas.Answers, folder / "answers.parquet", "evaluate"),
        _table(schemas.Nodes, folder / "nodes.parquet", "evaluate"),
        _json(GateVerdict, folder / "verdict.json", "evaluate"),
    )


def _table(schema: type[Table], path: Path, made_by: str) -> TableSource:
    return TableSource(path.as_posix(), read_table(schema, path, made_by))


def _json(kind: type[Closed], path: Path, made_by: str) -> Row:
    return Row(path.as_posix(), "", read_data(kind, path, made_by))
