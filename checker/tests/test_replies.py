"""The program in a reply is found however it is written there, and nothing else is taken for it."""

import ast
import contextlib
import html
import json
import re
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codecheck.replies import MOST_CHARACTERS, program_of
from codecheck.sandbox import CheckedProgram, run_checked

# Modules that define `target`, in ways that models do; each is right: target(x) == x * x for x in 0
# to 3.
MODULES = {
    "function": "def target(x):\n    return x * x",
    "lambda": "target = lambda x: x * x",
    "constant before": "SQUARES = [0, 1, 4, 9]\n\ndef target(x):\n    return SQUARES[x]",
    "memo table": "memo = {}\n\ndef target(x):\n    if x not in memo:\n        memo[x] = x * x\n    return memo[x]",
    "table filled after": "def target(x):\n    return TABLE[x]\n\nTABLE = {}\nfor k in range(9):\n    TABLE[k] = k * k",
    "class": "class Squarer:\n    def of(self, x):\n        return x * x\n\ndef target(x):\n    return Squarer().of(x)",
    "method as function": "class Squarer:\n    @staticmethod\n    def of(x):\n        return x * x\n\ntarget = Squarer.of",
    "callable object": "class Squarer:\n    def __call__(self, x):\n        return x * x\n\ntarget = Squarer()",
    "try import": "try:\n    import no_such_numpy as np\nexcept ImportError:\n"
    "    np = None\n\ndef target(x):\n    return x * x if np is None else 0",
    "future": "from __future__ import annotations\n\ndef target(x: Unknown) -> Unknown:\n    return x * x",
    "decorated": "import functools\n\n@functools.lru_cache(maxsize=None)\ndef target(x):\n    return x * x",
    "conditional": "import sys\nif sys.version_info >= (3, 0):\n    def target(x):\n        return x * x\nelse:\n    target = None",
    "assigned": "def square(x):\n    return x * x\n\ntarget = square",
    "partial": "from functools import partial\nfrom operator import pow\n\ntarget = lambda x: partial(pow, x)(2)",
    "helper after": "def target(x):\n    return times(x, x)\n\n\ndef times(x, y):\n    return x * y",
    "docstring with a fence": 'def target(x):\n    """Square.\n\n    ```\n    target(2)\n    ```\n    """\n    return x * x',
    "docstring with a fence of python": 'def target(x):\n    """Square.\n\n    ```python\n'
    '    >>> target(2)\n    4\n    ```\n    """\n    return x * x',
    "module docstring": '"""Squares.\n\nNothing else: it\'s all.\n"""\nimport math\n'
    '\n\ndef target(x):\n    return int(math.pow(x, 2))',
    "main guard": 'def target(x):\n    return x * x\n\nif __name__ == "__main__":\n    raise SystemExit("not here")',
    "examples after": "def target(x):\n    return x * x\n\nprint(target(3))\nassert target(2) == 4\ntarget(int(input()))",
    "set up by a call": "import sys\nsys.setrecursionlimit(2000)\nCACHE = {}\n"
    "CACHE.update({k: k * k for k in range(4)})\n\ndef target(x):\n    return CACHE[x]",
    "long text": 'TEXT = """\nsome\n\ntext\n"""\n\ndef target(x):\n    return x * x + TEXT.count("no such")',
    "comments": "# Squares.\n# - fast\n\n# the function\ndef target(x):  # x: a number\n    # multiply\n    return x * x  # done",
    "walrus": "(two := 2)\n\ndef target(x):\n    return x ** two",
    "tabs": "def target(x):\n\tif x:\n\t\treturn x * x\n\treturn 0",
    "semicolons": "y = 2; target = lambda x: x ** y",
    "nested": "def make():\n    def inner(x):\n        return x * x\n    return inner\n\ntarget = make()",
    "async beside": "async def later(x):\n    return x\n\ndef target(x):\n    return x * x",
    "data class": "from dataclasses import dataclass\n\n@dataclass\nclass Square:\n    side: int\n\n"
    "    def area(self):\n        return self.side ** 2\n\ndef target(x):\n    return Square(x).area()",
    "overloads": "from typing import overload\n\n@overload\ndef target(x: int) -> int: ...\n@overload\n"
    "def target(x: float) -> float: ...\ndef target(x):\n    return x * x",
    "global": "count = 0\n\ndef target(x):\n    global count\n    count += 1\n    return x * x",
    "deleted name": "y = 2\ntarget = (lambda y: lambda x: x ** y)(y)\ndel y",
    "loop": "for name in ['target']:\n    globals()[name] = lambda x: x * x\ntarget = globals()['target']",
    "generator": "def squares():\n    k = 0\n    while True:\n        yield k * k\n        k += 1\n\n"
    "def target(x):\n    for k, y in enumerate(squares()):\n        if k == x:\n            return y",
    "match": "def target(x):\n    match x:\n        case 0:\n            return 0\n        case _:\n            return x * x",
}  # fmt: skip


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


