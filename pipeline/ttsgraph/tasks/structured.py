"""Answers in JSON: valid by a schema, and scored by the fields that are right."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import Closed
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.plain import ReadTask, normalised, require_answer

MOST_READ = 50_000
"""Characters at a reply's end that a value is looked for in."""

MOST_TRIED = 50
"""Places that look like a value's beginning and are none, after which none is looked for."""

_OPENS = re.compile(r"[{\[]")


class JsonOptions(Closed):
    """`schema` (JSON Schema): a reply that breaks it scores 0. `fields`: the keys that count; if
    not given, those of the answer.
    """

    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    fields: tuple[str, ...] = ()

    @field_validator("schema_")
    @classmethod
    def _valid(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is None:
            return None
        import jsonschema  # slow to import, and needed by tasks with a schema alone

        try:
            jsonschema.validators.validator_for(schema).check_schema(schema)
        except jsonschema.SchemaError as error:
            raise ValueError(f"expected a JSON schema, but {error.message}") from None
        return schema


def value_in(text: str) -> str | None:
    """The last object or list in a reply, in one spelling."""
    found = _last_value(text)
    return None if found is None else canonical(found)


class JsonTask(ReadTask):
    """Rows {question, answer}; the answer is an object or a list, as JSON or as text that holds
    it.
    """

    name = "json"
    instruction = "Answer the question with one JSON value and nothing else."
    same_answer = "equal JSON values"
    Options = JsonOptions
    read = staticmethod(value_in)

    def answers(self, row: Mapping[str, Any], where: str) -> list[str]:
        """The row's value, as JSON. Raises DataError where it is none, or breaks the schema."""
        given = require_answer(row, where)
        try:
            value = json.loads(given) if isinstance(given, str) else given
        except json.JSONDecodeError as error:
            raise DataError(
                f"{where}: expected JSON as the answer, but {error.msg} at column {error.colno}"
            ) from None
        if not isinstance(value, dict | list):
            raise DataError(
                f"{where}: expected a JSON object or list as the answer, found"
                f" {json.dumps(value)[:40]}"
            )
        if why := self._breaks(value):
            raise DataError(f"{where}: expected an answer that keeps the schema, but {why}")
        return [canonical(value)]

    def grade(self, question: Question, text: str) -> float:
        """The share of the fields that are right; of a list, whether it is the answer. 0 for what
        breaks the schema.
        """
        found = _last_value(text)
        wanted = json.loads(question.answer)
        if found is None or self._breaks(found):
            return 0.0
        if not isinstance(wanted, dict):
            return float(_same(wanted, found))
        keys = self.options.fields or tuple(wanted)
        there = found if isinstance(found, dict) else {}
        if not keys:
            return float(wanted == found)
        return sum(key in there and _same(wanted.get(key), there[key]) for key in keys) / len(keys)

    @property
    def checks(self) -> str:
        """What `passes` looks at beside whether there is a value, in words; "" for nothing."""
        return "a JSON schema" if self.options.schema_ else ""

    def passes(self, text: str) -> bool:
        """Whether a reply has a value that keeps the schema: what can be checked without knowing
        the answer.
        """
        found = _last_value(text)
        return found is not None and not self._breaks(found)

    def _breaks(self, value: Any) -> str:
        """Why a value breaks the schema; nothing if it keeps it."""
        schema = self.options.schema_
        if schema is None:
            return ""
        import jsonschema

        error = jsonschema.exceptions.best_match(
            jsonschema.validators.validator_for(schema)(schema).iter_errors(value)
        )
        return "" if error is None else f"{error.json_path}: {error.message[:120]}"


def canonical(value: Any) -> str:
    """A JSON value in one spelling: keys in order, no spaces."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _same(wanted: Any, found: Any) -> bool:
    """Equal values; texts in normal form, and true is not 1."""
    if isinstance(wanted, str) and isinstance(found, str):
        return normalised(wanted) == normalised(found)
    return isinstance(wanted, bool) == isinstance(found, bool) and bool(wanted == found)


def _last_value(text: str) -> Any:
    """The last object or list that a text holds and that is in no other; None where there is
    none.
    """
    decoder = json.JSONDecoder()
    text = text[-MOST_READ:]
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


register_task(JsonTask())
