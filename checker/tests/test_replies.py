"""The program in a reply is found however it is written there, and nothing else is taken for it."""

import ast
import contextlib
import html
import json
import re
import sysconfig
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from cases import tables, texts
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_speed import PIECES

from codecheck.replies import program_of
from codecheck.sandbox import CheckedProgram, run_checked

MODULES = texts("modules.txt")
NOT_PROGRAMS = tables("not_programs.txt")


def fenced(code: str, fence: str = "```", says: str = "python") -> str:
    return f"{fence}{says}\n{code}\n{fence}"


def indented(code: str, before: str = "") -> str:
    """As Markdown has it, in a block without fences or at a list's mark."""
    return textwrap.indent(code, f"{before}  " if before else "    ", lambda line: True)


def split_in_two(code: str) -> str:
    """A module's first statements in one block, the last definition in another, where its lines
    allow that.
    """
    head, gap, tail = code.rpartition("\n\n")
    try:
        compile(head, "", "exec"), compile(tail, "", "exec")
    except SyntaxError:
        return fenced(code)
    return f"First:\n\n{fenced(head)}\n\nThen:\n\n{fenced(tail)}" if gap else fenced(code)


def in_json(code: str, **around: object) -> str:
    return json.dumps({"approach": "It's x * x.", "code": code, **around}, indent=2)


def marked(code: str, mark: str = "+") -> str:
    return "\n".join(f"{mark}{line}" for line in code.split("\n"))


def as_hunk(code: str) -> str:
    count = code.count("\n") + 1
    return f"@@ -0,0 +1,{count} @@\n{marked(code)}"


def numbered(code: str, mark: str) -> str:
    return "\n".join(f"{k}{mark} {line}".rstrip() for k, line in enumerate(code.split("\n"), 1))


DRAFT = "def target(x):\n    return x + 1  # not yet right"
FORMS: dict[str, Callable[[str], str]] = {
    "CODE": str,
    "INDENTED": lambda code: textwrap.indent(code, "    "),
    "LISTED": lambda code: textwrap.indent(fenced(code), "   "),
    "QUOTED": lambda code: marked(fenced(code), "> "),
    "HTML": html.escape,
    "JSON": in_json,
    "PLUS": marked,
    "HUNK": as_hunk,
    "NUMBERED": lambda code: numbered(code, ":"),
}
"""Marks of the texts of replies, and how the program stands there."""


def filled(text: str, code: str) -> str:
    return re.sub("«([A-Z]+)»", lambda mark: FORMS[mark[1]](code), text)


# Replies as a text, and those whose blanks, breaks or JSON a text can't show.
WAYS: dict[str, Callable[[str], str]] = {
    name: partial(filled, text) for name, text in texts("replies.txt").items()
} | {
    "with blank lines around": lambda code: f"\n\n{code}\n\n",
    "fence at a list's mark": lambda code: (
        f"- {textwrap.indent(fenced(code), '  ').strip()}\n- Done"
    ),
    "carriage returns": lambda code: fenced(code).replace("\n", "\r\n"),
    "old carriage returns": lambda code: fenced(code).replace("\n", "\r"),
    "in two blocks": split_in_two,
    "fence with a tokenizer's mark": lambda code: f"{fenced(code)}<|im_end|>\n",
    "blanks that do not break": lambda code: fenced(
        re.sub("^ +", lambda blanks: "\u00a0" * len(blanks[0]), code, flags=re.MULTILINE)
    ),
    "byte order mark": lambda code: f"\ufeff{fenced(code)}",
    "byte order mark in a fence": lambda code: fenced(f"\ufeff{code}"),
    "indented below words": lambda code: f"Here it is:\n\n{indented(code)}\n\nIt squares.",
    "quotation in a list": lambda code: f"> - {indented(fenced(code), '> ')[4:]}\n> - Done",
    "in JSON on one line": lambda code: json.dumps({"code": code}),
    "in JSON, fenced there": lambda code: in_json(f"It is:\n{fenced(code)}"),
    "in JSON, deep": lambda code: json.dumps({"files": [{"path": "a.py", "content": code}]}),
    "in JSON with its lines broken": lambda code: re.sub(r"(?<!\\)\\n", "\n", in_json(code)),
    "in JSON within JSON": lambda code: json.dumps({"arguments": json.dumps({"code": code})}),
    "in a notebook": lambda code: json.dumps(
        {"cells": [{"cell_type": "code", "source": code.splitlines(keepends=True)}]}
    ),
    "with numbers": lambda code: numbered(code, " |"),
}


def works(program: str | None) -> bool:
    """Whether a program of these tests' own defines the right function."""
    assert program is not None, "no program was found"
    names: dict[str, object] = {"__name__": "program"}
    # Of an example below the definitions, which the sandbox lets pass.
    with contextlib.suppress(EOFError, NameError, OSError):
        exec(compile(program, "program", "exec"), names)
    return [names["target"](x) for x in range(4)] == [0, 1, 4, 9]  # type: ignore[operator]


@pytest.mark.parametrize("way", WAYS)
def test_modules_are_read_however_they_are_written(way):
    for module, code in MODULES.items():
        assert works(program_of(WAYS[way](code), "target")), module


