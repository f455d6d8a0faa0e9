"""Cells of question files: texts and conversations, numbers as people write them, and choices."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

from finalanswer import LETTERS, fraction_of, last_boxed, normalise, normalised
from ttsgraph.base.errors import DataError
from ttsgraph.tasks.choice import labelled

CHOICES = ("choices", "options", "answer choices", "alternatives", "endings")
"""Names of columns that have all choices of a question in one cell."""

MISSING = {"nan", "<na>", "#n/a"}
"""Strings that mark empty cells in tables."""

_PART = {"text", "value", "content", "stem"}
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "developer": "system"}


def plain_name(name: str) -> str:
    """Return a column's name in lower-case words. A nested name becomes its last part, or the part
    before that if the last one is as general as `text`.
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s_-]+", " ", str(name)).strip(" ?:").lower()
    parent, _, last = words.rpartition(".")
    return parent.rpartition(".")[2] if parent and last in _PART else last


def text_of(value: Any) -> str:
    """Return a cell as text, without the decimals that tables add to whole numbers."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = storable(str(value)).strip()
    if text.casefold() in MISSING:
        return ""
    # Tables store dates with midnight as the time.
    return text.removesuffix(" 00:00:00").removesuffix("T00:00:00.000")


def loaded(value: Any) -> Any:
    """Return the object or list in a string of JSON or a Python literal; return any other value
    unchanged.
    """
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        for read in (json.loads, _literal):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                if isinstance(found := read(value.strip()), dict | list):
                    return found
    return value


def _literal(text: str) -> Any:
    """Return the value of a Python literal. Commas between strings may be missing, as in lists that
    NumPy prints.
    """
    return ast.literal_eval(re.sub(r"(['\"])\s+(?=['\"])", r"\1, ", text))


def storable(text: str) -> str:
    """Return a string with ? in place of unpaired surrogates, which JSON can hold but UTF-8
    files can't.
    """
    return text.encode("utf-8", "replace").decode()


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as JSON lines."""
    lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows)
    return storable("".join(f"{line}\n" for line in lines))


def flat(
    row: Mapping[str, Any], answer: str | None, talks: set[str], head: str = ""
) -> dict[str, Any]:
    """Return a row without nesting.

    Nested fields get names like `input.question`, prefixed with `head`. A conversation becomes one
    string, and its column is added to `talks`; if the assistant wrote the last of several messages,
    that message goes to the column `assistant`. An object in the column `answer` stays one value.
    Raises DataError for a conversation that contains more than text.
    """
    found: dict[str, Any] = {}
    for name, value in row.items():
        key = f"{head}{name}"
        if (turns := _turns(value)) is not None:
            if turns[-1][0] == "assistant":
                last = turns.pop()[1]
                found["assistant" if turns else key] = last
            if turns:
                talks.add(key)
                found[key] = _as_text(turns)
        elif isinstance(value, Mapping) and plain_name(name) not in CHOICES:
            whole = key == answer and not _is_wrapped(value)
            found |= {key: value} if whole else flat(value, answer, talks, f"{key}.")
        else:
            found[key] = value
    return found


def _is_wrapped(value: Mapping[str, Any]) -> bool:
    """Return True if an object contains only one string, under a name such as `value`."""
    ((name, text),) = value.items() if len(value) == 1 else (("", None),)
    return isinstance(text, str) and plain_name(name) in {*_PART, "answer"}


def _turns(value: Any) -> list[tuple[str, str]] | None:
    """Return a conversation as (role, text) pairs, or None for anything else. Raises DataError if a
    message contains more than text.
    """
    value = loaded(value)
    if not isinstance(value, list) or not value:
        return None
    pairs = []
    for each in value:
        if not isinstance(each, Mapping) or not {"role", "from"} & each.keys():
            return None
        role = str(each.get("role", each.get("from")))
        pairs.append((_ROLES.get(role, role), _said(each.get("content", each.get("value")))))
    return pairs


def _said(content: Any) -> str:
    """Return the text of a message. Raises DataError if it contains an image or audio."""
    if not isinstance(content, list):
        return str(content or "").strip()
    parts = []
    for part in content:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise DataError(
                f"expected messages with only text, found one with {kind}; leave such questions"
                " out, or name a text column with --question-column"
            )
        parts.append(part["text"].strip())
    return "\n".join(parts)


