"""Extraction of the chosen letter from a reply to a multiple-choice question.

The same rules apply to all letters. A reply is first reduced to plain lines, without reasoning,
Markdown, LaTeX, tags and quotes. Then the first of these rules that finds a letter decides, by its
last match:

1. A box.
2. "answer: ...", "the correct option is ...", also rephrased and in some other languages.
3. "B is correct", "I'd go with B", "so it must be B".
4. A line that consists of a letter, or begins with one as choices do ("B) Paris"); a repetition of
   the list of choices is ignored.
5. The only letter that the reply mentions, if it is set apart or its sentence presents it as the
   answer.

A letter doesn't count if it is negated, in a question, in a condition, or the name of something
else. If several letters remain, there is no answer. A letter before a lower-case word usually
doesn't count either, because it is itself a word ("A cat").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain

from finalanswer.turns import after_thoughts, first_turn

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FIRST = 10
"""Number of letters, from A, that are sought in the same way in any reply. Later letters usually
name other things: in a reply that gives a letter from A to J, they count only in a statement or
correction of the answer.
"""

_STAND_INS = "".join(map(chr, range(0x10300, 0x10310)))
"""Substitutes for the letters from K on: no reply contains them, so the rules can always recognise
them.
"""

_STAND_IN = re.compile(f"[{_STAND_INS}]")
# The variables of a formula aren't choices.
_FORMULA = re.compile(r"=(?!>)|\\(?!fbox)|\b(?:return|def)\b")
_STANDS_FOR = str.maketrans(_STAND_INS, LETTERS[FIRST:])
_LATER = re.compile(
    r"(?<![A-Za-z0-9À-ɏ\\])(?<![A-Za-z0-9]-)(?!(?<=[(\[])[xX][)\]]\s+[(]?[A-Z]\b)"
    r"(?<![\w)\]][(\[])(?:[K-Z](?![A-Za-z0-9À-ɏ]|-[A-Za-z0-9]|\s*=[^>])|(?<=[(\[])[k-z](?=[)\]]))"
)

AT_START = 1000
AT_END = 4000
"""Numbers of characters that are read at the start and at the end of a reply, after its reasoning
is removed.
"""

MOST_READ = 30
"""Maximum number of statements, or of letters, that are examined from the end of a reply."""


def _rule(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile an expression in which A-J means any letter of a choice, stand-ins included."""
    return re.compile(pattern.replace("A-J", f"A-J{_STAND_INS}"), flags)


