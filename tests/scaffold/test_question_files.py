"""Question files as people have them: read right, or refused with the option that mends it."""

import gzip
import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd
import pytest
import yaml

from ttsgraph.base.errors import InputError
from ttsgraph.scaffold.questions import GradedQuestions, QuestionSource, look_at
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question

FILES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("question_files.yaml").read_text()
)
COUNT = 24
TOWNS = ("Paris", "Rome", "Oslo", "Lima")


def filled(wanted: Any, case: dict[str, Any], numbers: Iterable[int]) -> list[str]:
    """A template for each number, or what a list has for it."""
    each = case.get("each", [""])
    found = []
    for k in numbers:
        towns = [*TOWNS[k % 4 :], *TOWNS[: k % 4]]
        known = {f"w{place}": town for place, town in enumerate(towns)} | {
            "k": k, "k1": k + 1, "k3": f"{k:03}", "d": f"{k + 1:02}", "c": k % 10, "t": 2 * k + 1,
            "q": f"Which town is the seat of guild {k}?", "n": f"Guild master {k}",
            "s": f"What is {k} + {k + 1}?", "r": k % 4, "town": towns[0], "letter": "ABCD"[k % 4],
            "v": each[k % len(each)], "i": k % len(each) + 1,
        }  # fmt: skip
        text = wanted[k % len(wanted)] if isinstance(wanted, list) else wanted
        found.append(Template(str(text)).substitute(known))
    return found


def content(case: dict[str, Any]) -> bytes:
    """What a file holds."""
    names = filled("$n", case, range(COUNT))
    known = {
        "names": ", ".join(map(json.dumps, names)),
        "numbered": json.dumps(dict(enumerate(names)))[1:-1],
    }
    rows = filled(case["row"], case, range(case.get("count", COUNT)))
    if "first" in case:
        rows[:1] = filled(case["first"], case, [0])
    head, tail = (Template(case.get(part, "")).substitute(known) for part in ("head", "tail"))
    if "join" in case:
        text = head + case["join"].join(rows) + tail
    else:
        text = "\n".join([*([head] if head else []), *rows, tail])
    encoding = case.get("encoding", "utf-8")
    return gzip.compress(text.encode()) if encoding == "gzip" else text.encode(encoding)


def read_as(name: str, path: Path, case: dict[str, Any]) -> tuple[GradedQuestions, list[Question]]:
    """What is found in a file, and its questions."""
    found = look_at(QuestionSource(path, **case.get("options", {})))
    assert found.kind == case.get("kind", "exact"), found.lines
    task = get_task(found.kind, found.grading)
    return found, [task.parse(row, name) for row in found.rows]


@pytest.mark.parametrize("name", FILES)
def test_a_question_file_is_read_or_refused_with_an_option(name, tmp_path, caplog):
    case = FILES[name]
    path = tmp_path / name
    path.write_bytes(content(case))
    if "refused" in case:
        with pytest.raises(InputError, match=case["refused"]):
            look_at(QuestionSource(path, **case.get("options", {})))
        return
    found, read = read_as(name, path, case)
    numbers = range(case.get("count", COUNT))
    texts = filled(case.get("question", "$q"), case, numbers)
    if "first_question" in case:
        texts[:1] = filled(case["first_question"], case, [0])
    more = case.get("more", ())
    assert [question.text.strip() for question in read] == [*texts, *more[:1]]
    if (gold := case.get("gold", "$n")) is not None:
        assert [question.answer for question in read] == [*filled(gold, case, numbers), *more[1:]]
    assert case.get("told", "") in "\n".join((*found.lines, caplog.text))
    for question in read if "choices" in case else ():
        assert list(question.meta["choices"]) == case["choices"]


NAMES = [f"Guild master {k}" for k in range(COUNT)]
DAYS = [f"2024-01-{k + 1:02}" for k in range(COUNT)]
SHEETS = {
    # the answers, whether there is a sheet of notes before; the kind and answers that are read
    "book.xlsx": (NAMES, False, "exact", NAMES),
    "second-sheet.xlsx": (NAMES, True, "exact", NAMES),
    "numbers.xlsx": ([k + 1.0 for k in range(COUNT)], False, "number", None),
    "dates.xlsx": (list(map(datetime.fromisoformat, DAYS)), False, "exact", DAYS),
    "days.parquet": (pd.date_range("2024-01-01", periods=COUNT), False, "exact", DAYS),
    "counts.parquet": ([k + 1.0 for k in range(COUNT)], False, "number", None),
}


@pytest.mark.parametrize("name", SHEETS)
def test_a_workbook_or_table_is_read(name, tmp_path):
    answers, notes, kind, golds = SHEETS[name]
    asked = [f"What is {k} + 1?" for k in range(COUNT)]
    path = tmp_path / name
    if path.suffix == ".parquet":
        pd.DataFrame({"Question": asked, "Answer": answers}).to_parquet(path)
    else:
        book = pytest.importorskip("openpyxl").Workbook()
        if notes:
            book.active.append(["Notes"])
            book.active = book.create_sheet()
        for row in (("Question", "Answer"), *zip(asked, answers, strict=True)):
            book.active.append(row)
        book.save(path)
    _, read = read_as(name, path, {"kind": kind})
    assert [question.text for question in read] == asked
    assert [q.answer for q in read] == (golds or [str(k + 1) for k in range(COUNT)])


def test_any_of_several_answers_is_right(tmp_path):
    name = "several-ideals.jsonl"
    (tmp_path / name).write_bytes(content(FILES[name]))
    found, read = read_as(name, tmp_path / name, FILES[name])
    grades = {"Answer: Guild master 1": 1, "Answer: M Guild master 1": 1, "Answer: M": 0}
    task = get_task(found.kind, found.grading)
    assert {answer: task.grade(read[1], answer) for answer in grades} == grades


def test_a_workbook_without_its_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    (tmp_path / "q.xlsx").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"ttsgraph\[excel\]"):
        look_at(QuestionSource(tmp_path / "q.xlsx"))


def test_a_very_long_file_is_looked_at_in_part(tmp_path):
    rows = "".join(f"{k} + 1?,{k + 1}\n" for k in range(12_000))
    (tmp_path / "q.csv").write_text(f"question,answer\n{rows}")
    found = look_at(QuestionSource(tmp_path / "q.csv"))
    assert len(found.rows) <= 10_000
    assert int(found.rows[-1]["answer"]) > 11_000
    assert "of 12,000 rows are read" in "\n".join(found.lines)
