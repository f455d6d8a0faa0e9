r"""Mathematical questions: a final answer, read from \boxed{} or plain text, graded by value rather
than by spelling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

from ttsgraph.tasks.base import Question, register_task
from ttsgraph.tasks.rows import missing_field, row_id, text_field
from ttsgraph.tasks.symbolic import FormulaComparer

MAX_SYMBOLIC = 200
"""Answers longer than this are compared as text only."""

# Atomic groups (?>...), because "100,200,300, ..." can be cut into thousands in exponentially many
# ways.
_UNSIGNED = r"(?>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
# A minus counts as a sign only where no operand stands before it, so that "9-3" ends in 3 and "=
# -3" in -3.
_NUMBER = re.compile(rf"(?:(?<![\w)\]}}])-|(?<![\d.])){_UNSIGNED}(?:/\d+)?")
_PLAIN = re.compile(rf"[+-]?{_UNSIGNED}")
_RATIO = re.compile(r"(-?)(?:\\frac\{(-?\d+)\}\{(\d+)\}|\\frac(\d)(\d)|(\d+)/(\d+))")
_ONLY_NUMBERS = re.compile(
    rf"[\s=:*]*(-?{_UNSIGNED}(?:/\d+)?)(?:[\s,;]+-?{_UNSIGNED}(?:/\d+)?)*+[\s.,;*]*"
)
_STATED = re.compile(r"(?i:\banswer\s*(?:is\s*:?|:|=)|####)[ \t]*(\S.*)")
_INLINE = re.compile(r"\$([^$]+)\$|\\\((.+?)\\\)")
_WORD = re.compile(r"[A-Za-z]{2,}")
_COMMAND = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{[^{}]*\}|\\[A-Za-z]+")
# Math delimiters, \left and \right, thin spaces, dollars, percent signs, bold; `\\ ` between a
# matrix's rows stays.
_SPACING = re.compile(r"(?<!\\)\\(?:left(?![A-Za-z])|right(?![A-Za-z])|[!,;: ()\[\]])|\\?[$%]|\*\*")
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

    1. the last \boxed{...};
    2. what follows the last "answer is", "answer:" or "####", up to the end of the sentence: a
       formula as it is, the first number of a phrase ("12 apples"), else the phrase;
    3. a first line of nothing but numbers ("12", "12, 13, 14") gives its first number;
    4. a one-line reply without words is a formula: what stands after "=" where the left side is
       arithmetic, else all of it;
    5. the last number of the text.
    """
    boxed = last_boxed(text)
    if boxed is not None:
        return normalise(boxed) or None
    plain = text.replace("−", "-").replace("$", "").strip()
    stated = _STATED.findall(text)
    if stated and (answer := _phrase(stated[-1])):
        return answer
    first, _, rest = plain.partition("\n")
    if numbers := _ONLY_NUMBERS.fullmatch(first):
        return normalise(numbers[1])
    if (
        plain
        and not rest.strip()
        and not _has_words(plain)
        and (answer := _right_side(normalise(plain)))
    ):
        return answer
    found = _NUMBER.findall(plain)
    return normalise(found[-1]) if found else None


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete \boxed{...} (or \fbox{...}, or `\boxed 7`), braces nested
    to any depth; else None.
    """
    if "boxed" not in text:
        return None
    closing: dict[int, int] = {}
    opened: list[int] = []
    for token in re.finditer(r"\\.|[{}]", text, re.DOTALL):  # \{ and \} are no braces
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}" and opened:
            closing[opened.pop()] = token.start()
    for match in reversed(list(re.finditer(r"\\f?boxed\s*(?=(\{)|[^\s{}$.,]+)", text))):
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
    text = _SPACING.sub("", answer.replace("−", "-").replace("{,}", ","))
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = (
        re.sub(r"\s*([-+*/=(),\[\]{}<>^|])\s*", r"\1", re.sub(r"\s+", " ", text))
        .strip()
        .rstrip(".")
        .strip()
    )
    if text.count("=") == 1 and "," not in text:
        text = re.sub(r"^[A-Za-z]=", "", text)
    if len(text) > 100 or not _PLAIN.fullmatch(text):
        return text
    number = Decimal(text.replace(",", ""))
    return f"{number:f}".rstrip("0").rstrip(".") if number % 1 else str(int(number))


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
    if max(len(right), len(answer)) > MAX_SYMBOLIC:
        return False
    return _comparer.equal(right, answer)


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
    return None


def _phrase(stated: str) -> str:
    stated = re.sub(r"\\f?boxed\s*\{?", "", stated.replace("−", "-"))  # a box that was never closed
    if inline := _INLINE.search(stated):
        return normalise(inline[1] or inline[2])
    sentence = re.split(r"\.(?:\s|$)", stated)[0].strip(" *:")
    number = _NUMBER.search(sentence) if _has_words(sentence) else None
    return normalise(number[0] if number else sentence)


def _has_words(text: str) -> bool:
    return _WORD.search(_COMMAND.sub("", text)) is not None


def _right_side(formula: str) -> str:
    left, equals, right = formula.rpartition("=")
    return right if equals and not re.search(r"[A-Za-z]", left) else formula


register_task(MathTask())