_LATEX_DRESS = re.compile(
    r"\\(?:text|mathrm|mathbf|textbf|mathit|textit|mathsf|textsf|emph|underline|mbox|operatorname)\s*\{([^{}]{0,400})\}"
)
_BOX = _rule(r"\\f?boxed\s*\{([^{}]{0,400})\}|\\f?boxed\s+([A-J])\b")
_TAG_OPENS = re.compile(r"<(?!/)\s*([A-Za-z_ ]{2,20})\s*>")
_TAG_CLOSES = re.compile(r"</\s*[A-Za-z_ ]{2,20}\s*>|<\|[a-z_]{1,20}\|>|</s>")
_MARKDOWN = re.compile(
    r"[*`\"~]|(?<!\w)'|'(?!\w)|(?<![A-Za-z0-9])_+|_+(?![A-Za-z0-9])|^[ \t]*[#>]+[ \t]*", re.M
)
# Choices that are struck out, not ticked or not available; then ticks.
_DROPPED = re.compile(
    r"~~[^~\n]{0,400}~~|^[ \t]*[-*][ \t]+\[ \].*$|\bN/A\b|\bnone other than\b", re.M
)
_TICK = _rule(r"^([ \t]*)(?:[-*][ \t]+)?(?:\[[xX✓✔]\]|\([xX✓✔]\)(?=[ \t]+[A-J]\b)|☑)", re.M)
_NAMED_SMALL = re.compile(
    r"\b(option|choice|letter|alternative)[\s-]+[(]?([a-j])(?![\w'])(?=[).:,;]|\s*$|\s+(?:is|was|would)\b)",
    re.I | re.M,
)
_ASKED_AND_ANSWERED = _rule(
    r"(?:\b(?:is|was|are|could|would|what)\b[^.?!\n]{0,60}?\s|(?<![^.!\n]))[(]?\b([A-J])[)]?\s?[?]\s*(?:(yes|correct|right)|no|nope|wrong)\b[,.!]?",
    re.I,
)
_ALL_BUT = _rule(
    r"\b(?:(?P<all>all|every\w*|any\w*)|none|nothing|no)\b[^.\n]{0,40}?\b(?:but|except(?:\s+for)?|besides|other\s+than)"
    r"\s+(?:option|choice)?\s*[(]?(?P<letter>(?-i:[A-J]))[)]?\s(?=[^.\n]{0,40}\b(?(all)(?:wrong|incorrect|false)|(?:right|correct|true|fits?|works?))\b)",
    re.I,
)
# A letter that is mentioned but not given as the answer: in a condition, as a topic, as a wrong
# answer, or as the name of something else.
_MENTIONS = _rule(
    r"\b(?:(?:if|between|(?<!i\s)suppose|supposing|assum(?:e|ing)|unless|whether|at\s+first|first\s+(?:guess|thought)|tempt\w*\s+to"
    r"|mistake(?!:)|(?:some|many|others|people|students?|someone)\s+(?:\w+\s+)?(?:say|think|pick|choose|answer)|(?:one|you|it)\s+(?:may|might)(?!\salso))\b[^,.;\n]{0,100}"
    r"|(?:(?:consider|examin|evaluat|check|test|verify)(?:e|ing)?|look(?:ing)?\s+at|(?:begin|start)(?:n?ing)?\s+with"
    r"|(?:wrong|least\s\w{1,20}|not\s(?:the|an?))\s+(?:answer|choice)\s?(?:is|was|would\sbe|:)|vitamin|hepatitis|plan|type"
    r"|point|grade|chapter|section|country|state|city|person|student|patient|player|team|group|class|set|vector|matrix|event|firm"
    r"|company|product|species|gene|protein|compound|element|drug|planet|vertex|angle|note)s?"
    r"\s+(?:of\s+)?(?:the\s+)?(?:(?:option|choice|answer)s?\s+)?[(]?[A-J]\b)",
    re.I,
)
_LISTED = re.compile(r"^\W{0,3}A[).:]\s.*", re.M)
_ASKS = re.compile(r"\w\W.*[?]$|[?].*[?]$")
_QUOTES = str.maketrans("“”„«»‘’´−–", '"""""\'\'\'--') | {ord("—"): " - "}
# Arabic and Bengali letters; regular expressions don't count the combining marks of these scripts
# as letters.
_OF_SCRIPTS = str.maketrans("أابجدهকখগঘঅবডঢ", "AABCDEABCDABCD")
_OTHER_SCRIPT = re.compile(
    "(?<![\\w\u064b-\u0652\u0981-\u09cd])[أابجدهকখগঘঅবডঢ](?![\\w\u064b-\u0652\u0981-\u09cd])"
)
_INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufeff\u00ad]")

