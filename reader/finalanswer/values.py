r"""Final answers that are a number or a formula: their extraction from \boxed{} or plain text, and
their comparison by value rather than by spelling.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from finalanswer.comparer import FormulaComparer
from finalanswer.formulas import NUMERALS, UNSIGNED, formulas_in, has_words, in_latex
from finalanswer.turns import after_thoughts, first_turn

MOST_OF_ANSWER = 1000
"""Maximum number of characters of an answer; longer answers are cut."""

MAX_SYMBOLIC = 200
"""Maximum number of characters of an answer that math-verify compares."""

AT_START = 500
AT_END = 3000
MOST_STATED = 20
MOST_OF_SENTENCE = 500
"""Limits on the search for an answer: characters at the start and at the end of a reply, statements
or sentences from the end, and characters of a sentence.
"""

_PLAIN = re.compile(rf"[+-]?{UNSIGNED}")
_MIXED = re.compile(
    r"(-?)(\d{1,30})(?:\s*and\s+|\s+|\+)?(?:\\frac\{(\d{1,30})\}\{(\d{1,30})\}|(?<=[\s])(\d{1,30})/(\d{1,30}))"
)
_RATIO = re.compile(r"(-?)(?:\\frac\{(-?\d+)\}\{(-?\d+)\}|\\frac(\d)(\d)|(\d+)/(\d+))")
_POWER_OF_TEN = re.compile(rf"([+-]?{UNSIGNED})\\times10\^(?:\{{(-?\d{{1,3}})\}}|(\d))")
_REPEATING = re.compile(r"-?(\d{0,20})\.(\d{0,20})\\overline\{?(\d{1,20})\}?")
_BASED = re.compile(r"([\dA-Z]{1,90})_\{?(\d{1,2})\}?")
_ONLY_NUMBERS = re.compile(
    rf"[\s=:*]*(-?{UNSIGNED}(?:/\d+)?)(?!,\d)(?:[\s,;]+-?{UNSIGNED}(?:/\d+)?)*+[\s.,;*]*"
)
_SPACED = re.compile(r"[\s=:*]*(-?\d{1,3}(?: \d{3})+)[\s.*]*")
_BEGINS_WITH_VALUE = re.compile(r"(?!\s*Q)[^\n]*\d")
_STATED = re.compile(
    r"""(?i:\banswer(?:s|\*\*|\")?\s{0,3}
      (?:to\s(?:the|this)\s\w+\s|here\s|therefore,?\s|then,?\s)?
      (?:(?:is|are|(?:would|should|must|will)\sbe|comes\sout\sto|equals)
         (?:\s{0,3}:|\s(?:then|thus|therefore|simply|just))?|:|=)
    |答案\s?[是为]?:?|答え\s?[は:]|(?:^|\n)\W{0,3}(?:a|ans)\s?[:.](?!\w)
    |\b(?:respuesta|réponse|antwort|ответ)\b[^\n:]{0,20}?(?:\b(?:es|est|ist|lautet)\b|:))|\#{4}""",
    re.VERBOSE,
)
# Names of a value: "x", "f(2)", "a_1", "AB", "\text{Area}", or arithmetic.
_NAME = re.compile(
    r"""\s*(?:[A-Za-z](?:_\w|_\{\w+\}|')?(?:\([^()]{0,40}\))?|[A-Z]{2,3}
    |\\(?:angle|overline)\s?\{?\s?[A-Z]{1,3}\}?|\|?[A-Z]{1,2}\|?|\\text\{[^{}]*\}
    |[a-z]\s?[+*]\s?[a-z]|(?:[^A-Za-z=\\]|\\[A-Za-z]+)+)\s*""",
    re.VERBOSE,
)
# Math delimiters, \left and \right, thin spaces, dollars, percent signs, bold; `\\ ` between a
# matrix's rows is kept.
_SPACING = re.compile(
    r"(?<!\\)\\(?:(?:left|right|displaystyle|bf|rm)(?![A-Za-z])|[!,;: ()\[\]])|\\?[$%]|\*\*|[€£¥]"
)
_PERCENT = re.compile(r"[\s$]*\\?%")
_MARK = re.compile(r"\\%|\^(?:\\circ|\{\\circ\})")
_UNION = re.compile(r" ?(?:\\text ?\{ ?or ?\}|\bor\b|,) ?")
_SPAN = re.compile(r"[(\[][^()\[\]]*,[^()\[\]]*[)\]]")
_CENTS = re.compile(
    r"(?<![\d.])\d[\d.]*+\s?(?:cents?\b|¢)[\s,(]*(?:that is|or|which is|equivalently)[\s,]*(?=\$\d)"
)
_TAIL = re.compile(
    r"(?<=[\d}]) ?(?:\\frac\{\\text\{\w+\}\}\{\\text\{\w+\}\}"
    r"|\\[bp]?mod ?\{?\w+\}?|\(\\?mod ?\{?\w+\}?\))$"
)
_LABEL = re.compile(r"^\(?\\?(?:text|textbf|mathrm)?\s?\{?\s?\([A-E]\)\s?\}?\s?(?=[-\d\\.])")
_RANGE = re.compile(r"([^<>=]*?)(<|\\leq? ?)([a-z])(<|\\leq? ?)([^<>=]*)")
_BRACKETED = re.compile(r"(\(|\[|\\?\{)[^()\[\]]*,[^()\[\]]*(\)|\]|\\?\})")
_HALF_OF_DAY = re.compile(r"\b([ap])\.? ?m\b")
_HALF_TURNED = re.compile(r"([^<>=,]*?[\d}])(<|\\le ?|>|\\ge ?)([a-z])")
_TURNED = {"<": ">", ">": "<", "\\le": "\\ge ", "\\ge": "\\le "}
_HALF = re.compile(r"[a-z](<|\\le ?|>|\\ge ?)([^<>=,]*?[\d}])")
_UNIT = re.compile(
    r"\\(?:text|mathrm|mbox) ?\{ *([a-z]{1,12})[^{}]{0,40}\}|(?<=\d)\^\\(circ)\b"
    r"|(?<=\d) ([a-z]{1,12})(?![a-z])"
)
_NAMES_OF_UNITS = (
    "mm millimeters; cm centimeter centimeters centimetres; m meter meters metres; km kilometer"
    " kilometers kilometres; in inch inches; ft foot feet; yd yard yards; mi mile miles; g gram"
    " grams; kg kilogram kilograms; lb pound pounds; oz ounces; s sec second seconds; min minute"
    " minutes; h hr hour hours; day days; week weeks; month months; year years; cent cents;"
    " dollar dollars; circ degree degrees; rad radian radians"
)
_UNITS = {name: names.split()[0] for names in _NAMES_OF_UNITS.split(";") for name in names.split()}
_RELATION = re.compile(r"[<>]|\\(?:[lg]eq?|neq?)(?![a-z])")
_SAYS_MORE = re.compile(
    r"^-?\d+[a-z]=|\\text ?\{[^{}]*\b(?:not|wrong|incorrect|than|least|most|to)\b"
)
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALED = re.compile(
    rf"({UNSIGNED})\s?(?:\\text\{{)?\s?({'|'.join(_SCALES)}|hundred|dozen|and a half|halves|"
    r"(?:third|quarter|four|fif|six|ten)(?:th)?s)\b\}?",
    re.IGNORECASE,
)
_COUNTED_SCALE = re.compile(rf"(?i:({'|'.join(NUMERALS)})(?= (?:{'|'.join(_SCALES)})$))")
_PARTS = {"half": 2, "halv": 2, "thir": 3, "quar": 4, "four": 4, "fift": 5, "sixt": 6, "eigh": 8}
_IN_WORDS = re.compile(
    rf"(?i:(?:\\text ?\{{)?(minus |negative )?({'|'.join(NUMERALS)})"
    r"(?:[ -](half|halves|thirds?|quarters?|fourths?|fifths?|sixths?|eighths?))?\}?)"
)
_FORMULA = re.compile(r"[\w\s\\{}()\[\]^+\-*/=<>.,;:!|&'°√∞×·÷≤≥≠±∪]+")
_SENTENCE = re.compile(r"(?<![A-Z]\b)\.(?=\s|$)|。|\n")
# Words before or after a value that show that it is not the answer, is wrong, or repeats another
# value.
_NONE_BEFORE = re.compile(
    r"""(?i:\b(?:step|case|equation|theorem|lemma|problem|part|question|example|figure|line|section
      |method|day|page|chapter|no\.?)\s?[\#(]?$)
    |(?:(?i:\b(?:(?:less|more|fewer|greater|larger|bigger|other|rather)\s)?than|\bbetween|\bfrom
      |\bexceeds|\babove|\bbelow|\btwice|\b(?:half|root|cube|square|power|percent|%|out|instead)\sof
      |\b(?:divided|multiplied)\sby|\bplus|\btimes|\b(?:not|never|nor)|\bcannot|\banything\sbut|\bneither|\bunlikely\sto|\b(?:negative|opposite|reciprocal|inverse)\sof
      |\bexcept|\bexcluding|\btried|\ball|\b(?:discard|reject|ignor|exclud)(?:e|ed|ing)?
    |(?-i:(?:\banswer\sis\s|^)at)\s(?:least|most))|n't)
    (?:\s(?:the|be|is|equal|to|exactly|it|answer|think|believe|that|[a-z]\s?=))*\W{0,4}$""",
    re.VERBOSE,
)
_NONE_AFTER = re.compile(
    r"""\W{0,3}\s?(?:(?:but|that|it|this)\s)?(?:(?:is|are|was|does|do|would|can)\s?(?:n't|not\b)
    |(?:is|are|was)\s(?:wrong|incorrect|extraneous|invalid|impossible)|doesn't|fails|squared|cubed
    |(?:more|less|fewer)\sthan|factorial|over\s\d|if\s|plus|minus|times|divided|choose|out\sof|to\s(?:the|[\d$\\])
    |(?:\\?%|percent)\sof|(?:equations?|unknowns?|steps?|parts?|variables|cases|methods)\b)""",
    re.VERBOSE,
)
_AGAIN = re.compile(
    r"""(?i:[\s,(]*(?:(?:or|which\s(?:is|simplifies\sto|equals)|that\sis|is|so)[\s,]*)*
    (?:\\approx|~|(?:about|approximately|approx\.?|roughly|equivalently|(?:which|that)\sis,?
    |which\ssimplifies\sto)\s)\s*)""",
    re.VERBOSE,
)
_JOINS = re.compile(
    r"(?i:(?:\sor\sso)?[\s$.\\()]*(?:[,;]|\band\b|\bor\b)[\s$\\()]*(?:or\s|and\s)?(?:(?:maybe|perhaps|possibly)\s)?[\s$]*(?:[a-z]\s?=\s?)?)"
)
_REGRETS = (
    r"(?:\b|(?=\}))(?:wait|hold on|oops|correction|scratch that|on second thought|"
    r"made an? (?:mistake|error)|"
    r"(?:that|this|it|\}\$?)(?:'s| is| was) (?:wrong|incorrect|not right))\b"
)
_BOX_DENIED = re.compile(r"(?i:\b(?:not|never|cannot|neither|doubt)|n't)\W[^.\n]{0,12}\\f?$")
_BOX_TAKEN_BACK = re.compile(f"(?i:{_REGRETS})")
_TAKEN_BACK = re.compile(rf"(?i:{_REGRETS}|\bno(?=,)|\b(?:actually|my mistake|hmm)\b)")
# A hypothetical answer, or one in a question or in doubt.
_UNSAID = re.compile(
    r"""(?i:\b(?:doubt|impossible|suppos(?:e|ing)|assum(?:e|ing)|if|unless|whether|(?:might|may|could)\sthink)\b
      [^,.;\n]{0,60}\banswer\b(?:[^,.;\n]|[.,](?=\d)){0,60}|\b(?:wrong|incorrect)\sanswer\b(?:[^,.;\n]|[.,](?=\d)){0,60}|(?:\A|(?<=[!?\n])|(?<=\.)(?!\d))[^\w.!?\n]{0,9}\w(?:[^.!?\n]|\.(?=\d)){0,300}\?(?=\s|$))""",
    re.VERBOSE,
)
_UNKNOWN = re.compile(
    r"""(?i:(?:can(?:not|'t)|unable\sto|could(?:n't|\snot))\s(?:be\s)?(?:determine|solve|answer|find|say)
    |not\senough\sinformation|do(?:n't|\snot)\sknow|(?:is|are)\s(?:unclear|unknown|impossible)
    |no\s(?:real\s)?(?:answer|solution)s?\b|insufficient)""",
    re.VERBOSE,
)
# The beginning of a mere explanation: a reason, a circumstance, or the parts of a sum.
_ASIDE = re.compile(
    r",?\s(?:since|because|as)\s|,\s(?:at|with|where)\s|(?<=[a-z]):\s(?=\d{1,9}\s[a-z]{2,})"
)
_CUT_SHORT = re.compile(
    r"\b(?:by|the|is|are|an?|to|of|and|we|that|with|for|from|must|be|[Tt]hen)\s*$"
)
_comparer = FormulaComparer()


