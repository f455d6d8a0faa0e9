"""Question files as people have them: read right, or refused with the option that mends it."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ttsgraph.base.errors import InputError
from ttsgraph.scaffold.questions import GradedQuestions, QuestionSource, look_at
from ttsgraph.tasks import get_task

COUNT = 24
TOWNS = ("Paris", "Rome", "Oslo", "Lima")
ASKED = [f"Which town is the seat of guild {k}?" for k in range(COUNT)]
NAMES = [f"Guild master {k}" for k in range(COUNT)]
RIGHT = [k % 4 for k in range(COUNT)]
LETTERS = ["ABCD"[k] for k in RIGHT]
SUMS = [f"What is {k} + {k + 1}?" for k in range(COUNT)]
TOTALS = [2 * k + 1 for k in range(COUNT)]
LONG = [f"It is {k} because the guild has met there ever since {1300 + k}." for k in range(COUNT)]


def table(header: str, *columns: Iterable[Any], mark: str = ",", top: str = "") -> str:
    text = StringIO()
    writer = csv.writer(text, delimiter=mark)
    if header:
        writer.writerow(header.split("|"))
    writer.writerows(zip(*columns, strict=True))
    return top + text.getvalue()


def lines(**columns: Sequence[Any]) -> str:
    rows = zip(*columns.values(), strict=True)
    return "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)


def said(*turns: str) -> list[dict[str, str]]:
    """A conversation: "user: Hello." and so on."""
    pairs = (turn.partition(": ") for turn in turns)
    return [{"role": role, "content": text} for role, _, text in pairs]


@dataclass(frozen=True)
class Case:
    """A file, what is said of it, and how it is read: kind, texts and golds; or why it is not."""

    content: str | bytes | Callable[[Path], object]
    kind: str = "exact"
    golds: Sequence[str] = tuple(NAMES)
    texts: Sequence[str] = tuple(ASKED)
    options: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    told: str = ""
    choices: Sequence[str] = ()


def plain(header: str = "question|answer", **more: Any) -> str:
    """A table of the guilds' masters."""
    return table(header, ASKED, NAMES, **more)


def compact(values: Iterable[Any]) -> list[str]:
    return [json.dumps(each, separators=(",", ":")) for each in values]


PLAIN = plain()
ROWS = lines(question=ASKED, answer=NAMES)
NO_HEADER = {"header": False}
MILLIONS = [f"{total}000000" for total in TOTALS]
JUDGED = {"told": "--kind judge"}
LISTED = [{"q": q, "a": n} for q, n in zip(ASKED, NAMES, strict=True)]
PAIRS = json.dumps(list(zip(ASKED, NAMES, strict=True)))
BY_LETTER = dict(zip("ABCD", TOWNS, strict=True))
COLUMNS = [[town] * COUNT for town in TOWNS]
EACH = [list(TOWNS)] * COUNT
BOXES = [f"So it is $\\boxed{{\\frac{{{t}}}{{7}}}}$." for t in TOTALS]
ARC = [{"text": list(TOWNS), "label": list("1234")} for _ in ASKED]
LABELS = [f"topic {k % 12}" for k in range(60)]
MAILS = [f"Mail {k} about something." for k in range(60)]
SEVERAL = [[["billing"], ["billing", "bug"], ["bug", "praise"]][k % 3] for k in range(COUNT)]
BILL = [{"name": f"Bob {k}", "total": k} for k in range(COUNT)]
TURNS = [said("system: Be brief.", "user: Hello.", "assistant: Hi.", f"user: {q}") for q in ASKED]
TURNS_AS_TEXT = [f"Be brief.\n\nUser: Hello.\n\nAssistant: Hi.\n\nUser: {q}" for q in ASKED]
WHOLE = [[*t, *said(f"assistant: {n}")] for t, n in zip(TURNS, NAMES, strict=True)]
SYSTEM = [said("system: Be brief.", f"user: {q}") for q in ASKED]
SYSTEM_AS_TEXT = [f"Be brief.\n\n{q}" for q in ASKED]
SHARED = [
    {"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": n}]}
    for q, n in zip(ASKED, NAMES, strict=True)
]
NUMBERS = [str(total) for total in TOTALS]
FLOATS = [float(total) for total in TOTALS]
COMMAS = [f"{k},{k % 10}5" for k in range(COUNT)]
POINTS = [f"{k}.{k % 10}5" for k in range(COUNT)]
DAYS = [f"2024-01-{1 + k:02}" for k in range(COUNT)]
BOTH = [[n, f"M {n}"] for n in NAMES]
EXAMPLES = "".join(f"| {q} | {n} |\n" for q, n in zip(ASKED, NAMES, strict=True))
CODE = {
    "task_id": [f"H/{k}" for k in range(COUNT)],
    "prompt": [f"def f{k}(x):\n    return x + {k}\n" for k in range(COUNT)],
    "entry_point": [f"f{k}" for k in range(COUNT)],
    "test": [f"def check(f):\n    assert f(1) == {1 + k}\n" for k in range(COUNT)],
    "canonical_solution": ["    pass\n"] * COUNT,
}


