"""A language model's free text -> a typed answer, and what was wrong with it.

Reasoning (`<think>`), code fences and prose around the JSON are passed over. Nothing is repaired by
guessing: of JSON that is cut off only what stands complete before the cut is read, and of JSON that
breaks the form only what keeps it; either is said.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from ttsgraph.agent.base import AgentAnswer

MAX_CHARACTERS = 400_000
"""An answer longer than this is not read: the largest sensible one, a change to each edge of 80
nodes, is shorter.
"""

MAX_TRIES = 100
"""Places in a text where JSON is looked for."""

MAX_PROBLEM = 300
"""Characters of one problem: a name in an answer can be as long as the answer."""

A = TypeVar("A", bound=AgentAnswer)
_DECODER = json.JSONDecoder()


def read_answer(text: str, kind: type[A]) -> tuple[A, list[str]]:
    """The answer's well-formed part (an empty answer at worst), and one problem for everything that
    is not in it.
    """
    data, problems = find_object(text, kind.model_fields.keys() - {"reason"})
    answer, dropped = salvage(kind, data)
    return answer, [shown(problem) for problem in problems + dropped]


def shown(problem: str) -> str:
    """A problem as one line of bounded length."""
    line = " ".join(problem.split())
    return line if len(line) <= MAX_PROBLEM else f"{line[:MAX_PROBLEM]}..."


def find_object(text: str, keys: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """The last JSON object in the text that has one of the keys, else what a cut-off one holds,
    else {}; with what was wrong.
    """
    wanted = f"expected one JSON object with {', '.join(sorted(keys))}"
    if len(text) > MAX_CHARACTERS:
        return {}, [f"{wanted}, found {len(text)} characters; at most {MAX_CHARACTERS} are read"]
    text = text.rpartition("</think>")[2].partition("<think>")[0]
    if not text.strip():
        return {}, [f"{wanted}, found an empty answer"]
    whole = [found for found in _objects(text) if keys & found.keys()]
    if whole:
        return whole[-1], []
    if part := _cut_off(text, keys):
        return part, [
            "the JSON is not complete; only what is complete before it breaks off was read"
        ]
    return {}, [f"{wanted}, found none"]


def _objects(text: str) -> list[dict[str, Any]]:
    """The complete JSON objects in a text that don't stand in another one."""
    found = []
    at = text.find("{")
    for _ in range(MAX_TRIES):
        if at < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    return found


def _cut_off(text: str, keys: Collection[str]) -> dict[str, Any]:
    """What is complete in a JSON object whose end is missing. The text is cut after its last
    bracket: a number at the end of what is left could lack digits.
    """
    text = text[: max(text.rfind("}"), text.rfind("]")) + 1]
    at = text.find("{")
    for _ in range(MAX_TRIES):
        if at < 0:
            break
        with suppress(ValueError):
            value = from_json(text[at:], allow_partial=True)
            if keys & value.keys():
                return dict(value)
        at = text.find("{", at + 1)
    return {}


def salvage(kind: type[A], data: dict[str, Any]) -> tuple[A, list[str]]:
    """The part of plain data that is a valid answer, and what was dropped: unknown keys, wrong
    values, entries of lists.
    """
    try:
        return kind.model_validate(data), []
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)
    kept = {key: list(value) if isinstance(value, list) else value for key, value in data.items()}
    dropped = []
    entries = set()
    for problem in wrong:
        place = problem["loc"]
        plain = problem["type"] in ("missing", "extra_forbidden")
        found = "" if plain else f", found {problem['input']!a}"
        dropped.append(f"{'.'.join(str(part) for part in place)}: {problem['msg']}{found}")
        key = str(place[0])
        if len(place) > 1 and isinstance(place[1], int) and isinstance(kept.get(key), list):
            entries.add((key, place[1]))
        else:
            kept.pop(key, None)
    for key, index in sorted(entries, reverse=True):
        if key in kept:
            del kept[key][index]
    return kind.model_validate(kept), dropped
