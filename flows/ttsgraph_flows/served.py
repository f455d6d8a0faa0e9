"""Served questions as a source of questions: what users asked and judged, for the next search."""

import json
from pathlib import Path

from ttsgraph.base.ending import say
from ttsgraph.base.errors import DataError
from ttsgraph.base.files import write_text
from ttsgraph.service.book import Book, made_private
from ttsgraph.tasks.sources import JsonlSource, MixtureSource
from ttsgraph_flows.stage import Stage

SERVED = "served.jsonl"
"""How a file of served questions is called: `inputs/<task>-served.jsonl`."""


def write_served(table: Path, rows: int, task: str, path: Path) -> int:
    """Write the served questions of a task whose right answer is known, one JSON object a line,
    into a file that only its owner can read; returns how many. Raises DataError where there is no
    table, or none in it.
    """
    if not table.exists():
        raise DataError(
            f"{table}: expected the table of served questions, but there is none; with"
            " service.feedback.keep: texts in params.yaml, `ttsgraph serve` makes it"
        )
    found = Book(table, rows).questions(task)
    if not found:
        raise DataError(
            f"{table}: expected served questions of {task} whose right answer is known, found none"
        )
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return len(found)
    made_private(path.with_name(path.name + ".part"))  # which takes its place as it is
    write_text(path, text)
    return len(found)


def renew_source(stage: Stage) -> None:
    """Where the task's source is a file of served questions, write it anew from the table."""
    settings = stage.params.service.feedback
    source = stage.settings.source
    for part in source.parts if isinstance(source, MixtureSource) else (source,):
        if not isinstance(part, JsonlSource) or not part.path.name.endswith(SERVED):
            continue
        try:
            count = write_served(settings.path, settings.rows, stage.task, part.path)
            say(f"{part.path}: {count} served questions")
        except DataError as error:
            say(f"{part.path} stays as it is: {error}")
