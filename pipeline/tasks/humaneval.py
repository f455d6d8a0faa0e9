"""Writing a Python function from its signature and docstring, graded by its unit tests (HumanEval, pass@1)."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from typing import Any

from pipeline.tasks.base import Question, register_task
from pipeline.tasks.isolation import require
from pipeline.tasks.rows import row_id, text_field
from pipeline.tasks.sandbox import CheckedProgram, SandboxLimits, missing_layers, run_checked

_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_DEFINITION = re.compile(r"^(?:async )?def \w", re.MULTILINE)
_CODE_START = re.compile(r"^(?:(?:async )?def \w|class \w|@\w|import \w|from [\w.]+ import )", re.MULTILINE)
# What ends a body that came without indentation ...
_STATEMENT = re.compile(r"\n(?=class |print\(|if __name__|#|assert |```)")
# ... and what ends functions and indented bodies: a line at the margin that belongs to no function.
_MARGIN = re.compile(r"\n(?!(?:async )?def \w|@\w|import \w|from [\w.]+ import |#)(?=[^\s)\]}])")
_MARGIN_IN_BODY = re.compile(r"\n(?!(?:async )?def \w|@\w|import \w|from [\w.]+ import )(?=[^\s)\]}])")


class HumanEvalTask:
    """Rows {task_id, prompt, entry_point, test, canonical_solution}. Programs may use the standard library only."""

    name = "humaneval"
    instruction = "Complete the Python function. Reply with the whole function in one code block and nothing else."

    def __init__(self, limits: SandboxLimits | None = None, accept_weaker: bool = False) -> None:
        self.limits = limits or SandboxLimits()
        self.accept_weaker = accept_weaker

    def confined(self, accept_weaker: bool) -> HumanEvalTask:
        """This task, once it is known that programs can be isolated here or less is accepted. Raises IsolationError."""
        require(missing_layers(), accept_weaker)
        return HumanEvalTask(self.limits, accept_weaker)

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """A row as a Question whose text is the prompt and whose answer is the canonical solution. Raises DataError."""
        prompt = text_field(row, ("prompt",), "a function's signature and docstring", where)
        answer = text_field(row, ("canonical_solution", "answer"), "an answer", where)
        meta = {
            "test": text_field(row, ("test",), "unit tests", where),
            "entry_point": text_field(row, ("entry_point",), "a function name", where),
        }
        return Question(row_id(row, self.name, prompt), prompt, answer, meta)

    def render(self, question: Question) -> str:
        """The signature and docstring."""
        return question.text.rstrip()

    def extract(self, text: str) -> str | None:
        """The code of a reply: whole functions, or one function's body indented by four; None when there is none.

        It is the first fenced block with a function, else the first fenced block, else the text from its first definition or
        import, else the text. It ends at the first line at the margin that starts anything but a function or an import.
        """
        blocks = _FENCE.findall(text)
        code = next(filter(_DEFINITION.search, blocks), blocks[0] if blocks else text)
        if _DEFINITION.search(code):
            start = _CODE_START.search(code)
            assert start is not None
            head, definition, rest = code[start.start() :].partition("def ")
            kept, *cut = _MARGIN.split(rest, maxsplit=1)
            functions = head + definition + kept.rstrip()
            # A body may start with an inner function and have lost the first line's indentation, or all of it.
            inner = (cut and cut[0].startswith("return ")) or not _parses(functions)
            if code[: start.start()].strip() or not inner:
                return functions
        code = code.strip("\n").rstrip()
        return _body(code) if code else None

    def grade(self, question: Question, text: str) -> bool:
        """Whether the function passes all its tests within the limits.

        Raises IsolationError, and CallFailed when no child process can be had, as `run_checked` does.
        """
        code = self.extract(text)
        if code is None:
            return False
        entry_point = question.meta["entry_point"]
        head = _head(question.text, entry_point)
        solution = _assemble(question.text, code, entry_point)
        program = CheckedProgram(solution, entry_point, question.meta["test"], head or "")
        return run_checked(program, self.limits, self.accept_weaker).passed


def _body(code: str) -> str:
    """A function's body, indented. Servers may strip a reply, which takes the first line's indentation; models may omit it all."""
    if code[0].isspace():
        return _MARGIN_IN_BODY.split(code, maxsplit=1)[0].rstrip()
    indented = re.sub(r"^(?=.)", "    ", _STATEMENT.split(code, maxsplit=1)[0].rstrip(), flags=re.MULTILINE)
    if _parses(f"def function():\n{indented}\n"):
        return indented
    return _MARGIN_IN_BODY.split(f"    {code}", maxsplit=1)[0].rstrip()


def _parses(code: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in the model's strings
        try:
            ast.parse(code)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return False
    return True


def _definition(entry_point: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:async )?def {re.escape(entry_point)}\b", re.MULTILINE)


def _head(prompt: str, entry_point: str) -> str | None:
    """What a prompt gives beside the function: imports and helpers, which tests may use; None where it lacks the function."""
    start = _definition(entry_point).search(prompt)
    return prompt[: start.start()] if start is not None else None


def _assemble(prompt: str, code: str, entry_point: str) -> str:
    """The whole function: the prompt and a body, or the prompt's head and a redefinition."""
    head = _head(prompt, entry_point)
    if head is not None and _definition(entry_point).search(code):
        return f"{head}\n{code}\n"
    return f"{prompt.rstrip()}\n{code}\n"


register_task(HumanEvalTask())
