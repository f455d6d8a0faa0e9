r"""Extract the final answer from a language model's reply, and compare it with the expected one.

>>> from finalanswer import answer_in, letter_in, same_value
>>> letter_in("B is tempting, but wrong. I'd go with C.")
'C'
>>> answer_in("So $x = 1{,}200$ or, as a fraction of 2400, ... The answer is **0.50**.")
'0.5'
>>> same_value(r"\frac{1}{2}", "0.5")
True
"""

from finalanswer.calculation import program_value
from finalanswer.errors import MissingLibrary, NotCompared, ReaderError
from finalanswer.letters import LETTERS, choice_in, letter_in
from finalanswer.number import near, number_in
from finalanswer.pattern import broken_pattern, found_by, matches
from finalanswer.structured import (
    breaks,
    broken_schema,
    canonical,
    last_value,
    share_right,
    value_in,
)
from finalanswer.values import (
    answer_in,
    fraction_of,
    last_boxed,
    normalise,
    same_plainly,
    same_value,
)
from finalanswer.words import form_in, label_in, normalised, token_f1

__all__ = [
    "LETTERS",
    "MissingLibrary",
    "NotCompared",
    "ReaderError",
    "answer_in",
    "breaks",
    "broken_pattern",
    "broken_schema",
    "canonical",
    "choice_in",
    "form_in",
    "found_by",
    "fraction_of",
    "label_in",
    "last_boxed",
    "last_value",
    "letter_in",
    "matches",
    "near",
    "normalise",
    "normalised",
    "number_in",
    "program_value",
    "same_plainly",
    "same_value",
    "share_right",
    "token_f1",
    "value_in",
]
