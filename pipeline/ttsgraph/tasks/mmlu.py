"""Multiple-choice questions (MMLU): answered by a letter, graded by comparing letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttsgraph.base.errors import DataError
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.choice import LetteredTask, choices_of, letter_of
from ttsgraph.tasks.letters import LETTERS
from ttsgraph.tasks.rows import row_id, text_field

# MMLU itself has four choices; lm-eval's corrected copy gives one question a fifth.
MOST_CHOICES = 5


class MmluTask(LetteredTask):
    """Rows {question, choices, answer, subject}; `answer` is a letter or an index from 0, `subject`
    may be missing.
    """

    name = "mmlu"
    instruction = (
        "Answer the multiple-choice question. Think step by step, then end with: The answer is (X)."
    )

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """A row as a Question whose answer is a letter. Raises DataError when the answer is none of
        the choices.
        """
        text = text_field(row, ("question",), "a question", where).strip()
        choices = choices_of(row, where, "a list of choices", MOST_CHOICES)
        given = text_field(row, ("answer",), "an answer", where).strip()
        answer = letter_of(given, len(choices))
        if answer is None:
            raise DataError(
                f"{where}: expected an answer among {', '.join(LETTERS[: len(choices)])} or 0 to"
                f" {len(choices) - 1}, found {given!r}"
            )
        subject = str(row.get("subject") or "")
        return Question(
            row_id(row, self.name, "\n".join([text, *choices])),
            text,
            answer,
            {"choices": choices, "subject": subject},
        )


register_task(MmluTask())