def answer_in(text: str) -> str | None:
    r"""Return a reply's final answer in normal form (see `normalise`), or None. The first of
    these rules that applies decides:

    1. The last \boxed{...}, together with any boxes joined to it.
    2. The text after the last "answer is", "answer:" or "####", up to the end of the sentence: a
        formula as it is, the first value of a phrase ("12 apples"), or else the phrase.
    3. The first number on the first line, if that line consists only of numbers ("12, 13, 14").
    4. The formula in a one-line reply without words: the part after "=" if the left side only names
        a value, else the whole line.
    5. The last value of the text, unless the text says that there is no answer.

    Values are taken whole, including sums, fractions, powers, numbers with a base, mixed numbers,
    points and intervals; joined values are one answer. Values that are called wrong, or retracted
    later, don't count.
    """
    text = first_turn(after_thoughts(text) or text, _gives)
    boxed = last_boxed(text[-2 * AT_END :])
    if boxed is not None:
        return _of_box(boxed, text)
    if "boxed{" in text:
        cut = text[text.rfind("boxed{", -AT_END) + 6 :]
        if not cut.strip() or cut.count("{") > cut.count("}"):
            return None
    text = _prepared(text)
    for at in reversed([found.end() for found in _STATED.finditer(text)][-MOST_STATED:]):
        if answer := _stated(text, at):
            return answer
    plain = text.replace("$", "").strip()
    first, _, rest = plain.partition("\n")
    numbers = _ONLY_NUMBERS.fullmatch(first[:AT_START])
    if numbers and not _MIXED.fullmatch(first):
        return normalise(whole[1] if (whole := _SPACED.fullmatch(first)) else numbers[1])
    if plain and not rest.strip() and not has_words(plain):
        return _formula_of(plain.lstrip("= ")) or None
    return _last_value(text)


