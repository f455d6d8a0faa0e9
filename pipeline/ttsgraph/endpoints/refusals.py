"""Classification of endpoints' refusals by the table in `refusals.yaml`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

Meaning = Literal[
    "filter", "quota", "key", "model", "more room", "overflow", "full", "system", "parameter",
    "less room", "",
]  # fmt: skip
"""Meanings of a refusal. filter: a content filter refuses the prompt; quota: the account is empty;
key: the key is refused; model: no such model; more room: the token bound was too low to finish;
overflow: the prompt doesn't fit; full: prompt and bound together don't fit; system: no system role;
parameter: an unknown parameter; less room: the bound is too high; "": anything else.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A meaning, and what identifies it: HTTP statuses, error codes (lower-case letters and digits)
    and regular expressions for the message.
    """

    meaning: Meaning
    statuses: tuple[int, ...]
    codes: frozenset[str]
    words: re.Pattern[str]


def _rows() -> tuple[Row, ...]:
    table = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text(encoding="utf-8"))
    return tuple(
        Row(
            meaning,
            tuple(row["statuses"]),
            frozenset(row.get("codes", "").split()),
            re.compile("|".join(row["words"]), re.IGNORECASE | re.DOTALL),
        )
        for meaning, row in table.items()
    )


ROWS = _rows()
"""Rows in the order in which they are tried."""

SETTLED: frozenset[Meaning] = frozenset(
    {"filter", "quota", "key", "model", "more room", "overflow"}
)
"""Meanings that no other form of the request changes."""

_NAMED = (
    *("code", "type", "status", "reason", "finish_reason", "native_finish_reason"),
    *("blockReason", "block_reason"),
)
_SAID = ("message", "detail", "error", "msg", "status_msg")
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Refusal:
    """An endpoint's message, its meaning, and the parameter it names, if any."""

    meaning: Meaning
    words: str = ""
    param: str | None = None

    def names(self, parameter: str) -> bool:
        """Return True if the refusal is about this parameter."""
        if self.param is not None and re.fullmatch(r"\w+", self.param):
            return self.param == parameter
        return re.search(rf"(?<![A-Za-z_]){parameter}(?![A-Za-z_])", self.words) is not None


SILENT = Refusal("")
"""Refusal without a message."""


def is_filter(reason: str) -> bool:
    """Return True if a finish reason, or one of several joined by colons, denotes a content
    filter.
    """
    return any(_bare(part) in ROWS[0].codes for part in reason[:80].split(":"))


def meaning_of(told: Any, status: int | None = None) -> Refusal:
    """Return the meaning of an error given as text or plain data; a row applies only to its
    statuses.
    """
    data, words, param = _read(told)
    codes: list[str] = []
    texts = [words]
    _collect(data, codes, texts, 0)
    bare = {_bare(part) for code in codes for part in code[:80].split(":")}
    for row in ROWS:
        if status is not None and status not in row.statuses:
            continue
        if bare & row.codes or any(map(row.words.search, texts)):
            return Refusal(row.meaning, words, param)
    by_status: dict[int | None, Meaning] = {401: "key", 402: "quota"}
    return Refusal(by_status.get(status, ""), words, param)


def _read(told: Any) -> tuple[Any, str, str | None]:
    """Return an error as data, its message (in the formats of OpenAI, vLLM or FastAPI) and
    parameter.
    """
    data = told
    if isinstance(told, str):
        try:
            data = json.loads(told)
        except (ValueError, RecursionError):
            # An HTML page has no usable message.
            return None, "" if told.lstrip().startswith("<") else told[:2000], None
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        data = data[0]  # Gemini's format
    words: Any = data.get("error", data) if isinstance(data, Mapping) else data
    param = None
    if isinstance(words, Mapping):
        param = words.get("param")
        words = words.get("message") or words.get("detail") or words
    plain = words if isinstance(words, str) else json.dumps(words)
    if not isinstance(param, str) or param in ("", "None"):  # LiteLLM sends None as text
        param = None
    elif " " in param:  # some providers put a sentence here
        plain, param = f"{plain} ({param})", None
    return data, plain[:2000], param


def _collect(told: Any, codes: list[str], texts: list[str], depth: int) -> None:
    """Collect codes and messages of an error from any depth."""
    if depth == _DEEPEST:
        return
    parts = [("", each) for each in told[:20]] if isinstance(told, list) else []
    for key, value in told.items() if isinstance(told, Mapping) else parts:
        if key in _NAMED and isinstance(value, str | int):
            codes.append(str(value))
        elif key in _SAID and isinstance(value, str):
            texts.append(value[:2000])
        elif isinstance(value, Mapping | list):
            _collect(value, codes, texts, depth + 1)


def _bare(code: str) -> str:
    return re.sub(r"[^a-z0-9]", "", code.lower())
