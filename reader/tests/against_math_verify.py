"""How many replies are graded as they are to be, here and by math-verify alone: ordinary ones, and
those of these tests, which were collected for being hard:

    python tests/against_math_verify.py
"""

from __future__ import annotations

import logging

from math_verify import parse, verify
from rows import rows
from test_values import right

SECONDS = 30


def by_math_verify(expected: str, reply: str) -> bool:
    gold, given = (parse(text, parsing_timeout=SECONDS) for text in (f"${expected}$", reply))
    return bool(verify(gold, given, timeout_seconds=SECONDS))


def main() -> None:
    logging.disable(logging.WARNING)
    for name, file in (("ordinary", "ordinary_replies.txt"), ("hard", "math_replies.txt")):
        cases = rows(file)
        ours, theirs = (
            sum(grade(expected, reply) is (said == "right") for expected, said, reply in cases)
            for grade in (right, by_math_verify)
        )
        print(f"of {len(cases)} {name} replies: finalanswer {ours}, math-verify {theirs}")


if __name__ == "__main__":
    main()