_BEFORE = r"(?<![A-Za-z0-9À-ɏ_'\\])(?<![A-Za-z0-9]-)"
# Before these words, a letter names a choice and is not a word itself.
_AFTER_LETTER = (
    "is|was|are|were|would|must|should|seems|appears|looks|because|since|as|and|or|but|for|alone"
    "|based|from|according|in this|in that|in the|does(?=[.])"
    "|also|instead|here|not|rather|due|with|if|then|matches|fits|makes|which|correctly|best|has to"
    "|ist|obviously|[a-z]+ly(?=[.!]?$)|of course|wins"
    "|(?:over|to|unlike) [(]?[A-J](?![a-z])"
    "|the (?:correct|right|best|only|most|answer)|works|remains|holds"
    "|satisfies|it is|meets|gives|says|refers"
)
# After these words, a letter names a choice, whatever follows.
_NAMED = r"(?:(?<=ption )|(?<=hoice )|(?<=nswer )|(?<=tatement )|(?<=etter )|(?<=makes ))"
_LETTER = _rule(
    rf"{_BEFORE}(?:[(\[{{]\s*(?P<marked>[A-Ja-j])\s*[)\]}}]"
    rf"|(?P<plain>{_NAMED}[A-J](?![A-Za-z0-9À-ɏ_]|-[A-Za-z0-9])|[A-J](?![A-Za-z0-9À-ɏ_]"
    rf"|['’](?:m|d|ll|ve|s)\b|[-=][A-Za-z0-9]|[ \t]+(?!(?:{_AFTER_LETTER})\b)[a-zà-ɏ])"
    r"(?<!I(?=\s(?:(?:would|should|must)(?!\sbe\b)|also|then|rather(?!\sthan)|best(?!\s\w+s\b)|said|was|am)\b))"
    r"(?<!I(?=\s?(?:,|and\b|or\b)\s?I[IV])))"
    rf"|(?P<small>[a-j])(?=[).:,;](?:\s|$)|[ \t]*$))",
    re.M,
)
_FILLER = re.compile(
    r"(?:[\s:=\-,>|$.]|\\\(|\\\[|(?:(?:most|more)\s+)?(?:likely|probably|clearly|definitely|therefore|thus|hence|also|indeed|simply|just|actually|"
    r"obviously|certainly|surely|then|now|so|the|an?\s+(?=option|answer)|correct|right|best|following|given|labell?ed|as|by|"
    r"to\s+be|be|is|that|it's|it|option|choice|letter|answer|statement|alternative|number|with|of|on|for)\b){0,12}",
    re.I,
)
_SUBJECT = _rule(
    r"(?:\b(?:answers?|response|correction|conclusion|the\s+closest(?=\s+is\b)|verdict|decision|guess|pick|selection)|\b(?:correct|right|best|final|my|chosen|appropriate|accurate|"
    r"suitable|true|the|your)\s+(?:(?:answer|multiple|final)\s+)?(?:choice|option|one|letter|alternative|statement|solution)|^\W{0,3}(?:choice|option|solution)(?=\s*:)|^\W{0,3}(?:a|ans)(?=[.:]\s*[(]?[A-J]\b(?![.):]))|"
    r"(?:^\W{0,3}|(?<=\?\s))a(?=:\s*[(]?[A-J]\b(?!.*\n\W{0,3}b\b))|"
    r"\b(?:antwort|l[öo]sung|r[ée]ponse|respuesta|risposta|resposta|antwoord|odpowied[źz]|svaret|svar|ответ|jawaban(?:nya)?|cevap|đáp\s+án|الإجابة|الجواب|উত্তর(?:টি)?)|答案|答え|正解|正确选项|정답)"
    r"(?P<between>(?:\s*(?:choice|option|letter|here|therefore|to\s+(?:this|the)\s+question|(?:for|of|in|from|among)\s+(?:this|the|these)(?:\s+(?:given|above))?\s+"
    r"(?:question|problem|case|options?|choices)|that\s+(?:best\s+)?(?:\w+\s+){1,5}?(?=is\b)|i\s+(?:would\s+)?(?:choose|chose|pick|give|select)|correcta?|correcte|corretta|giusta|certa|richtige|đúng|الصحيحة|الصحيح|должен))*)"
    r"\s*(?P<verb>,?\s*(?:(?:therefore|thus|then|hence|so),?\s*)?(?:is|was|are|would\s+(?:then\s+)?be|should\s+be|will\s+be|must\s+be|could\s+be|may\s+be|might\s+be|has\s+to\s+be|"
    r"seems\s+to\s+be|appears\s+to\s+be|ist|lautet|est|es|è|é|jest|to|adalah|är|là|هي|هو|হলো?|是|为|為|は|:|=|-+>?|→|=>|\|(?!\s*\n))(?!n't|\s*n't))?",
    re.I | re.M,
)
_AS_CORRECT = _rule(
    r"(?:(?!\b(?:because|since|as|others?|while|but|so|and|whereas)\b)[^.;\n]){0,90}?\b(?P<is>is|was|are|must\s+be|would\s+be|should\s+be|has\s+to\s+be|seems|appears|looks|isn't|wasn't|ist)(?P<how>(?:,?\s+(?!(?-i:[A-J])\b)\w+){0,4}?)\s+"
    r"(?P<what>richtig|korrekt|correct|right|true|best|better|answer|accurate|appropriate|most\s+(?:plausible|likely|suitable|reasonable)(?!\s+(?:wrong|incorrect|false|not)\b)|incorrect|wrong|false|untrue|inaccurate|impossible|invalid|unlikely|eliminated|excluded|irrelevant|mistaken|too|distractor|(?<!stands\s)out)\b",
    re.I,
)
_BUT_NOT = re.compile(
    r"\s+(?:only\s+(?:if|when)|if\b[^.\n]{0,60}\bwere)\b|[^.\n]{0,60}?,?\s+but\s+(?:(?:it|this|that)(?:'s|\s+is|\s+was)?|is)(?:n't|\s*(?:not|wrong|incorrect|false))\b",
    re.I,
)
_FAILS = re.compile(
    r"[)\].:|]{0,2}\s*(?:[-:|]?\s*(?:(?:incorrect|wrong)(?!\s*,)|✗|✘|❌)|[-:|]\s*(?:no|false)(?!\s*,)\b|,?\s+but\s+(?:it|this|that)(?:'s|\s+is|\s+was)(?:n't|\s+not)\b|makes\s+no\b|fails|contradicts|(?:does|do|can)(?:n't|\s+not)|cannot|can\s+be\s+(?:eliminated|ruled|excluded))",
    re.I,
)
_NOT = re.compile(
    r"n't\b|\bnot\b|\bnever\b|\bneither\b|\bhardly\b|\bfar from\b|\bleast\b|\bpart(?:ial)?ly\b",
    re.I,
)
_WRONG = {"incorrect", "wrong", "false", "untrue", "inaccurate", "impossible", "invalid"} | {
    *("unlikely", "eliminated", "excluded", "irrelevant", "mistaken", "too", "distractor", "out")
}
_CHOSEN = re.compile(
    r"(?:\b(?:choose|chose|choosing|pick(?:ed|ing)?|select(?:ed|ing)?|(?:go|going|goes|went)\s+(?:with|for)|opt(?:ed|ing)?\s+for|settled?\s+(?:on|for)|"
    r"stick(?:ing)?\s+(?:with|to)|vot(?:e|ing)\s+for|say|guess(?:ing)?|lean(?:ing)?\s+(?:towards?|to)|mark|tick|circle|think|believe|conclude|"
    r"(?:that|this|it|which|answer)(?:\s+(?:is|(?:must|will|would|should|has\s+(?:got\s+)?to|can\s+only|turns\s+out\s+to)\s+be)|'s(?:\s+got\s+to\s+be)?)|(?:this|that|which)\s+leaves(?:\s+(?:us|me))?(?:\s+with)?|leaving|left\s+with|correspond(?:s|ing)?\s+to|match(?:es)?|"
    r"points?\s+to|must\s+be|has\s+to\s+be|therefore|thus|hence|so|finally|in\s+conclusion|i\s+would\s+answer|i'd\s+answer|definitely|probably|maybe)|->|→|⇒|∴|选择|选|選)(?!n't)",
    re.I,
)
_NEGATED = _rule(
    r"(?:(?:(?:\b|can)not|\bnever)(?:\s+(?:be|think|believe|convinced|sure)\b)?(?:\s+(?:that\s+)?it(?:\s+is|\s+be)?\b)?|\bno\s+way|n't(?:\s+(?:be|think|believe)\b)?(?:\s+(?:that\s+)?it(?:'s|\s+is)?\b)?"
    r"|\b(?:any|every)thing\s+but|\ball\s+but|\brather\s+than|\binstead\s+of|\bexcept|\bthan|\bover|(?<=\bprefer\s[A-J])\s+to|\bunlike|\bversus|\bvs\.?|\bneither|\bnor|\bexclude|\beliminated?|\b(?:reject|refute|dismiss|discard|contradict)(?:s|ed)?|\brule(?:s|d)?\s+out|\bagainst|\bavoid|(?<!a\s)(?<!no\s)(?<!thout\s)\bdoubt|(?:(?<![\w,]\s)\b(?:wrong|incorrect|eliminated)(?:\s*:|\s+(?:answer|option|choice|one)\b))|[❌✗✘]|\bhardly|\bunlikely)"
    r"\s*(?:(?:is|the|option|choice|answer|letter|both|to|be|it's|it|that|choos\w+|pick|select|(?:go|going)\s+(?:with|for)|vote\s+for|opt\s+for)\s*){0,3}[\s:,]*$",
    re.I,
)
_FURTHER = re.compile(
    r"\s*(?:,?\s*\bor\b|,?\s+but\s+it\s+(?:may|might|could)\s+(?:also\s+)?be\b|[,/&]|\band\b|\bas\s+well\s+as\b|\bbut\s+also\b)\s*(?:(?:also|possibly|maybe|either|option|choice|answer|perhaps)\s+){0,2}",
    re.I,
)
_JOINED = _rule(
    r"[A-J][)\]]?\s*(?:,\s*)?(?:,|&|/|\band\b|\bor\b)\s*(?:(?:option|choice|statement)s?\s+)?[(\[]?$"
)
_SEVERAL = _rule(r"[(]?[A-J][)]?\s*(?:,|&|\b(?:and|or)\b)\s*[(]?(?!I\s[a-z])[A-J]\b")
_OR = _rule(r"[A-J][)\]]?\s+(?:or|nor|(and))\s+[(\[]?$")
_CORRECTION = re.compile(
    r"\b(?:wait|actually|no|correction|sorry|hmm|instead|however|but|so|therefore|thus|hence|final|finally|overall)\b",
    re.I,
)
_TAKEN_BACK = re.compile(
    r"(?:[.,;-]\s*(?:no|wait|actually|sorry|scratch\s+that|i\s+meant?|hmm|on\s+(?:second\s+thought|reflection)|i\s+(?:made|was)\b[^.:\n]{0,20}(?:mistake|error|wrong)n?)\b)+",
    re.I,
)
_REFUSED = re.compile(
    r"\W{0,4}(?:(?:wait|or)\b|$)|[^.\n]{0,60}\b(?:wrong|incorrect|false|mistaken|impossible|not)\b|[^.\n]{0,20}n't\b",
    re.I,
)
_MARKED = _rule(
    r"(?<![A-Za-z0-9])[(\[]?([A-J])[)\].:]{0,2}\s*(?:[-:|]\s*)?(?:(correct|right|true|yes|✓|✔|✅)"
    r"|(?:incorrect|wrong|false|no|not|✗|✘|❌))(?![A-Za-z])",
    re.I,
)
_HEAD = _rule(
    r"[ \t\-•]*(?:(?i:option|choice|answer)\s+)?(?:[(\[]\s*([A-Ja-j])\s*[)\]]"
    r"|([A-J])\s*[.):\-](?![A-Za-z0-9]\b)|([a-j])\s*[.):](?=\s)|([A-J])\s+(?=[A-Z0-9\"$\\(]))"
    r"[ \t.:\-]*"
)
_APART_BEFORE = re.compile(
    r"(?:(?:option|choice|letter|statement|answer|but|\w+ly|perhaps|[^\w\s])\s*|^\s*)$", re.I
)
_APART_AFTER = _rule(
    r"\s*(?:$|[^\w\s]|because\b|(?:is|\w+ly|for\s+(?:sure|certain)|of\s+course)\W*$|(?:not|rather\s+than|instead\s+of|over|to)\s[A-J]\b\W*)"
)
# "I suspect", "this brings us to", "the winner is": a sentence with one of these before a letter at
# its end states a conclusion.
_CONCLUDES = re.compile(
    r"(?:^|[,;:])\W*(?:(?:and|so|but|which|then)\s+)?(?:(?:just|is|its|thats|(?:could|should|would|will|might|must)\s+be|(?:I|we|you|this|that|it|which)(?:'\w+)?\s+(?:(?:have|would|will|can|must|do)\s+)?"
    r"(?:\w+|(?:\w+\s+){1,3}(?:to|with|on|for|in|at|by|towards?)))|(?:my|mine|the)\s+(?:\w+\s+){0,4}(?:is|to|with))\s+$",
    re.I,
)
_SOUGHT = re.compile(
    r"\b(?:only|best|fits?|works?|remains?|does|valid|holds?|wins?|winner|match\w*|consistent|supported|want|(?:is|be)\s+it|the\s+one|solution|describes|corr?e[ct]\w*|right|true|false|incorrect|closest|exception|belongs?|likely|surely|certainly"
    r"|clearly|obviously|lean|money|chosen|agree|like|gotta|makes|gives|given|it\s+is|answer|choice|option)\b|[\u3040-\ud7af]",
    re.I,
)
_DOUBTED = re.compile(
    r"(?:\bnot|n't)\s+(?:sure|certain|convinced|agree)\b|\b(?:no|nothing|little|never|(?<!thout\s)doubt|call\w*|denote\w*|weak\w*|least|mistake|trap|misconception|opposite"
    r"|un(?:sure|clear|like)|tempting|avoid|discard|cross|ignore|disagree|compared|worst|lacks?)\b",
    re.I,
)
_SENTENCE = _rule(r"(?<![^A-Za-z][A-J])[.!?](?=\s|$)|\n")
_LAST = _rule(r"([A-Ja-j])(?=[\s.,;:)]*$)")
_NO = _rule(r"(?i:\bno)\s[(]?[A-J]\b")
_INSTEAD = _rule(r"[^.!?\n]{0,60}\b[A-J]\W{0,9}")
_AT_END = _rule(r"\b[A-J]\W*$")
_LEAD = _rule(r"^\W*[A-J]\s+")
_ALONE = _rule(r"[^\w✗✘❌]*([A-Ja-j])[^\w✗✘❌]*")


