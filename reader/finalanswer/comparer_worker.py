"""Compare formulas with math-verify: read one JSON line [right, answer] per request from stdin, and
answer it with true or false.

comparer.py runs this module as a program. A request that exceeds its processor time ends the
process.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys

DIGITS = 100
"""Number of digits to which exact numbers are evaluated."""

TINY = 1e-90
"""Relative tolerance with which exact numbers are compared."""


def equal(right: str, answer: str) -> bool:
    """Return True if two formulas are equal.

    math-verify decides, with two exceptions: equations are also equal if they are multiples of each
    other, and numbers have to agree more closely than math-verify requires.
    """
    import sympy
    from math_verify import parse, verify

    gold, given = (parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (right, answer))
    pair = gold[0], given[0]
    if all(isinstance(each, sympy.Eq) for each in pair):
        sides = [each.lhs - each.rhs for each in pair]
        ratio = sympy.simplify(sides[0] / sides[1])
        if ratio.is_number and ratio.is_finite and ratio != 0:
            return True
    if not verify(gold, given, timeout_seconds=None):
        return False
    if not all(isinstance(each, sympy.Expr) and each.is_number for each in pair):
        return True
    if any(each.has(sympy.Float) or each.is_finite is False for each in pair):
        return True
    apart = pair[0] - pair[1]
    share = (apart / pair[0]).evalf(DIGITS)
    return bool(share.is_finite and abs(share) < TINY) or apart.equals(0) is not False


def main(cpu_seconds: float, memory: int) -> None:
    """Answer requests until stdin ends."""
    import math_verify  # noqa: F401  so that requests' processor time excludes the import

    # Hide math-verify's warning that its own time limits are off: the timer below replaces them,
    # and also stops arithmetic that ignores signal handlers.
    logging.disable(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    print("ready", flush=True)
    for line in sys.stdin:
        right, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        try:
            found = equal(right, answer)
        except Exception:  # formulas that can't be compared are not equal
            found = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