def as_diff(code: str, head: str = "--- /dev/null\n+++ b/target.py\n") -> str:
    lines = code.split("\n")
    return f"{head}@@ -0,0 +1,{len(lines)} @@\n" + "\n".join(f"+{line}" for line in lines)


GIT = (
    "diff --git a/target.py b/target.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    "--- /dev/null\n+++ b/target.py\n"
)


def numbered(code: str, mark: str) -> str:
    return "\n".join(f"{k}{mark} {line}".rstrip() for k, line in enumerate(code.split("\n"), 1))


TEST = "def test_target():\n    assert target(2) == 4\n\ntest_target()"
HEAD = 'def target(x):\n    """The square."""\n    ...'
DRAFT = "def target(x):\n    return x + 1  # not yet right"
WAYS: dict[str, Callable[[str], str]] = {
    "as it is": lambda code: code,
    "with blank lines around": lambda code: f"\n\n{code}\n\n",
    "fence": fenced,
    "fence without language": lambda code: fenced(code, says=""),
    "fence of py": lambda code: fenced(code, says="py"),
    "fence of Python 3": lambda code: fenced(code, says=" Python3 "),
    "fence with attributes": lambda code: fenced(code, says='python title="a.py" {1,3}'),
    "fence with braces": lambda code: fenced(code, says='{.python .numberLines startFrom="1"}'),
    "tildes": lambda code: fenced(code, "~~~"),
    "four backticks": lambda code: fenced(code, "````"),
    "fence without end": lambda code: f"```python\n{code}",
    "fence after words": lambda code: f"Here it is: ```python\n{code}\n```",
    "words around a fence": lambda code: f"Sure! Here's the function:\n\n{fenced(code)}\n\nIt's O(1), isn't it?",
    "words around": lambda code: f"Sure, here's the function (it isn't long):\n\n{code}\n\nIt squares.\n- It's fast.\n  - Really.",
    "code that is indented": lambda code: f"Here:\n\n{fenced(textwrap.indent(code, '    '))}",
    "fence in a list": lambda code: f"1. The code:\n\n{textwrap.indent(fenced(code), '   ')}\n\n2. Done.",
    "fence at a list's mark": lambda code: "- " + textwrap.indent(fenced(code), "  ").strip() + "\n- Done",
    "fence in a quotation": lambda code: "> It is:\n>\n" + "\n".join(f"> {line}" for line in fenced(code).split("\n")),
    "carriage returns": lambda code: fenced(code).replace("\n", "\r\n"),
    "after a draft": lambda code: f"{fenced(DRAFT)}\n\nThat adds. Rather:\n\n{fenced(code)}",
    "after a draft in thoughts": lambda code: f"<think>\nLet me see.\n{fenced(DRAFT)}\nno, wrong\n</think>\n\n{fenced(code)}",
    "after thoughts alone": lambda code: f"<think>Hm. It's\ndef target(x): return x\nperhaps?</think>\n{code}",
    "before an example": lambda code: f"{fenced(code)}\n\nUse it:\n\n```python\nprint(target(3))  # 9\n```",
    "before a file that tests it": lambda code: f"{fenced(code)}\n\n{fenced(f'from solution import target{chr(10)}{TEST}')}",
    "before its output": lambda code: f"{fenced(code)}\n\nOutput:\n\n```\n9\n```",
    "before another language": lambda code: f"```bash\npip install nothing\n```\n\n{fenced(code)}\n\n```json\n{{}}\n```",
    "in two blocks": split_in_two,
    "with a test after": lambda code: f"{fenced(code)}\n\n{fenced(TEST)}",
    "with an example in it": lambda code: fenced(f"{code}\n\nprint(target(3))"),
    "cut off after it": lambda code: f"```python\n{code}\n\n\ndef another(x):\n    for y in range(",
    "on a page": lambda code: f"Here:\n<pre><code>{html.escape(code)}</code></pre>\nIt squares.",
    "on a page, unescaped": lambda code: f'<pre><code class="python">\n{code}\n</code></pre>',
    "in tags of an answer": lambda code: f"<answer>\n{code}\n</answer>",
    "under a heading": lambda code: f"### Code\n\n{code}\n\n### Why\n\nIt's `x * x`.",
    "fence that ends on its last line": lambda code: f"```python\n{code}```",
    "longer fence at the end": lambda code: f"```python\n{code}\n`````",
    "Markdown in Markdown": lambda code: f"````markdown\nIt is:\n\n{fenced(code)}\n````",
    "quotes for fences": lambda code: f"It is:\n\'\'\'python\n{code}\n\'\'\'",
    "thoughts that only end": lambda code: f"Hm.\n{fenced(DRAFT)}\nno\n</think>\n\n{fenced(code)}",
    "thoughts that never end": lambda code: f"<think>\nI know it.\n{fenced(code)}",
    "thoughts of another name": lambda code: (
        f"<reasoning>\n{fenced(DRAFT)}\n</reasoning>\n{fenced(code)}"
    ),
    "with a tokenizer's marks": lambda code: f"<|python_tag|>{code}<|eot_id|>",
    "fence with a tokenizer's mark": lambda code: f"{fenced(code)}<|im_end|>\n",
    "blanks that do not break": lambda code: fenced(
        re.sub("^ +", lambda blanks: "\u00a0" * len(blanks[0]), code, flags=re.MULTILINE)
    ),
    "byte order mark": lambda code: f"\ufeff{fenced(code)}",
    "byte order mark in a fence": lambda code: fenced(f"\ufeff{code}"),
    "old carriage returns": lambda code: fenced(code).replace("\n", "\r"),
    "indented below words": lambda code: f"Here it is:\n\n{indented(code)}\n\nIt squares.",
    "quotation in a list": lambda code: "> - " + indented(fenced(code), "> ")[4:] + "\n> - Done",
    "before its head alone": lambda code: f"{fenced(code)}\n\nSo:\n\n{fenced(HEAD)}",
    "after its head alone": lambda code: f"{fenced(HEAD)}\n\nFilled in:\n\n{fenced(code)}",
    "twice": lambda code: f"{fenced(code)}\n\nAll of it again:\n\n{fenced(code)}",
    "with a magic line": lambda code: fenced(f"!pip install nothing\n{code}"),
    "latex": lambda code: "\\begin{verbatim}\n" + code + "\n\\end{verbatim}",
    "with tags": lambda code: f"[PYTHON]\n{code}\n[/PYTHON]",
    "in JSON": in_json,
    "in JSON on one line": lambda code: json.dumps({"code": code}),
    "in JSON's fence": lambda code: f"It is:\n\n{fenced(in_json(code), says='json')}\n\nDone.",
    "in JSON between words": lambda code: f"Sure: {in_json(code)} It isn't long.",
    "in JSON, fenced there": lambda code: in_json(f"It is:\n{fenced(code)}"),
    "in JSON, deep": lambda code: json.dumps({"files": [{"path": "a.py", "content": code}]}),
    "in JSON with its lines broken": lambda code: re.sub(r"(?<!\\)\\n", "\n", in_json(code)),
    "in a tool's call": lambda code: (
        "<tool_call>\n" + json.dumps({"name": "run", "arguments": {"code": code}}) + "\n</tool_call>"
    ),
    "in JSON within JSON": lambda code: json.dumps({"arguments": json.dumps({"code": code})}),
    "as a diff": as_diff,
    "as a diff of git": lambda code: as_diff(code, GIT),
    "as a diff in a fence": lambda code: f"Apply:\n\n{fenced(as_diff(code), says='diff')}\n",
    "as a diff in a fence without a head": lambda code: fenced(as_diff(code, ""), says="diff"),
    "in a notebook": lambda code: json.dumps(
        {"cells": [{"cell_type": "code", "source": code.splitlines(keepends=True)}]}
    ),
    "as a patch": lambda code: "*** Begin Patch\n*** Add File: target.py\n"
    + "\n".join(f"+{line}" for line in code.split("\n"))
    + "\n*** End Patch",
    "in a shell's document": lambda code: fenced(
        f"cat > target.py <<'EOF'\n{code}\nEOF\npython target.py", says="bash"
    ),
    "in tags on its lines": lambda code: f'<parameter name="code">{code}</parameter>',
    "in a channel": lambda code: (
        f"<|channel|>analysis<|message|>Hm.\n{fenced(DRAFT)}<|end|><|start|>assistant"
        f"<|channel|>final<|message|>{fenced(code)}<|return|>"
    ),
    "with numbers": lambda code: numbered(code, " |"),
    "with numbers in a fence": lambda code: fenced(numbered(code, ":")),
    "as plus lines in a fence": lambda code: fenced(
        "\n".join(f"+{line}" for line in code.split("\n")), says="diff"
    ),
}  # fmt: skip