def _gives(text: str) -> bool:
    """Return True if a text that precedes another question contains an answer."""
    return bool("boxed" in text or _BEGINS_WITH_VALUE.match(text) or _STATED.search(text))


def _of_box(boxed: str, text: str) -> str | None:
    """Return the answer in a reply's last box, or in a correction after the box; None if the box is
    said to be wrong.
    """
    at = max(text.rfind("box"), len(text) - AT_END)
    if back := _BOX_TAKEN_BACK.search(text, at):
        return _last_value(in_latex(text[back.end() :]))
    if _BOX_DENIED.search(text[max(0, at - 40) : at]):
        return None
    left, _, value = boxed.rpartition("=")
    names = re.search(r"[A-Za-z]", re.sub(r"\\[a-z]+", "", left))
    return normalise(boxed if names else value) or None


def _prepared(text: str) -> str:
    """Return a reply's beginning and end in LaTeX, without suppositions, questions or
    citations.
    """
    if len(text) > AT_START + AT_END:
        text = f"{text[:AT_START]}\n{text[-AT_END:]}"
    text = re.sub(r"[^\S\n]{2,}", " ", in_latex(text))
    # A "!" at the end of a line in prose is an exclamation mark, not a factorial.
    text = re.sub(r"(?<=[a-z] )(\d[\d,.]{0,40})!+(?=\s*(?:\n|$))", r"\1", text)
    text = re.sub(r"\\text ?\{ *(or|and) *\}", r" \1 ", _UNSAID.sub("", text))
    text = _CENTS.sub("", text)
    return re.sub(r"(?<=\d) \[\d\d?\](?=[\s.,]|$)", "", text)  # a citation