def letter_in(text: str) -> str | None:
    """Return the letter, from A to Z, that a reply gives, or None if it gives none or several."""
    answer = first_turn(after_thoughts(text), _LETTER.search)
    plain, boxes = _plain_reply(answer)
    found = _letter_of(plain, boxes)
    if (later := _LATER.sub(_stand_in, answer)) != answer:
        plain, boxes = _plain_reply(later)
        said = (_revised(plain) or _answered(plain)) if found else _letter_of(plain, boxes)
        found = said if said and said in _STAND_INS else found
    return found.translate(_STANDS_FOR) if found else None


def _letter_of(plain: str, boxes: list[str]) -> str | None:
    """Return the letter that a plain reply gives, "" if it gives several, or None if it gives
    none.
    """
    said = (_of_clause(box) for box in reversed(boxes))
    by_rules = (read(plain) for read in _RULES)
    return next((each for each in chain(said, by_rules) if each is not None), None)


def _stand_in(found: re.Match[str]) -> str:
    return _STAND_INS[LETTERS.index(found[0].upper()) - FIRST]


def _plain_reply(text: str) -> tuple[str, list[str]]:
    """Return a reply as plain text, and the contents of its boxes."""
    text = _TICK.sub(r"\1", _DROPPED.sub("", _bounded(text)))
    text = unicodedata.normalize("NFKC", text.translate(_QUOTES)).translate(_QUOTES)
    text = _OTHER_SCRIPT.sub(lambda letter: letter[0].translate(_OF_SCRIPTS), text)
    for _ in range(3):
        text = _LATEX_DRESS.sub(r" \1", text)
    text = text.replace("\\left", "").replace("\\right", "").replace("\\ ", " ").replace("\\;", " ")
    text = re.sub(r"\$|\\[()\[\]]", " ", text)
    text = _TAG_CLOSES.sub("\n", _TAG_OPENS.sub(r"\n\1: ", text))
    text = re.sub(r"(?<=[a-z])_(?=[a-z])", " ", _MARKDOWN.sub("", text))
    text = _NAMED_SMALL.sub(lambda found: f"{found[1]} {found[2].upper()}", text)
    text = _ASKED_AND_ANSWERED.sub(_answered_question, text)
    text = _ALL_BUT.sub(
        r"\g<letter> is correct, others ", re.sub(r"(?i)\b(option|choice)-", r"\1 ", text)
    )
    text = _LISTED.sub(lambda line: re.sub(r"\s+(?=[(]?[B-J][).:]\s)", "\n", line[0]), text)
    pieces = re.split(r"(?<=[.!?\n])", _MENTIONS.sub(_without_letters, text))
    text = "".join(_LETTER.sub("", each) if _asks(each) else each for each in pieces)
    boxes = [inner or letter for inner, letter in _BOX.findall(text)]
    text = _BOX.sub(lambda box: f" ({box[1] or box[2]}) ", text)
    return re.sub(r"[ \t]{2,}", " ", text).strip(), boxes


