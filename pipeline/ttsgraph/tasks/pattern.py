"""Answers that a regular expression finds or tells right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import field_validator

from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import Closed
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.plain import PlainTask, normalised

MOST_S = 0.5
"""Seconds that a match may take: an expression that takes longer, on a reply, has found nothing."""


class RegexOptions(Closed):
    """`pattern` finds the answer in a reply (its first group, else the whole match; the last match
    counts), to be compared with the row's answer. Without it the row's answer is itself an
    expression, that a right reply matches somewhere.
    """

    pattern: str | None = None

    @field_validator("pattern")
    @classmethod
    def _valid(cls, pattern: str | None) -> str | None:
        if why := _broken(pattern or ""):
            raise ValueError(f"expected a regular expression, but {why}")
        return pattern


class RegexTask(PlainTask):
    """Rows {question, answer}; see RegexOptions."""

    name = "regex"
    instruction = "Answer the question."
    Options = RegexOptions

    def __init__(self, options: RegexOptions | None = None) -> None:
        super().__init__(options)
        self.same_answer = "equal matches of the pattern" if self.options.pattern else ""

    def answers(self, row: Mapping[str, Any], where: str) -> list[str]:
        """The row's answer. Raises DataError where it has to be an expression and is none."""
        found = super().answers(row, where)
        for answer in found if self.options.pattern is None else []:
            if why := _broken(answer):
                raise DataError(
                    f"{where}: expected a regular expression as the answer, but {why}:"
                    f" {answer[:60]!r}"
                )
        return found

    def extract(self, text: str) -> str | None:
        """What the pattern finds in a reply, in normal form; nothing without a pattern."""
        if self.options.pattern is None:
            return None
        import regex  # which, other than re, can be stopped

        try:
            found = regex.findall(self.options.pattern, text, timeout=MOST_S)
        except TimeoutError:
            return None
        last = found[-1] if found else ""
        return normalised(last[0] if isinstance(last, tuple) else last) or None

    def grade(self, question: Question, text: str) -> bool:
        """Whether what is found is the answer, or the row's expression matches."""
        if self.options.pattern is not None:
            return self.extract(text) in {normalised(answer) for answer in self.accepted(question)}
        return any(_matches(answer, text) for answer in self.accepted(question))


def _broken(pattern: str) -> str:
    """What is wrong with an expression; nothing if it is one."""
    import regex

    try:
        regex.compile(pattern)
    except regex.error as error:
        return str(error)
    return ""


def _matches(pattern: str, text: str) -> bool:
    import regex

    try:
        return regex.search(pattern, text, timeout=MOST_S) is not None
    except TimeoutError:
        return False


register_task(RegexTask())
