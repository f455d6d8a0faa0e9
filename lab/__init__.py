"""Measurements of the product, not shipped with it: the paper's study, searches over tables of
answers, benchmarks, and fuzzing of whole searches.

    python -m lab.study --seeds 2
    python -m lab.pools run rows.csv
    python -m lab.benchmarks peers
    python -m lab.fuzz --searches 200
"""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python_path(project: Path) -> str:
    """Return the PYTHONPATH for a process that runs the code in a copy of the project."""
    roots = ("pipeline", "flows", "checker", "reader", ".")
    return os.pathsep.join(str(project / root) for root in roots)
