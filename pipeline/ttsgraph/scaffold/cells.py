"""Cells of question files: texts, conversations, choices, and numbers as people write them."""

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from finalanswer import LETTERS, fraction_of, last_boxed, normalise, number_in
from ttsgraph.base.errors import DataError
from ttsgraph.tasks.choice import labelled

CHOICES = ("choices", "options", "answer choices", "alternatives", "endings")
"""Names of columns that have all choices of a question in one cell."""

MISSING = {"nan", "<na>", "#n/a"}
"""Strings that mark empty cells in tables."""

MOST_ODD = 0.1
"""Maximum share of rows whose answers may be unreadable or differ in format from the rest."""

ENDS: dict[str, Callable[[str], str | None]] = {
    "####": lambda text: text.rpartition("####")[2].strip() if "####" in text else None,
    "\\boxed{}": last_boxed,
}
"""Parsers of the answer at the end of a solution, by the mark that precedes or surrounds it."""

_PART = {"text", "value", "content", "stem"}
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "developer": "system"}
_ONE_CHOICE = re.compile(r"(?:option|choice|answer|opt|op)? ?([a-j]|\d)", re.IGNORECASE)
_CODE = re.compile(r"0\d+")
_QUANTITY = re.compile(
    r"(?:[~$€£¥+−-]|[A-Z]{3}\b)?\s?(?:\d+|\d{1,3}(?:[.,\s'’]\d{2,3})+)(?:[.,]\d+)?\D*"
)
_GROUPS = re.compile(r"(?<=\d)[\s'’](?=\d{3}(?!\d))")
_UNCLEAR = re.compile(r"\d{1,3}[.,]\d{3}")
_WITH_COMMA = re.compile(r"[+-]?\d+(?:\.\d{3})*(?:,(\d+))?")


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
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return read(value.strip())
    return value


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
        elif isinstance(value, Mapping) and key != answer and plain_name(name) not in CHOICES:
            found |= flat(value, answer, talks, f"{key}.")
        else:
            found[key] = value
    return found


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
    parts = content if isinstance(content, list) else [{"text": str(content or "")}]
    if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
        raise DataError(
            "expected texts as messages, found more, such as an image; name a --question-column"
        )
    return "\n".join(part["text"].strip() for part in parts)


def _as_text(turns: Sequence[tuple[str, str]]) -> str:
    """Return a conversation as one string: the system messages, then the other turns, with the
    names of the speakers if there is more than one such turn.
    """
    systems = [text for role, text in turns if role == "system"]
    others = [(role, text) for role, text in turns if role != "system"]
    spoken = [f"{role.capitalize()}: {text}" if len(others) > 1 else text for role, text in others]
    return "\n\n".join(filter(None, [*systems, *spoken]))


def most(found: Iterable[object]) -> bool:
    """Return True if at most a share of MOST_ODD is missing, of one thing at least."""
    flags = [bool(each) for each in found]
    return sum(flags) >= (1 - MOST_ODD) * max(1, len(flags))


def is_number(text: str) -> bool:
    """Return True for a number, but not for a code such as 007."""
    return fraction_of(normalise(text)) is not None and not _CODE.fullmatch(text)


def is_quantity(text: str) -> bool:
    """Return True for one number in any format, perhaps with a sign before and a unit after it."""
    return _QUANTITY.fullmatch(text) is not None


def as_read(texts: Sequence[str]) -> str:
    """Return how numbers are read, in brackets, if each separator in them may be a decimal one or
    one of thousands, else "".
    """
    marked = [text for text in texts if re.search("[.,]", text)]
    if not marked or not all(map(_UNCLEAR.fullmatch, marked)):
        return ""
    return f" ({marked[0]} is read as {number_in(marked[0])})"


def final_answers(path: str, texts: Sequence[str], lines: list[str]) -> list[str]:
    """Return the final answer in each text, with a decimal point. Add a line to `lines` for each
    kind of change. Raises DataError if decimal commas and points are mixed.
    """
    texts = list(texts)
    for name, read in ENDS.items():
        found = [read(text) for text in texts]
        if most(found):
            lines.append(f"answers are taken from the end of solutions, after or in {name}")
            texts = [each or text for each, text in zip(found, texts, strict=True)]
    joined = [_GROUPS.sub("", text) for text in texts]
    if joined != texts and most(map(is_quantity, texts)):
        lines.append("spaces and apostrophes between thousands are removed")
        texts = joined
    parts = [match and match[1] for match in map(_WITH_COMMA.fullmatch, texts)]
    comma = next((t for t, part in zip(texts, parts, strict=True) if part and len(part) != 3), None)
    if comma is None:  # three digits after a comma are thousands
        return texts
    odd = [text for text in texts if not _WITH_COMMA.fullmatch(text)]
    if with_point := next(filter(is_number, odd), None):
        raise DataError(
            f"{path}: expected either decimal commas or points, found {comma!r} and"
            f" {with_point!r}; use one format, or compare them as text with --kind exact"
        )
    if not most(text not in odd for text in texts):
        return texts
    lines.append("decimal commas are read as points, and thousands separators are removed")
    return [t.replace(".", "").replace(",", ".") if t not in odd else t for t in texts]


def choice_columns(columns: Sequence[str]) -> dict[str, str]:
    """Return the columns with one choice each by their letter or number, such as A or option 2;
    return an empty mapping if there are fewer than two.
    """
    found = {
        match[1].upper(): column
        for column in columns
        if (match := _ONE_CHOICE.fullmatch(plain_name(column)))
    }
    return found if len(found) > 1 else {}


def numbered_from_one(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if all answers are numbers of choices, starting at 1, and none is a label or the
    text of a choice.
    """
    for row in rows:
        answer, known = str(row["answer"]), labelled(row.get("choices") or [])
        is_number_of_one = answer.isdecimal() and 1 <= int(answer) <= min(len(known), len(LETTERS))
        if not is_number_of_one or any(answer in pair for pair in known):
            return False
    return bool(rows)