def _asks(sentence: str) -> bool:
    return sentence.endswith(("?", "?\n")) and _ASKS.search(sentence) is not None


def _answered_question(found: re.Match[str]) -> str:
    return f"{found[1]} is correct." if found[2] else ""


def _without_letters(found: re.Match[str]) -> str:
    return _LETTER.sub("", found[0])


def _bounded(text: str) -> str:
    text = text if len(text) <= AT_START + AT_END else f"{text[:AT_START]}\n{text[-AT_END:]}"
    text = re.sub(r"[^\S\n]{2,}", " ", _INVISIBLE.sub("", text))
    return re.sub(r"\n(?: ?\n){2,}", "\n\n", text)


def _of(found: re.Match[str]) -> str:
    return next(group for group in found.groups() if group).upper()


def _of_clause(clause: str) -> str | None:
    """Return the letter named at the start of a clause that follows a verb, or else the only letter
    in it; "" if it names several letters, None if it names none.
    """
    start = _FILLER.match(clause)
    assert start is not None  # the pattern also matches an empty string
    at = start.end()
    first = _LETTER.match(clause, at) or _LAST.match(clause.rstrip(), at)
    if first is not None and not _is_negated(clause, first):
        further = _FURTHER.match(clause, first.end())
        other = _LETTER.match(clause, further.end()) if further else None
        if other is not None and _of(other) != _of(first) and not _is_negated(clause, other):
            return ""
        return _of(first)
    mentions = (each for each in _LETTER.finditer(clause) if not each["small"])
    named = {_of(each) for each in mentions if not _is_negated(clause, each)}
    return None if not named else named.pop() if len(named) == 1 else ""


