"""Extraction of the program from a model's reply: from Markdown, from among drafts, from between
lines of prose, or from JSON or a diff.

Python's own parser and symbol tables decide whether a text is a program and what it defines; the
look of the text never does.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import html
import re
import symtable
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, islice

from codecheck.naming import alias_of
from codecheck.parsing import parse, spend, within_bounds
from codecheck.wrappings import in_here_documents, strings_in, unwrapped, values_in

MOST_LINES = 2000
MOST_CHARACTERS = 100_000
"""Maximum numbers of lines and of characters that are read from a reply; the longest program that a
task requires has far fewer.
"""

MOST_ATTEMPTS = 200
"""Maximum number of lines or tags removed from a reply to find the program between them."""

MOST_AHEAD = 200
"""Number of leading lines that are searched for an error before all lines are."""

MOST_AT_ONCE = 20
"""Maximum number of complete lines that are parsed again, rather than skipped, after a line below
them is removed.
"""

MOST_BLOCKS = 100
"""Maximum number of blocks read in a reply."""

MOST_ENDS = 20
"""Maximum number of places tried as the end of a block."""

EACH_LINE = 30
"""Work that is counted for copying one line of a block, in the units of MOST_WORK."""

MOST_OF_TAG = 200
"""Maximum number of characters of a tag or token at a reply's end."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_THOUGHT_ENDS = re.compile(
    r"</(?:think|thinking|thought|reasoning|scratchpad)>|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
# A fence may be in a quotation or a list, or follow words on its line; any text after it may
# describe the block.
_OPENS = re.compile(
    r"(?P<before>[ \t]*+(?:>[ \t]?)*+(?:(?:[-*+]|\d+[.)])["
    r" \t]+)?+)(?P<words>[^`~]*?)(?P<fence>`{3,}|~{3,})(?P<says>[^`]*)"
)
_CLOSES = re.compile(r"[ \t]*+(?:>[ \t]?)*+[ \t]*+(`{3,}|~{3,})")
_BEGINS_STATEMENT = re.compile(r"(?!(?:else|elif|except|finally)\b)[^\s)\]}]")
_QUOTED = re.compile(r"[ \t]*>[ \t]?")
# Tokens of chat templates and tags of web pages, which may surround a text but are not Python.
_TOKEN = r"(?:<\|\w+\|>|</s>|<eos>|<end_of_turn>|\[/?INST\])"
_FIRST_TOKENS = re.compile(rf"(?:\s*{_TOKEN})*")
_LAST_TOKEN = re.compile(rf"{_TOKEN}\s*\Z")
_FIRST_TAGS = re.compile(r"(?:\s*<[a-z][^<>\n]*>)+(?:[ \t]*\n)*", re.IGNORECASE)
_LAST_TAG = re.compile(r"</[a-z][^<>\n]*>\s*\Z", re.IGNORECASE)
_BLANKS_OF_PAGES = re.compile(r"^[ \t\u00a0\ufeff\u200b]+", re.MULTILINE)
_ON_A_PAGE = re.compile(
    r"^[ \t]*<pre[^>\n]*>(?:\s*<code[^>\n]*>)?(.*?)(?:</code>\s*)?</pre>",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)
_PAGE_ENDS = re.compile("</pre>", re.IGNORECASE)
_QUOTES_FOR_FENCES = re.compile(
    r"^[ \t]*('''|\"\"\")[ \t]*py(?:thon)?[\d.]*[ \t]*\n(.*)\n[ \t]*\1[ \t]*$",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)
_FUTURE = re.compile(r"^from __future__ import .*$", re.MULTILINE)


