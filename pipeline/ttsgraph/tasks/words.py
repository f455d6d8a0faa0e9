"""Kinds that users can choose without writing code: numbers, given directly or computed by a
program, graded within a tolerance; JSON, scored by its fields; and text, compared exactly, by
shared words, or with a regular expression.
"""

import json
from typing import Annotated, Any

from pydantic import AfterValidator, Field

import finalanswer
from codecheck.parsing import parse
from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.tasks import base


class NumberOptions(ClosedModel):
    """Tolerances around a right number, absolute and relative to it; the wider one applies."""

    tolerance: float = Field(default=0.0, ge=0)
    relative: float = Field(default=0.0, ge=0, le=1)


class NumberTask(base.ReadTask):
    """Rows {question, answer} with numbers as answers: "1,200", "$3.50", "40 %", "3/4"."""

    name = "number"
    instruction = "Answer the question with one number. End with: Answer: <number>"
    Options = NumberOptions
    read = staticmethod(finalanswer.number_in)

    def answers(self, row: base.Fields, where: str) -> list[str]:
        """Return the numbers that the row accepts, as text. Raises DataError if an answer isn't a
        number.
        """
        found = super().answers(row, where)
        if odd := [answer for answer in found if self.extract(answer) is None]:
            raise DataError(
                f"{where}: expected the answer to be a number, found {odd[0][:40]!r}; for text"
                " answers, choose kind `exact` or `similarity`"
            )
        return found

    def grade(self, question: base.Question, text: str) -> bool:
        """Return True if the reply's number is within the tolerance of a right one."""
        found = self.extract(text)
        right = filter(None, map(self.extract, self.accepted(question)))
        wide = self.options.tolerance, self.options.relative
        return found is not None and any(finalanswer.near(each, found, *wide) for each in right)


class CalculationTask(NumberTask):
    """Rows {question, answer} with numbers as answers. A program's answer is its last printed line,
    or else the variable `answer`, or else its last value. A reply that is not such a program is
    parsed as a number.
    """

    name = "calculation"
    instruction = (
        "Answer the question with a few lines of Python that compute it, and nothing else. The last"
        " line sets `answer`."
    )

    @staticmethod
    def read(text: str) -> str | None:
        """Return the value of a reply's program."""
        return finalanswer.program_value(text, parse)


def _valid(schema: dict[str, Any]) -> dict[str, Any]:
    if why := finalanswer.broken_schema(schema):
        raise ValueError(f"expected a JSON schema, but it is invalid: {why}")
    return schema


class JsonOptions(ClosedModel):
    """`schema` (JSON Schema): a reply that violates it scores 0. `fields`: the keys that count, by
    default those in the answer.
    """

    schema_: Annotated[dict[str, Any], AfterValidator(_valid)] | None = Field(None, alias="schema")
    fields: tuple[str, ...] = ()


class JsonTask(base.ReadTask):
    """Rows {question, answer}; the answer is an object or a list, as JSON or as JSON text."""

    name = "json"
    instruction = "Answer the question with one JSON value and nothing else."
    Options = JsonOptions
    read = staticmethod(finalanswer.value_in)

    def answers(self, row: base.Fields, where: str) -> list[str]:
        """Return the row's answer as JSON, in a list. Raises DataError if it is missing, isn't a
        JSON object or list, or violates the schema.
        """
        given = [row[key] for key in base.ANSWER_FIELDS if row.get(key) not in (None, "", [], {})]
        if not given:
            raise base.missing_field(row, base.ANSWER_FIELDS, "an answer", where)
        try:
            value = json.loads(given[0]) if isinstance(given[0], str) else given[0]
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: expected the answer to be JSON: {error}") from None
        breaks = self._breaks(value)
        if breaks or not isinstance(value, dict | list):
            why = f", which violates the schema: {breaks}" if breaks else ""
            raise DataError(
                f"{where}: expected the answer to be a JSON object or list, found"
                f" {json.dumps(value)[:40]}{why}"
            )
        return [finalanswer.canonical(value)]

    def grade(self, question: base.Question, text: str) -> float:
        """Return the share of the fields that are right; for a list, 1 if it equals the answer,
        otherwise 0. A reply that violates the schema scores 0.
        """
        if not self.passes(text):
            return 0.0
        wanted = json.loads(question.answer)
        return finalanswer.share_right(wanted, finalanswer.last_value(text), self.options.fields)

    @property
    def checks(self) -> str:
        """Description of the check that `passes` runs beyond parsing a value, or "" if there is
        none.
        """
        return "a JSON schema" if self.options.schema_ else ""

    def passes(self, text: str) -> bool:
        """Return True if a reply has a value that matches the schema. This check needs no
        reference.
        """
        found = finalanswer.last_value(text)
        return found is not None and not self._breaks(found)

    def _breaks(self, value: Any) -> str:
        """Return the reason why a value violates the schema, or "" if it doesn't."""
        schema = self.options.schema_
        return "" if schema is None else finalanswer.breaks(schema, value)


