"""Extraction of the part of a reply that contains its answer: the text after the reasoning, and
before any further question or turn that the model adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

MOST_TURNS = 10
"""Maximum number of places that are tried as the beginning of another question."""

# The channels of gpt-oss are recognised even if a server has removed the marks around their names.
_THOUGHTS_END = re.compile(
    r"</(?:seed:)?(?:think|thinking|thought|reasoning|reflection)>|◁/think▷|\[/THINK\]"
    r"|<\|END_THINKING\|>|<\|channel\|>final<\|message\|>|assistantfinal",
    re.IGNORECASE,
)
_THOUGHTS_BEGIN = re.compile(r"\s*(?:(?i:<think(?:ing)?>)|analysis(?=[A-Z]))")
_MARKED_END = re.compile(
    r"<\|(?:im_(?:end|start)|e(?:ot|om)_id|start_header_id|end(?:_?of_?(?:text|prompt))?|return|user)\|>"
    r"|<\|END_OF_TURN_TOKEN\|>|<(?:eos|end_of_turn|start_of_turn)>|<｜[^｜\n]{1,30}｜>|\[INST\]"
    r"|</s>(?=\s*(?:\Z|<s>|\[INST\]))"
)
_WHOSE = r"(?:Q|Question|Problem|Exercise|Instruction|User|Human)"
_NEXT = re.compile(
    rf"\n[^\S\n]*(?:[#*>_]{{1,6}}[^\S\n]*)?{_WHOSE}\s?\d*\s?[*_]{{0,2}}:"
    rf"|\n[^\S\n]*#{{1,6}}[^\S\n]*(?:(?:New|Next)\s)?{_WHOSE}[^\S\n]*\d*[^\S\n]*(?=\n)"
)


def after_thoughts(text: str) -> str:
    """Return the part of a reply after its reasoning, the whole reply if it shows no reasoning, or
    "" if the reasoning never ends.
    """
    ends = [each.end() for each in _THOUGHTS_END.finditer(text)]
    if ends:
        return text[ends[-1] :].strip()
    return "" if _THOUGHTS_BEGIN.match(text) else text


def first_turn(text: str, answers: Callable[[str], object]) -> str:
    """Return a reply up to its end mark, and up to the first further question before which the text
    satisfies `answers`.
    """
    text = next((part for part in _MARKED_END.split(text) if part.strip()), text)
    places = (each.start() for each in islice(_NEXT.finditer(text), MOST_TURNS))
    return next((text[:at] for at in places if answers(text[:at])), text)