def _is_negated(text: str, letter: re.Match[str]) -> bool:
    """Return True if a letter is negated or called wrong."""
    before = text[max(0, letter.start() - 60) : letter.start()]
    if joined := _OR.search(before):
        before = before[: joined.start()].rstrip("([")
    if _NEGATED.search(before) or _FAILS.match(text, letter.end()):
        return True
    return _rightness(text, letter) is False


def _rightness(text: str, letter: re.Match[str]) -> bool | None:
    """Return True if a letter is called right, False if it is called wrong, and None if it is
    called neither.
    """
    said = _AS_CORRECT.match(text, letter.end(), letter.end() + 140)
    if said is None or _LETTER.search(text, letter.end(), said.start("is")):
        return None
    if _BUT_NOT.match(text, said.end()):
        return False
    return (said["what"].lower() in _WRONG) == bool(_NOT.search(f"{said['is']} {said['how']}"))


def _clause_after(text: str, at: int) -> str:
    """Return the text from `at` to the end of the sentence, on the same line or the next non-empty
    one.
    """
    rest = text[at : at + 600]
    rest = (
        rest.lstrip(" \t:=-|")
        if not rest.strip(" \t:=-|.").startswith("\n")
        else rest.lstrip(" \t:=-|.\n")
    )
    return _SENTENCE.split(rest, maxsplit=1)[0]