class ExactTask(base.ReadTask):
    """Rows {question, answer}. A reply is right if its answer is one of the accepted ones, ignoring
    case, punctuation at the edges of words, spaces and articles.
    """

    name = "exact"
    instruction = (
        "Answer the question. End with the answer alone, in as few words as possible: Answer: ..."
    )
    read = staticmethod(finalanswer.form_in)

    def grade(self, question: base.Question, text: str) -> bool:
        """Return True if the reply's answer is one of the accepted ones."""
        return self.extract(text) in {*map(finalanswer.normalised, self.accepted(question))}


class SimilarityTask(base.PlainTask):
    """Rows {question, answer} with free text as the answer, scored by token F1: the harmonic mean
    of the precision and recall of a reply's words, as in SQuAD.
    """

    name = "similarity"
    instruction = "Answer the question, briefly."

    def grade(self, question: base.Question, text: str) -> float:
        """Return the best score against any of the references, in [0, 1]."""
        return max(finalanswer.token_f1(each, text) for each in self.accepted(question))


def _parsed(pattern: str) -> str:
    if why := finalanswer.broken_pattern(pattern):
        raise ValueError(f"expected a regular expression, but it can't be parsed: {why}")
    return pattern


class RegexOptions(ClosedModel):
    """`pattern` finds the answer in a reply: the first group of its last match, or the whole match
    if the pattern has no groups. It is compared with the row's answer. Without a pattern, the row's
    answer is itself a regular expression, which must match somewhere in a right reply.
    """

    pattern: Annotated[str, AfterValidator(_parsed)] | None = None


class RegexTask(base.PlainTask):
    """Rows {question, answer}; see RegexOptions."""

    name = "regex"
    Options = RegexOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.same_answer = "equal matches of the pattern" if self.options.pattern else ""

    def answers(self, row: base.Fields, where: str) -> list[str]:
        """Return the answers of the row. Raises DataError if they have to be regular expressions
        and one is not.
        """
        found = super().answers(row, where)
        for answer in found if self.options.pattern is None else []:
            if why := finalanswer.broken_pattern(answer):
                expected = "expected the answer to be a regular expression"
                raise DataError(f"{where}: {expected}, but {answer[:60]!r} can't be parsed: {why}")
        return found

    def extract(self, text: str) -> str | None:
        """Return the match of the pattern in a reply, in normal form; None without a pattern or a
        match.
        """
        pattern = self.options.pattern
        return None if pattern is None else finalanswer.found_by(pattern, text)

    def grade(self, question: base.Question, text: str) -> bool:
        """Return True if the match of the pattern is an accepted answer, or, without a pattern, if
        an accepted expression matches the reply.
        """
        accepted = self.accepted(question)
        if self.options.pattern is not None:
            return self.extract(text) in {*map(finalanswer.normalised, accepted)}
        return any(finalanswer.matches(answer, text) for answer in accepted)


for _kind in (NumberTask, CalculationTask, JsonTask, ExactTask, SimilarityTask, RegexTask):
    base.register_task(_kind())
