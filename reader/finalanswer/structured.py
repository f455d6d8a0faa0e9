"""Answers in JSON: their extraction from a reply, and their comparison with the right value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from finalanswer.turns import after_thoughts, first_turn
from finalanswer.words import normalised

MOST_READ = 50_000
"""Number of characters at a reply's end in which a value is sought."""

MOST_TRIED = 50
"""Maximum number of opening brackets that are tried in vain as the beginning of a value."""

_OPENS = re.compile(r"[{\[]")


def value_in(text: str) -> str | None:
    """Return the last JSON object or list in a reply, in normal form, or None if it has none."""
    found = last_value(text)
    return None if found is None else canonical(found)


def canonical(value: Any) -> str:
    """Return a JSON value in normal form: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def last_value(text: str) -> Any:
    """Return the last outermost JSON object or list in a text, or None if it has none."""
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
        except RecursionError:  # counts as ten tries, because reaching the limit is slow
            place += 1
            tried += 10
    return found


def share_right(wanted: Any, found: Any, fields: Sequence[str] = ()) -> float:
    """Return the share of the right object's fields, or of the given `fields`, that have the right
    value in the object found. If the right value is not an object, return 1.0 if the values are
    equal, else 0.0.
    """
    if not isinstance(wanted, dict):
        return float(_same(wanted, found))
    keys = fields or tuple(wanted)
    if not keys:
        return float(wanted == found)
    there = found if isinstance(found, dict) else {}
    return sum(key in there and _same(wanted.get(key), there[key]) for key in keys) / len(keys)


def _same(wanted: Any, found: Any) -> bool:
    """Return True if two JSON values are equal. Strings are compared in normal form, and true
    doesn't equal 1.
    """
    if isinstance(wanted, str) and isinstance(found, str):
        return normalised(wanted) == normalised(found)
    return isinstance(wanted, bool) == isinstance(found, bool) and bool(wanted == found)


def broken_schema(schema: Mapping[str, Any]) -> str:
    """Return the error in a JSON schema, or "" if it is valid."""
    import jsonschema  # slow to import, and needed only for schemas

    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        return str(error.message)
    return ""


def breaks(schema: Mapping[str, Any], value: Any) -> str:
    """Return a description of how a value violates a schema, or "" if it doesn't."""
    import jsonschema

    error = jsonschema.exceptions.best_match(
        jsonschema.validators.validator_for(schema)(schema).iter_errors(value)
    )
    return "" if error is None else f"{error.json_path}: {error.message[:120]}"
