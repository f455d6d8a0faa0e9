"""Python functions to write from a signature and docstring, graded by unit tests (HumanEval,
pass@1). A verifier may run only the public tests of a question: those in the field `public_tests`
of its row, or else the examples in its docstring.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import codecheck
from ttsgraph.tasks.base import Fields, Question, register_task, row_id, text_field
from ttsgraph.tasks.programs import Verdicts, given_tests, passes, require_isolation


@dataclass(frozen=True)
class HumanEvalTask:
    """Rows {task_id, prompt, entry_point, test, canonical_solution}, and optionally `public_tests`.
    Programs may use the standard library, and numpy if it is installed.
    """

    name = "humaneval"
    checks = "the public tests of its question"
    instruction = (
        "Complete the Python function. Reply with the whole function in one code block and nothing"
        " else."
    )

    limits: codecheck.SandboxLimits = field(default_factory=codecheck.SandboxLimits)
    accept_weaker: bool = False
    verdicts: Verdicts | None = None

    def confined(self, accept_weaker: bool, verdicts: Path | None = None) -> HumanEvalTask:
        """Return this task, ready to grade. A program whose verdict is in the file `verdicts` isn't
        run again. Raises IsolationError if programs can't be isolated here, unless `accept_weaker`.
        """
        require_isolation(accept_weaker)
        known = None if verdicts is None else Verdicts(verdicts)
        return replace(self, accept_weaker=accept_weaker, verdicts=known)

    def parse(self, row: Fields, where: str) -> Question:
        """Convert a row: the prompt becomes the text, the canonical solution the answer. Raises
        DataError if a field is missing or unusable.
        """
        prompt = text_field(row, ("prompt",), "a function's signature and docstring", where)
        answer = text_field(row, ("canonical_solution", "answer"), "an answer", where)
        meta = {
            "test": text_field(row, ("test",), "unit tests", where),
            "entry_point": text_field(row, ("entry_point",), "a function name", where),
        }
        if public := given_tests(row, meta["entry_point"], meta["test"], where):
            meta["public_tests"] = public
        return Question(row_id(row, self.name, prompt), prompt, answer, meta)

    def render(self, question: Question) -> str:
        """Return the signature and docstring."""
        return question.text.rstrip()

    def extract(self, text: str) -> str | None:
        """Return the code of a reply: a module with a function, or a function's body indented by
        four spaces; None if the reply has neither.
        """
        return codecheck.program_of(text) or codecheck.part_of(text)

    def grade(self, question: Question, text: str) -> bool:
        """Return True if the reply's function passes all tests within the limits. Raises
        IsolationError if programs can't be isolated, and CallFailed if no child process can be
        started.
        """
        return self._passes(question, text, question.meta["test"])

    def _passes(self, question: Question, text: str, tests: str) -> bool:
        """Return True if a reply holds a program that passes these tests."""
        program = _program(question, text, tests)
        run = self.verdicts.passes if self.verdicts else passes
        return program is not None and run(program, self.limits, self.accept_weaker)

    def carries_check(self, question: Question) -> bool:
        """Return True if a question has public tests."""
        return bool(_public_tests(question))

    def passes_on(self, question: Question, text: str) -> bool:
        """Return whether a reply passes the public tests of its question or, if the question has
        none, whether it contains code. Raises the same errors as `grade`.
        """
        tests = _public_tests(question)
        return self._passes(question, text, tests) if tests else self.extract(text) is not None


def _program(question: Question, text: str, tests: str) -> codecheck.CheckedProgram | None:
    """Return a reply's program together with these tests, or None if the reply has no code."""
    entry_point = _entry_point(question)
    head = codecheck.head_of(question.text, entry_point) or ""
    parameters = codecheck.parameters_of(question.text, entry_point)
    code = codecheck.program_of(text, entry_point, head, parameters)
    if code is None and (part := codecheck.part_of(text)) is not None:
        code = codecheck.completed(question.text, part, entry_point)
    return None if code is None else codecheck.CheckedProgram(code, entry_point, tests, head)


def _public_tests(question: Question) -> str:
    own = str(question.meta.get("public_tests") or "")
    return own or codecheck.shown_tests(question.text, _entry_point(question))


def _entry_point(question: Question) -> str:
    """Return the name of the requested function: the question's entry point, or else the last
    function defined in its text.
    """
    found = re.findall(r"^(?:async )?def (\w+)", question.text, re.MULTILINE)
    return str(question.meta.get("entry_point") or (found[-1] if found else ""))


register_task(HumanEvalTask())