def works(program: str | None) -> bool:
    """Whether a program of these tests' own defines the right function."""
    assert program is not None, "no program was found"
    names: dict[str, object] = {"__name__": "program"}
    with contextlib.suppress(
        EOFError, NameError, OSError
    ):  # of an example below the definitions, which the sandbox lets pass
        exec(compile(program, "program", "exec"), names)
    return [names["target"](x) for x in range(4)] == [0, 1, 4, 9]  # type: ignore[operator]


@pytest.mark.parametrize("way", WAYS)
def test_modules_are_read_however_they_are_written(way):
    for module, code in MODULES.items():
        assert works(program_of(WAYS[way](code), "target")), module


LIBRARY = sorted(
    path for path in Path(sysconfig.get_path("stdlib")).glob("*.py") if path.stat().st_size < 8000
)


def functions_of(text: str) -> list[str]:
    """The functions that a module defines at its margin."""
    return [
        statement.name
        for statement in ast.parse(text).body
        if isinstance(statement, ast.FunctionDef)
    ]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LIBRARY), st.sampled_from(sorted(set(WAYS) - {"in two blocks"})))
def test_a_module_of_the_standard_library_is_read_whole(path, way):
    text = path.read_text(encoding="utf-8")
    if not (functions := functions_of(text)):
        return
    found = program_of(WAYS[way](text), functions[-1])
    assert found is not None
    read = iter([ast.dump(statement) for statement in ast.parse(found).body])
    assert [
        s for s in ast.parse(text).body if ast.dump(s) not in read
    ] == []  # in this order, nothing changed


