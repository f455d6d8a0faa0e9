"""`make readme`: puts the answer of the last report into README.md, and its picture into docs/, so
that no figure is typed.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import InputError
from ttsgraph.base.files import write_text
from ttsgraph.settings.profile import load_params
from ttsgraph_flows.answers import answers_file, lines_beside
from ttsgraph_flows.ending import guarded

README = Path("README.md")
PICTURE = Path("docs/found-graph.svg")
OVERVIEW = Path("docs/score-and-cost.svg")
ANSWERS = Path("docs/answers.json")
"""Data of README's answer, so that each of its figures can be looked up."""
BEGIN = "<!-- answer: written by `make readme` from reports/<profile>/answers.json -->"
END = "<!-- end of answer -->"


def block(
    told: dict[str, Any],
    beside: Mapping[str, str],
    marks: tuple[str, str] = (BEGIN, END),
    overview: Path = OVERVIEW,
) -> str:
    """Answers of a report in brief, as Markdown; `beside` names tasks with another graph in
    service.
    """
    first = told["tasks"][0]["task"]
    lines = [
        marks[0],
        "",
        f"![{first}: score against cost of what was found and of what it has to beat]({overview})",
    ]
    if told["simulated"]:
        lines += ["", "Simulated: no language model answered."]
    for task in told["tasks"]:
        lines += ["", f"**{task['task']}**: {task['sentence']}", ""]
        lines += [beside[task["task"]], ""] if task["task"] in beside else []
        lines += ["| " + " | ".join(task["heads"]) + " |", "|" + "---|" * len(task["heads"])]
        lines += ["| " + " | ".join(cells) + " |" for cells in task["rows"]]
    return "\n".join([*lines, "", marks[1]])


def with_block(
    readme: str,
    told: dict[str, Any],
    beside: Mapping[str, str] | None = None,
    marks: tuple[str, str] = (BEGIN, END),
    overview: Path = OVERVIEW,
) -> str:
    """A README with the answers between its two marks. Raises InputError if it lacks them."""
    before, begun, rest = readme.partition(marks[0])
    _, ended, after = rest.partition(marks[1])
    if not begun or not ended:
        raise InputError(
            f"{README}: expected the lines {marks[0]!r} and {marks[1]!r}, between which the answer"
            " goes"
        )
    return before + block(told, beside or {}, marks, overview) + after


def readme() -> None:
    """Refresh README.md, its two pictures and its figures from the report of the profile in
    params.yaml. Raises InputError if there is none.
    """
    params = load_params()
    path = answers_file(params.profile)
    if not path.exists():
        raise InputError(f"{path}: expected a report, but there is none; `make repro` makes it")
    answers = json.loads(path.read_text(encoding="utf-8"))
    write_text(
        README,
        with_block(README.read_text(encoding="utf-8"), answers, lines_beside(params.profile)),
    )
    first = answers["tasks"][0]
    plots = path.parent / "plots" / first["task"]
    shutil.copyfile(plots / "graph_to_use.svg", PICTURE)
    shutil.copyfile(plots / "overview.svg", OVERVIEW)
    shutil.copyfile(path, ANSWERS)
    print(
        f"{README}, {PICTURE}, {OVERVIEW} and {ANSWERS} show the report of {params.profile};"
        " `git diff` shows what changed",
        file=sys.stderr,
    )


if __name__ == "__main__":
    guarded(readme)
