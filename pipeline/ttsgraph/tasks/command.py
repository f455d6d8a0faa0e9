"""Answers graded by a user's program, which reads the question and the answer as JSON and prints a
score.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from codecheck import SandboxLimits
from ttsgraph.base.errors import CallFailed, DataError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.tasks.base import Fields, PlainTask, Question, register_task
from ttsgraph.tasks.programs import require_isolation, score

_SCORE: TypeAdapter[float] = TypeAdapter(Annotated[float, Field(ge=0, le=1)])


class CommandOptions(ClosedModel):
    """`program`: a Python file that uses only the standard library. It reads {"question", "answer",
    "reply", "row"} as JSON from stdin, where `row` is the whole row, and prints a score from 0 to 1
    (or true or false) on its last line. It is stored with each question, so changing the program
    changes the questions.
    """

    program: Path | None = None
    seconds: float = Field(default=20.0, gt=0)


class CommandTask(PlainTask):
    """Rows {question, answer} with any further fields that the program reads."""

    name = "command"
    Options = CommandOptions

    def __init__(self, options: CommandOptions | None = None, accept_weaker: bool = False) -> None:
        super().__init__(options)
        self.accept_weaker = accept_weaker

    def confined(self, accept_weaker: bool, verdicts: Path | None = None) -> CommandTask:
        """Return this task, ready to grade. Raises DataError if it has no program, and
        IsolationError if programs can't be isolated here, unless `accept_weaker`.
        """
        self.require_program()
        require_isolation(accept_weaker)
        return CommandTask(self.options, accept_weaker)

    def require_program(self) -> None:
        """Raise DataError if the profile names no program."""
        if self.options.program is None:
            raise DataError("kind command: expected a Python file in grading.program, found none")

    def parse(self, row: Fields, where: str) -> Question:
        """Convert a row to a question that carries the program. Raises DataError if a field is
        missing, or if the program can't be used.
        """
        question = super().parse(row, where)
        if (program := self.options.program) is None:
            return question
        try:
            source = program.read_text(encoding="utf-8")
            compile(source, str(program), "exec")
        except (OSError, SyntaxError, ValueError) as error:
            raise DataError(
                f"grading.program {program}: expected a Python program, but it can't be used:"
                f" {error}"
            ) from None
        return replace(question, meta={"program": source, "row": dict(row)})

    def grade(self, question: Question, text: str) -> float:
        """Return the score that the program prints. Raises CallFailed if it prints none,
        because that says nothing about the answer.
        """
        if not text.strip():
            return 0.0
        request = {"question": question.text, "answer": question.answer}
        stdin = json.dumps(request | {"reply": text, "row": question.meta["row"]})
        limits = SandboxLimits(wall_s=self.options.seconds)
        printed = score(question.meta["program"], stdin, limits, self.accept_weaker)
        try:
            return _SCORE.validate_json(printed.strip().lower())
        except ValidationError:
            raise CallFailed(
                "grading program: expected a score from 0 to 1 on the last line of its output,"
                f" found {printed[:60]!r}"
            ) from None


register_task(CommandTask())