def _as_text(turns: Sequence[tuple[str, str]]) -> str:
    """Return a conversation as one string: the system messages, then the other turns, with the
    names of the speakers if there is more than one such turn.
    """
    systems = [text for role, text in turns if role == "system"]
    others = [(role, text) for role, text in turns if role != "system"]
    spoken = [f"{role.capitalize()}: {text}" if len(others) > 1 else text for role, text in others]
    return "\n\n".join(filter(None, [*systems, *spoken]))


MOST_ODD = 0.1
"""Maximum share of rows whose answers may be unreadable or differ in format from the rest."""

_COMMA = re.compile(r"\D{0,4}[+-]?\d+(?:\.\d{3})*(?:,(\d+))?\D{0,4}")
_POINTS = re.compile(r"\D{0,4}[+-]?\d{1,3}(?:\.\d{3}){2,}\D{0,4}")
_APOSTROPHES = re.compile(r"\D{0,4}[+-]?\d{1,3}(?:['\u2019]\d{3})+(?:\.\d+)?\D{0,4}")
_UNIT = re.compile(r"(\S*\d)\s*([°µ]?[^\W\d_][^\d\s]*)")
_CODE = re.compile(r"0\d+")

ENDS: dict[str, Callable[[str], str | None]] = {
    "####": lambda text: text.rpartition("####")[2].strip() if "####" in text else None,
    "\\boxed{}": last_boxed,
}
"""Parsers of the answer at the end of a solution, by the mark that precedes or surrounds it."""


def most(count: int, texts: Sequence[object]) -> bool:
    """Return True if `count` is at least 1 - MOST_ODD times the number of texts."""
    return count >= (1 - MOST_ODD) * max(1, len(texts))


def unit_of(text: str) -> str | None:
    """Return the unit of a number, or "" if it has none; return None for any other text, such as a
    code (007).
    """
    if fraction_of(normalise(text)) is not None:
        return None if _CODE.fullmatch(text) else ""
    match = _UNIT.fullmatch(text)
    return match[2] if match and fraction_of(normalise(match[1])) is not None else None


def final_answers(path: str, texts: Sequence[str], lines: list[str]) -> list[str]:
    """Return the final answer in each text, with a decimal point and without thousands separators.
    Add a line to `lines` for each kind of change. Raises DataError if decimal commas and
    points are mixed.
    """
    texts = list(texts)
    for name, read in ENDS.items():
        found = [read(text) for text in texts]
        if most(sum(each is not None for each in found), texts):
            lines.append(f"answers are taken from the end of solutions, after or in {name}")
            texts = [each or text for each, text in zip(found, texts, strict=True)]
    texts = [re.sub(r"['\u2019]", "", t) if _APOSTROPHES.fullmatch(t) else t for t in texts]
    decimals = [match[1] for text in texts if (match := _COMMA.fullmatch(text)) and match[1]]
    if all(len(each) == 3 for each in decimals) and not any(map(_POINTS.fullmatch, texts)):
        return texts
    odd = [text for text in texts if not _COMMA.fullmatch(text)]
    if with_point := next((text for text in odd if unit_of(text) == ""), None):
        comma = next(t for t in texts if "," in t or _POINTS.fullmatch(t))
        raise DataError(
            f"{path}: expected numbers with either decimal commas or decimal points, found"
            f" {comma!r} and {with_point!r}; use one format, or compare them as text with"
            " --kind exact"
        )
    if not most(len(texts) - len(odd), texts):
        return texts
    lines.append("decimal commas are read as points, and thousands separators are removed")
    return [t.replace(".", "").replace(",", ".") if _COMMA.fullmatch(t) else t for t in texts]