def _stated(text: str, at: int) -> str | None:
    """Return the answer that follows a statement ("The answer is") ending at `at`, on the same line
    or the next non-empty one, or a later correction; None if there is no answer.
    """
    rest = text[at : at + 600].lstrip(" \t*:=}")
    line = rest.lstrip().partition("\n")[0].strip()
    if rest[:1] == "\n" and has_words(line) and not formulas_in(line):
        return None
    if _NONE_BEFORE.search(text[max(0, at - 60) : at]):
        return None
    back = _TAKEN_BACK.search(text, at, at + 300)
    if back and (said := _last_value(text[back.end() :])):
        return said
    if rest[:1] != "\n":
        line = re.sub(r"^[-–] ?\$?(?=[\d\\])", "-", line)
    line = re.sub(r"\\(?:f?boxed|fbox)\s?\{?", "", line)  # a box that was never closed
    if '"' in line or line.count("}") > line.count("{"):
        line = re.split(r'"\s*[,}]|,\s*"|\}\s*$', line)[0].strip('" ')
    if not has_words(line):
        return _formula_of(line.strip(" *:"))
    sentence = _SENTENCE.split(line)[0][:MOST_OF_SENTENCE].strip(" *:")
    values = _values(sentence)
    if values:
        return values[0]
    return None if re.match(r"(?:not|n't)\b", sentence) else normalise(sentence)


