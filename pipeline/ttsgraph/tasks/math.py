r"""Mathematical questions: a final answer, read from \boxed{} or plain text, graded by value rather
than by spelling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.rows import missing_field, row_id, text_field
from ttsgraph.tasks.symbolic import FormulaComparer

MOST_OF_ANSWER = 1000
"""Characters that any answer may have; what is longer is cut."""

MAX_SYMBOLIC = 200
"""Answers longer than this are compared as text only."""

AT_START = 500
AT_END = 3000
MOST_STATED = 20
"""Characters of a reply, or of what follows its thoughts, that an answer is looked for in."""

# Atomic groups (?>...), because "100,200,300, ..." can be cut into thousands in exponentially many
# ways.
_UNSIGNED = r"(?>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,400})(?:\.\d{1,400})?|\.\d{1,400})"
_PLAIN = re.compile(rf"[+-]?{_UNSIGNED}")
_GROUP = r"\{(?:[^{}]|\{[^{}]{0,80}\}){0,120}\}"
_ATOM = (
    rf"(?:\\(?:d|t)?frac\s?(?:{_GROUP}\s?{_GROUP}|\d\d)|\\sqrt(?:\[\d+\])?\s?(?:{_GROUP}|\d)|√\d+"
    rf"|\\(?:pi|infty|theta|alpha|beta)(?![A-Za-z])|[π∞]|{_UNSIGNED})"
)
_SCRIPT = rf"(?:[\^_](?:{_GROUP}|\\circ|-?\w)|!|°)"
# A value as a whole: sign, factors with their powers and bases, a ratio, a mixed number.
_VALUE = (
    rf"(?:(?<![\w)\]}}.])[-+±]\s?|(?<![\d.^_]))(?:{_UNSIGNED}(?:\s+|\s*and\s+)\d+/\d+|\d{{1,9}}:\d{{1,9}}(?![\d:])"
    rf"|{_ATOM}{_SCRIPT}{{0,2}}(?:\s?(?:\\cdot|\\times|[*/×·])?\s?{_ATOM}{_SCRIPT}{{0,2}}){{0,4}}(?:(?<=\d)i\b)?)"
)
_NUMBER = re.compile(_VALUE)
_ENTRY = (
    rf"\s{{0,3}}(?:-?\s?{_ATOM}{_SCRIPT}{{0,2}}(?:\s?[-+*/]?\s?{_ATOM}){{0,4}}|-?\\?infty|-∞)"
    r"\s{0,3}"
)
# A point, an interval, a set or a union of intervals: one answer, not one of its numbers.
_TUPLE = rf"(?:\\left\s?)?(?:\\\{{|[(\[]){_ENTRY}(?:,{_ENTRY}){{1,9}}(?:\\right\s?)?(?:\\\}}|[)\]])"
_TERM = r"(?:\\[a-z]{1,12}|(?<![A-Za-z])[A-Za-z](?![A-Za-z])|[\d{}()^_.!])"
# A formula without spaces: "x^2+2x+1", "3+4i", "n^2".
_JOINED = (
    rf"(?<![\w\\]){_TERM}{{1,40}}(?:[-+*/=]{_TERM}{{1,40}}){{1,8}}(?<![.])"
    r"|(?<![\w\\])(?<!\d )[a-z]\^\w"
)
_WHOLE = re.compile(rf"{_TUPLE}(?:\s?(?:\\cup|∪|U)\s?{_TUPLE}){{0,3}}|{_JOINED}|{_VALUE}")
_MIXED = re.compile(
    r"(-?)(\d{1,30})(?:\s*and\s+|\s+)?(?:\\frac\{(\d{1,30})\}\{(\d{1,30})\}|(?<=[\s])(\d{1,30})/(\d{1,30}))"
)
_RATIO = re.compile(r"(-?)(?:\\frac\{(-?\d+)\}\{(\d+)\}|\\frac(\d)(\d)|(\d+)/(\d+))")
_ONLY_NUMBERS = re.compile(
    rf"[\s=:*]*(-?{_UNSIGNED}(?:/\d+)?)(?:[\s,;]+-?{_UNSIGNED}(?:/\d+)?)*+[\s.,;*]*"
)
_STATED = re.compile(
    r"(?i:\banswer(?:s|\*\*)?\s{0,3}(?:to\s(?:the|this)\s\w+\s|here\s|therefore,?\s|then,?\s)?"
    r"(?:(?:is|are|would\sbe|should\sbe|must\sbe|will\sbe)(?:\s{0,3}:|\s(?:then|thus|therefore|simply|just))?|:|=))|####"
)
_INLINE = re.compile(r"\$\$?([^$]{1,400})\$|\\\((.{1,400}?)\\\)|\\\[(.{1,400}?)\\\]", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]{2,}")
_COMMAND = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s?\{[^{}]{0,400}\}|\\[A-Za-z]{1,40}")
# What names a value: "x", "f(2)", "a_1", "AB", "\text{Area}", or arithmetic.
_NAME = re.compile(
    r"\s*(?:[A-Za-z](?:_\w|_\{\w+\}|')?(?:\([^()]{0,40}\))?|[A-Z]{2,3}|\\(?:angle|overline)\s?\{?\s?[A-Z]{1,3}\}?|\|?[A-Z]{1,2}\|?|\\text\{[^{}]*\}|[a-z]\s?[+*]\s?[a-z]|[^A-Za-z=]+)\s*"
)
# Math delimiters, \left and \right, thin spaces, dollars, percent signs, bold; `\\ ` between a
# matrix's rows stays.
_SPACING = re.compile(r"(?<!\\)\\(?:left(?![A-Za-z])|right(?![A-Za-z])|[!,;: ()\[\]])|\\?[$%]|\*\*")
_THOUGHTS_END = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_FORMULA = re.compile(r"[\w\s\\{}()\[\]^+\-*/=<>.,;:!|&'°√∞×·÷≤≥≠±∪]+")
_comparer = FormulaComparer()


class MathTask:
    r"""Rows {question or problem, answer}, or {problem, solution} with the answer in the solution's
    last \boxed{}.
    """

    name = "math"
    instruction = "Solve the problem step by step. Put the final answer in \\boxed{}."

    def parse(self, row: Mapping[str, Any], where: str) -> Question:
        r"""A row as a Question. Raises DataError when there is no answer, or no \boxed{} in the
        solution that should hold it.
        """
        text = text_field(row, ("question", "problem"), "a question", where).strip()
        solution = row.get("solution")
        if row.get("answer") in (None, "") and isinstance(solution, str):
            answer = last_boxed(solution)
            if answer is None:
                raise missing_field(row, ("solution",), "an answer in \\boxed{}", where)
        else:
            answer = text_field(row, ("answer",), "an answer", where)
        return Question(row_id(row, self.name, text), text, normalise(answer))

    def render(self, question: Question) -> str:
        """The question as it is."""
        return question.text

    def extract(self, text: str) -> str | None:
        r"""The answer in normal form, by the rules of `answer_in`."""
        return answer_in(text)

    def reader(self) -> partial[str | None]:
        """How answers are read, as a function."""
        return partial(answer_in)

    def grade(self, question: Question, text: str) -> bool:
        r"""Whether the reply's answer equals the question's in value: \frac{1}{2} is 0.5. Safe in
        any thread.

        Raises CallFailed when formulas can't be compared because no child process can be had.
        """
        answer = self.extract(text)
        return answer is not None and same_value(normalise(question.answer), answer)

    def at_once(self, question: Question, answer: str | None) -> bool | None:
        """The same grade where texts or plain numbers tell it; None where formulas have to be
        compared.
        """
        return False if answer is None else same_plainly(normalise(question.answer), answer)


def answer_in(text: str) -> str | None:
    r"""The final answer in normal form (see `normalise`), by the first rule that applies.

    Values are taken whole: fractions, powers, bases, mixed numbers, points and intervals.

    1. the last \boxed{...};
    2. what follows the last "answer is", "answer:" or "####", up to the end of the sentence: a
       formula as it is, the first value of a phrase ("12 apples"), else the phrase;
    3. a first line of nothing but numbers ("12", "12, 13, 14") gives its first number;
    4. a one-line reply without words is a formula: what stands after "=" where the left side only
       names a value, else all of it;
    5. the last formula or value of the text, whichever comes later.
    """
    for ends in _THOUGHTS_END.finditer(text, max(0, len(text) - 100 * AT_END)):
        text = text[ends.end() :] if text[ends.end() :].strip() else text
    boxed = last_boxed(text[-2 * AT_END :])
    if boxed is not None:
        return normalise(boxed) or None
    if len(text) > AT_START + AT_END:
        text = f"{text[:AT_START]}\n{text[-AT_END:]}"
    text = re.sub(r"[^\S\n]{2,}", " ", text.replace("−", "-"))
    if answer := _stated(text):
        return answer
    plain = text.replace("$", "").strip()
    first, _, rest = plain.partition("\n")
    if numbers := _ONLY_NUMBERS.fullmatch(first[:AT_START]):
        return normalise(numbers[1])
    if plain and not rest.strip() and not _has_words(plain) and (answer := _right_side(plain)):
        return answer
    return _last_value(text)


def _stated(text: str) -> str | None:
    """What the last statement of an answer says, on its line or the next that says anything."""
    for found in reversed(list(_STATED.finditer(text))[-MOST_STATED:]):
        rest = text[found.end() : found.end() + 600].lstrip(" \t*:=")
        line = rest.lstrip().partition("\n")[0].strip()
        if rest[:1] == "\n" and _has_words(line) and not _INLINE.search(line):
            continue
        if said := _phrase(line):
            return said
    return None


def _last_value(text: str) -> str | None:
    """The last formula in math delimiters, or the last value, whichever comes later."""
    inlines = list(_INLINE.finditer(text))
    values = list(_WHOLE.finditer(text))
    inline = inlines[-1] if inlines else None
    found = values[-1] if values else None
    if inline is not None and (found is None or found.end() <= inline.end()):
        formula = inline[1] or inline[2] or inline[3]
        if re.search(r"\d|\\[a-z]", formula) or found is None:
            return _right_side(formula) or None
    return _right_side(found[0]) or None if found else None


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete \boxed{...} (or \fbox{...}, or `\boxed 7`), braces nested
    to any depth; else None.
    """
    if "box" not in text:
        return None
    closing: dict[int, int] = {}
    opened: list[int] = []
    for token in re.finditer(r"\\.|[{}]", text, re.DOTALL):  # \{ and \} are no braces
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}" and opened:
            closing[opened.pop()] = token.start()
    for match in reversed(list(re.finditer(r"\\(?:f?boxed|fbox)\s*(?=(\{)|[^\s{}$.,]+)", text))):
        start = match.end()
        if match[1] is None:
            return re.split(r"[\s{}$.,]", text[start : start + MAX_SYMBOLIC], maxsplit=1)[0]
        if start in closing:
            return text[start + 1 : closing[start]]
    return None