_ONE_CHOICE = re.compile(r"(?:option|choice|answer|opt|op)? ?([a-j]|\d)", re.IGNORECASE)
_WRONG = re.compile(r"(?:wrong|incorrect|distractor)(?: answer| option| choice)?s?(?: ?\d)?")
_LABEL = re.compile(r"(?:^|[\s;,|/])\(?(?:([A-Ja-j])[).:]|(\d)(?:\)|[.:](?=\s)))\s*")
_LABELS = (LETTERS, LETTERS.lower(), "123456789", "0123456789")
_PICKED = re.compile(
    r"(?:(?:option|choice|answer)[\s_]*)?[(\[]?([a-z]|\d\d?)[)\].:]*(?:\s+(.+))?", re.I | re.S
)
_SEPARATORS = ("\n", "|", ";", "\t", " / ", ",")


def is_one_choice(name: str) -> bool:
    """Return True if a plain name belongs to a column with one choice per question."""
    return _ONE_CHOICE.fullmatch(name) is not None


def choice_columns(columns: Sequence[str], answer: str) -> list[str]:
    """Return the column with all choices, or the columns with one choice each.

    The answer's column is included if the other columns have only wrong choices.
    """
    whole = [column for column in columns if plain_name(column) in CHOICES]
    if whole:
        return whole[:1]
    single = [column for column in columns if is_one_choice(plain_name(column))]
    wrong = [column for column in columns if _WRONG.fullmatch(plain_name(column))]
    return single if len(single) >= 2 else [answer, *wrong] if wrong else []


def picked(question: str, answer: Any, cells: Sequence[Any], with_answer: bool) -> dict[str, Any]:
    """Return the answer and the choices of a row, from one cell with all choices or from several.

    If the answer is in one of these cells (`with_answer`), or is a list that marks the right choice
    ([1, 0, 0]), the choices are sorted by a hash of the question and the choice, so that their
    order doesn't reveal the answer.
    """
    if len(cells) == 1:
        labels, choices = _parts(cells[0])
    else:
        parts = [each for cell in cells for each in (cell if isinstance(cell, list) else [cell])]
        labels, choices = [], [text for part in parts if (text := text_of(part))]
    one_right = [0] * (len(choices) - 1) + [1]
    marked = isinstance(answer, list) and sorted(answer, key=str) == one_right
    if marked:
        answer = choices[answer.index(1)]
    if with_answer or marked:
        choices.sort(key=lambda text: crc32(f"{question} {text}".encode()))
    elif choices and isinstance(answer, str):
        answer = LETTERS[labels.index(answer)] if answer in labels else _choice(answer, choices)
    return {"answer": answer, "choices": choices}


def _choice(answer: str, choices: Sequence[str]) -> str:
    """Return the letter or the text of the choice that an answer such as "(b)", "Option B" or
    "B. Rome" means; return any other answer unchanged.
    """
    same = [choice for choice in choices if normalised(choice) == normalised(answer)]
    if same or (found := _PICKED.fullmatch(answer)) is None:
        return answer
    if (rest := found[2]) is None:
        return found[1].upper()
    return next((each for each in choices if normalised(each) == normalised(rest)), answer)


def letters_of(rows: list[dict[str, Any]], lines: list[str]) -> list[dict[str, Any]]:
    """Return the rows with letters in place of numeric answers, which number the choices starting
    at 1. Return the rows unchanged unless every answer is the letter or number of a choice.
    """
    pairs = [(str(row["answer"]), row.get("choices") or ()) for row in rows]
    for answer, known in pairs:
        lettered = len(answer) == 1 and answer.upper() in LETTERS[: len(known)]
        numbered = answer.isdecimal() and 1 <= int(answer) <= len(known)
        if answer in known or not (lettered or numbered):
            return rows
    if any(answer.isdecimal() for answer, _ in pairs):
        lines.append("numeric answers are read as numbers of choices, starting at 1")
    letters = [LETTERS[int(each) - 1] if each.isdecimal() else each for each, _ in pairs]
    return [row | {"answer": letter} for row, letter in zip(rows, letters, strict=True)]


def _parts(value: Any) -> tuple[list[str], list[str]]:
    """Return the labels (if any) and the choices in one cell: an object, a list, a string of JSON
    or a Python literal, lettered text, or text with separators.
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
    """Return the matched labels, or an empty list if they aren't a series (A, B, C or 1, 2, 3)."""
    labels = [mark[1] or mark[2] for mark in marks]
    series = any(known.startswith("".join(labels)) for known in _LABELS)
    return labels if len(labels) > 1 and series else []