def test_code_in_a_quotation_keeps_its_blanks():
    module = 'TEXT = """\n  two\n    four"""\ndef target(x):\n    return TEXT.split("\\n")[x]'
    for way in ("fence in a quotation", "fence in a list", "fence at a list's mark"):
        names: dict[str, object] = {}
        exec(program_of(WAYS[way](module), "target") or "", names)
        assert [names["target"](k) for k in range(3)] == ["", "  two", "    four"], way  # type: ignore[operator]


NAMES = st.sampled_from(["alpha", "beta", "gamma"])
STATEMENTS = st.one_of(
    st.builds("{} = {}".format, NAMES, st.integers(0, 9)),
    st.builds("import {}".format, st.sampled_from(["math", "re, json", "os.path as p"])),
    st.builds("def {}(x):\n    return x".format, NAMES),
    st.builds(
        'class {0}:\n    """It\'s a {0}.\n\n    ```\n    {0}()\n    ```\n    """\n    y = 1'.format,
        NAMES,
    ),
    st.builds(
        "try:\n    import {}\nexcept ImportError:\n    pass".format,
        st.sampled_from(["no_such_numpy", "nothing_here"]),
    ),
    st.builds("for k in range(3):\n    pass  # {}".format, NAMES),
    st.builds(
        "TEXT = '''\n{}\n\n- it's\n'''".format,
        st.sampled_from(["```", "words", "def target(x): return 0", "# no"]),
    ),
    st.builds("# {}".format, NAMES),
)
TARGETS = st.sampled_from(
    [
        "def target(x):\n    return x * x",
        "target = lambda x: x * x",
        "def target(x):\n\n    y = x\n\n    return x * y",
    ]
)


QUOTED_DRAFT = "TEXT = '''\ndef target(x): return 0\n\n- it's\n'''"
FENCED = "TEXT = '''\n```\n\n- it's\n'''\n\nMORE = '''\nwords\n\n- it's\n'''"


