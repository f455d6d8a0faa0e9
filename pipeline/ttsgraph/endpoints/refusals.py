"""Classification of endpoints' refusals by the table in `refusals.yaml`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

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


class Row(NamedTuple):
    """Meaning of a refusal with its criteria: HTTP statuses, error codes (reduced to lower-case
    letters and digits) and regular expressions for the message.
    """

    meaning: Meaning
    statuses: Sequence[int]
    codes: frozenset[str]
    words: re.Pattern[str]


ROWS = tuple(
    Row(
        meaning,
        row["statuses"],
        frozenset(row.get("codes", "").split()),
        re.compile("|".join(row["words"]), re.IGNORECASE | re.DOTALL),
    )
    for meaning, row in yaml.safe_load(
        Path(__file__).with_name("refusals.yaml").read_text(encoding="utf-8")
    ).items()
)
"""Rows in the order in which they are tried."""

SETTLED: frozenset[Meaning] = frozenset(
    {"filter", "quota", "key", "model", "more room", "overflow"}
)
"""Meanings of refusals that no other form of the request can avoid."""

OF_ONE_PROMPT: frozenset[Meaning] = frozenset({"filter", "more room", "overflow", "full"})
"""Meanings of refusals that say nothing against the server: it may answer another prompt."""

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
        if self.param is not None:
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
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            told = {"message": "" if told.lstrip().startswith("<") else told}  # skip HTML pages
    codes: set[str] = set()
    texts: list[str] = []
    params: list[str] = []
    for name, value in _leaves(told):
        if name in _NAMED:
            codes.update(map(_bare, value[:80].split(":")))
        elif name in _SAID:
            texts.append(value[:2000])
        elif name == "param" and re.fullmatch(r"\w+", value) and value != "None":  # of LiteLLM
            params.append(value)
    words = texts[0] if texts else json.dumps(told)[:2000]
    param = params[0] if params else None
    for row in ROWS:
        if status is not None and status not in row.statuses:
            continue
        if codes & row.codes or any(map(row.words.search, [words, *texts])):
            return Refusal(row.meaning, words, param)
    by_status: dict[int | None, Meaning] = {401: "key", 402: "quota"}
    return Refusal(by_status.get(status, ""), words, param)


def _leaves(told: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers of an error with their names, down to _DEEPEST levels; OpenAI,
    vLLM, FastAPI and others nest them differently.
    """
    if isinstance(told, dict | list) and depth < _DEEPEST:
        inner = told.items() if isinstance(told, dict) else [(name, each) for each in told[:20]]
        for key, value in inner:
            yield from _leaves(value, key, depth + 1)
    elif isinstance(told, str | int):
        yield name, str(told)


def _bare(code: str) -> str:
    return re.sub(r"[^a-z0-9]", "", code.lower())
