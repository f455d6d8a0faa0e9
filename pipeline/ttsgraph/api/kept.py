"""What a whole search leaves in a folder: the tables and the page that the stages leave of one.

Next to its graph stand `index.html` and `tables/`, with files of the names and columns that the
stages write. There is no registry, and with a contest no pilot; both are empty, or left out of the
page.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ttsgraph.api.whole import Searched
from ttsgraph.base.files import json_text, md5, write_text
from ttsgraph.deployment.provenance import revisions
from ttsgraph.reporting.figures import Row
from ttsgraph.reporting.page import write_report
from ttsgraph.reporting.report_data import Report, read_task
from ttsgraph.stages import schemas
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.lengths import brief_of, scores_of
from ttsgraph.stages.records import GateVerdict, Preferred, Started, write_record, write_search
from ttsgraph.stages.schemas import write_table
from ttsgraph.stages.trials import answers_table
from ttsgraph.stages.worth import predicted_losses, with_worth
from ttsgraph.tasks.sources import questions_table

TABLES = "tables"


def write_kept(folder: Path, searched: Searched, name: str) -> Path:
    """Write the tables and the page of a search, under the name of its profile; returns the page's
    path. Raises ModuleNotFoundError where what tables or plots need is not installed.
    """
    tables = folder / TABLES
    _write_start(tables, searched)
    _write_method(tables / searched.method, searched)
    settings = searched.profile.model_dump(mode="json")
    write_text(tables / "settings.json", json_text(settings))
    report = Report(
        name,
        searched.profile,
        Row((tables / "settings.json").as_posix(), "", settings),
        [read_task(searched.task, tables / "questions.parquet", tables, [searched.method])],
        folder.as_posix(),
    )
    return write_report(folder, report)


def _write_start(folder: Path, searched: Searched) -> None:
    """What comes before the search: questions, models alone, and the contest or the trials."""
    sought, start = searched.sought, searched.sought.start
    for table, schema, file in (
        (questions_table(searched.questions), schemas.Questions, "questions"),
        (sought.alone, schemas.Profiles, "profile"),
        (sought.pilot, schemas.Pilots, "pilot"),
        (start.family, schemas.Trials, "init_family"),
        (start.trials, schemas.Trials, "init_instances"),
        (start.answers, schemas.Evidence, "evidence"),
    ):
        written = table if len(table) else schema.empty()
        write_table(written, schema, folder / f"{file}.parquet")
    write_record(Preferred, folder / "preference.json", start.preferred)
    write_record(Started, folder / "start.json", start.started)


def _write_method(folder: Path, searched: Searched) -> None:
    """The search and its test."""
    folder.mkdir(parents=True, exist_ok=True)
    sought, found = searched.sought, searched.sought.found
    (folder / "journal.jsonl").write_bytes(sought.journal)
    write_search(folder, found, sought.archive, searched.spent, sought.exchanges)
    brief = brief_of(
        searched.profile, searched.task, scores_of(sought.alone), searched.questions["train"]
    )
    rng = np.random.default_rng([searched.seed, 2])
    losses = predicted_losses(found.graph, brief, searched.evidence, rng)
    nodes = with_worth(searched.nodes, found.graph, searched.feedbacks[0], losses)
    grader = searched.profile.task(searched.task).task
    answers = answers_table(searched.cases, searched.feedbacks, grader.extract)
    write_table(searched.table, schemas.Evaluations, folder / "test.parquet")
    write_table(nodes, schemas.Nodes, folder / "nodes.parquet")
    write_table(answers, schemas.Answers, folder / "answers.parquet")
    choice = searched.choice
    verdict = {"verdict": choice.verdict, "reason": choice.reason}
    gate = searched.cases[choice.place].columns | verdict
    record = _record(folder, searched)
    write_record(GateVerdict, folder / "verdict.json", {"gate": gate, "record": record})


def _record(folder: Path, searched: Searched) -> dict[str, object]:
    """Where it comes from, as far as files say it."""
    profile = searched.profile
    questions = folder.parent / "questions.parquet"
    files = [*folder.parent.glob("*.*"), *folder.glob("*.*")]
    return {
        "seed": searched.seed,
        "dataset": {
            "path": questions.as_posix(),
            "md5": md5(questions),
            "splits": {split: len(each) for split, each in searched.questions.items()},
        },
        "settings_sha256": settings_sha256(profile, searched.task),
        "warm_from": None,
        "files": {path.as_posix(): md5(path) for path in sorted(files)},
        "models": {name: revision.model_dump() for name, revision in revisions(profile).items()},
    }
