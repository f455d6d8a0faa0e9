"""`python -m lab.words`: refuse docstrings, comments and messages that aren't plain English.

A docstring is an imperative sentence or a noun phrase. `make check` runs this; each line of its
output names the file, the line, the word found and a better one.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOMS = ("pipeline", "flows", "lab", "checker/codecheck", "reader/finalanswer")
"""Folders that are checked by default."""
OPENINGS = {
    "what": "a noun: `Cost of ...`, `Result of ...`",
    "whether": "`True if ...` or `Return whether ...`",
    "how": "a noun or a verb: `Number of ...`, `Return ...`",
    "ones?(?= (?:that|who|whose|which|with|without|of|to|in|by|at|for|more|as|and)\\b)": "the noun",
    "where": "`Path of ...`, `If ...`",
    "as": "`Like ...`, or a noun",
    "which": "a noun: `Index of ...`",
    "who": "a noun",
    "whom": "a noun",
    "whose": "a noun",
    "why": "`Return why ...`, `Reason ...`",
    "of": "the noun first",
    "by": "the noun first: `Cost by model`",
    "those": "the noun",
    "that": "the noun",
    "nothing": "`Return ... or None`",
    "none": "`Return ... or None`",
    "so": "a noun or a verb",
    "for": "the noun first",
    "to": "a verb",
}
"""Patterns for a docstring's first word, each with a better opening."""
SHAPE = r"(?:\([^)]*\)|\[[^\]]*\])?\W*"
"""Pattern for an array's shape, such as `(n,)`, before a docstring's first word."""
WORDS = {
    r"(?:none|nothing|empty|nan|0|1|\"\") where\b": "if",
    r"where there (?:is|are)\b": "if there is",
    r"raises \w+ where\b": "Raises ... if",
    r"\balone\b": "only, by itself",
    r"\b(?:stand|stands|stood)\b(?!-)": "is, is listed, ranks",
    r"\b(?:that|those) of\b": "repeat the noun",
    r"\btold\b": "reported, given",
    r"\bbeside\b": "next to, besides",
    r"\b(?:goes|go|went|going|gone) on\b": "continues",
    r"\bat once\b": "immediately; in parallel",
    r"\b(?:some|no)body\b": "the caller, a user; no caller",
    r"\bcom(?:es|e|ing) to\b|\bcame (?:to|of)\b": "result, outcome",
    r"\bdear(?:er|est)?\b": "expensive",
    r"\bbut for\b": "except",
    r"\banew\b": "again",
    r"\bputs? up\b": "select, selected",
    r"\bvoices?\b": "voter, vote",
    r"\bof (?:its|their|one's|your) own\b": "its own ..., separate",
    r"\b(?:is|are) of\b(?! (?:no|any|little|much|some) use)": "belongs to, has",
    r"\b(?:hear|hears|heard)\b": "receive, read",
    r"\bspoil(?:s|t|ed|er|ers)?\b": "break, breaking",
    r"(?:^|[.;:,] )one that\b": "a/an and the noun",
    r"\b(?:so|as) many\b(?! \w+(?: \w+)? as\b| as\b)": "`count`, that number of",
    r"\bin words\b": "as text",
}
"""Patterns for words to avoid in docstrings, comments and messages, each with a better word."""
SPEAKERS = {"debug", "info", "warning", "error", "exception", "warn", "print", "echo", "secho"}
"""Functions and methods whose arguments are messages, like the texts of raised errors."""


PROMPTS = {
    "pipeline/ttsgraph/graphs/graph.py": "message",
    "pipeline/ttsgraph/graphs/router.py": "message",
    "pipeline/ttsgraph/searching/agent/answers.py": "docstring",
}
"""Kind of text, by file, that is not checked, because it is part of prompts and so of recorded
calls.
"""


class Text(NamedTuple):
    """Docstring, comment or message in a module, with its line and kind."""

    line: int
    kind: str
    text: str


class Finding(NamedTuple):
    """Word to change in a text, with the text's line and kind, and a better word."""

    line: int
    kind: str
    found: str
    better: str


def docstrings(tree: ast.Module) -> Iterator[Text]:
    """Yield the docstrings of a module and its classes and functions, and the strings below
    attributes.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        statements = node.body if isinstance(node, ast.Module | ast.ClassDef) else node.body[:1]
        for each in statements:
            match each:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield Text(each.lineno, "docstring", text)


def comments(source: str) -> Iterator[Text]:
    """Yield the comments in a module's source; comments on consecutive lines count as one."""
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start != (block[-1].start[0] + 1, block[-1].start[1]):
            yield _joined(block)
            block = []
        block.append(token)
    if block:
        yield _joined(block)


def messages(tree: ast.Module) -> Iterator[Text]:
    """Yield the texts of raised errors, warnings and printed lines."""
    for node in ast.walk(tree):
        spoken: Sequence[ast.AST] = ()
        if isinstance(node, ast.Raise) and node.exc:
            spoken = [node.exc]
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            spoken = node.args if name in SPEAKERS else ()
        for part in spoken:
            for each in ast.walk(part):
                if isinstance(each, ast.JoinedStr):
                    pieces = [v.value if isinstance(v, ast.Constant) else "{}" for v in each.values]
                    yield Text(each.lineno, "message", "".join(map(str, pieces)))
                elif isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield Text(each.lineno, "message", each.value)


def findings(source: str) -> list[Finding]:
    """Return the words to change in a module's source; a word counts once per line."""
    tree = ast.parse(source)
    found = set()
    for line, kind, raw in (*docstrings(tree), *comments(source), *messages(tree)):
        text = " ".join(re.sub(r"`[^`]*`", "``", raw).split())
        for pattern, better in OPENINGS.items() if kind == "docstring" else ():
            if first := re.match(rf"{SHAPE}({pattern})\b", text, re.IGNORECASE):
                found.add(Finding(line, kind, first[1] + " ...", better))
        for pattern, better in WORDS.items():
            for match in re.finditer(pattern, text, re.IGNORECASE):
                found.add(Finding(line, kind, match[0], better))
    return sorted(found)


def main(arguments: Sequence[str]) -> int:
    """Print the findings in these files and folders (by default, in ROOMS); return 1 if there are
    any, else 0.
    """
    places = [Path(each) for each in arguments or ROOMS]
    count = 0
    for place in places:
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            for line, kind, found, better in findings(path.read_text(encoding="utf-8")):
                if kind == PROMPTS.get(path.as_posix()):
                    continue
                print(f"{path}:{line}: {kind} has {found!r}; better: {better}")
                count += 1
    if count:
        print(f"error: expected plain English; words to change: {count}", file=sys.stderr)
    return int(count > 0)


def _joined(block: list[tokenize.TokenInfo]) -> Text:
    return Text(block[0].start[0], "comment", " ".join(each.string[1:] for each in block))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
