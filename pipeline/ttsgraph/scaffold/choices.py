"""Parse the choices of a question in the forms used by question files, and the right one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from finalanswer import LETTERS, normalised
from ttsgraph.scaffold.conversations import CHOICES, loaded, plain_name, text_of
from ttsgraph.tasks.choice import labelled

_ONE_CHOICE = re.compile(r"(?:option|choice|answer|opt|op)? ?([a-j]|\d)", re.IGNORECASE)
_WRONG = re.compile(r"(?:wrong|incorrect|distractor)(?: answer| option| choice)?s?(?: ?\d)?")
_LABEL = re.compile(r"(?:^|[\s;,|/])\(?(?:([A-Ja-j])[).:]|(\d)(?:\)|[.:](?=\s)))\s*")
_LABELS = (LETTERS, LETTERS.lower(), "123456789", "0123456789")
_PICKED = re.compile(
    r"(?:(?:option|choice|answer)[\s_]*)?[(\[]?([a-z]|\d\d?)[)\].:]*(?:\s+(.+))?", re.I | re.S
)
_SEPARATORS = ("\n", "|", ";", "\t", " / ", ",")


def is_one_choice(name: str) -> bool:
    """Return True if a plain name denotes a column with one choice."""
    return _ONE_CHOICE.fullmatch(name) is not None


def choice_columns(columns: Sequence[str], answer: str) -> list[str]:
    """Return the column with all choices, or the columns with one choice each.

    The answer's column is included if the others hold wrong choices only.
    """
    whole = [column for column in columns if plain_name(column) in CHOICES]
    if whole:
        return whole[:1]
    single = [column for column in columns if is_one_choice(plain_name(column))]
    wrong = [column for column in columns if _WRONG.fullmatch(plain_name(column))]
    return single if len(single) >= 2 else [answer, *wrong] if wrong else []


def picked(question: str, answer: Any, cells: Sequence[Any], with_answer: bool) -> dict[str, Any]:
    """Return choices and answer of a row, from one cell with all choices or from several.

    If the answer's own cell is among them, or marks one of them ([1, 0, 0]), the choices are
    shuffled by a hash, so that the order reveals nothing.
    """
    if len(cells) == 1:
        labels, choices = _parts(cells[0])
    else:
        parts = [each for cell in cells for each in (cell if isinstance(cell, list) else [cell])]
        labels, choices = [], [text for part in parts if (text := text_of(part))]
    if marked := isinstance(answer, list) and sorted(answer, key=str) == [0] * (
        len(choices) - 1
    ) + [1]:
        answer = choices[answer.index(1)]
    if with_answer or marked:
        choices.sort(key=lambda text: crc32(f"{question} {text}".encode()))
    elif choices and isinstance(answer, str):
        answer = LETTERS[labels.index(answer)] if answer in labels else _choice(answer, choices)
    return {"answer": answer, "choices": choices}


def _choice(answer: str, choices: Sequence[str]) -> str:
    """Return an answer such as "(b)", "Option B" or "B. Rome" as its letter or the choice's
    text.
    """
    same = [choice for choice in choices if normalised(choice) == normalised(answer)]
    if same or (found := _PICKED.fullmatch(answer)) is None:
        return answer
    if (rest := found[2]) is None:
        return found[1].upper()
    return next((each for each in choices if normalised(each) == normalised(rest)), answer)


def letters_of(rows: list[dict[str, Any]], lines: list[str]) -> list[dict[str, Any]]:
    """Return rows whose numeric answers, counted from 1, are replaced by letters; unchanged unless
    all answers are labels.
    """
    pairs = [(str(row["answer"]), row.get("choices") or ()) for row in rows]
    for answer, known in pairs:
        lettered = len(answer) == 1 and answer.upper() in LETTERS[: len(known)]
        numbered = answer.isdecimal() and 1 <= int(answer) <= len(known)
        if answer in known or not (lettered or numbered):
            return rows
    if any(answer.isdecimal() for answer, _ in pairs):
        lines.append("numeric answers are read as choices counted from 1")
    letters = [LETTERS[int(each) - 1] if each.isdecimal() else each for each, _ in pairs]
    return [row | {"answer": letter} for row, letter in zip(rows, letters, strict=True)]


def _parts(value: Any) -> tuple[list[str], list[str]]:
    """Return labels (if any) and choices of one cell: an object, a list, JSON or Python text,
    lettered text, or text with separators.
    """
    if isinstance(value, Mapping | list):
        pairs = labelled(value)
        texts = [text.strip() for _, text in pairs]
        marks = [mark for text in texts if (mark := _LABEL.match(text))]
        if len(marks) == len(texts) and (found := _labels(marks)):
            return found, [t[mark.end() :] for t, mark in zip(texts, marks, strict=True)]
        return [label for label, _ in pairs if label], texts
    text = text_of(value)
    if text[:1] in ("[", "{"):
        if (found := loaded(text)) != text:
            return _parts(found)
        text = text.strip("[]")
    marks = list(_LABEL.finditer(text))
    if marks and not marks[0].start() and (found := _labels(marks)):
        ends = [mark.start() for mark in marks[1:]] + [len(text)]
        parts = [text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)]
        return found, [part.strip(" ;,|/\n") for part in parts]
    separator = next((each for each in _SEPARATORS if each in text), None)
    return [], [part.strip(" '\"") for part in text.split(separator) if part.strip()]


def _labels(marks: Sequence[re.Match[str]]) -> list[str]:
    """Return labels such as A, B, C or 1, 2, 3; empty if they are not a series."""
    labels = [mark[1] or mark[2] for mark in marks]
    series = any(known.startswith("".join(labels)) for known in _LABELS)
    return labels if len(labels) > 1 and series else []
