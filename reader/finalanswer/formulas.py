r"""Extraction of complete formulas from running text: sums, points, intervals, mixed numbers.

A formula consists of operands (numbers, LaTeX commands, single letters, formulas in brackets) with
operators between them; a word ends it.
"""

from __future__ import annotations

import re
import unicodedata

MOST_BRACKETS = 3
"""Maximum depth of nested brackets."""

NUMERALS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve"),
)

# Atomic groups (?>...), because "100,200,300, ..." can be split into thousands in exponentially
# many ways.
UNSIGNED = r"(?>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,400})(?:\.\d{1,400})?|\.\d{1,400})"
GROUP = r"\{(?:[^{}]|\{[^{}]{0,80}\}){0,120}\}"
_SCRIPTS = rf"(?:\s?[\^_]\s?(?:{GROUP}|\\circ|-?\w)|!|'(?!\w))*"
_ATOM = re.compile(
    rf"""(?:\\[dtc]?frac\s?(?:{GROUP}|\d)\s?(?:{GROUP}|\d)|\\d?binom\s?{GROUP}\s?{GROUP}
    |\\sqrt\s?(?:\[\d+\])?\s?(?:{GROUP}|\d)|\\begin\{{(\w{{1,20}})\}}.{{0,400}}?\\end\{{\1\}}
    |\\(?:pi|infty|emptyset|varnothing|theta|phi|alpha|beta|gamma|lambda|mu|sigma|omega)(?![A-Za-z])
    |\\math(?:bb|rm|bf)\s?\{{\w{{1,9}}\}}|{UNSIGNED}(?!(?:st|nd|rd|th)\b)
    |(?<![^\W\d_])[A-Za-z](?![^\W\d_])){_SCRIPTS}""",
    re.DOTALL | re.VERBOSE,
)
_FUNCTION = re.compile(
    rf"\\?(?<![A-Za-z])(?:log|ln|arc(?:sin|cos|tan)|sin|cos|tan|cot|sec|csc|exp|gcd)(?![A-Za-z]){_SCRIPTS}\s?"
)
_SIGN = re.compile(r"(?:[-+]|\\(?:pm|mp)(?![a-z]))\s?")
_LINK = re.compile(
    r"""\s?(?:\\(?:cdot|times|div|pm|leq?|geq?|neq?|in|cup|cap|mid)(?![a-z])|[-+*/^|]|[<>]=?|==?(?!>))\s?
    |(?<=\d):(?=\d)|(?<=[\w})])\s(?=\\(?:[dtc]?frac|sqrt|pi)(?![a-z]))
    |(?<=\d)\s(?:and\s)?(?=\d{1,9}/\d)|""",
    re.VERBOSE,
)
_OPENS = re.compile(r"(?:\\left\s?)?(?:\\\{|\\lfloor|\\lceil|[({\[])\s?")
_CLOSES = re.compile(rf"\s?(?:\\right\s?)?(?:\\\}}|\\rfloor|\\rceil|[)}}\]]){_SCRIPTS}")
_COMMA = re.compile(r"\s{0,3}[,;]\s{0,3}")
_STARTS = re.compile(
    r"\$|\\[(\[]|(?<![A-Za-z0-9_.\\^])(?:\d|\.\d|[A-Za-z](?![A-Za-z]))|\\[a-z{]|[-+(\[{]"
)
_INLINE = re.compile(
    r"\$\$([^$]{1,400})\$\$|\$([^$]{1,400})\$|\\\((.{1,400}?)\\\)|\\\[(.{1,400}?)\\\]", re.DOTALL
)
_FOLLOWING_UNIT = re.compile(
    r"""\s?(?:[kcdm]?m|in|ft|k?g|s|h|N|J|W|[mM]?[lL])
    (?:(?:\^\{?-?\d\}?)?/(?:s|h|[kcm]?m|[kc]?g|L))?(?:\^\{?-?\d\}?)?(?![\w^(]|\s?[-+*=])""",
    re.VERBOSE,
)
_WORD = re.compile(r"[^\W\d_]{2,}|[\u3040-\u9fff\uac00-\ud7af]")
_COMMAND = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s?\{[^{}]{0,400}\}|\\[A-Za-z]{1,40}")
_COMMANDS = (
    r"π\pi ∞\infty ±\pm ×\times ⋅\cdot ·\cdot ≤\le ≥\ge ≠\ne ≈\approx ∪\cup ∩\cap ∈\in ∅\emptyset"
    r" θ\theta °^\circ"
)
_NAMES = {"degree": "^\\circ", "langle": "(", "rangle": ")", "gt": ">", "lt": "<"} | {
    "leqslant": r"\le ",
    "geqslant": r"\ge ",
}
_OTHER_NAMES = re.compile(rf"\\({'|'.join(_NAMES)})(?![A-Za-z]) ?")
_SPELLINGS = {ord(each[0]): f"{each[1:]} " for each in _COMMANDS.split()} | str.maketrans(
    "−÷⁄→⇒（），：", "-//==(),:"
)
_SIGN_IN_WORDS = re.compile(
    r"(?:(?<=\d)|(?<=[^\\]\}))\s?(?:\\text\s?\{\s*)?(percent|degrees?)\b(?:\s*\})?"
)
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ", "0123456789-n")
_DRESS = r"\\(?:mathbf|textbf|boldsymbol|bm|mathrm|mathsf|text)\s?\{\s*([-+\d.,/()]+)\s*\}"


