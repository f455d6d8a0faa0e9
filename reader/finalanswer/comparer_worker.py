"""Compares formulas with math-verify, one JSON line a request: [right, answer] in, true or false
out.

Run as a program by comparer.py. A request that needs more processor time than allowed ends the
process.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys


def main(cpu_seconds: float, memory: int) -> None:
    """Answer requests until stdin ends."""
    from math_verify import parse, verify

    # math-verify warns that its own timeouts are off; the timer below can also stop arithmetic that
    # ignores signal handlers.
    logging.disable(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    print("ready", flush=True)
    for line in sys.stdin:
        right, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        try:
            gold, given = (
                parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (right, answer)
            )
            equal = bool(verify(gold, given, timeout_seconds=None))
        except Exception:  # what can't be compared is not equal
            equal = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(equal), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