LIBRARY = sorted(
    path for path in Path(sysconfig.get_path("stdlib")).glob("*.py") if path.stat().st_size < 8000
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LIBRARY), st.sampled_from(sorted(set(WAYS) - {"in two blocks"})))
def test_a_module_of_the_standard_library_is_read_whole(path, way):
    text = path.read_text(encoding="utf-8")
    statements = ast.parse(text).body
    functions = [each.name for each in statements if isinstance(each, ast.FunctionDef)]
    assume(functions)
    found = program_of(WAYS[way](text), functions[-1])
    read = iter(map(ast.dump, ast.parse(found).body))
    # In this order, nothing changed.
    assert [each for each in statements if ast.dump(each) not in read] == []


def test_code_in_a_quotation_keeps_its_blanks():
    module = 'TEXT = """\n  two\n    four"""\ndef target(x):\n    return TEXT.split("\\n")[x]'
    for way in ("fence in a quotation", "fence in a list", "fence at a list's mark"):
        names: dict[str, object] = {}
        exec(program_of(WAYS[way](module), "target") or "", names)
        assert [names["target"](k) for k in range(3)] == ["", "  two", "    four"], way  # type: ignore[operator]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES)).map("".join) | st.text())
def test_any_text_has_a_program_or_none(text):
    found = program_of(text, "target")
    assert found is None or isinstance(found, str)


@pytest.mark.parametrize("text", NOT_PROGRAMS["no such function"])
def test_what_defines_no_such_function_is_no_program(text):
    assert program_of(*text, "target") is None


PLAIN = {name: MODULES[name] for name in ("function", "lambda", "constant before", "memo table")}


@pytest.mark.parametrize("module", PLAIN)
def test_a_plain_module_is_read_from_what_may_not_hold_every_module(module):
    code = PLAIN[module]
    for reply in (
        f"It's `{code}`.",
        f"It's ``{code}``, as you see.",
        code.replace("\n", "\\n"),
        '{"code": """' + code + '"""}',
        "In [1]: " + code.replace("\n", "\n   ...: "),
        code + "\nNAME = \u201ctarget\u201d",
    ):
        assert works(program_of(reply, "target")), reply


def test_a_diff_of_a_file_gives_what_the_file_becomes():
    diff = "@@ -1,4 +1,4 @@\n BASE = 2\n \n def target(x):\n-    return x + BASE\n+    return x**BASE\n"
    assert works(program_of(f"--- a/t.py\n+++ b/t.py\n{diff}", "target"))
    assert works(program_of(f"Change it:\n\n{fenced(diff, says='diff')}\n\nDone.", "target"))


def test_json_and_diffs_beside_a_program_are_not_read():
    program = fenced(MODULES["function"])
    diff = fenced("--- /dev/null\n+++ b/target.py\n" + as_hunk(DRAFT), says="diff")
    for beside in (in_json(DRAFT), diff):
        for reply in (f"{program}\n{beside}", f"{beside}\n{program}"):
            assert works(program_of(reply, "target"))


def test_blocks_that_define_what_is_missing_are_taken_and_others_are_not():
    helpers = "import math\n\ndef half(x):\n    return x / 2"
    broken = "import nothing_there\nresult = target(3)"
    main = "def target(x):\n    return half(2 * x) * math.floor(x)"
    for blocks in (
        [helpers, broken, main],
        [broken, main, helpers],
        [main, helpers, broken],
        ["def half(x): return 0", helpers, main],
    ):
        assert works(program_of("\n\nand\n\n".join(map(fenced, blocks)), "target"))
    assert program_of(f"{fenced(helpers)}\n{fenced(main)}", "target", given=helpers) == main


TESTS = "def check(candidate):\n    assert all(candidate(x) == x * x for x in range(4))\n"


@pytest.mark.parametrize("module", MODULES)
def test_a_right_module_is_judged_right_and_a_changed_one_wrong(module):
    way = list(WAYS)[list(MODULES).index(module) % len(WAYS)]
    for code, right in ((MODULES[module], True), (f"{MODULES[module]}\n\ntarget = abs", False)):
        program = program_of(WAYS[way](code) if right else fenced(code), "target")
        assert run_checked(CheckedProgram(program, "target", TESTS)).passed is right, way


ELSEWHERE = texts("elsewhere.txt")


@pytest.mark.parametrize("place", ELSEWHERE)
def test_the_function_that_is_meant_is_found_where_it_stands(place):
    reply = f"Here it is:\n```python\n{ELSEWHERE[place]}\n```\nIt looks at each."
    names = {}
    exec(program_of(reply, "first_below", parameters=("xs", "least")), names)
    assert [names["first_below"]([3, 1, 2], 2), names["first_below"]([3], 2)] == [1, None]


@pytest.mark.parametrize("reply", NOT_PROGRAMS["not certain"])
def test_what_is_not_certain_is_not_taken_for_it(reply):
    assert program_of(fenced(*reply), "first_below", parameters=("xs", "least")) is None


def test_a_program_is_found_while_threads_outside_parse_too(monkeypatch):
    """CPython 3.11 can raise SystemError then; `parsing` says why."""
    errors = [SystemError("AST constructor recursion depth mismatch")]

    def parse(*arguments, **named):
        if errors:
            raise errors.pop()
        return compile(*arguments, "reply", named["mode"], ast.PyCF_ONLY_AST)

    monkeypatch.setattr(ast, "parse", parse)
    code = "def double(x):\n    return 2 * x"
    assert program_of(fenced(code), "double") == code
    assert not errors
