"""Question files as people have them: read right, or refused with the option that mends it."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
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


def table(header: str, *columns: Sequence[Any], mark: str = ",", top: str = "") -> str:
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


PLAIN = table("question|answer", ASKED, NAMES)
ROWS = lines(question=ASKED, answer=NAMES)
MILLIONS = [f"{total}000000" for total in TOTALS]
JUDGED = {"told": "--kind judge"}
LISTED = [{"q": q, "a": n} for q, n in zip(ASKED, NAMES, strict=True)]
BY_LETTER = dict(zip("ABCD", TOWNS, strict=True))
BOXES = [f"So it is $\\boxed{{\\frac{{{t}}}{{7}}}}$." for t in TOTALS]
ARC = [{"text": list(TOWNS), "label": list("1234")} for _ in ASKED]
LABELS = [f"topic {k % 12}" for k in range(60)]
MAILS = [f"Mail {k} about something." for k in range(60)]
SEVERAL = [[["billing"], ["billing", "bug"], ["bug", "praise"]][k % 3] for k in range(COUNT)]
BILL = [{"name": f"Bob {k}", "total": k} for k in range(COUNT)]
TURNS = [said("system: Be brief.", "user: Hello.", "assistant: Hi.", f"user: {q}") for q in ASKED]
TURNS_AS_TEXT = [f"Be brief.\n\nUser: Hello.\n\nAssistant: Hi.\n\nUser: {q}" for q in ASKED]
SYSTEM = [said("system: Be brief.", f"user: {q}") for q in ASKED]
SYSTEM_AS_TEXT = [f"Be brief.\n\n{q}" for q in ASKED]
NUMBERS = [str(total) for total in TOTALS]
COMMAS = [f"{k},{k % 10}5" for k in range(COUNT)]
POINTS = [f"{k}.{k % 10}5" for k in range(COUNT)]
CODE = {
    "task_id": [f"H/{k}" for k in range(COUNT)],
    "prompt": [f"def f{k}(x):\n    return x + {k}\n" for k in range(COUNT)],
    "entry_point": [f"f{k}" for k in range(COUNT)],
    "test": [f"def check(f):\n    assert f(1) == {1 + k}\n" for k in range(COUNT)],
    "canonical_solution": ["    pass\n"] * COUNT,
}


def workbook(*columns: Sequence[Any]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        book.active.append(["Question", "Answer"])
        for row in zip(*columns, strict=True):
            book.active.append(list(row))
        book.save(path)

    return write


def parquet(**columns: Sequence[Any]) -> Callable[[Path], object]:
    return lambda path: pd.DataFrame(columns).to_parquet(path)


CASES: dict[str, Case] = {
    # tables
    "plain.csv": Case(table("question|answer", ASKED, NAMES)),
    "semicolons.csv": Case(table("Question|Answer", ASKED, NAMES, mark=";")),
    "tabs.tsv": Case(table("question|answer", ASKED, NAMES, mark="\t")),
    "pipes.csv": Case(table("question|answer", ASKED, NAMES, mark="|")),
    "excels-line.csv": Case(table("question|answer", ASKED, NAMES, mark=";", top="sep=;\r\n")),
    "bom.csv": Case(table("question|answer", ASKED, NAMES).encode("utf-8-sig")),
    "windows.csv": Case(
        table("question|answer", ASKED, [f"{n} é" for n in NAMES]).encode("cp1252"),
        golds=[f"{n} é" for n in NAMES],
    ),
    "commas-in-texts.csv": Case(
        table("question|answer", [f"Now, {q}" for q in ASKED], NAMES, mark=";"),
        texts=[f"Now, {q}" for q in ASKED],
    ),
    "other-columns.csv": Case(
        table("id|Question|Expected answer|seen", range(COUNT), ASKED, NAMES, ASKED),
        told="not used: 'id', 'seen'",
    ),
    "strange-columns.csv": Case(table("Ticket|Team", ASKED, NAMES), refused="--question-column"),
    "strange-columns-named.csv": Case(
        table("Ticket|Team", ASKED, NAMES), options={"question": "Ticket", "answer": "Team"}
    ),
    "no-answer.csv": Case(table("question|when", ASKED, NAMES), refused="--answer-column"),
    "no-header.csv": Case(table("", ASKED, NAMES), refused="--no-header"),
    "no-header-said.csv": Case(table("", ASKED, NAMES), options={"header": False}),
    "mmlu.csv": Case(
        table("", ASKED, *([town] * COUNT for town in TOWNS), LETTERS),
        "choice",
        LETTERS,
        options={"header": False},
        choices=TOWNS,
    ),
    "decimal-commas.csv": Case(
        table("Frage|answer", SUMS, COMMAS, mark=";"),
        "number",
        POINTS,
        SUMS,
        options={"question": "Frage"},
        told="decimal commas",
    ),
    "commas-and-points.csv": Case(
        table("question|answer", SUMS, [*COMMAS[:12], *POINTS[12:]], mark=";"),
        refused="--kind exact",
    ),
    "thousands.csv": Case(
        table("question|answer", SUMS, [f"{k + 1},500" for k in range(COUNT)]),
        "number",
        [f"{k + 1},500" for k in range(COUNT)],
        SUMS,
    ),
    "book.xlsx": Case(workbook(ASKED, NAMES)),
    "numbers.xlsx": Case(workbook(SUMS, [float(t) for t in TOTALS]), "number", NUMBERS, SUMS),
    "dates.xlsx": Case(
        workbook(ASKED, [datetime(2024, 1, 1 + k) for k in range(COUNT)]),
        golds=[f"2024-01-{1 + k:02}" for k in range(COUNT)],
    ),
    "days.parquet": Case(
        parquet(question=ASKED, answer=pd.date_range("2024-01-01", periods=COUNT)),
        golds=[f"2024-01-{1 + k:02}" for k in range(COUNT)],
    ),
    "plain.parquet": Case(parquet(question=ASKED, answer=NAMES)),
    "counts.parquet": Case(
        parquet(question=SUMS, answer=[float(t) for t in TOTALS]), "number", NUMBERS, SUMS
    ),
    # JSON
    "plain.jsonl": Case(lines(question=ASKED, answer=NAMES)),
    "list.json": Case(json.dumps({"data": LISTED})),
    "nested.jsonl": Case(
        lines(inputs=[{"question": q} for q in ASKED], outputs=[{"answer": n} for n in NAMES])
    ),
    "alpaca.jsonl": Case(
        lines(instruction=["Name the master."] * COUNT, input=ASKED, output=NAMES),
        texts=[f"Name the master.\n\n{q}" for q in ASKED],
    ),
    "alpaca-without-input.jsonl": Case(lines(instruction=ASKED, input=[""] * COUNT, output=NAMES)),
    "squad.jsonl": Case(
        lines(
            context=["The guilds met."] * COUNT,
            question=ASKED,
            answers=[{"text": [n, n], "answer_start": [0, 0]} for n in NAMES],
        ),
        texts=[f"The guilds met.\n\n{q}" for q in ASKED],
    ),
    "trivia.jsonl": Case(
        lines(question=ASKED, answer=[{"value": n, "aliases": [n, f"M {n}"]} for n in NAMES])
    ),
    # conversations
    "openai-evals.jsonl": Case(lines(input=SYSTEM, ideal=NAMES), texts=SYSTEM_AS_TEXT),
    "several-ideals.jsonl": Case(
        lines(input=SYSTEM, ideal=[[n, f"M {n}"] for n in NAMES]), texts=SYSTEM_AS_TEXT
    ),
    "turns.jsonl": Case(
        lines(messages=[[*t, *said(f"assistant: {n}")] for t, n in zip(TURNS, NAMES, strict=True)]),
        texts=TURNS_AS_TEXT,
        told="earlier turns",
    ),
    "turns-in-a-cell.csv": Case(
        table("messages|answer", [json.dumps(t) for t in TURNS], NAMES), texts=TURNS_AS_TEXT
    ),
    "sharegpt.json": Case(
        json.dumps(
            [
                {"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": n}]}
                for q, n in zip(ASKED, NAMES, strict=True)
            ]
        )
    ),
    "trl.jsonl": Case(
        lines(
            prompt=[said(f"user: {q}") for q in ASKED],
            completion=[said(f"assistant: {n}") for n in NAMES],
        )
    ),
    "images.jsonl": Case(
        lines(
            messages=[[{"role": "user", "content": [{"type": "image_url"}]}] for _ in ASKED],
            answer=NAMES,
        ),
        refused="--question-column",
    ),
    "a-models-answer.jsonl": Case(
        lines(prompt=ASKED, completion=NAMES, model_answer=TOWNS * 6), told="'model_answer'"
    ),
    "only-a-models-answer.jsonl": Case(
        lines(prompt=ASKED, model_answer=TOWNS * 6), refused="--answer-column"
    ),
    # numbers and formulas
    "gsm8k.jsonl": Case(
        lines(
            question=SUMS,
            answer=[f"We add them: {t}.\n<<1+1=2>>\n#### {t}" for t in TOTALS],
        ),
        "number",
        NUMBERS,
        SUMS,
        told="####",
    ),
    "gsm8k-short.jsonl": Case(
        lines(question=SUMS, answer=[f"#### {1000 + t:,}" for t in TOTALS]),
        "number",
        [f"{1000 + t:,}" for t in TOTALS],
        SUMS,
    ),
    "math.jsonl": Case(
        lines(problem=SUMS, solution=BOXES),
        "math",
        [f"\\frac{{{t}}}{{7}}" for t in TOTALS],
        SUMS,
    ),
    # choices
    "mmlu.jsonl": Case(
        lines(question=ASKED, choices=[list(TOWNS)] * COUNT, answer=RIGHT, subject=NAMES),
        "choice",
        LETTERS,
        choices=TOWNS,
    ),
    "arc.jsonl": Case(
        lines(question=ASKED, choices=ARC, answerKey=[str(k + 1) for k in RIGHT]),
        "choice",
        LETTERS,
        choices=TOWNS,
    ),
    "by-letter.jsonl": Case(
        lines(question=ASKED, options=[BY_LETTER] * COUNT, answer=LETTERS),
        "choice",
        LETTERS,
        choices=TOWNS,
    ),
    "odd-choices.jsonl": Case(
        lines(
            question=ASKED, choices=[list(TOWNS)] * COUNT, answer=["Cairo"] * 12 + ["Quito"] * 12
        ),
        refused="--answer-column",
    ),
    # labels
    "few-labels.jsonl": Case(
        lines(text=ASKED, label=TOWNS * 6), "choice", TOWNS * 6, told="prompts name the 4 labels"
    ),
    "labels-with-numbers.jsonl": Case(
        lines(text=ASKED, label=RIGHT, label_text=TOWNS * 6), "choice", TOWNS * 6
    ),
    "twelve-labels.csv": Case(
        table("text|intent", MAILS, LABELS), "choice", LABELS, MAILS, options={"answer": "intent"}
    ),
    "several-labels.jsonl": Case(
        lines(text=ASKED[:24], labels=SEVERAL),
        "json",
        [json.dumps(each, separators=(",", ":")) for each in SEVERAL],
        told="all of which are required",
    ),
    # objects, programs, and longer answers
    "yes-in-spellings.jsonl": Case(
        lines(input=ASKED, ideal=[[["Yes", "yes"], ["No", "no"]][k % 2] for k in range(COUNT)]),
        golds=["Yes", "No"] * 12,
    ),
    "winogrande.jsonl": Case(
        lines(
            sentence=ASKED,
            option1=["Paris"] * COUNT,
            option2=["Rome"] * COUNT,
            answer=["1", "2"] * 12,
        ),
        "choice",
        ["A", "B"] * 12,
        choices=TOWNS[:2],
    ),
    "aqua.jsonl": Case(
        lines(
            question=SUMS,
            options=[["A)21", "B)21.5", "C)22"]] * COUNT,
            correct=["A", "B", "C"] * 8,
        ),
        "choice",
        ["A", "B", "C"] * 8,
        SUMS,
        choices=["21", "21.5", "22"],
    ),
    "labels-in-a-cell.csv": Case(
        table("text|tags", ASKED, ["; ".join(each) for each in SEVERAL]),
        "json",
        [json.dumps(each, separators=(",", ":")) for each in SEVERAL],
        told="all of which are required",
    ),
    "spans.jsonl": Case(lines(question=ASKED, answers=[[{"text": n, "start": 1}] for n in NAMES])),
    "columns.json": Case(json.dumps({"question": ASKED, "answer": NAMES})),
    "two-of-a-name.csv": Case(table("question|answer|answer", ASKED, NAMES, LETTERS)),
    "of-a-named-model.csv": Case(
        table("question|gpt-4o answer", ASKED, NAMES), refused="--answer-column"
    ),
    "objects.jsonl": Case(
        lines(question=ASKED, answer=BILL),
        "json",
        [json.dumps(each, separators=(",", ":")) for each in BILL],
    ),
    "objects-in-cells.csv": Case(
        table("question|answer", ASKED, [json.dumps(each) for each in BILL]),
        "json",
        [json.dumps(each, separators=(",", ":")) for each in BILL],
    ),
    "humaneval.jsonl": Case(lines(**CODE), "humaneval", (), CODE["prompt"]),
    "long.csv": Case(table("question|answer", ASKED, LONG), "similarity", LONG),
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
    "table.txt": Case(table("question|answer", ASKED, NAMES, mark="\t")),
    "table-without-an-ending": Case(PLAIN),
    "table.md": Case(
        "| question | answer |\n| --- | --- |\n"
        + "".join(f"| {q} | {n} |\n" for q, n in zip(ASKED, NAMES, strict=True))
    ),
    "binary.xls": Case(b"\xd0\xcf\x11\xe0" + bytes(99), refused=r"\.xlsx"),
    "pretty.jsonl": Case("".join(json.dumps(row, indent=1) for row in LISTED)),
    "commas-between.jsonl": Case(ROWS.replace("}\n", "},\n")),
    "splits.json": Case(json.dumps({"train": LISTED[:9], "test": LISTED[9:], "authors": [{}]})),
    "deep.json": Case(json.dumps({"version": 2, "data": {"all": LISTED}})),
    "by-id.json": Case(json.dumps({f"id {k}": row for k, row in enumerate(LISTED)})),
    "by-column.json": Case(pd.DataFrame(LISTED).to_json()),
    "by-question.json": Case(json.dumps(dict(zip(ASKED, NAMES, strict=True)))),
    "pairs.json": Case(json.dumps(list(zip(ASKED, NAMES, strict=True))), options={"header": False}),
    "pairs-unsaid.json": Case(
        json.dumps(list(zip(ASKED, NAMES, strict=True))), refused="--no-header"
    ),
    # lines of tables
    "bom.jsonl": Case(ROWS.encode("utf-8-sig")),
    "empty-lines.CSV": Case(PLAIN.replace("\r\n", "\r\n\r\n,\r\n")),
    "title.csv": Case("Quiz of 2024,\n,\n" + PLAIN),
    "remark.csv": Case("# made by hand\n" + PLAIN),
    "spaces.csv": Case(PLAIN.replace(",", " , ").replace("Which", " Which")),
    "several-lines.csv": Case(
        table("question|answer", [q.replace(" ", "\n", 1) for q in ASKED], NAMES),
        texts=[q.replace(" ", "\n", 1) for q in ASKED],
    ),
    "quote-left-open.csv": Case(
        PLAIN.replace("Which", '"Which', 1), texts=['"' + ASKED[0], *ASKED[1:]]
    ),
    "quote-left-open-at-commas.csv": Case(
        PLAIN.replace("Which", '"Which', 1).replace("Which", "Well, which"), refused=":2: "
    ),
    "quoted-word.tsv": Case(
        table("question|answer", ASKED, NAMES, mark="\t").replace("Which", '"Which"'),
        texts=[q.replace("Which", '"Which"') for q in ASKED],
    ),
    "inches.csv": Case(
        table("question|answer", ASKED, NAMES).replace("Which", '5" of which'),
        texts=[q.replace("Which", '5" of which') for q in ASKED],
    ),
    "one-column.csv": Case(table("question", ASKED), refused="--answer-column"),
    "one-column-with-a-comma.csv": Case(
        "question\n" + "\n".join(ASKED) + "\nWell, why?\n", refused="double quotes"
    ),
    "half-a-character.jsonl": Case(
        ROWS.replace("guild 0?", "guild 0?\\ud83c"), texts=[f"{ASKED[0]}?", *ASKED[1:]]
    ),
    "entities.csv": Case(
        table("question|answer", ASKED, [f"{n} &amp; son" for n in NAMES]),
        golds=[f"{n} & son" for n in NAMES],
        told="&amp;",
    ),
    "entities-as-a-topic.csv": Case(
        table("question|answer", ASKED, [f"&lt; {n} <" for n in NAMES]),
        golds=[f"&lt; {n} <" for n in NAMES],
    ),
    # forms of answers
    **{
        f"{name}.csv": Case(table("question|answer", SUMS, said), kind, golds or said, SUMS, **more)
        for name, said, kind, golds, more in (
            ("points-between", [f"{t}.000.000" for t in TOTALS], "number", MILLIONS, {}),
            ("apostrophes", [f"{t}'000'000" for t in TOTALS], "number", MILLIONS, {}),
            ("spaces-between", [f"{t} 000" for t in TOTALS], "number", None, {}),
            ("euros", [f"{t},50 €" for t in TOTALS], "number", [f"{t}.50 €" for t in TOTALS], {}),
            ("kilometres", [f"{t} km" for t in TOTALS], "number", None, {"told": "in km"}),
            ("units", [f"{t} {'km' if t % 3 else 'kg'}" for t in TOTALS], "exact", None, JUDGED),
            ("codes", [f"{t:05}" for t in TOTALS], "exact", None, {}),
            ("dates", [f"2024-01-{1 + k:02}" for k in range(COUNT)], "exact", None, {}),
            ("ranges", [f"{t}-{t + 5}" for t in TOTALS], "exact", None, {}),
            ("formulas", [f"$x+{t}$" for t in TOTALS], "math", [f"x+{t}" for t in TOTALS], {}),
            ("yes-or-no", ["Yes", "no", "yes", "no"] * 6, "choice", ["Yes", "no"] * 12, {}),
            ("true-or-false", ["True", "False"] * 12, "choice", None, {}),
            ("zero-or-one", ["0", "1"] * 12, "number", None, {"told": "--kind choice"}),
        )
    },
    "pairs-of-numbers.jsonl": Case(
        lines(question=SUMS, answer=[[t, t + 1] for t in TOTALS]),
        "json",
        [f"[{t},{t + 1}]" for t in TOTALS],
        SUMS,
    ),
    "pairs-of-texts.jsonl": Case(
        lines(question=ASKED, answer=[[n, f"M {n}"] for n in NAMES]), told="--kind json"
    ),
    "lettered.csv": Case(
        table("question|A|B|C|D|answer", ASKED, *([town] * COUNT for town in TOWNS), LETTERS),
        "choice",
        LETTERS,
        choices=TOWNS,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_question_file_is_read_or_refused_with_an_option(name: str, tmp_path: Path) -> None:
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
    assert case.told in "\n".join(found.lines)
    for question in read if case.choices else ():
        assert list(question.meta["choices"]) == list(case.choices)


def looked(path: Path, text: str, **more: Any) -> GradedQuestions:
    path.write_text(text)
    return look_at(QuestionSource(path, **more))


def test_labels_that_all_apply_are_named_to_models(tmp_path: Path) -> None:
    found = looked(tmp_path / "q.jsonl", lines(text=ASKED, labels=SEVERAL))
    assert found.instruction is not None
    assert all(label in found.instruction for label in ("billing", "bug", "praise"))
    task = get_task("json")
    assert task.grade(task.parse(found.rows[1], "row"), '["billing", "bug"]') == 1
    assert task.grade(task.parse(found.rows[1], "row"), '["billing"]') == 0


def test_any_of_several_spellings_is_right(tmp_path: Path) -> None:
    text = lines(question=ASKED, answers=[[n, f"M {n}"] for n in NAMES])
    found = looked(tmp_path / "q.jsonl", text)
    task = get_task(found.kind, found.grading)
    question = task.parse(found.rows[0], "row")
    assert task.grade(question, f"Answer: {NAMES[0]}")
    assert task.grade(question, f"Answer: M {NAMES[0]}")


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


def test_models_are_told_the_unit_of_numbers(tmp_path: Path) -> None:
    found = looked(tmp_path / "q.csv", table("question|answer", SUMS, [f"{t} km" for t in TOTALS]))
    assert found.instruction is not None
    assert "in km" in found.instruction
    task = get_task(found.kind)
    assert task.grade(task.parse(found.rows[0], "row"), "Answer: 1 km")


def test_a_very_long_file_is_looked_at_in_part(tmp_path: Path) -> None:
    rows = "".join(f"{k} + 1?,{k + 1}\n" for k in range(25_000))
    found = looked(tmp_path / "q.csv", f"question,answer\n{rows}")
    assert len(found.rows) <= 10_000
    assert int(found.rows[-1]["answer"]) > 24_000
    assert "of 25,000 rows are read" in "\n".join(found.lines)