def _revised(text: str) -> str | None:
    """Return the letter with which a reply corrects itself at its end, or None if it doesn't."""
    *_, back = [None, *_TAKEN_BACK.finditer(text, max(0, len(text) - 200))]
    if back is None or _NO.search(text[back.start() : back.end() + 4]):
        return None
    rest = text[back.end() :].lstrip(" .,:;-")
    return _of_clause(rest) if _INSTEAD.fullmatch(rest) else None


def _answered(text: str) -> str | None:
    """Return the letter named by the last statement of the answer, "" if it names several, or
    None if no statement names a letter.
    """
    said = None
    for found in list(_SUBJECT.finditer(text))[-MOST_READ:]:
        clause = _clause_after(text, found.end())
        before = text[max(0, found.start() - 40) : found.start()]
        if found["verb"] is None and not _begins_with_letter(clause.lstrip(), before):
            continue
        if (named := _of_clause(clause)) is not None:
            said = _unless_taken_back(named, text[found.end() : found.end() + 300])
    return said


def _begins_with_letter(clause: str, before: str) -> bool:
    """Return True if a clause without a verb begins with a letter that it doesn't call right or
    wrong.
    """
    first = _LETTER.match(clause)
    if first is None or _NEGATED.search(before):
        return False
    return _rightness(clause, first) is None


def _unless_taken_back(named: str, rest: str) -> str:
    """Return the letter that a statement names, or the letter of a correction in the text after
    it; "" if neither is certain.
    """
    if back := _TAKEN_BACK.search(rest):
        rest = rest[back.end() :]
        sentence = _SENTENCE.split(_FILLER.sub("", rest, count=1), maxsplit=1)[0]
        last = _AT_END.search(sentence)
        instead = _of_clause(sentence) if last or _alone(sentence) else ""
        return _called_right(rest) or instead or ("" if _REFUSED.match(rest) else named)
    return named or _called_right(rest) or ""


def _called_right(text: str) -> str | None:
    """Return the letter that the reply calls right or chooses, "" if there are several, or None if
    there is none.
    """
    chosen = list(_chosen(text))
    found = sorted([*_right(text), *chosen])
    named_all = {named for _, named in found}
    if len(named_all) <= 1:
        return named_all.pop() if named_all else None
    at, last = found[-1]
    before = max(place for place, named in found if named != last)
    return last if found[-1] in chosen or _CORRECTION.search(text[before:at]) else ""


def _right(text: str) -> Iterator[tuple[int, str]]:
    """Yield the position of each letter that is called right, and the letter, or "" if the letter
    is joined with others.
    """
    for letter in list(_LETTER.finditer(text))[-MOST_READ:]:
        if letter["small"] or not _rightness(text, letter):
            continue
        before = text[max(0, letter.start() - 40) : letter.start()]
        if not _NEGATED.search(before):
            yield letter.start(), "" if _JOINED.search(before[-30:]) else _of(letter)


def _chosen(text: str) -> Iterator[tuple[int, str]]:
    """Yield the position of each letter that the reply says it chooses, and the letter, or "" if it
    chooses several.
    """
    for chosen in list(_CHOSEN.finditer(text))[-MOST_READ:]:
        filler = _FILLER.match(text, chosen.end())
        assert filler is not None
        letter = _LETTER.match(text, filler.end())
        if letter is None or _is_negated(text, letter) or re.search(r"\.\s", filler[0]):
            continue
        named: str | None = ""
        joined = _OR.search(text[max(0, chosen.start() - 30) : chosen.start()])
        if joined is None or joined[1]:
            clause = text[letter.start() : letter.start() + 200]
            named = _of_clause(_SENTENCE.split(clause, maxsplit=1)[0])
        if named is not None:
            yield letter.start(), named


