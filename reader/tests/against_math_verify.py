"""How many replies are graded as they are to be, here and by math-verify alone: ordinary ones, and
those of these tests, which were collected for being hard:

    python tests/against_math_verify.py
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from math_verify import parse, verify
from rows import rows

from finalanswer import answer_in, normalise, same_value

VALUES = (
    "12",
    "-3",
    "0.5",
    "1200",
    "\\frac{3}{4}",
    "2\\sqrt{3}",
    "(1,2)",
    "[0,1)",
    "x^2+1",
    "\\pi",
)
WAYS = (
    "We get $\\boxed{{{}}}$.",
    "So 1 + 1 = 2.\n\nThe answer is $\\boxed{{{}}}$",
    "The final answer is ${}$. I hope it is correct.",
    "Answer: ${}$",
    "Thus, the value is ${}$.",
    "<think>Is it 7? No.</think>\n\n$\\boxed{{{}}}$",
)
SECONDS = 30


def here(expected: str, reply: str) -> bool:
    found = answer_in(reply)
    return found is not None and same_value(normalise(expected), found)


def by_math_verify(expected: str, reply: str) -> bool:
    gold, given = (parse(text, parsing_timeout=SECONDS) for text in (f"${expected}$", reply))
    return bool(verify(gold, given, timeout_seconds=SECONDS))


def main() -> None:
    logging.disable(logging.WARNING)
    hard = rows("math_replies.txt")
    ordinary = [[value, "right", way.format(value)] for value in VALUES for way in WAYS]
    for name, cases in (("ordinary", ordinary), ("hard", hard)):

        def graded(grade: Callable[[str, str], bool], among: list[list[str]] = cases) -> int:
            return sum(grade(right, reply) is (said == "right") for right, said, reply in among)

        ours, theirs = graded(here), graded(by_math_verify)
        print(f"of {len(cases)} {name} replies: finalanswer {ours}, math-verify {theirs}")


if __name__ == "__main__":
    main()
