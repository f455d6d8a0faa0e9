"""Classification of endpoints' refusals by the table in `refusals.yaml`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
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
    found: dict[str, list[str]] = {"code": [], "text": [], "param": []}
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            found["text"].append("" if told.lstrip().startswith("<") else told)  # skip HTML pages
    for kind, part in _parts(told):
        found[kind].append(part)
    texts, params = found["text"], found["param"]
    param = next((each for each in params if " " not in each), None)
    words = texts[0] if texts else json.dumps(told)
    words = " ".join([words, *(f"({each})" for each in params if " " in each)])[:2000]
    bare = {_bare(part) for code in found["code"] for part in code[:80].split(":")}
    for row in ROWS:
        if status is not None and status not in row.statuses:
            continue
        if bare & row.codes or any(row.words.search(text[:2000]) for text in (words, *texts)):
            return Refusal(row.meaning, words, param)
    by_status: dict[int | None, Meaning] = {401: "key", 402: "quota"}
    return Refusal(by_status.get(status, ""), words, param)


def _parts(told: Any, key: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the codes, texts and params of an error, down to _DEEPEST levels, in the formats of
    OpenAI, vLLM, FastAPI and others.
    """
    if isinstance(told, Mapping | list) and depth < _DEEPEST:
        inner = told.items() if isinstance(told, Mapping) else [(key, each) for each in told[:20]]
        for name, value in inner:
            yield from _parts(value, name, depth + 1)
    elif key in _NAMED and isinstance(told, str | int):
        yield "code", str(told)
    elif key in _SAID and isinstance(told, str) and told:
        yield "text", told
    elif key == "param" and isinstance(told, str) and told not in ("", "None"):
        yield "param", told  # LiteLLM sends None as text, others a sentence


def _bare(code: str) -> str:
    return re.sub(r"[^a-z0-9]", "", code.lower())
