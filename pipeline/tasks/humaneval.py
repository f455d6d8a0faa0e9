"""Writing a Python function from its signature and docstring, graded by its unit tests (HumanEval, pass@1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pipeline.tasks.base import Question, require
from pipeline.tasks.sandbox import SandboxLimits, run_program

FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
# A completion ends where a new top-level statement that isn't part of a function starts.
END_OF_FUNCTION = re.compile(r"\n(?=class |print\(|if __name__|#|assert |\"\"\"|'''|```)")


class HumanEvalTask:
    """A text counts as code in its first fence, or as a whole: either the function again, or just its body."""

    name = "humaneval"
    instruction = "Complete the Python function. Reply with the whole function in one code block and nothing else."

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        self.limits = limits or SandboxLimits()

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """Rows with `prompt`, `entry_point`, `test` and `canonical_solution`."""
        prompt = str(require(row, ("prompt",), where, "a function's signature and docstring"))
        answer = str(require(row, ("canonical_solution", "answer"), where, "an answer"))
        meta = {
            "test": str(require(row, ("test",), where, "unit tests")),
            "entry_point": str(require(row, ("entry_point",), where, "a function name")),
        }
        return Question(str(row.get("task_id") or where), prompt, answer, meta)

    def render(self, question: Question) -> str:
        """The signature and docstring."""
        return question.text.rstrip()

    def extract(self, text: str) -> str | None:
        """The code in a text; None when there is nothing but white space."""
        fenced = FENCE.search(text)
        code = fenced.group(1) if fenced else END_OF_FUNCTION.split(text, maxsplit=1)[0]
        return code.rstrip() if code.strip() else None

    def grade(self, question: Question, text: str) -> bool:
        """Whether the function passes all its tests within the limits. Raises CallFailed when no child process can be had."""
        code = self.extract(text)
        if code is None:
            return False
        entry_point = question.meta["entry_point"]
        program = "\n".join([_assemble(question.text, code, entry_point), question.meta["test"], f"check({entry_point})"])
        return run_program(program, self.limits).passed


def _assemble(prompt: str, code: str, entry_point: str) -> str:
    """The whole function: the prompt and a body, or the prompt's head (imports, helpers) and a redefinition."""
    if re.search(rf"^(?:async )?def {re.escape(entry_point)}\b", code, re.MULTILINE):
        head = prompt[: prompt.rindex(f"def {entry_point}")]
        return f"{head}\n{code}\n"
    first = next(line for line in code.splitlines() if line.strip())
    if not first.startswith((" ", "\t")):
        code = "    " + code.lstrip().replace("\n", "\n    ")
    return f"{prompt.rstrip()}\n{code}\n"
