"""Answers in JSON: the value that a reply gives, and how much of the right one it has."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from finalanswer.turns import after_thoughts, first_turn
from finalanswer.words import normalised

MOST_READ = 50_000
"""Characters at a reply's end that a value is looked for in."""

MOST_TRIED = 50
"""Places that look like a value's beginning and are none, after which none is looked for."""

_OPENS = re.compile(r"[{\[]")


def value_in(text: str) -> str | None:
    """The last object or list in a reply, in one spelling."""
    found = last_value(text)
    return None if found is None else canonical(found)


def canonical(value: Any) -> str:
    """A JSON value in one spelling: keys in order, no spaces."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def last_value(text: str) -> Any:
    """The last object or list that a text holds and that is in no other; None where there is
    none.
    """
    decoder = json.JSONDecoder()
    text = first_turn(after_thoughts(text) or text, _OPENS.search)[-MOST_READ:]
    found = None
    place = tried = 0
    while (opens := _OPENS.search(text, place)) and tried < MOST_TRIED:
        place = opens.start()
        try:
            found, place = decoder.raw_decode(text, place)
        except ValueError:
            place += 1
            tried += 1
        except RecursionError:  # which takes long to come to
            place += 1
            tried += 10
    return found


def share_right(wanted: Any, found: Any, fields: Sequence[str] = ()) -> float:
    """The share of an object's fields (those named, else all that are wanted) that are right; of a
    list, whether it is the wanted one.
    """
    if not isinstance(wanted, dict):
        return float(_same(wanted, found))
    keys = fields or tuple(wanted)
    if not keys:
        return float(wanted == found)
    there = found if isinstance(found, dict) else {}
    return sum(key in there and _same(wanted.get(key), there[key]) for key in keys) / len(keys)


def _same(wanted: Any, found: Any) -> bool:
    """Equal values; texts in normal form, and true is not 1."""
    if isinstance(wanted, str) and isinstance(found, str):
        return normalised(wanted) == normalised(found)
    return isinstance(wanted, bool) == isinstance(found, bool) and bool(wanted == found)


def broken_schema(schema: Mapping[str, Any]) -> str:
    """Why something is no JSON schema; "" if it is one."""
    import jsonschema  # slow to import, and needed for schemas alone

    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        return str(error.message)
    return ""


def breaks(schema: Mapping[str, Any], value: Any) -> str:
    """Why a value breaks a schema; "" if it keeps it."""
    import jsonschema

    error = jsonschema.exceptions.best_match(
        jsonschema.validators.validator_for(schema)(schema).iter_errors(value)
    )
    return "" if error is None else f"{error.json_path}: {error.message[:120]}"
