"""Flatten rows of question files: conversations become texts, and columns get plain names."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ttsgraph.base.errors import DataError

CHOICES = ("choices", "options", "answer choices", "alternatives", "endings")
"""Names of a column with all choices of a question."""

MISSING = {"nan", "<na>", "#n/a"}
"""Texts that tables contain for empty cells."""

_PART = {"text", "value", "content", "stem"}
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "developer": "system"}


def plain_name(name: str) -> str:
    """Return a name in lower-case words; of a nested name the last part, unless it is too
    general.
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s_-]+", " ", str(name)).strip(" ?:").lower()
    parent, _, last = words.rpartition(".")
    return parent.rpartition(".")[2] if parent and last in _PART else last


def text_of(value: Any) -> str:
    """Return a cell as text; whole numbers lose the decimals that tables give them."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = storable(str(value)).strip()
    if text.casefold() in MISSING:
        return ""
    # tables store days with a time
    return text.removesuffix(" 00:00:00").removesuffix("T00:00:00.000")


def loaded(value: Any) -> Any:
    """Return the JSON or Python data that a text contains; anything else unchanged."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return read(value.strip())
    return value


def storable(text: str) -> str:
    """Return a text with ? for half surrogate pairs, which JSON can hold but files can't."""
    return text.encode("utf-8", "replace").decode()


def flat(
    row: Mapping[str, Any], answer: str | None, talks: set[str], head: str = ""
) -> dict[str, Any]:
    """Return a row without nesting.

    Nested fields get names like `input.question`. Conversations become one text (their columns are
    added to `talks`), and the assistant's last message goes to `assistant`. The column `answer`
    keeps an object as its value. Raises DataError for a conversation with more than text.
    """
    found: dict[str, Any] = {}
    for name, value in row.items():
        key = f"{head}{name}"
        if (turns := _turns(value)) is not None:
            speaker = "assistant" if turns[-1][0] == "assistant" else ""
            if speaker:
                last = turns.pop()[1]
                found[key if not turns else speaker] = last
            if turns:
                talks.add(key)
                found[key] = _as_text(turns)
        elif isinstance(value, Mapping) and plain_name(name) not in CHOICES:
            if key == answer and not _is_wrapped(value):
                found[key] = value
            else:
                found |= flat(value, answer, talks, f"{key}.")
        else:
            found[key] = value
    return found


def _is_wrapped(value: Mapping[str, Any]) -> bool:
    """Return True if an object is only a text under another name."""
    ((name, text),) = value.items() if len(value) == 1 else (("", None),)
    return isinstance(text, str) and plain_name(name) in {*_PART, "answer"}


def _turns(value: Any) -> list[tuple[str, str]] | None:
    """Return a conversation as (role, text) pairs, or None for anything else. Raises DataError."""
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
    """Return the text of a message. Raises DataError for an image or audio."""
    if not isinstance(content, list):
        return str(content or "").strip()
    parts = []
    for part in content:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise DataError(
                f"expected messages of text, found one with {kind}; leave such questions out, or"
                " name a column of texts with --question-column"
            )
        parts.append(part["text"].strip())
    return "\n".join(parts)


def _as_text(turns: Sequence[tuple[str, str]]) -> str:
    """Return a conversation as one text: system messages, then turns, with speakers if there are
    several.
    """
    systems = [text for role, text in turns if role == "system"]
    others = [(role, text) for role, text in turns if role != "system"]
    if len(others) > 1:
        spoken = [f"{role.capitalize()}: {text}" for role, text in others]
    else:
        spoken = [text for _, text in others]
    return "\n\n".join(filter(None, [*systems, *spoken]))