@settings(max_examples=300, deadline=None)
@example([], "def target(x):\n    return x * x", [QUOTED_DRAFT], "quotes for fences")
@example([FENCED], "def target(x):\n    return x * x", [], "as a diff")
@given(
    st.lists(STATEMENTS, max_size=4),
    TARGETS,
    st.lists(STATEMENTS, max_size=3),
    st.sampled_from(sorted(set(WAYS) - {"in two blocks"})),
)
def test_any_module_is_read_however_it_is_written(before, target, after, way):
    assert works(program_of(WAYS[way]("\n\n".join([*before, target, *after])), "target"))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "```",
                "```python",
                "~~~",
                "def target(x):",
                "    return x",
                "words it's",
                ">>> 1",
                "",
                "'''",
                "(",
                "<think>",
                "</think>",
            ]
        )
    ).map("\n".join)
    | st.text()
)
def test_any_text_has_a_program_or_none(text):
    found = program_of(text, "target")
    assert found is None or isinstance(found, str)


@pytest.mark.parametrize(
    "text",
    ["```\n(\n" * 1000,
     "def target(x):\n    return (\n" * 700, "words\n" * 2000, "```python\nx = '''\n" * 600, "(" * MOST_CHARACTERS,
     "if x:\n" * 2000, ">>> def target(x): return x\n" * 900],
)  # fmt: skip
def test_a_monstrous_reply_is_read_to_its_end(text):
    program_of(text, "target")


@pytest.mark.parametrize(
    "text",
    [
        "I can't do that.",
        "def other(x):\n    return x",
        "```python\ndef target(x)\n    return x * x\n```",
        "```python\ndef target(x):\n    return (x\n```",
        "class A:\n    def target(self, x):\n        return x * x",
        "target(x) squares x",
        '{"code": "x = 1", "tests": "assert target(2) == 4"}',
        '{"code": "def target(x)\\n    return x"}',
        '{"one": "def target(x): return x", "other": "def target(x): return x * x"}',
        "--- a/t.py\n+++ b/t.py\n@@ -1,2 +1,2 @@\n def other(x):\n-    return x\n+    return x * x",
    ],
)
def test_what_defines_no_such_function_is_no_program(text):
    assert program_of(text, "target") is None


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
    for beside in (in_json(DRAFT), fenced(as_diff(DRAFT), says="diff")):
        for reply in (
            f"{fenced(MODULES['function'])}\n{beside}",
            f"{beside}\n{fenced(MODULES['function'])}",
        ):
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


BODY = "    for k, a in enumerate(xs):\n        if a < least: return k\n    return None\n"
INNER = BODY.replace("\n    ", "\n        ").replace("    for", "        for", 1).rstrip(" ")
ELSEWHERE = {
    "in camel case": f"def firstBelow(xs, least):\n{BODY}",
    "a method": f"class Solution:\n    def first_below(self, xs, least):\n{INNER}",
    "a method in camel case": f"class Solution:\n    def firstBelow(self, xs, least):\n{INNER}",
    "a static method": f"class S:\n    @staticmethod\n    def first_below(xs, least):\n{INNER}",
    "within another function": f"def main():\n    def first_below(xs, least):\n{INNER}    print(first_below([1], 2))\n",
    "in a branch": f"if True:\n    def first_below(xs, least):\n{INNER}",
    "by its parameters": f"def find(xs, least):\n{BODY}",
    "by how many it takes": "def low(a, b): return a < b\ndef find(ys, y):\n    return next((k for k, a in enumerate(ys) if low(a, y)), None)\n",
    "a lambda": "find = lambda xs, least: next((k for k, a in enumerate(xs) if a < least), None)\n",
    "the last of several": f"def one(xs, least): return 5\n\ndef two(xs, least):\n{BODY}",
    "with a helper in a block before": f"def low(a, b): return a < b\n```\nand\n```python\ndef find(xs, least):\n{BODY.replace('a < least', 'low(a, least)')}",
}


@pytest.mark.parametrize("place", ELSEWHERE)
def test_the_function_that_is_meant_is_found_where_it_stands(place):
    reply = f"Here it is:\n```python\n{ELSEWHERE[place]}```\nIt looks at each."
    names = {}
    exec(program_of(reply, "first_below", parameters=("xs", "least")), names)
    assert [names["first_below"]([3, 1, 2], 2), names["first_below"]([3], 2)] == [1, None]


@pytest.mark.parametrize(
    "reply",
    [
        "def f(a): return a",
        "def f(a, b): pass\ndef g(c, d): pass",
        "return [x for x in xs]",
        "x = 1",
    ],
)
def test_what_is_not_certain_is_not_taken_for_it(reply):
    assert program_of(f"```python\n{reply}\n```", "first_below", parameters=("xs", "least")) is None
