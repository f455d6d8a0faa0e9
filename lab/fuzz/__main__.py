"""Command of the fuzzer; the exit status is 1 if a search ended neither in a result nor in an error
that names a setting.
"""

import argparse
import random
import sys
import time
import warnings
from collections import Counter

from lab.fuzz import __doc__ as about
from lab.fuzz.cases import failures


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n\n")[0])
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", type=int, help="number of the only search to run")
    options = parser.parse_args()
    numbers = (
        range(options.searches) if options.only is None else range(options.only, options.only + 1)
    )
    warnings.simplefilter("error", RuntimeWarning)  # so a division by zero fails
    print(f"seed {options.seed}", flush=True)
    ended = Counter[str]()
    for number, report in failures(options.seed, numbers, ended):
        again = f"python -m lab.fuzz --seed {options.seed} --only {number}"
        print(f"search {number}: {again}\n{report}", flush=True)
    counts = ", ".join(f"{count} {how}" for how, count in ended.most_common())
    print(f"{counts}; {time.process_time() / len(numbers):.2f} core seconds each")
    return int(bool(ended["failed"]))


if __name__ == "__main__":
    sys.exit(main())
