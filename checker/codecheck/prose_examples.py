"""Examples in a function's docstring that lack doctest's prompt: `f(3) == [1, 2]`, `f("ab") =>
True`, `For lst = [1, 2] the output should be 3`, `Input: n = 3 / Output: 7`.

Only unambiguous examples are used: an example must contain a call or name all arguments, its
arguments and result must be plain data, and the result must end its line. Even these may be wrong,
because people write them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from codecheck.parsing import literal, tree_of

_GIVES = re.compile(
    r"[ \t]*(?:==>|=>|==|➞|->|=|#[ \t]*(?:=>|returns?)|(?:should[ \t]+)?(?:returns?|be|give)\b)"
    r"[ \t]*:?[ \t]*"
)
_NAMED = re.compile(r"(?:\bFor|\bInput:)[ \t]+(?=[A-Za-z_]\w*[ \t]*=)")
_NAME = re.compile(r"[ \t]*,?[ \t]*([A-Za-z_]\w*)[ \t]*=[ \t]*")
_RESULT = re.compile(r"\s*,?\s*(?:the (?:output|result) should be|Output:)[ \t]*=?[ \t]*")
_TAIL = re.compile(r"[ \t]*(?:#.*|\(the\b.*|\.)?[ \t]*$")
_WORDS = {"true": True, "false": False, "none": None, "null": None}
LONGEST = 2000
"""Maximum number of characters in a call or literal, from its opening bracket."""


def prose_examples(
    docstring: str, function: str, parameters: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the call and the result of each unambiguous example, as Python code, without
    duplicates.
    """
    found = [*_calls(docstring, function), *_named(docstring, function, parameters)]
    return list(dict.fromkeys(found))


def _calls(text: str, function: str) -> Iterator[tuple[str, str]]:
    for match in re.finditer(rf"(?<![\w.]){re.escape(function)}[ \t]*\(", text):
        call = _balanced(text, match.start(), match.end() - 1)
        tree = tree_of(call.strip(), "eval") if call else None
        if tree is None or not _plain_call(tree.body):
            continue
        gives = _GIVES.match(text, match.start() + len(call or ""))
        if gives and (result := _result(text, gives.end())) is not None:
            yield ast.unparse(tree.body), result


def _named(text: str, function: str, parameters: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the call and the result of each example that names its arguments."""
    for match in _NAMED.finditer(text):
        given: dict[str, str] = {}
        at = match.end()
        while (
            name := re.compile(r"[ \t]*,?[ \t]*([A-Za-z_]\w*)[ \t]*=[ \t]*").match(text, at)
        ) and (value := _longest(text, name.end())):
            given[name[1]] = value[0]
            at = value[1]
        result = _RESULT.match(text, at)
        if result is None or set(given) != set(parameters):
            continue
        if (wanted := _result(text, result.end())) is not None:
            yield f"{function}({', '.join(given[name] for name in parameters)})", wanted


def _balanced(text: str, start: int, at: int) -> str | None:
    """Return the text from `start` to the bracket that closes the one at `at`, or None if no
    bracket closes it. Brackets in strings are ignored.
    """
    depth = 0
    quote = ""
    for k in range(at, min(len(text), at + LONGEST)):
        sign = text[k]
        if quote:
            quote = "" if sign == quote and text[k - 1] != "\\" else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if depth == 0:
                return text[start : k + 1]
    return None


def _longest(text: str, at: int) -> tuple[str, int] | None:
    """Return the literal that begins at `at` and the position of its end, or None if there is no
    literal.
    """
    if at < len(text) and text[at] in "([{":
        literal = _balanced(text, at, at)
    else:
        match = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|-?\d+(?:\.\d+)?").match(text, at)
        literal = match and match[0]
    if literal is None or _value(literal) is None:
        return None
    return literal, at + len(literal)


def _result(text: str, at: int) -> str | None:
    """Return the result that begins at `at`, as Python code, or None if it isn't plain data or
    doesn't end its line.
    """
    if word := re.compile(r"(true|false|none|null)\b", re.IGNORECASE).match(text, at):
        end = word.end()
        value = repr(_WORDS[word[1].lower()])
    elif found := _longest(text, at):
        value, end = found
    else:
        return None
    line = text[end : text.find("\n", end) if "\n" in text[end:] else len(text)]
    return value if _TAIL.match(line) else None


def _plain_call(tree: ast.expr) -> bool:
    """Return True if the tree is a call whose arguments are plain data."""
    if not isinstance(tree, ast.Call) or any(k.arg is None for k in tree.keywords):
        return False
    values = [*tree.args, *(k.value for k in tree.keywords)]
    return all(_value(ast.unparse(value)) is not None for value in values)


def _value(code: str) -> tuple[object] | None:
    try:
        return (literal(code),)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
