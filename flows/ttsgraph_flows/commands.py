"""Commands of `ttsgraph` about published results. What they need is imported when they are run."""

import sys
from typing import Annotated

import typer

Tasks = Annotated[
    list[str] | None, typer.Argument(help="tasks of the profile (default: those of params.yaml)")
]


def verify(tasks: Tasks = None) -> None:
    """Rebuild everything from recorded calls, without any model and in a temporary folder, and
    compare it with dvc.lock.

    Example: ttsgraph verify math
    """
    from ttsgraph.base.ending import EXIT_INPUT
    from ttsgraph_flows.verify import verify as rebuilt

    if any(verdict.wrong for verdict in rebuilt(None, tasks or ()).values()):
        sys.exit(EXIT_INPUT)


def register(tasks: Tasks = None) -> None:
    """Bring results that were pulled, or moved to another folder, into this folder's MLflow and
    registry, without any model.

    Example: ttsgraph register math
    """
    from ttsgraph_flows.verify import register as registered

    for line in registered(tasks or ()):
        print(line)