def normalise(answer: str) -> str:
    r"""One spelling for answers that differ in form only.

    Drops math delimiters, percent signs, \left, \right, thin spaces, a final period, spaces around
    operators and "x =" before a value; plain numbers lose thousands commas and needless zeros.

    "$1,200.0$." -> "1200", "x = 7.0" -> "7", "\dfrac{1}{2}" -> "\frac{1}{2}"
    """
    answer = answer[:MOST_OF_ANSWER]
    text = _SPACING.sub("", answer.replace("−", "-").replace("{,}", ","))
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = (
        re.sub(r" ?([-+*/=(),\[\]{}<>^|]) ?", r"\1", re.sub(r"\s+", " ", text))
        .strip()
        .rstrip(".")
        .strip()
    )
    if text.count("=") == 1 and "," not in text:
        text = re.sub(r"^[A-Za-z]=", "", text)
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", text)
    if len(text) > 100 or not _PLAIN.fullmatch(text):
        return text
    whole, _, part = text.replace(",", "").lstrip("+-").partition(".")
    whole = whole.lstrip("0") or "0"
    part = part.rstrip("0")
    sign = "-" if text[0] == "-" and (whole, part) != ("0", "") else ""
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"


def same_plainly(right: str, answer: str) -> bool | None:
    """Whether two normalised answers are equal as texts or numbers; None where neither tells."""
    if right == answer:
        return True
    numbers = fraction_of(right), fraction_of(answer)
    return None if None in numbers else numbers[0] == numbers[1]


