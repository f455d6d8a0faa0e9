"""Extraction of code from replies that don't contain a whole module, but only complete a prompt's
code, with functions or with the body of the requested function.
"""

from __future__ import annotations

import ast
import re
import textwrap

from codecheck.parsing import tree_of, within_bounds
from codecheck.replies import answer_of, blocks_of, indented_blocks

_DEFINITION = re.compile(r"^(?:async )?def \w", re.MULTILINE)
_CODE_START = re.compile(
    r"^(?:(?:async )?def \w|class \w|@\w|import \w|from [\w.]+ import )", re.MULTILINE
)
# The end of a body that has no indentation ...
_STATEMENT = re.compile(r"\n(?=class |print\(|if __name__|#|assert |```)")
# ... and of functions and indented bodies: an unindented line that belongs to no function.
_MARGIN = re.compile(r"\n(?!(?:async )?def \w|@\w|import \w|from [\w.]+ import |#)(?=[^\s)\]}])")
_MARGIN_IN_BODY = re.compile(
    r"\n(?!(?:async )?def \w|@\w|import \w|from [\w.]+ import )(?=[^\s)\]}])"
)


@within_bounds
def part_of(text: str) -> str | None:
    """Return the code with which a reply completes a prompt: functions, or a function's body with
    its indentation. Return None if the reply has no code.

    The code is the last block that can be a body, else the first fenced block, else the text from
    its first definition or import, else the whole text. It ends before the first unindented line
    that begins neither a function nor an import.
    """
    text = answer_of(text)
    before, fence, after = text.partition("```")
    if fence and not after.strip() and before.strip():
        text = before  # the prompt opened the block that ends here
    blocks = ["\n".join(block) for block in blocks_of(text)]
    if not blocks and text[:1].isspace() and "\ndef " in text:
        return _body(text.strip("\n").rstrip())  # a body, followed by the functions that it calls
    # Servers may strip whitespace from a reply, including the first line's indentation.
    stripped = f"    {text.rstrip()}"
    if not blocks and not text[:1].isspace() and _is_body(stripped):
        return stripped
    bodies = filter(_is_body, reversed(blocks or indented_blocks(text)))
    code = next(bodies, blocks[0] if blocks else text)
    if _DEFINITION.search(code):
        start = _CODE_START.search(code)
        assert start is not None
        head, definition, rest = code[start.start() :].partition("def ")
        kept, *cut = _MARGIN.split(rest, maxsplit=1)
        functions = head + definition + kept.rstrip()
        # A body may begin with an inner function, and may have lost its indentation in the first
        # line or in all lines.
        inner = (cut and cut[0].startswith("return ")) or not tree_of(functions)
        if code[: start.start()].strip() or not inner:
            return functions
    code = code.strip("\n").rstrip()
    return _body(code) if code else None


def parameters_of(prompt: str, entry_point: str) -> list[str]:
    """Return the parameter names of the function requested by a prompt."""
    tree = tree_of(prompt) or tree_of(f"{prompt.rstrip()}\n    pass\n")
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry_point:
            return [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    return []


def _body(code: str) -> str:
    """Return a function's body, indented.

    Servers may strip whitespace from a reply, including the first line's indentation; models may
    omit all indentation.
    """
    if code[0].isspace():
        body = _MARGIN_IN_BODY.split(code, maxsplit=1)[0].rstrip()
        # A body that parses is left unchanged: reindenting it would also change multi-line strings.
        by_four = textwrap.indent(textwrap.dedent(body), "    ")
        odd = not tree_of(f"def function():\n{body}\n") or not body.startswith("    ")
        return by_four if odd and tree_of(f"def function():\n{by_four}\n") else body
    indented = re.sub(
        r"^(?=.)", "    ", _STATEMENT.split(code, maxsplit=1)[0].rstrip(), flags=re.MULTILINE
    )
    if tree_of(f"def function():\n{indented}\n"):
        return indented
    return _MARGIN_IN_BODY.split(f"    {code}", maxsplit=1)[0].rstrip()


def _is_body(code: str) -> bool:
    """Return True if the code can be the body of a function: it parses as one, and contains a
    return or yield.
    """
    tree = tree_of("def function():\n" + textwrap.indent(textwrap.dedent(code), "    ") + "\n")
    gives = (ast.Return, ast.Yield, ast.YieldFrom)
    return tree is not None and any(isinstance(node, gives) for node in ast.walk(tree))


def _definition(entry_point: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:async )?def {re.escape(entry_point)}\b", re.MULTILINE)


def head_of(prompt: str, entry_point: str) -> str | None:
    """Return a prompt's code before the function: imports and helpers, which tests may use. Return
    None if the prompt doesn't define the function.
    """
    start = _definition(entry_point).search(prompt)
    return prompt[: start.start()] if start is not None else None


def completed(prompt: str, code: str, entry_point: str) -> str:
    """Return the complete program: the prompt followed by the body in `code`, or, if `code` defines
    the function itself, the prompt's head followed by `code`.
    """
    head = head_of(prompt, entry_point)
    if head is not None and _definition(entry_point).search(code):
        return f"{head}\n{code}\n"
    return f"{prompt.rstrip()}\n{code}\n"
