"""Writing a Python function from its signature and docstring, graded by its unit tests (HumanEval,
pass@1).

What a verifier may run are the public tests of a question alone: those in its row's field
`public_tests`, else the examples in its docstring.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from codecheck import answer_of, blocks_of, indented_blocks, program_of, shown_tests
from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.programs import (
    CheckedProgram,
    SandboxLimits,
    given_tests,
    passes,
    require_isolation,
)
from ttsgraph.tasks.rows import row_id, text_field
from ttsgraph.tasks.verdicts import Verdicts

_DEFINITION = re.compile(r"^(?:async )?def \w", re.MULTILINE)
_CODE_START = re.compile(
    r"^(?:(?:async )?def \w|class \w|@\w|import \w|from [\w.]+ import )", re.MULTILINE
)
# What ends a body that came without indentation ...
_STATEMENT = re.compile(r"\n(?=class |print\(|if __name__|#|assert |```)")
# ... and what ends functions and indented bodies: a line at the margin that belongs to no function.
_MARGIN = re.compile(r"\n(?!(?:async )?def \w|@\w|import \w|from [\w.]+ import |#)(?=[^\s)\]}])")
_MARGIN_IN_BODY = re.compile(
    r"\n(?!(?:async )?def \w|@\w|import \w|from [\w.]+ import )(?=[^\s)\]}])"
)


class HumanEvalTask:
    """Rows {task_id, prompt, entry_point, test, canonical_solution}, and `public_tests` where there
    are any. Programs may use the standard library only.
    """

    name = "humaneval"
    checks = "the public tests of its question"
    instruction = (
        "Complete the Python function. Reply with the whole function in one code block and nothing"
        " else."
    )

    def __init__(
        self,
        limits: SandboxLimits | None = None,
        accept_weaker: bool = False,
        verdicts: Verdicts | None = None,
    ) -> None:
        self.limits = limits or SandboxLimits()
        self.accept_weaker = accept_weaker
        self.verdicts = verdicts

    def confined(self, accept_weaker: bool) -> HumanEvalTask:
        """This task, once it is known that programs can be isolated here or less is accepted.
        Raises IsolationError.
        """
        require_isolation(accept_weaker)
        return HumanEvalTask(self.limits, accept_weaker)

    def remembering(self, verdicts: Verdicts) -> HumanEvalTask:
        """This task, which runs no program that these verdicts know."""
        return HumanEvalTask(self.limits, self.accept_weaker, verdicts)

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        """A row as a Question whose text is the prompt and whose answer is the canonical solution.
        Raises DataError.
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
        """The signature and docstring."""
        return question.text.rstrip()

    def extract(self, text: str) -> str | None:
        """The code of a reply: a module with a function, or one function's body indented by four;
        None when there is none.
        """
        return program_of(text) or self._part(text)

    def _part(self, text: str) -> str | None:
        """What a reply holds that is no whole module: functions, or a function's body indented by
        four.

        It is the last fenced block that can be a body, else the first one, else the text from its
        first definition or import, else the text. It ends at the first line at the margin that
        starts anything but a function or an import.
        """
        text = answer_of(text)
        blocks = ["\n".join(block) for block in blocks_of(text)]
        bodies = filter(_is_body, reversed(blocks or indented_blocks(text)))
        code = next(bodies, blocks[0] if blocks else text)
        if _DEFINITION.search(code):
            start = _CODE_START.search(code)
            assert start is not None
            head, definition, rest = code[start.start() :].partition("def ")
            kept, *cut = _MARGIN.split(rest, maxsplit=1)
            functions = head + definition + kept.rstrip()
            # A body may start with an inner function and have lost the first line's indentation, or
            # all of it.
            inner = (cut and cut[0].startswith("return ")) or not _parses(functions)
            if code[: start.start()].strip() or not inner:
                return functions
        code = code.strip("\n").rstrip()
        return _body(code) if code else None

    def grade(self, question: Question, text: str) -> bool:
        """Whether the function passes all its tests within the limits.

        Raises IsolationError, and CallFailed when no child process can be had, as `passes` does.
        """
        program = self._program(question, text, question.meta["test"])
        run = self.verdicts.passes if self.verdicts else passes
        return program is not None and run(program, self.limits, self.accept_weaker)

    def _program(self, question: Question, text: str, tests: str) -> CheckedProgram | None:
        """A reply as a program with these tests; None where it has no code."""
        entry_point = _entry_point(question)
        head = _head(question.text, entry_point) or ""
        solution = program_of(text, entry_point, head, _parameters(question.text, entry_point))
        if solution is None:
            if (code := self._part(text)) is None:
                return None
            solution = _assemble(question.text, code, entry_point)
        return CheckedProgram(solution, entry_point, tests, head)

    def carries_check(self, question: Question) -> bool:
        """Whether a question has public tests."""
        return bool(_public_tests(question))

    def passes_on(self, question: Question, text: str) -> bool:
        """Whether a reply passes the public tests of its question; where that has none, whether it
        holds code.

        Raises as `grade` does.
        """
        tests = _public_tests(question)
        if not tests:
            return self.extract(text) is not None
        program = self._program(question, text, tests)
        run = self.verdicts.passes if self.verdicts else _passed
        return program is not None and run(program, self.limits, self.accept_weaker)


