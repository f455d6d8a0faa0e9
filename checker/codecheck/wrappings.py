"""Removal of wrappings around programs, other than Markdown blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

_STRAIGHT = str.maketrans("\u201c\u201d\u201e\u2018\u2019\u00b4", "\"\"\"'''")
_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_TAG = re.compile(
    r"^[ \t]*(?:<[a-z!][^<>\n]*>)++|(?:</[a-z][^<>\n]{0,60}>){1,9}+[ \t]*$", re.MULTILINE | re.I
)
_NUMBER = re.compile(r"[ \t]*(\d{1,6})(?:[ \t]*[.:|)\u2502\u2192]|\t|(?=[ \t]|$))[ \t]?")
_PROMPT = re.compile(r"^[ \t]*(?:In \[\d*\]:|\.\.\.:)[ ]?", re.MULTILINE)
_BLOCK_SCALAR = re.compile(
    r"^([ \t]*)(?:- )?[\w-]+:[ \t]*\|[-+\d]*[ \t]*\n((?:\1[ \t]+.*(?:\n|\Z)|[ \t]*\n)+)",
    re.MULTILINE,
)
_HERE_DOCUMENT = re.compile(r"^(?=.*\.py)[^\n<]*<<-?[ \t]*(['\"]?)(\w+)\1[^\n]*\n", re.MULTILINE)
MOST_OF_A_KIND = 50
"""Maximum number of programs taken from a reply for each kind of wrapping."""

MOST_PLACES = 200
"""Maximum number of positions tried as the beginning of a JSON object."""

MOST_DEPTH = 20
"""Maximum depth to which a JSON value is searched for strings."""

_LITERAL = re.compile(r"[\"']\w+[\"'][ \t]*:[ \t]*r?(\"\"\"|''')(.*?)\1", re.DOTALL)


def in_here_documents(text: str) -> Iterator[str]:
    """Yield the content of each Python file that is written by a text's shell commands."""
    endless = set()
    for head in islice(_HERE_DOCUMENT.finditer(text), MOST_OF_A_KIND):
        ends = re.compile(rf"^[ \t]*{head[2]}[ \t]*$", re.MULTILINE)
        if head[2] not in endless and (end := ends.search(text, head.end())):
            yield text[head.end() : end.start()].removesuffix("\n")
        else:
            endless.add(head[2])


def unwrapped(text: str) -> Iterator[str]:
    """Yield other readings of a text: its code spans, YAML scalars or Python literals as blocks;
    the text without tags, prompts or line numbers; the text with escaped line ends resolved; and
    the text with straight quotes.
    """
    yield _blocks(found[2] for found in _SPAN.finditer(text))
    yield _blocks(found[2] for found in _BLOCK_SCALAR.finditer(text))
    yield _blocks(found[2] for found in _LITERAL.finditer(text))
    yield _TAG.sub("\n", text)
    yield _PROMPT.sub("", text)
    yield _without_numbers(text)
    if "\\n" in text:
        yield text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    yield text.translate(_STRAIGHT)


def _blocks(found: Iterator[str]) -> str:
    return "\n\n".join(f"``````\n{code}\n``````" for code in islice(found, MOST_OF_A_KIND))


def _without_numbers(text: str) -> str:
    """Return a text without line numbers: consecutive numbers at the beginning of its lines."""
    lines = text.split("\n")
    last = None
    for k, line in enumerate(lines):
        number = _NUMBER.match(line)
        if number and (last is None or int(number[1]) == last + 1):
            last = int(number[1])
            lines[k] = line[number.end() :]
    return "\n".join(lines)


def values_in(text: str) -> Iterator[object]:
    """Yield the JSON objects in a text."""
    # Models break lines within strings, which strict JSON doesn't allow.
    decoder = json.JSONDecoder(strict=False)
    at = text.find("{")
    for _ in range(MOST_PLACES):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield value
        at = text.find("{", end)


def strings_in(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the strings in a JSON value, including JSON written in a string."""
    if depth > MOST_DEPTH:
        return
    if isinstance(value, list) and _are_lines(value):
        value = "\n".join(line.removesuffix("\n") for line in value)
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings_in(inner, depth + 1)
    elif isinstance(value, str):
        yield value
        for inner in values_in(value) if value.startswith("{") else ():
            yield from strings_in(inner, depth + 1)


def _are_lines(values: list[Any]) -> bool:
    """Return True if these values are the lines of one text: all but the last end with a line
    break, or some are indented.
    """
    if not all(isinstance(value, str) for value in values):
        return False
    ended = len(values) > 1 and all(value.endswith("\n") for value in values[:-1])
    return ended or any(value[:1] in (" ", "\t") for value in values)
