"""Classification of endpoints' refusals by the table in `refusals.yaml`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

Meaning = Literal[
    "filter", "quota", "key", "model", "more room", "overflow", "full", "system", "parameter",
    "less room", "",
]  # fmt: skip
"""Meanings of a refusal. filter: a content filter refuses the prompt; quota: the account is empty;
key: the key is refused; model: there is no such model; more room: the token bound was too low to
finish the answer; overflow: the prompt exceeds the context; full: the prompt and the token bound
together exceed it; system: the system role is not supported; parameter: a parameter is not
supported; less room: the token bound is too high; "": anything else.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """Meaning of a refusal with its criteria: HTTP statuses, error codes (reduced to lower-case
    letters and digits) and regular expressions for the message.
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
"""Meanings of refusals that no other form of the request can avoid."""

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
    """Return the meaning, message and named parameter of an error given as text or plain data; if
    `status` is given, only rows that list this status apply.
    """
    found = _Parts()
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            found.texts.append("" if told.lstrip().startswith("<") else told)  # skip HTML pages
    found.collect(told)
    words = found.texts[0] if found.texts else json.dumps(told)
    param = next((each for each in found.params if " " not in each), None)
    words = " ".join([words, *(f"({each})" for each in found.params if " " in each)])[:2000]
    bare = {_bare(part) for code in found.codes for part in code[:80].split(":")}
    for row in ROWS:
        if status is not None and status not in row.statuses:
            continue
        if bare & row.codes or any(row.words.search(text[:2000]) for text in (words, *found.texts)):
            return Refusal(row.meaning, words, param)
    by_status: dict[int | None, Meaning] = {401: "key", 402: "quota"}
    return Refusal(by_status.get(status, ""), words, param)


@dataclass
class _Parts:
    """Codes, messages and parameters of an error, in the formats of OpenAI, vLLM, FastAPI and
    others.
    """

    codes: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    params: list[str] = field(default_factory=list)

    def collect(self, told: Any, key: str = "", depth: int = 0) -> None:
        """Collect the codes, messages and parameters in a part of an error, down to _DEEPEST
        levels.
        """
        if isinstance(told, Mapping | list) and depth < _DEEPEST:
            parts = told.items() if isinstance(told, Mapping) else [(key, e) for e in told[:20]]
            for name, value in parts:
                self.collect(value, name, depth + 1)
        elif key in _NAMED and isinstance(told, str | int):
            self.codes.append(str(told))
        elif key in _SAID and isinstance(told, str) and told:
            self.texts.append(told)
        elif key == "param" and isinstance(told, str) and told not in ("", "None"):
            self.params.append(told)  # LiteLLM sends None as text, others a sentence


def _bare(code: str) -> str:
    return re.sub(r"[^a-z0-9]", "", code.lower())