def _formula_of(line: str) -> str:
    """Return the only formula on a line, without its unit and surrounding signs, or else the right
    side of the line.
    """
    if len(line) > MOST_OF_SENTENCE:
        return _right_side(line)
    values = _values(line)
    rest = line
    for start, end, _ in reversed(formulas_in(line)):
        rest = rest[:start] + rest[end:]
    return values[0] if len(values) == 1 and not re.search(r"[\w|]", rest) else _right_side(line)


def _last_value(text: str) -> str | None:
    """Return the last value in a text, or None if there is none, if the text breaks off, or if it
    says in the same or a later sentence that there is no answer.
    """
    sentences = [said[-MOST_OF_SENTENCE:] for said in _SENTENCE.split(text) if said.strip()]
    for sentence in reversed(sentences[-MOST_STATED:]):
        if _UNKNOWN.search(sentence) or (sentence is sentences[-1] and _CUT_SHORT.search(text)):
            return None
        main = _ASIDE.split(sentence)[0]
        if values := _values(main) or _values(sentence):
            return values[-1]
    bold = (
        re.fullmatch(r"\W*(?:\*\*|\$)([^*$\n]{1,60})(?:\*\*|\$)\W*", sentences[-1])
        if sentences
        else None
    )
    return normalise(bold[1]) if bold else None


def _values(text: str) -> list[str]:
    """Return the values in a text, in order. Joined values are one value; values that are repeated
    or called wrong are left out.
    """
    groups: list[list[str]] = []
    relation = False
    end = 0
    for start, ends, formula in formulas_in(text):
        between = text[end:start]
        if groups and _AGAIN.fullmatch(between):
            end = ends
            continue
        before = text[max(0, start - 40) : start]
        negative = re.search(r"(?i:\b(?:minus|negative)\s*\$?|\s-\$)$", before)
        scaled = _SCALED.match(text, start)
        value = _right_side(f"-{formula}" if negative else scaled[0] if scaled else formula)
        ends = scaled.end() if scaled else ends
        value = normalise(f"{value}%") if _PERCENT.match(text, ends) else value
        same_kind = bool(_RELATION.search(formula)) == relation
        relation = bool(_RELATION.search(formula))
        if groups and same_kind and _JOINS.fullmatch(between):
            spans = (
                relation
                and "and" not in between
                and all(map(_SPAN.fullmatch, (*groups[-1], value)))
            )
            if groups[-1] and spans:
                groups[-1] = [f"{groups[-1][-1]}\\cup{value}"]
            elif groups[-1] and not any(same_plainly(value, each) for each in groups[-1]):
                groups[-1].append(value)
        elif _NONE_BEFORE.search(before) or (groups and between.strip(" $%") == "to"):
            groups.append([])
        else:
            groups.append([value])
        if groups[-1] and _NONE_AFTER.match(text, ends):
            groups[-1].pop()
        end = ends
    return [_listed(group) for group in groups if group]