def in_latex(text: str) -> str:
    r"""Return a text with its symbols as LaTeX: "2√3" is "2\sqrt{3}", "x²" is "x^{2}"."""
    text = re.sub("[¼-¾⅐-⅞]", _fraction, text).translate(_SPELLINGS)
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ]+", lambda found: f"^{{{found[0].translate(_POWERS)}}}", text)
    text = re.sub(r"(?<![\\A-Za-z])(?=(?:ln|log|sin|cos|tan|cot|sec|csc)[ (]\S)", r"\\", text)
    text = _SIGN_IN_WORDS.sub(_sign, text)
    text = _OTHER_NAMES.sub(lambda found: _NAMES[found[1]], text)
    text = text.replace("\\$", "").replace("i.e.", "that is")
    text = re.sub(r"(?<![\w)\]])–\s?(?=[\d.\\])", "-", text)
    text = re.sub(r"(?:√|\\?sqrt)\s?(?:\(([^()]{1,40})\)|(?<=√)\s?(\w+))", _root, text)
    text = re.sub(r"(?<=\d)\s?\*?\s?pi\b|(?<![\w\\])pi\b", r"\\pi", text)
    text = re.sub(r"(?<=\w )[-=]>", "=", text)
    text = re.sub(r"(?<=\d)\s(?:x|times)\s(?=\d|\\pi)", r"\\times ", text)
    text = re.sub(r"(?<![\w.])([\d.]+)[eE]([-+]?\d{1,3})(?![\w.])", r"\1\\times 10^{\2}", text)
    text = re.sub(r"(?<=\d),\\?!?(?=\d{3})", ",", text.replace("{,}", ","))
    return re.sub(_DRESS, r"\1", re.sub(r"(?<!\\)~|\\q?quad(?![a-z])", " ", text))


def _fraction(found: re.Match[str]) -> str:
    above, _, below = unicodedata.normalize("NFKC", found[0]).partition("⁄")
    return f"\\frac{{{above}}}{{{below}}}"


def _sign(found: re.Match[str]) -> str:
    return "\\%" if found[1] == "percent" else "^\\circ "


def _root(found: re.Match[str]) -> str:
    return f"\\sqrt{{{found[1] or found[2]}}}"


def has_words(text: str) -> bool:
    """Return True if a text contains words outside LaTeX commands."""
    return _WORD.search(_COMMAND.sub("", text)) is not None


def formulas_in(text: str) -> list[tuple[int, int, str]]:
    """Return, for each formula in a text, its start, its end (after its unit, if any), and the
    formula itself.
    """
    found = []
    at = 0
    while starts := _STARTS.search(text, at):
        at = starts.start()
        inline = _INLINE.match(text, at)
        if inline and not has_words(inner := inline[1] or inline[2] or inline[3] or inline[4]):
            formula = inner
            end = inline.end()
        else:
            formula = text[at : (end := _formula(text, at, 0))]
        if re.search(r"\d|\\(?!blacksquare|square|Box)[a-z]|[-+*/=(]", formula):
            unit = _FOLLOWING_UNIT.match(text, end) if formula.strip()[-1:] not in ")]=" else None
            end = unit.end() if unit else end
            found.append((at, end, formula))
        at = max(end, at + 1)
    return found


def _formula(text: str, at: int, depth: int) -> int:
    """Return the end of the formula that begins at `at`, or `at` if there is none."""
    sign = _SIGN.match(text, at)
    if sign and depth == 0 and sign[0][0] in "-+" and sign[0][-1] == " ":
        return at  # the sign is a dash
    end = _operand(text, sign.end() if sign else at, depth)
    if end == (sign.end() if sign else at):
        return at
    while link := _LINK.match(text, end):
        sign = _SIGN.match(text, link.end()) if link[0] else None
        begins = sign.end() if sign else link.end()
        following = _operand(text, begins, depth)
        if following == begins:
            break
        end = following
    return end


def _operand(text: str, at: int, depth: int) -> int:
    function = _FUNCTION.match(text, at)
    begins = function.end() if function else at
    atom = _ATOM.match(text, begins)
    if atom is not None:
        return atom.end()
    opens = _OPENS.match(text, begins)
    if opens is None or depth > MOST_BRACKETS:
        return at
    end = opens.end()
    while (following := _formula(text, end, depth + 1)) != end:
        comma = _COMMA.match(text, following)
        if comma is None:
            closes = _CLOSES.match(text, following)
            return closes.end() if closes else at
        end = comma.end()
    return at
