"""Answers in JSON: valid by a schema, and scored by the fields that are right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from finalanswer import breaks, broken_schema, canonical, last_value, share_right, value_in
from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import Closed
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.plain import ReadTask, require_answer


class JsonOptions(Closed):
    """`schema` (JSON Schema): a reply that breaks it scores 0. `fields`: the keys that count; if
    not given, those of the answer.
    """

    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    fields: tuple[str, ...] = ()

    @field_validator("schema_")
    @classmethod
    def _valid(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None and (why := broken_schema(schema)):
            raise ValueError(f"expected a JSON schema, but {why}")
        return schema


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
        found = last_value(text)
        if found is None or self._breaks(found):
            return 0.0
        return share_right(json.loads(question.answer), found, self.options.fields)

    @property
    def checks(self) -> str:
        """What `passes` looks at beside whether there is a value, in words; "" for nothing."""
        return "a JSON schema" if self.options.schema_ else ""

    def passes(self, text: str) -> bool:
        """Whether a reply has a value that keeps the schema: what can be checked without knowing
        the answer.
        """
        found = last_value(text)
        return found is not None and not self._breaks(found)

    def _breaks(self, value: Any) -> str:
        """Why a value breaks the schema; nothing if it keeps it."""
        schema = self.options.schema_
        return "" if schema is None else breaks(schema, value)


register_task(JsonTask())
