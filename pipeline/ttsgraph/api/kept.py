"""Files of a whole search in a folder: the tables and the page that the stages would write.

Next to the graph are `index.html` and `tables/`, whose files have the same names and columns as the
stages' files. A whole search uses no registry and, with a contest, has no pilot; the tables for
these are empty, or the page omits them.
"""

from __future__ import annotations

from pathlib import Path

from ttsgraph.api.whole import WholeSearch
from ttsgraph.base.files import json_text, md5, write_text
from ttsgraph.reporting.figures import Row
from ttsgraph.reporting.page import write_report
from ttsgraph.reporting.report_data import Report, read_task
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.records import GateVerdict, write_record

TABLES = "tables"


def write_kept(folder: Path, searched: WholeSearch, name: str) -> Path:
    """Write the tables and the page of a search; return the page's path.

    `name` is the name of the search's profile. Raises ModuleNotFoundError if the packages needed to
    write tables or plots aren't installed.
    """
    tables = folder / TABLES
    project, choice = searched.project, searched.choice
    project.folder.save(tables)
    verdict = {"verdict": choice.verdict, "reason": choice.reason}
    gate = searched.tested.cases[choice.place].columns | verdict
    method = tables / searched.method
    why = {"gate": gate, "record": _record(method, searched)}
    write_record(GateVerdict, method / "verdict.json", why)
    settings = project.profile.model_dump(mode="json")
    write_text(tables / "settings.json", json_text(settings))
    report = Report(
        name,
        project.profile,
        Row((tables / "settings.json").as_posix(), "", settings),
        [read_task(project.task, tables / "questions.parquet", tables, [searched.method])],
        folder.as_posix(),
    )
    return write_report(folder, report)


def _record(folder: Path, searched: WholeSearch) -> dict[str, object]:
    """Return the provenance of a search, as the page shows it."""
    project = searched.project
    questions = folder.parent / "questions.parquet"
    return {
        "seed": project.seed,
        "dataset": {
            "path": questions.as_posix(),
            "md5": md5(questions),
            "splits": {split: len(each) for split, each in project.questions.items()},
        },
        "settings_sha256": settings_sha256(project.profile, project.task),
        "warm_from": None,
    }