@lru_cache(maxsize=4096)
def same_value(right: str, answer: str) -> bool:
    """Whether two normalised answers are equal: as text, as numbers, or by math-verify (which plain
    numbers never need).
    """
    plainly = same_plainly(right, answer)
    if plainly is not None:
        return plainly
    if max(len(right), len(answer)) > MAX_SYMBOLIC or not _may_be_formula(answer):
        return False
    return _comparer.equal(right, answer)


def _may_be_formula(text: str) -> bool:
    """Whether there is anything in a text that math-verify could make sense of."""
    return (
        _FORMULA.fullmatch(text) is not None
        and text.count("{") == text.count("}")
        and len(_WORD.findall(_COMMAND.sub("", text))) <= 4
    )


def fraction_of(text: str) -> Fraction | None:
    """The value of a normalised answer that is a plain number or a ratio; None for anything
    else.
    """
    if len(text) > 100:
        return None
    if _PLAIN.fullmatch(text):
        return Fraction(text.replace(",", ""))
    if match := _RATIO.fullmatch(text):
        above, below = [int(part) for part in match.groups()[1:] if part]
        return Fraction(-above if match[1] else above, below) if below else None
    if match := _MIXED.fullmatch(text):
        whole, above, below = [int(part) for part in match.groups()[1:] if part]
        value = whole + Fraction(above, below) if below else None
        return value if value is None or not match[1] else -value
    return None


def _phrase(stated: str) -> str:
    stated = re.sub(r"\\(?:f?boxed|fbox)\s?\{?", "", stated)  # a box that was never closed
    if inline := _INLINE.search(stated):
        return _right_side(inline[1] or inline[2] or inline[3])
    sentence = re.split(r"\.(?:\s|$)", stated)[0].strip(" *:$")
    if _has_words(sentence) and (value := _WHOLE.search(sentence)):
        return _right_side(value[0])
    return _right_side(sentence)


def _has_words(text: str) -> bool:
    return _WORD.search(_COMMAND.sub("", text[: 2 * AT_END])) is not None


def _right_side(formula: str) -> str:
    """What stands after the last "=", where the rest only names a value."""
    *names, value = formula[:MOST_OF_ANSWER].split("=")
    names = [re.sub(r"[$\s*]+|\\[\[(]", " ", name) for name in names]
    named = names and all(_NAME.fullmatch(name) for name in names[:1])
    return normalise(value if named and value.strip(" .$") else formula)


register_task(MathTask())
