"""Answers in words: the same words, words that must occur, words in common, and what a regular
expression finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import field_validator

import finalanswer
from finalanswer import form_in, normalised, token_f1
from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.base.parsing import Closed
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.plain import PlainTask, ReadTask


class ExactTask(ReadTask):
    """Right if the answer is one of those accepted, but for case, punctuation at the edges of
    words, spaces and articles.
    """

    name = "exact"
    instruction = (
        "Answer the question. End with the answer alone, in as few words as possible: Answer: ..."
    )
    read = staticmethod(form_in)

    def grade(self, question: Question, text: str) -> bool:
        """Whether it is one of the answers."""
        return self.extract(text) in {normalised(answer) for answer in self.accepted(question)}


class ContainsTask(PlainTask):
    """The share of the required phrases that occur in the reply, as whole words."""

    name = "contains"

    def grade(self, question: Question, text: str) -> float:
        """The share of the row's answers that occur."""
        said = f" {normalised(text)} "
        phrases = self.accepted(question)
        return sum(f" {normalised(phrase)} " in said for phrase in phrases) / len(phrases)


class SimilarityOptions(Closed):
    """How near a reply comes to the reference.

    token_f1  the harmonic mean of precision and recall of its words, as for SQuAD
    rouge1    ROUGE's F-measure: of words, of pairs of words, of the longest common subsequence
              (package rouge-score)
    """

    metric: Literal["token_f1", "rouge1", "rouge2", "rougeL"] = "token_f1"


class SimilarityTask(PlainTask):
    """Free text, scored by what it has in common with the nearest of the references."""

    name = "similarity"
    instruction = "Answer the question, briefly."
    Options = SimilarityOptions

    def grade(self, question: Question, text: str) -> float:
        """The best score against any of the references, within [0, 1]. Raises SettingsError where
        ROUGE is not installed.
        """
        return max(self._score(each, text) for each in self.accepted(question))

    def _score(self, reference: str, text: str) -> float:
        if not text.strip():
            return 0.0
        if self.options.metric == "token_f1":
            return token_f1(reference, text)
        try:
            return finalanswer.rouge(self.options.metric, reference, text)
        except finalanswer.MissingLibrary as error:
            raise SettingsError(f"{error}: pip install 'ttsgraph[rouge]'") from None


class RegexOptions(Closed):
    """`pattern` finds the answer in a reply (its first group, else the whole match; the last match
    counts), to be compared with the row's answer. Without it the row's answer is itself an
    expression, that a right reply matches somewhere.
    """

    pattern: str | None = None

    @field_validator("pattern")
    @classmethod
    def _valid(cls, pattern: str | None) -> str | None:
        if why := finalanswer.broken_pattern(pattern or ""):
            raise ValueError(f"expected a regular expression, but {why}")
        return pattern


class RegexTask(PlainTask):
    """Rows {question, answer}; see RegexOptions."""

    name = "regex"
    Options = RegexOptions

    def __init__(self, options: RegexOptions | None = None) -> None:
        super().__init__(options)
        self.same_answer = "equal matches of the pattern" if self.options.pattern else ""

    def answers(self, row: Mapping[str, Any], where: str) -> list[str]:
        """The row's answer. Raises DataError where it has to be an expression and is none."""
        found = super().answers(row, where)
        for answer in found if self.options.pattern is None else []:
            if why := finalanswer.broken_pattern(answer):
                raise DataError(
                    f"{where}: expected a regular expression as the answer, but {why}:"
                    f" {answer[:60]!r}"
                )
        return found

    def extract(self, text: str) -> str | None:
        """What the pattern finds in a reply, in normal form; nothing without a pattern."""
        pattern = self.options.pattern
        return None if pattern is None else finalanswer.found_by(pattern, text)

    def grade(self, question: Question, text: str) -> bool:
        """Whether what is found is the answer, or the row's expression matches."""
        accepted = self.accepted(question)
        if self.options.pattern is not None:
            return self.extract(text) in {normalised(answer) for answer in accepted}
        return any(finalanswer.matches(answer, text) for answer in accepted)


for _kind in (ExactTask, ContainsTask, SimilarityTask, RegexTask):
    register_task(_kind())