@lru_cache(maxsize=20_000)
def _passed(program: CheckedProgram, limits: SandboxLimits, accept_weaker: bool) -> bool:
    """Whether a program passes. Remembered, as the same answers are checked in many graphs."""
    return passes(program, limits, accept_weaker)


def _public_tests(question: Question) -> str:
    return str(question.meta.get("public_tests") or "") or shown_tests(
        question.text, _entry_point(question)
    )


def _entry_point(question: Question) -> str:
    """The function that is asked for; of a question that came as text alone, the last of it."""
    found = re.findall(r"^(?:async )?def (\w+)", question.text, re.MULTILINE)
    return str(question.meta.get("entry_point") or (found[-1] if found else ""))


def _parameters(prompt: str, entry_point: str) -> list[str]:
    """The names of the parameters of the function that a prompt asks for."""
    tree = _tree(prompt) or _tree(f"{prompt.rstrip()}\n    pass\n")
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry_point:
            return [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    return []


def _body(code: str) -> str:
    """A function's body, indented. Servers may strip a reply, which takes the first line's
    indentation; models may omit it all.
    """
    if code[0].isspace():
        return _MARGIN_IN_BODY.split(code, maxsplit=1)[0].rstrip()
    indented = re.sub(
        r"^(?=.)", "    ", _STATEMENT.split(code, maxsplit=1)[0].rstrip(), flags=re.MULTILINE
    )
    if _parses(f"def function():\n{indented}\n"):
        return indented
    return _MARGIN_IN_BODY.split(f"    {code}", maxsplit=1)[0].rstrip()


def _is_body(code: str) -> bool:
    """Whether it is what stands below a function's head: it parses there, and returns or yields
    something.
    """
    function = "def function():\n" + textwrap.indent(textwrap.dedent(code), "    ") + "\n"
    return _parses(function) and any(
        isinstance(node, ast.Return | ast.Yield | ast.YieldFrom)
        for node in ast.walk(ast.parse(function))
    )


def _parses(code: str) -> bool:
    return _tree(code) is not None


def _tree(code: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in the model's strings
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None


def _definition(entry_point: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:async )?def {re.escape(entry_point)}\b", re.MULTILINE)


def _head(prompt: str, entry_point: str) -> str | None:
    """What a prompt gives beside the function: imports and helpers, which tests may use; None where
    it lacks the function.
    """
    start = _definition(entry_point).search(prompt)
    return prompt[: start.start()] if start is not None else None


def _assemble(prompt: str, code: str, entry_point: str) -> str:
    """The whole function: the prompt and a body, or the prompt's head and a redefinition."""
    head = _head(prompt, entry_point)
    if head is not None and _definition(entry_point).search(code):
        return f"{head}\n{code}\n"
    return f"{prompt.rstrip()}\n{code}\n"


register_task(HumanEvalTask())