def _by_marks(text: str) -> str | None:
    """Return the only letter that is marked as right, if others are marked as wrong; else None."""
    marks = list(_MARKED.finditer(text))[-MOST_READ:]
    right = {mark[1].upper() for mark in marks if mark[2]}
    return right.pop() if len(right) == 1 < len({mark[1].upper() for mark in marks}) else None


def _by_lines(text: str) -> str | None:
    """Return the letter that is a line by itself, or begins a line like a choice; "" if several
    letters qualify, None if none does.
    """
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    heads = [
        (k, _of(head))
        for k, line in enumerate(lines)
        if (head := _HEAD.match(line) or _alone(line))
    ]
    shown = [letter for _, letter in heads]
    if shown[:3] == ["A", "B", "C"]:  # the reply repeats the choices
        others = (k for k, letter in enumerate(shown) if letter != LETTERS[k : k + 1])
        heads = heads[next(others, len(heads)) :]
    heads = [(k, letter) for k, letter in heads if not _called_wrong(lines[k])]
    if any(_SEVERAL.search(lines[k]) for k, _ in heads):
        return ""
    if not heads:
        return None
    named = {letter for _, letter in heads}
    if len(named) == 1 and heads[0][0] in (0, len(lines) - 1, len(lines) - 2):
        return named.pop()
    alone = {letter for k, letter in heads if _alone(lines[k])}
    if len(alone) == 1:
        return alone.pop()
    at, last = heads[-1]
    if 0 < at == len(lines) - 1 and _CORRECTION.search(lines[-2]):
        return last
    return "" if len(named) > 1 else None


def _called_wrong(line: str) -> bool:
    head = _HEAD.match(line)
    return bool(head and _FAILS.match(line, head.end(head.lastindex or 0)))


def choice_in(text: str, choices: Sequence[str]) -> str | None:
    """Return the letter of the only choice whose text a reply gives as its answer, or None."""
    wanted = [_words(choice) for choice in choices]
    plain, boxes = _plain_reply(first_turn(after_thoughts(text), _LETTER.search))
    lines = [line for line in plain.split("\n") if line.strip()]
    ends = [found.end() for found in _SUBJECT.finditer(plain) if found["verb"]]
    stated = [_clause_after(plain, end) for end in ends[-MOST_READ:]]
    for said in (*reversed(boxes), *reversed(stated), plain[:1000], *lines[:1], *lines[-1:]):
        words = _words(_LEAD.sub("", said))
        same = [k for k, choice in enumerate(wanted) if choice and choice == words]
        if len(same) == 1:
            return LETTERS[same[0]]
    for said in (words for words in reversed(stated) if not _NOT.search(words)):
        words = f" {_words(said)} "
        held = [k for k, choice in enumerate(wanted) if choice and f" {choice} " in words]
        whole = [k for k in held if not any(wanted[k] in wanted[o] for o in held if o != k)]
        if len(whole) == 1:
            return LETTERS[whole[0]]
    return None


def _words(text: str) -> str:
    return " ".join(re.findall(r"[\w.]*\w|[^\w\s.,;:!?()]", text[:2000].casefold()))


def _alone(line: str) -> re.Match[str] | None:
    return _ALONE.fullmatch(line)


def _only_mention(text: str) -> str | None:
    """Return the only letter that is mentioned without being called wrong, if it is given as an
    answer; else None.
    """
    mentions = [each for each in _LETTER.finditer(text) if not each["small"]]
    if len(mentions) > MOST_READ or (_STAND_IN.search(text) and _FORMULA.search(text)):
        return None
    mentions = [each for each in mentions if not _is_negated(text, each)]
    if any(_SEVERAL.match(text, each.start()) for each in mentions):
        return None
    if not any(_is_given(text, each) for each in mentions):
        return None
    named = {_of(each) for each in mentions}
    if len(named) != 1:
        return None
    return named.pop()


def _is_given(text: str, letter: re.Match[str]) -> bool:
    """Return True if a letter is set apart, or its sentence presents it as the answer."""
    before = _SENTENCE.split(text[max(0, letter.start() - 200) : letter.start()])[-1]
    after = _SENTENCE.split(text[letter.end() : letter.end() + 200])[0]
    apart = letter["marked"] or (_APART_BEFORE.search(before) and _APART_AFTER.match(after))
    sentence = f"{before} {after}"
    concludes = _APART_AFTER.fullmatch(after) and _CONCLUDES.search(before)
    return bool(apart or concludes or _SOUGHT.search(sentence)) and not _DOUBTED.search(sentence)


_RULES = (_revised, _answered, _called_right, _by_marks, _by_lines, _only_mention)