@within_bounds
def program_of(
    reply: str, function: str | None = None, given: str = "", parameters: Sequence[str] = ()
) -> str | None:
    """Return a reply's module that defines this function (or any function, if None is given), or
    None if there is no such module.

    The module is the last code block that defines the function, joined with blocks that define
    names missing from it. In a reply without blocks, it consists of the lines that are Python. The
    text after the model's reasoning is tried before the whole reply. If neither defines the
    function, other sources are tried in this order: JSON, if only one string in it defines the
    function; the file produced by a diff; the reply without other wrappings; and, if `parameters`
    are given, a function with another name. Names defined by the code `given` are not missing.
    """
    if function not in reply if function else "def" not in reply:
        if not (function and parameters and ("def" in reply or "lambda" in reply)):
            return None
        texts = list(dict.fromkeys([answer_of(reply), _lines_joined(reply)]))
        meant = (_meant(text, function, given, parameters) for text in texts)
        return next((module.text for module in meant if module is not None), None)
    texts = list(dict.fromkeys([answer_of(reply), _lines_joined(reply)]))
    quoted = [_QUOTES_FOR_FENCES.sub(r"```python\n\2\n```", text) for text in texts]
    readings: tuple[Iterable[_Module | None], ...] = (
        # Texts with their fence-like quotes replaced are tried first, because the code within such
        # quotes may itself contain triple quotes.
        (_in_text(text, function, given) for text in _with_documents(quoted + texts)),
        (_in_json(text, function, given) for text in texts),
        (_in_diff(text, function, given) for text in texts),
        (
            _in_text(other, function, given)
            for text in texts
            for other in unwrapped(text)
            if other not in ("", text)
        ),
        (_meant(text, function, given, parameters) for text in texts if function and parameters),
    )
    found = next((module for module in chain(*readings) if module is not None), None)
    # A mere stub is no answer: a body in a separate block has to complete it.
    return found.text if found is not None and found.writes(function) else None


def _with_documents(texts: Sequence[str]) -> Iterator[str]:
    """Yield the files that are written by each text's shell commands, and then the text itself,
    without duplicate texts. The files come first because the commands themselves may parse as
    Python.
    """
    for text in dict.fromkeys(texts):
        yield from in_here_documents(text)
        yield text


def _in_text(text: str, function: str | None, given: str) -> _Module | None:
    """Return the program in the blocks of a text, or else between its lines of prose."""
    blocks = [] if _has_fences_in_strings_only(text) else blocks_of(text)
    modules = [module for block in blocks if (module := _readable(block)) is not None]
    return _joined(modules, function, given) or _between_prose(text, function)


def _meant(text: str, function: str, given: str, parameters: Sequence[str]) -> _Module | None:
    """Return the program in the last block that has the function under another name, or None."""
    if not (blocks := blocks_of(text)):
        if text[:1].isspace() and "def" not in text.split("\n")[0]:
            return None  # the text is a function's body, followed by other functions
        blocks = [_without_prose(text.split("\n"))]
    modules = [module for block in blocks if (module := _readable(block)) is not None]
    for number, module in reversed(list(enumerate(modules))):
        if alias := alias_of(module.text, function, parameters):
            named = _module(f"{module.text}\n{alias}\n")
            return named and _joined([*modules[:number], named], function, given)
    return None


def answer_of(reply: str) -> str:
    """Return the part of a reply after its reasoning, or the whole reply if it shows none."""
    return _THOUGHT_ENDS.split(_lines_joined(reply))[-1]


def _lines_joined(reply: str) -> str:
    """Return a reply cut to the maximum length, with normal line ends and spaces, without
    surrounding tokens and tags, and with HTML code as blocks.
    """
    text = "\n".join(_LINE_END.split(reply[:MOST_CHARACTERS])[:MOST_LINES])
    text = _BLANKS_OF_PAGES.sub(_blanks, _between(_FIRST_TOKENS, text, _LAST_TOKEN).rstrip())
    end = max((each.end() for each in _PAGE_ENDS.finditer(text)), default=0)
    page = _ON_A_PAGE.search(text, 0, end)
    if page is None:
        return _between(_FIRST_TAGS, text, _LAST_TAG)
    in_blocks = "```" in text[: page.start()]
    return text if in_blocks else _ON_A_PAGE.sub(_block_of_page, text[:end]) + text[end:]


def _between(first: re.Pattern[str], text: str, last: re.Pattern[str]) -> str:
    """Return a text without matches of `first` at its beginning and of `last` at its end."""
    begins = found.end() if (found := first.match(text)) else 0
    end = len(text)
    for _ in range(MOST_ATTEMPTS):
        if (found := last.search(text, max(begins, end - MOST_OF_TAG), end)) is None:
            break
        end = found.start()
    return text[begins:end]


def _blanks(found: re.Match[str]) -> str:
    return found[0].replace("\u00a0", " ").replace("\ufeff", "").replace("\u200b", "")


def _block_of_page(found: re.Match[str]) -> str:
    return f"`````\n{html.unescape(found[1])}\n`````"


@dataclass(frozen=True, slots=True)
class _Module:
    """Valid program, with the names that it defines and the names that it uses but lacks."""

    text: str
    defines: frozenset[str]
    imports: frozenset[str]
    functions: frozenset[str]
    lacks: frozenset[str]
    stubs: frozenset[str]
    """Functions whose body is only a placeholder."""

    def has(self, function: str | None) -> bool:
        """Return True if the program defines this function, or any function if None."""
        return bool(self.functions) if function is None else function in self.defines

    def writes(self, function: str | None) -> bool:
        """Return True if this function, or any function if None, is not a stub."""
        return bool(self.functions - self.stubs) if function is None else function not in self.stubs


