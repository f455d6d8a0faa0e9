"""What shows how good the product is, and isn't shipped with it: the paper's study, simulated
worlds, benchmarks, and a fuzz of whole searches.

python -m lab.study --seeds 2
python -m lab.worlds --only math
python -m lab.benchmarks wall
python -m lab.fuzz --searches 200
"""

import os
from pathlib import Path

from ttsgraph.base.code import PACKAGES, Code, own_code

ROOT = Path(__file__).parents[1]


def python_path(project: Path) -> str:
    """PYTHONPATH of a process that runs the code of a copy of the project."""
    roots = ("pipeline", "flows", "checker", "reader", ".")
    return os.pathsep.join(str(project / root) for root in roots)


def code_digest(*modules: str) -> str:
    """SHA-256 of the code that these modules run, of the laboratory's and of the product's."""
    code = Code(*own_code().roots, ROOT, packages=(*PACKAGES, __name__))
    return code.digest(*modules)
