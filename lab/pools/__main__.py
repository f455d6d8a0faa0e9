"""Whole searches over tables of answers, compared with the best plain forms in hindsight;
simulated, except for the record `gsm8k`.

    python -m lab.pools run a.csv                  search in all worlds for tuning
    python -m lab.pools run b.csv --held-out       in the held-out worlds, only for reporting
    python -m lab.pools run c.csv --worlds gem-7 gsm8k --questions 150 400 1000 --seeds 0 1
    python -m lab.pools run d.csv --without routes            a part of the contest switched off
    python -m lab.pools summary a.csv              shortfalls, costs, coverage
    python -m lab.pools compare a.csv d.csv        paired differences, d minus a

A run appends a row for each search, and skips the searches that already have a row in the file, so
searches without a part need another file. A world is a pool's name (see named.yaml), a kind with a
seed (see kinds.py), or gsm8k (see SOURCES.md); these files are in lab/pools.
"""

import argparse
import sys
from pathlib import Path
from typing import get_args

from lab.pools import report
from lab.pools.run import cells_of, run_all
from lab.pools.worlds import names, world_of
from ttsgraph.base.errors import InputError
from ttsgraph.settings.stages import ContestPart

GOLDENS = Path(__file__).with_name("goldens")
"""Folder with rows of searches by earlier code. Their results count among the known ones."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser("python -m lab.pools", description=__doc__, formatter_class=raw)
    commands = made.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="search, and append a row for each search")
    run.add_argument("file", type=Path, help="the CSV file of rows")
    run.add_argument("--worlds", nargs="+", default=[], help="names; default: a whole part")
    run.add_argument(
        "--held-out", action="store_true", help="the held-out part, only for reporting"
    )
    run.add_argument("--questions", nargs="+", type=int, default=[150, 400])
    run.add_argument("--budgets", nargs="+", default=[], help="such as 4-cheap 8-cheap 3-dear 25%%")
    run.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    run.add_argument("--processes", type=int, default=2)
    parts = get_args(ContestPart)
    run.add_argument("--without", nargs="+", default=[], choices=parts, help="parts switched off")
    summary = commands.add_parser("summary", help="summary of rows, with standard errors")
    summary.add_argument("files", nargs="+", type=Path)
    compare = commands.add_parser("compare", help="paired differences, with standard errors")
    compare.add_argument("files", nargs=2, type=Path)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 1 if a search failed."""
    options = parser().parse_args(arguments)
    if options.command == "run":
        worlds = map(world_of, options.worlds or names(options.held_out))
        cells = cells_of(worlds, options.questions, options.budgets, options.seeds)
        return int(run_all(cells, options.file, options.processes, options.without) > 0)
    if options.command == "compare":
        print(report.compared(*(report.read([path]) for path in options.files)).to_string())
        return 0
    table = report.read(options.files)
    earlier = [path for path in sorted(GOLDENS.glob("*.csv")) if path.stat().st_size]
    table = report.with_shortfalls(table, report.read([*options.files, *earlier]))
    for by in (["held_out"], ["held_out", "questions"], ["budget"], ["world"]):
        print(report.summary(table, by).to_string(), end="\n\n")
    print(report.kinds(table).to_string())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(str(error))