def workbook(*columns: Sequence[Any], before: str = "") -> Callable[[Path], object]:
    def write(path: Path) -> None:
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        if before:
            book.active.append([before])
            book.active = book.create_sheet()
        for row in zip(("Question", *columns[0]), ("Answer", *columns[1]), strict=True):
            book.active.append(list(row))
        book.save(path)

    return write


def parquet(**columns: Sequence[Any]) -> Callable[[Path], object]:
    return lambda path: pd.DataFrame(columns).to_parquet(path)


def each(function: Callable[[str], str]) -> list[str]:
    return [function(text) for text in ASKED]


CASES: dict[str, Case] = {
    # tables
    "plain.csv": Case(PLAIN),
    "semicolons.csv": Case(plain("Question|Answer", mark=";")),
    "tabs.tsv": Case(plain(mark="\t")),
    "pipes.csv": Case(plain(mark="|")),
    "excels-line.csv": Case(plain(mark=";", top="sep=;\r\n")),
    "bom.csv": Case(PLAIN.encode("utf-8-sig")),
    "windows.csv": Case(
        PLAIN.replace("master", "maître").encode("cp1252"),
        golds=[name.replace("master", "maître") for name in NAMES],
    ),
    "cyrillic.csv": Case(
        PLAIN.replace("master", "мастер").encode("cp1251"), golds=(), told="not UTF-8"
    ),
    "commas-in-texts.csv": Case(
        plain(mark=";").replace("Which", "Now, which"),
        texts=each(lambda q: q.replace("Which", "Now, which")),
    ),
    "other-columns.csv": Case(
        table("id|Question|Expected answer|seen", range(COUNT), ASKED, NAMES, ASKED),
        told="not used: 'id', 'seen'",
    ),
    "strange-columns.csv": Case(plain("Ticket|Team"), refused="--question-column"),
    "strange-columns-named.csv": Case(
        plain("Ticket|Team"), options={"question": "Ticket", "answer": "Team"}
    ),
    "no-answer.csv": Case(plain("question|when"), refused="--answer-column"),
    "no-header.csv": Case(plain(""), refused="--no-header"),
    "no-header-said.csv": Case(plain(""), options=NO_HEADER),
    "mmlu.csv": Case(
        table("", ASKED, *COLUMNS, LETTERS), "choice", LETTERS, options=NO_HEADER, choices=TOWNS
    ),
    "decimal-commas.csv": Case(
        table("Frage|answer", SUMS, COMMAS, mark=";"), "number", POINTS, SUMS,
        options={"question": "Frage"}, told="decimal commas",
    ),
    "commas-and-points.csv": Case(
        table("question|answer", SUMS, [*COMMAS[:12], *POINTS[12:]], mark=";"),
        refused="--kind exact",
    ),
    "book.xlsx": Case(workbook(ASKED, NAMES)),
    "numbers.xlsx": Case(workbook(SUMS, FLOATS), "number", NUMBERS, SUMS),
    "second-sheet.xlsx": Case(workbook(ASKED, NAMES, before="Notes")),
    "dates.xlsx": Case(workbook(ASKED, list(map(datetime.fromisoformat, DAYS))), golds=DAYS),
    "days.parquet": Case(
        parquet(question=ASKED, answer=pd.date_range("2024-01-01", periods=COUNT)), golds=DAYS
    ),
    "counts.parquet": Case(parquet(question=SUMS, answer=FLOATS), "number", NUMBERS, SUMS),
    # JSON
    "plain.jsonl": Case(ROWS),
    "list.json": Case(json.dumps({"data": LISTED})),
    "nested.jsonl": Case(
        lines(inputs=[{"question": q} for q in ASKED], outputs=[{"answer": n} for n in NAMES])
    ),
    "alpaca.jsonl": Case(
        lines(instruction=["Name the master."] * COUNT, input=ASKED, output=NAMES),
        texts=each("Name the master.\n\n{}".format),
    ),
    "alpaca-without-input.jsonl": Case(lines(instruction=ASKED, input=[""] * COUNT, output=NAMES)),
    "squad.jsonl": Case(
        lines(context=["The guilds met."] * COUNT, question=ASKED,
              answers=[{"text": [n, n], "answer_start": [0, 0]} for n in NAMES]),
        texts=each("The guilds met.\n\n{}".format),
    ),
    "trivia.jsonl": Case(
        lines(question=ASKED, answer=[{"value": n, "aliases": [n, f"M {n}"]} for n in NAMES])
    ),
    "spans.jsonl": Case(lines(question=ASKED, answers=[[{"text": n, "start": 1}] for n in NAMES])),
    "columns.json": Case(json.dumps({"question": ASKED, "answer": NAMES})),
    # conversations
    "openai-evals.jsonl": Case(lines(input=SYSTEM, ideal=NAMES), texts=SYSTEM_AS_TEXT),
    "several-ideals.jsonl": Case(lines(input=SYSTEM, ideal=BOTH), texts=SYSTEM_AS_TEXT),
    "turns.jsonl": Case(lines(messages=WHOLE), texts=TURNS_AS_TEXT, told="earlier turns"),
    "turns-in-a-cell.csv": Case(
        table("messages|answer", list(map(json.dumps, TURNS)), NAMES), texts=TURNS_AS_TEXT
    ),
    "sharegpt.json": Case(json.dumps(SHARED)),
    "trl.jsonl": Case(
        lines(prompt=each(lambda q: said(f"user: {q}")),
              completion=[said(f"assistant: {n}") for n in NAMES])
    ),
    "images.jsonl": Case(
        lines(messages=[[{"role": "user", "content": [{"type": "image_url"}]}]] * COUNT,
              answer=NAMES),
        refused="--question-column",
    ),
    "a-models-answer.jsonl": Case(
        lines(prompt=ASKED, completion=NAMES, model_answer=TOWNS * 6), told="'model_answer'"
    ),
    "only-a-models-answer.jsonl": Case(
        lines(prompt=ASKED, model_answer=TOWNS * 6), refused="--answer-column"
    ),
    "of-a-named-model.csv": Case(plain("question|gpt-4o answer"), refused="--answer-column"),
    # numbers and formulas
    "gsm8k.jsonl": Case(
        lines(question=SUMS, answer=[f"We add: {t}.\n<<1+1=2>>\n#### {t}" for t in TOTALS]),
        "number", NUMBERS, SUMS, told="####",
    ),
    "gsm8k-short.jsonl": Case(
        lines(question=SUMS, answer=[f"#### {1000 + t:,}" for t in TOTALS]),
        "number", [f"{1000 + t:,}" for t in TOTALS], SUMS,
    ),
    "math.jsonl": Case(
        lines(problem=SUMS, solution=BOXES), "math", [f"\\frac{{{t}}}{{7}}" for t in TOTALS], SUMS
    ),
    # choices
    "by-column-name.csv": Case(
        table("question|option_a|option_b|option_c|option_d|answer", ASKED, *COLUMNS,
              [f"option_{letter.lower()}" for letter in LETTERS]),
        "choice", LETTERS, choices=TOWNS,
    ),
    "first-one-marked.jsonl": Case(
        lines(question=ASKED,
              mc1_targets=[{"choices": [*TOWNS[k:], *TOWNS[:k]], "labels": [1, 0, 0, 0]}
                           for k in RIGHT]),
        "choice", (),
    ),
    "mmlu.jsonl": Case(
        lines(question=ASKED, choices=EACH, answer=RIGHT, subject=NAMES),
        "choice", LETTERS, choices=TOWNS,
    ),
    "arc.jsonl": Case(
        lines(question=ASKED, choices=ARC, answerKey=[str(k + 1) for k in RIGHT]),
        "choice", LETTERS, choices=TOWNS,
    ),
    "by-letter.jsonl": Case(
        lines(question=ASKED, options=[BY_LETTER] * COUNT, answer=LETTERS),
        "choice", LETTERS, choices=TOWNS,
    ),
    "lettered.csv": Case(
        table("question|A|B|C|D|answer", ASKED, *COLUMNS, LETTERS), "choice", LETTERS, choices=TOWNS
    ),
    "wrong-ones.csv": Case(
        table("question|correct_answer|wrong1|wrong2|wrong3", ASKED,
              *zip(*([*TOWNS[k:], *TOWNS[:k]] for k in RIGHT), strict=True)),
        "choice", (),
    ),
    "numbered-in-a-cell.csv": Case(
        table("question|options|answer", ASKED, ["1. Paris; 2. Rome; 3. Oslo"] * COUNT,
              [1 + k % 3 for k in range(COUNT)]),
        "choice", ["A", "B", "C"] * 8, choices=TOWNS[:3],
    ),
    "slashes.csv": Case(
        table("Question|Options|Label", ASKED, [" / ".join(TOWNS)] * COUNT, RIGHT),
        "choice", LETTERS, choices=TOWNS,
    ),
    "winogrande.jsonl": Case(
        lines(sentence=ASKED, option1=COLUMNS[0], option2=COLUMNS[1], answer=["1", "2"] * 12),
        "choice", ["A", "B"] * 12, choices=TOWNS[:2],
    ),
    "aqua.jsonl": Case(
        lines(question=SUMS, options=[["A)21", "B)21.5", "C)22"]] * COUNT, correct=list("ABC") * 8),
        "choice", ["A", "B", "C"] * 8, SUMS, choices=["21", "21.5", "22"],
    ),
    "odd-choices.jsonl": Case(
        lines(question=ASKED, choices=EACH, answer=["Cairo", "Quito"] * 12),
        refused="--answer-column",
    ),
    # labels
    "few-labels.jsonl": Case(
        lines(text=ASKED, label=TOWNS * 6), "choice", TOWNS * 6, told="prompts name the"
    ),
    "labels-with-numbers.jsonl": Case(
        lines(text=ASKED, label=RIGHT, label_text=TOWNS * 6), "choice", TOWNS * 6
    ),
    "twelve-labels.csv": Case(
        table("text|intent", MAILS, LABELS), "choice", LABELS, MAILS, options={"answer": "intent"}
    ),
    "several-labels.jsonl": Case(
        lines(text=ASKED, labels=SEVERAL), "json", compact(SEVERAL), told="which are required"
    ),
    "labels-in-a-cell.csv": Case(
        table("text|tags", ASKED, map("; ".join, SEVERAL)),
        "json", compact(SEVERAL), told="which are required",
    ),
    # objects, programs, and longer answers
    "yes-in-spellings.jsonl": Case(
        lines(input=ASKED, ideal=[["Yes", "yes"], ["No", "no"]] * 12), golds=["Yes", "No"] * 12
    ),
    "two-of-a-name.csv": Case(table("question|answer|answer", ASKED, NAMES, LETTERS)),
    "objects.jsonl": Case(lines(question=ASKED, answer=BILL), "json", compact(BILL)),
    "objects-in-cells.csv": Case(
        table("question|answer", ASKED, map(json.dumps, BILL)), "json", compact(BILL)
    ),
    "humaneval.jsonl": Case(lines(**CODE), "humaneval", (), CODE["prompt"]),
    "long.csv": Case(table("question|answer", ASKED, LONG), "similarity", LONG),
    "holes.csv": Case(
        table("question|answer", [*ASKED, "Why?", "How?"], [*NAMES, "NaN", "#N/A"]),
        told="2 rows without",
    ),
    "holes.jsonl": Case(
        lines(question=[*ASKED, "Why?"], answer=[*NAMES, None]), told="1 rows without"
    ),
    "all-the-same.jsonl": Case(
        lines(question=ASKED, answer=["yes"] * COUNT), refused="--answer-column"
    ),
    # containers and encodings
    "utf-16.csv": Case(PLAIN.encode("utf-16")),
    "utf-16-without-a-mark.csv": Case(PLAIN.encode("utf-16-le")),
    "latin-1.jsonl": Case('{"question": "caf\xe9?"}'.encode("latin-1"), refused="UTF-8"),
    "packed.csv.gz": Case(gzip.compress(PLAIN.encode())),
    "packed-unsaid.csv": Case(gzip.compress(PLAIN.encode())),
    "packed-not.jsonl.gz": Case(ROWS),
    "table-without-an-ending": Case(PLAIN),
    "table.md": Case(f"| question | answer |\n| --- | --- |\n{EXAMPLES}"),
    "binary.xls": Case(b"\xd0\xcf\x11\xe0" + bytes(99), refused=r"\.xlsx"),
    "pretty.jsonl": Case("".join(json.dumps(row, indent=1) for row in LISTED)),
    "commas-between.jsonl": Case(ROWS.replace("}\n", "},\n")),
    "splits.json": Case(json.dumps({"train": LISTED[:9], "test": LISTED[9:], "authors": [{}]})),
    "deep.json": Case(json.dumps({"version": 2, "data": {"all": LISTED}})),
    "by-id.json": Case(json.dumps({f"id {k}": row for k, row in enumerate(LISTED)})),
    "by-column.json": Case(pd.DataFrame(LISTED).to_json()),
    "by-question.json": Case(json.dumps(dict(zip(ASKED, NAMES, strict=True)))),
    "pairs.json": Case(PAIRS, options=NO_HEADER),
    "pairs-unsaid.json": Case(PAIRS, refused="--no-header"),
    # lines of tables
    "bom.jsonl": Case(ROWS.encode("utf-8-sig")),
    "empty-lines.CSV": Case(PLAIN.replace("\r\n", "\r\n\r\n,\r\n")),
    "title.csv": Case("Quiz of 2024,\n,\n" + PLAIN),
    "remark.csv": Case("# made by hand\n" + PLAIN),
    "spaces.csv": Case(PLAIN.replace(",", " , ").replace("Which", " Which")),
    "several-lines.csv": Case(
        table("question|answer", each(lambda q: q.replace(" ", "\n", 1)), NAMES),
        texts=each(lambda q: q.replace(" ", "\n", 1)),
    ),
    "quote-left-open.csv": Case(
        PLAIN.replace("Which", '"Which', 1), texts=['"' + ASKED[0], *ASKED[1:]]
    ),
    "quote-left-open-at-commas.csv": Case(
        PLAIN.replace("Which", '"Which', 1).replace("Which", "Well, which"), refused=":2: "
    ),
    "quoted-word.tsv": Case(
        plain(mark="\t").replace("Which", '"Which"'),
        texts=each(lambda q: q.replace("Which", '"Which"')),
    ),
    "inches.csv": Case(
        PLAIN.replace("Which", '5" of which'),
        texts=each(lambda q: q.replace("Which", '5" of which')),
    ),
    "one-column.csv": Case(table("question", ASKED), refused="--answer-column"),
    "one-column-with-a-comma.csv": Case(
        "question\n" + "\n".join(ASKED) + "\nWell, why?\n",
        refused="quote fields that contain the separator",
    ),
    "half-a-character.jsonl": Case(
        ROWS.replace("guild 0?", "guild 0?\\ud83c"), texts=[f"{ASKED[0]}?", *ASKED[1:]]
    ),
    "entities.csv": Case(
        table("question|answer", ASKED, [f"{n} &amp; son" for n in NAMES]),
        golds=[f"{n} & son" for n in NAMES], told="&amp;",
    ),
    "entities-as-a-topic.csv": Case(
        table("question|answer", ASKED, [f"&lt; {n} <" for n in NAMES]),
        golds=[f"&lt; {n} <" for n in NAMES],
    ),
    # forms of answers
    **{
        f"{name}.csv": Case(table("question|answer", SUMS, said), kind, golds or said, SUMS, **more)
        for name, said, kind, golds, more in (
            ("thousands", [f"{k + 1},500" for k in range(COUNT)], "number", None, {}),
            ("points-between", [f"{t}.000.000" for t in TOTALS], "number", MILLIONS, {}),
            ("apostrophes", [f"{t}'000'000" for t in TOTALS], "number", MILLIONS, {}),
            ("spaces-between", [f"{t} 000" for t in TOTALS], "number", None, {}),
            ("euros", [f"{t},50 €" for t in TOTALS], "number", [f"{t}.50 €" for t in TOTALS], {}),
            ("kilometres", [f"{t} km" for t in TOTALS], "number", None, {"told": "in km"}),
            ("units", [f"{t} {'km' if t % 3 else 'kg'}" for t in TOTALS], "exact", None, JUDGED),
            ("codes", [f"{t:05}" for t in TOTALS], "exact", None, {}),
            ("dates", DAYS, "exact", None, {}),
            ("ranges", [f"{t}-{t + 5}" for t in TOTALS], "exact", None, {}),
            ("formulas", [f"$x+{t}$" for t in TOTALS], "math", [f"x+{t}" for t in TOTALS], {}),
            ("yes-or-no", ["Yes", "no", "yes", "no"] * 6, "choice", ["Yes", "no"] * 12, {}),
            ("true-or-false", ["True", "False"] * 12, "choice", None, {}),
            ("zero-or-one", ["0", "1"] * 12, "number", None, {"told": "--kind choice"}),
        )
    },
    "pairs-of-numbers.jsonl": Case(
        lines(question=SUMS, answer=[[t, t + 1] for t in TOTALS]),
        "json", [f"[{t},{t + 1}]" for t in TOTALS], SUMS,
    ),
    "pairs-of-texts.jsonl": Case(lines(question=ASKED, answer=BOTH), told="--kind json"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_question_file_is_read_or_refused_with_an_option(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = CASES[name]
    path = tmp_path / name
    if isinstance(case.content, str | bytes):
        data = case.content
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    else:
        case.content(path)
    if case.refused:
        with pytest.raises(InputError, match=case.refused):
            look_at(QuestionSource(path, **case.options))
        return
    found = look_at(QuestionSource(path, **case.options))
    assert found.kind == case.kind, found.lines
    task = get_task(found.kind, found.grading)
    read = [task.parse(row, name) for row in found.rows]
    assert [question.text.strip() for question in read] == [text.strip() for text in case.texts]
    if case.golds:
        assert [question.answer for question in read] == list(case.golds)
    assert case.told in "\n".join((*found.lines, caplog.text))
    for question in read if case.choices else ():
        assert list(question.meta["choices"]) == list(case.choices)


def looked(path: Path, text: str, **more: Any) -> GradedQuestions:
    path.write_text(text)
    return look_at(QuestionSource(path, **more))


GRADED = {
    # a file's text, what models are told, and answers to the second question with their grades
    "labels that all apply": (
        lines(text=ASKED, labels=SEVERAL), ("billing", "bug", "praise"),
        {'["billing", "bug"]': 1, '["billing"]': 0},
    ),
    "any of several spellings": (
        lines(question=ASKED, answers=BOTH), (),
        {f"Answer: {NAMES[1]}": 1, f"Answer: M {NAMES[1]}": 1, "Answer: M": 0},
    ),
    "a unit": (
        table("question|answer", SUMS, [f"{t} km" for t in TOTALS]), ("in km",),
        {"Answer: 3 km": 1, "Answer: 3": 1, "Answer: 4 km": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", GRADED)
def test_models_are_told_what_a_form_asks_for_and_are_graded_by_it(
    form: str, tmp_path: Path
) -> None:
    text, told, grades = GRADED[form]
    found = looked(tmp_path / ("q.csv" if form == "a unit" else "q.jsonl"), text)
    assert all(word in (found.instruction or "") for word in told)
    task = get_task(found.kind, found.grading)
    question = task.parse(found.rows[1], "row")
    assert {answer: task.grade(question, answer) for answer in grades} == grades


def test_a_workbook_without_its_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    (tmp_path / "q.xlsx").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"ttsgraph\[excel\]"):
        look_at(QuestionSource(tmp_path / "q.xlsx"))


WITH_LETTERS = [
    {"question": f"q{k}", "choices": {"text": ["w", "x", "y", "z"], "label": list("ABCD")}}
    | {"answerKey": "ABCD"[k % 4]}
    for k in range(12)
]


def test_numbers_in_a_file_of_letters_are_the_choices_own_labels(tmp_path: Path) -> None:
    """As ARC has them: the key 2 among 1 to 4 is the second choice, in a file whose others are A
    to D.
    """
    numbered = {"text": ["w", "x", "y", "z"], "label": list("1234")}
    for choices in (numbered, numbered["text"]):
        rows = [*WITH_LETTERS, {"question": "last", "choices": choices, "answerKey": "2"}]
        file = tmp_path / "arc.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        looked = look_at(QuestionSource(file))
        assert (looked.kind, looked.rows[-1]["answer"]) == ("choice", "B")


def test_a_very_long_file_is_looked_at_in_part(tmp_path: Path) -> None:
    rows = "".join(f"{k} + 1?,{k + 1}\n" for k in range(25_000))
    found = looked(tmp_path / "q.csv", f"question,answer\n{rows}")
    assert len(found.rows) <= 10_000
    assert int(found.rows[-1]["answer"]) > 24_000
    assert "of 25,000 rows are read" in "\n".join(found.lines)