@lru_cache(maxsize=512)
def _read(text: str) -> _Module | Exception:
    """Return a text as a program, or the error that makes it invalid."""
    try:
        tree = parse(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = symtable.symtable(text, "reply", "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return error.with_traceback(None)
    symbols = table.get_symbols()
    imports = frozenset(s.get_name() for s in symbols if s.is_imported())
    defines = imports | {s.get_name() for s in symbols if s.is_assigned()}
    functions = {
        s.name: s for s in tree.body if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    stubs = frozenset(name for name, statement in functions.items() if _is_stub(statement))
    lacks = frozenset(_used(table)) - defines - set(dir(builtins))
    return _Module(text, defines, imports, frozenset(functions), lacks, stubs)


def _module(text: str) -> _Module | None:
    found = _read(text)
    return found if isinstance(found, _Module) else None


def _is_stub(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if the function's body is only a docstring, `...`, `pass` or a raised
    NotImplementedError.
    """
    return all(
        isinstance(s, ast.Pass)
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        or (isinstance(s, ast.Raise) and "NotImplemented" in ast.dump(s))
        for s in function.body
    )


def _used(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the global names used by this scope of a module and by the scopes within it."""
    for symbol in table.get_symbols():
        used = symbol.is_referenced() or symbol.is_declared_global()
        if used and (table.get_type() == "module" or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _used(inner)


def _readable(block: Sequence[str]) -> _Module | None:
    """Return the program in a code block, or None. The block may be indented as a whole, contain
    prose, or end in a truncated statement.
    """
    lines = textwrap.dedent("\n".join(block)).split("\n")
    return (
        _module("\n".join(lines))
        or _module("\n".join(_without_prose(lines)))
        or _without_end(lines)
    )


def _without_end(lines: Sequence[str]) -> _Module | None:
    """Return the program in the lines before an invalid top-level statement, or None."""
    # Only a cut before the error can help.
    end = getattr(_read("\n".join(lines)), "lineno", None)
    margins = [
        number
        for number, line in enumerate(lines[:end])
        if line[:1] not in ("", " ", "\t", ")", "]", "}", "#")
    ]
    cuts = (_module("\n".join(lines[:end])) for end in reversed(margins[1:][-MOST_ENDS:]))
    return next((module for module in cuts if module is not None), None)


def _joined(modules: Sequence[_Module], function: str | None, given: str) -> _Module | None:
    """Return the last module that defines the function, joined with other modules that define names
    missing from it, or None if no module defines the function.
    """
    having = [number for number, module in enumerate(modules) if module.has(function)]
    if not having:
        return None
    # A module that imports the function probably only tests it.
    having = [k for k in having if function not in modules[k].imports] or having
    last = max(having, key=lambda number: (modules[number].writes(function), number))
    known = _module(given)
    taken = {last}
    lacks = modules[last].lacks - (known.defines if known else frozenset())
    for number in sorted(range(len(modules)), key=lambda n: (n > last, -n)):
        if number not in taken and modules[number].defines & lacks:
            taken.add(number)
            lacks = (lacks | modules[number].lacks) - modules[number].defines
    if len(having) == len(modules) == 1:
        return modules[last]
    # The __future__ imports of a block also apply to the blocks after it, and have to come first.
    future = [line for module in modules[: last + 1] for line in _FUTURE.findall(module.text)]
    texts = [_FUTURE.sub("", modules[number].text) for number in sorted(taken)]
    return _module("\n\n".join([*dict.fromkeys(future), *texts])) or modules[last]


def blocks_of(text: str) -> list[list[str]]:
    """Return the lines of each code block in a Markdown text, without the prefixes of lists and
    quotations.

    Because a docstring may contain fences, a block ends at the first fence before which its lines
    are a program, or else at the first fence that isn't in a string.
    """
    lines = text.split("\n")
    blocks: list[list[str]] = []
    at = 0
    while at < len(lines) and len(blocks) < MOST_BLOCKS:
        opens = _opens(lines[at])
        at += 1
        if opens is None:
            continue
        indent = "" if opens["words"] else opens["before"]
        ends = [*islice(_ends(lines, at, opens["fence"]), MOST_ENDS), (len(lines), [])]
        alone = [(end, last) for end, last in ends if not last]
        inside = partial(_inside, lines, at, indent)
        end, last = (
            next((each for each in ends if _is_program(inside(*each))), None)
            or next((each for each in alone if not _ends_in_string(inside(*each))), None)
            or alone[0]
        )
        block = inside(end, last)
        blocks.append(block)
        # A closing fence with a description also opens the next block: the current block was never
        # closed.
        closing = lines[end] if end < len(lines) else ""
        at = end if _CLOSES.match(closing) and closing.strip(" \t>`~") else end + 1
    return blocks


def _inside(lines: Sequence[str], at: int, indent: str, end: int, last: Sequence[str]) -> list[str]:
    """Return the lines of a block, including its part of the closing line, without the indentation
    of its opening fence.
    """
    inside = [*lines[at:end], *last]
    spend(EACH_LINE * len(inside))
    return [_outdented(line, indent) if indent or "\t" in line else line for line in inside]


def _ends(lines: Sequence[str], at: int, fence: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line that may close a block, with the block's part of that line: the
    text before the fence.
    """
    for number in range(at, len(lines)):
        line = lines[number]
        if (closes := _CLOSES.match(line)) and closes[1].startswith(fence):
            yield number, []
        elif line.rstrip().endswith(fence):
            yield number, [line.rstrip().rstrip(fence[0])]


def _opens(line: str) -> re.Match[str] | None:
    """Return the match of a line's opening fence, or None. If there is text before the fence, at
    most one word may follow it.
    """
    opens = _OPENS.fullmatch(line)
    return None if opens and opens["words"].strip() and len(opens["says"].split()) > 1 else opens


def _is_program(block: Sequence[str]) -> bool:
    return (
        any(line.strip() for line in block)
        and _module(textwrap.dedent("\n".join(block))) is not None
    )


def _ends_in_string(block: Sequence[str]) -> bool:
    error = _read(textwrap.dedent("\n".join(block)))
    return isinstance(error, SyntaxError) and "unterminated triple-quoted" in error.msg


@lru_cache(maxsize=MOST_LINES)
def _outdented(line: str, indent: str) -> str:
    """Return a line of a block without the indentation of the block's fence."""
    for _ in range(indent.count(">")):
        line = _QUOTED.sub("", line, count=1)
    # The space after the last ">" has already been removed.
    after = indent.rpartition(">")[2]
    width = len((after[1:] if ">" in indent else after).expandtabs())
    blank = len(line) - len(line.lstrip(" \t"))
    lead = line[:blank].expandtabs()
    return lead[min(width, len(lead)) :] + line[blank:]


def _between_prose(text: str, function: str | None) -> _Module | None:
    """Return the program in a text without blocks, after removing lines that aren't Python."""
    if (session := _session(text)) is not None and session.has(function):
        return session
    lines = textwrap.dedent(text).split("\n")
    kept = _without_prose(lines)
    found = _module("\n".join(kept))
    found = _without_end(kept) if found is None else _module(_without_words(found))
    if found is not None and found.has(function):
        return found
    modules = [module for block in _indented(lines) if (module := _readable(block)) is not None]
    return _joined(modules, function, "")


def indented_blocks(text: str) -> list[str]:
    """Return the code blocks of a text that are marked by indentation, as in Markdown."""
    return ["\n".join(block) for block in _indented(text.split("\n"))]


def _indented(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the code blocks marked by indentation; each follows a line of text and a blank line."""
    block: list[str] = []
    words = blank = True
    for line in [*lines, "."]:
        if line[:1] in (" ", "\t") or not line.strip():
            if block or (line.strip() and words and blank):
                block.append(line)
            blank = not line.strip()
            continue
        if block:
            yield block
        block = []
        # A line that heads the indented lines below it, such as "if x:", is code and not text.
        words = _module(f"{line}\n    pass") is None
        blank = False


def _in_json(text: str, function: str | None, given: str) -> _Module | None:
    """Return the program in the strings of a text's JSON objects if exactly one module in them
    defines the function, or else None.
    """
    strings = dict.fromkeys(string for value in values_in(text) for string in strings_in(value))
    modules = []
    for string in strings:
        blocks = [] if _module(string) else blocks_of(_lines_joined(string))
        modules += [m for block in blocks or [string.split("\n")] if (m := _readable(block))]
    having = [
        module for module in modules if module.has(function) and function not in module.imports
    ]
    if len(having) != 1:
        return None
    others = [module for module in modules if not module.has(function)]
    return _joined([*others, *having], function, given)


def _in_diff(text: str, function: str | None, given: str) -> _Module | None:
    """Return the program that a diff produces, or None.

    The whole text is searched for a diff before its blocks are, because a line added by a diff can
    look like a fence.
    """
    for among in ([text.split("\n")], blocks_of(text)):
        sides = [side for lines in among for side in _new_sides(lines)]
        found = _joined([m for side in sides if (m := _readable(side))], function, given)
        if found is not None:
            return found
    return None


def _new_sides(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield, for each diff among these lines, the lines that it adds or keeps."""
    side: list[str] = []
    only = within = all(line[:1] in ("", " ", "+", "-", "@", "\\") for line in lines)
    for line in [*lines, "."]:
        if line.startswith(("+++ ", "--- ")) or not (
            line.startswith(("+", "@@ ")) or (within and line[:1] in ("", " ", "-", "\\", "@"))
        ):
            if side:
                yield side
            side = []
            within = only
            continue
        within = True
        if line[:1] in ("", " ", "+"):
            side.append(line[1:])


def _has_fences_in_strings_only(text: str) -> bool:
    """Return True if every fence in a text is within a string of a program; with a fence outside
    strings, the text isn't Python.
    """
    kept = _without_prose(textwrap.dedent(text).split("\n"), _CLOSES)
    return _module("\n".join(kept)) is not None


def _session(text: str) -> _Module | None:
    """Return the program typed in an interactive session, or None if the text has no session."""
    if not any(line.lstrip().startswith(">>> ") for line in text.split("\n")):
        return None
    try:
        return _module(doctest.script_from_examples(text))
    except ValueError:
        return None


def _without_prose(lines: Sequence[str], keeps: re.Pattern[str] | None = None) -> list[str]:
    """Return the lines, after emptying those that Python's parser refuses and that belong to no
    statement.

    A refused line is emptied only if it is unindented or directly below another emptied line. The
    search stops at the first refused line that can't be emptied or matches `keeps`.
    """
    kept = list(lines)
    left_out: set[int] = set()
    begins = 0
    for _ in range(MOST_ATTEMPTS):
        number = _refused(kept[begins:])
        if number is None and begins:  # parts that are valid separately may be invalid together
            begins = 0
            number = _refused(kept)
        number = None if number is None else begins + number
        if number is None or not kept[number].strip() or (keeps and keeps.match(kept[number])):
            break
        above = next((n for n in range(number - 1, -1, -1) if lines[n].strip()), None)
        if kept[number][0].isspace() and above is not None and above not in left_out:
            break
        kept[number] = ""
        left_out.add(number)
        begins = _parsed_to(kept, begins, number)
    return kept


def _parsed_to(lines: Sequence[str], begins: int, number: int) -> int:
    """Return the number of the line before which the statements that start at `begins` are complete
    and needn't be parsed again.
    """
    places = range(number, begins + MOST_AT_ONCE, -1)
    place = next((n for n in places if _BEGINS_STATEMENT.match(lines[n])), begins)
    return place if place > begins and _module("\n".join(lines[begins:place])) else begins


def _refused(lines: Sequence[str]) -> int | None:
    """Return the number of the first line that makes these lines invalid, or None."""
    error = _read("\n".join(lines[:MOST_AHEAD]))
    if len(lines) > MOST_AHEAD and not _is_told(error):  # the error may be in the following lines
        error = _read("\n".join(lines))
    if not isinstance(error, SyntaxError):
        return None
    number = min(max(error.lineno or 1, 1), len(lines)) - 1
    # Python reports this error for the line below the one that lacks a block.
    if isinstance(error, IndentationError) and "expected an indented block" in error.msg:
        number = next((n for n in range(number - 1, -1, -1) if lines[n].strip()), number)
    return number


def _is_told(error: object) -> bool:
    """Return True if no later line can resolve the error, as a closing bracket could."""
    known = isinstance(error, SyntaxError) and 0 < (error.lineno or 0) < MOST_AHEAD // 2
    return known and not re.search(r"never closed|unterminated|EOF", str(error))


def _without_words(module: _Module) -> str:
    """Return a program's text without statements that only name something or call an undefined
    name: these are probably prose that happens to parse as Python.
    """
    lines = module.text.split("\n")
    for statement in parse(module.text).body:
        if _is_words(statement, module.lacks):
            end = statement.end_lineno or statement.lineno
            lines[statement.lineno - 1 : end] = [""] * (end - statement.lineno + 1)
    return "\n".join(lines)


def _is_words(statement: ast.stmt, lacks: frozenset[str]) -> bool:
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in lacks
    return not isinstance(value, ast.Constant | ast.Await | ast.NamedExpr)
