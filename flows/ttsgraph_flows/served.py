"""Served questions as a source of questions: users' questions with feedback, which the next search
can use.
"""

import json
from pathlib import Path

from ttsgraph.base.errors import DataError
from ttsgraph.base.files import write_text
from ttsgraph.service.book import TABLE, AnswerLog, made_private

SERVED = "served.jsonl"
"""Suffix of the names of files with served questions: `inputs/<task>-served.jsonl`."""


def write_served(task: str, path: Path) -> int:
    """Write a task's served questions, if their answers are known, to a file that only its owner
    can read, as JSON lines; return the number of questions. Raises DataError if there is no table
    of served questions, or no such question in it.
    """
    if not TABLE.exists():
        raise DataError(
            f"{TABLE}: expected the table of served questions, found none; set"
            " `service.feedback.keep: texts` in params.yaml, and run `ttsgraph serve`"
        )
    found = AnswerLog(TABLE).questions(task)
    if not found:
        raise DataError(f"{TABLE}: expected questions of {task} with known answers, found none")
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        # The partial file is already private, and keeps its permissions when it replaces the file.
        made_private(path.with_name(path.name + ".part"))
        write_text(path, text)
    return len(found)