def _listed(values: list[str]) -> str:
    """Return values joined as one answer: 1 and 23 as "1,23", but 1 and 234 as "1, 234", because
    "1,234" would be read as one number.
    """
    values = [each.removesuffix("\\%") for each in values] if len(values) > 1 else values
    joined = ",".join(values)
    return ", ".join(values) if len(values) > 1 and _PLAIN.fullmatch(joined) else joined


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last complete \boxed{...} (or \fbox{...}, or `\boxed 7`), together
    with preceding boxes joined to it by "and", "or" or a comma; None if there is no box.

    Braces may be nested to any depth.
    """
    if "box" not in text:
        return None
    closing: dict[int, int] = {}
    opened: list[int] = []
    for token in re.finditer(r"\\.|[{}]", text, re.DOTALL):  # \{ and \} aren't braces
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}" and opened:
            closing[opened.pop()] = token.start()
    found: list[str] = []
    begins = len(text)
    for match in reversed(list(re.finditer(r"\\(?:f?boxed|fbox)\s*(?=(\{)|[^\s{}$.,]+)", text))):
        start = match.end()
        if match[1] is None:
            end = start + len(re.split(r"[\s{}$.,]", text[start : start + MAX_SYMBOLIC])[0])
        elif start in closing:
            end = closing[start]
        else:
            continue
        if found and not _JOINS.fullmatch(text[end:begins].lstrip("}")):
            break
        found.append(text[start:end].removeprefix("{"))
        begins = match.start()
    return _listed(found[::-1]) if found else None


def normalise(answer: str) -> str:
    r"""Return an answer in normal form: answers that differ only in spelling become equal.

    The normal form has no math delimiters, \left, \right, thin spaces, final period, spaces around
    operators, or "x =" before a value; plain numbers have no thousands commas or redundant zeros.

    "$1,200.0$." -> "1200", "x = 7.0" -> "7", "\dfrac{1}{2}" -> "\frac{1}{2}"
    """
    latex = in_latex(answer[:MOST_OF_ANSWER])
    given = _SPACING.sub("", latex)
    text = _without_dress(given)
    if text.count("=") == 1 and "," not in text:
        text = re.sub(r"^[A-Za-z]=", "", text)
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", _TAIL.sub("", text))
    text = re.sub(r"\\varnothing\b", r"\\emptyset", re.sub(r"^[a-z] ?\\in ?", "", text))
    text = re.sub(r"^\(([^(),]*)\)$", r"\1", _as_interval(text))
    if re.fullmatch(r"\d{1,3}(?: \d{3})+", text):
        text = text.replace(" ", "")
    text = _in_figures(text)
    numbers = re.split(r",\s+", given.strip(" .,"))
    if len(text) <= 100 and _PLAIN.fullmatch(text):
        if len(numbers) > 1:
            return _listed([normalise(each) for each in numbers])
        text = _shortened(text)
    percent = latex.rstrip(" .,$*})").endswith("%") and fraction_of(text) is not None
    return f"{text}\\%" if percent else text


def _without_dress(text: str) -> str:
    """Return a formula without labels, spaces around operators, surrounding emphasis, or signs for
    "about".
    """
    text = re.sub(r"\\[dtc]frac", r"\\frac", _LABEL.sub("", text))
    text = re.sub(r" ?([-+*/=(),\[\]{}<>^|]) ?", r"\1", re.sub(r"\s+", " ", text)).strip()
    text = re.sub(r"^\\text ?\{[^{}]{0,80}(?:\bis|[:=]) ?\}", "", re.sub(r"\\{4}", r"\\\\", text))
    text = re.sub(r"(?<=\\\\)\[-?[\d.]+\w{2}\]", "", text.replace("\\text{to}", ":"))
    text = re.sub(r"(?<=\d) (?=[a-z](?:$|[-+*/^=)]))", "", re.sub(r"^\((\w+)\)(?=_)", r"\1", text))
    text = text.rstrip(".,~ ").removeprefix(r"\approx ")
    text = re.sub(r" ?(\\(?:pm|mp|[lg]eq?|neq?|cdot|times|cup|cap)) ?(?![a-z])", r"\1", text)
    return re.sub(r"(?<=\\[lg]e)q(?![a-z])", "", re.sub(r"^[_*]+([^_*]+)[_*]+$", r"\1", text))


def _in_figures(text: str) -> str:
    """Return a spelled-out number, such as "three quarters" or "2 million", in figures; return
    other text unchanged.
    """
    if worded := _IN_WORDS.fullmatch(text):
        sign, whole, part = (each and each.lower() for each in worded.groups())
        above = f"{'-' if sign else ''}{NUMERALS.index(whole)}"
        text = f"\\frac{{{above}}}{{{_PARTS[part[:4]]}}}" if part else above
    text = re.sub(rf"^({UNSIGNED})[kK]$", r"\1 thousand", text)
    text = _COUNTED_SCALE.sub(lambda found: str(NUMERALS.index(found[1].lower())), text)
    if (scaled := _SCALED.fullmatch(text)) and (scale := _SCALES.get(scaled[2].lower())):
        return f"{scaled[1]}\\times10^{{{scale}}}"
    return text


def _shortened(number: str) -> str:
    """Return a plain number without thousands commas or redundant zeros."""
    whole, _, part = number.replace(",", "").lstrip("+-").partition(".")
    whole = whole.lstrip("0") or "0"
    part = part.rstrip("0")
    sign = "-" if number[0] == "-" and (whole, part) != ("0", "") else ""
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"


def _as_interval(text: str) -> str:
    r"""Return 2<x\le 5 as (2,5] and x\ge 3 as [3,\infty); return other text unchanged."""
    spans = [_as_interval(part) for part in parts] if len(parts := _UNION.split(text)) > 1 else []
    if spans and all(span != part for span, part in zip(spans, parts, strict=True)):
        return "\\cup".join(spans)
    plain = _MARK.sub("", text)
    if span := _RANGE.fullmatch(plain):
        low, below, _, above, high = span.groups()
    elif turned := _HALF_TURNED.fullmatch(plain):
        return _as_interval(f"{turned[3]}{_TURNED[turned[2].strip()]}{turned[1]}")
    elif side := _HALF.fullmatch(plain):
        down = side[1].strip() in ("<", r"\le")
        low, below = ("-\\infty", "<") if down else (side[2], side[1])
        high, above = (side[2], side[1]) if down else ("\\infty", "<")
    else:
        return text
    opens = "[" if "e" in below else "("
    closes = "]" if "e" in above else ")"
    return f"{opens}{low.strip()},{high.strip()}{closes}"


def same_plainly(right: str, answer: str) -> bool | None:
    """Return whether two normalised answers are equal, or None if their spellings, numbers and
    kinds don't decide that.
    """
    if right == answer:
        return True
    wanted, given = fraction_of(right), fraction_of(answer)
    if wanted is not None and given is not None:
        scale = Fraction(100) ** (answer.endswith("%") - right.endswith("%"))
        return given in (wanted, wanted * scale)
    if (wanted, given) != (None, None) and any(", " in each for each in (right, answer)):
        return False  # several numbers never equal one
    return False if _differ_in_kind(right, answer) else None


def _differ_in_kind(right: str, answer: str) -> bool:
    """Return True if two answers can't be equal because of their kinds: they differ in base,
    brackets or units, or only one of them is a ratio or a relation.
    """
    based = _BASED.fullmatch(right), _BASED.fullmatch(answer)
    if based[1] and (based[0] is None or based[0][0] != based[1][0]):
        return True  # the question determines the base
    brackets = [
        match and match.expand(r"\1\2").replace("\\", "")
        for match in map(_BRACKETED.fullmatch, (right, answer))
    ]
    listed = "," in right and right[0] not in "([\\"
    if brackets[0] != brackets[1] and (
        None not in brackets or (listed and brackets[1] and brackets[1][0] != "{")
    ):
        return True
    halves = [_HALF_OF_DAY.findall(each) for each in (right, answer)]
    if halves[0] != halves[1] and all(halves):
        return True
    units = [
        found and _UNITS.get(found[found.lastindex or 0])
        for found in map(_UNIT.search, (right, answer))
    ]
    if units[0] != units[1] and None not in units:
        return True
    return (
        (":" in right) != (":" in answer)
        or bool(_SAYS_MORE.search(answer) and not _SAYS_MORE.search(right))
        or bool(_RELATION.search(right)) != bool(_RELATION.search(answer))
    )


@lru_cache(maxsize=4096)
def same_value(right: str, answer: str) -> bool:
    """Return True if two normalised answers are equal: as text, as numbers, or according to
    math-verify, which plain numbers never need. Thread-safe.

    Raises MissingLibrary if math-verify is needed but not installed, and NotCompared if no child
    process can be started.
    """
    plainly = same_plainly(right, answer)
    if plainly is not None:
        return plainly
    right, answer = _comparable(right, answer), _comparable(answer, right)
    if max(len(right), len(answer)) > MAX_SYMBOLIC or not _may_be_formula(answer):
        return False
    return _comparer.equal(right, answer)


def _comparable(text: str, other: str) -> str:
    """Return a formula in a form that can be compared with another one: degrees become radians if
    the other formula contains pi, and an expression becomes an equation if the other formula is an
    equation with one more letter.
    """
    text = text.removesuffix("\\%")
    degrees = text.endswith("\\circ") and fraction_of(text)
    if degrees and "\\pi" in other:
        return f"\\frac{{{degrees.numerator}\\pi}}{{{180 * degrees.denominator}}}"
    if other.count("=") != 1:
        return text
    text = re.sub(r"(?<![\w}])(\d+)/(\d+) ?(?=[a-z])", r"\\frac{\1}{\2}", text)
    own, its = (set(re.findall("[a-z]", re.sub(r"\\[a-z]+", "", each))) for each in (text, other))
    return (
        f"{(its - own).pop()}={text}" if "=" not in text and own and len(its - own) == 1 else text
    )


def _may_be_formula(text: str) -> bool:
    """Return True if a text may contain a formula that math-verify understands."""
    plain = re.sub(r"\\(?:text|mathrm) ?\{[^{}]{0,400}\}|\\[A-Za-z]{1,40}", "", text)
    return (
        _FORMULA.fullmatch(text) is not None
        and text.count("{") == text.count("}")
        and len(re.findall(r"[A-Za-z]{2,}", plain)) <= 4
    )


def fraction_of(text: str) -> Fraction | None:
    """Return the value of a normalised answer that is a plain number or a ratio, or None."""
    if len(text) > 100:
        return None
    text = _MARK.sub("", text) if text.endswith(("%", "\\circ", "\\circ}")) else text
    if match := _REPEATING.fullmatch(text):
        nines = 10 ** len(match[3]) - 1
        part = int(match[2] + match[3]) - int(match[2] or 0)
        repeating = int(match[1] or 0) + Fraction(part, 10 ** len(match[2]) * nines)
        return -repeating if text[0] == "-" else repeating
    if _PLAIN.fullmatch(text):
        return Fraction(text.replace(",", ""))
    if match := _POWER_OF_TEN.fullmatch(text):
        return Fraction(match[1].replace(",", "")) * Fraction(10) ** int(match[2] or match[3])
    if match := _RATIO.fullmatch(text):
        above, below = [int(part) for part in match.groups()[1:] if part]
        return Fraction(-above if match[1] else above, below) if below else None
    if match := _MIXED.fullmatch(text):
        whole, above, below = [int(part) for part in match.groups()[1:] if part]
        value = whole + Fraction(above, below) if below else None
        return value if value is None or not match[1] else -value
    return None


def _right_side(formula: str) -> str:
    """Return the part of a formula after the last "=" if the part before the first one only names a
    value, or else the whole formula, in normal form.
    """
    *names, value = formula[:MOST_OF_ANSWER].split("=")
    if len(names) == 1 and re.fullmatch(r"\s?[a-z][\s.$]*", value) and "\\" not in names[0]:
        names, value = [value], names[0]  # written as "2 = x"
    names = [re.sub(r"[$\s*]+|\\[\[(]", " ", name) for name in names]
    named = names and all(_NAME.fullmatch(name) for name in names[:1])
    return normalise(value if named and value.strip(" .$") else formula)
