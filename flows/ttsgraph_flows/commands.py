"""Commands of `ttsgraph` about published results. What they need is imported when they are run."""

import sys
from typing import Annotated

import typer

Tasks = Annotated[
    list[str] | None, typer.Argument(help="tasks of the profile (default: those of params.yaml)")
]


def verify(tasks: Tasks = None) -> None:
    """Rebuild everything from recorded calls, without any model and in a temporary folder, and
    compare it with what is recorded.

    Ends with exit code 2 where something is different, else with 6 where a task's calls aren't
    here, so that it and the report are not verified. Example: ttsgraph verify math
    """
    from ttsgraph_flows.verify import exit_code
    from ttsgraph_flows.verify import verify as rebuilt

    sys.exit(exit_code(rebuilt(None, tasks or ())))


def register(tasks: Tasks = None) -> None:
    """Bring results that were pulled, or moved to another folder, into this folder's MLflow and
    registry, without any model.

    Example: ttsgraph register math
    """
    from ttsgraph_flows.verify import register as registered

    for line in registered(tasks or ()):
        print(line)
