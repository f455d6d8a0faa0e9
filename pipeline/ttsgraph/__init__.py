"""Find the graph of model calls that answers best within a budget.

    result = ttsgraph.search(models=[...], questions="qa.jsonl", grade="exact", budget="$0.002")
    result.graph; result.compare(); result.ask("..."); result.save("folder")
    ttsgraph.load("folder").ask("...")

The library is in this folder: graphs, budgets, search and evaluation. It doesn't import prefect,
mlflow or dvc, and imports ttsgraph_flows only in the commands that need it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers
    from ttsgraph.api.result import Comparison as Comparison
    from ttsgraph.api.result import Result as Result
    from ttsgraph.api.result import load as load
    from ttsgraph.api.result import search as search

IN_PYTHON = ("search", "load", "Result", "Comparison")
"""Names imported on first use: `import ttsgraph` loads no code for tables, plots or clients."""


def __getattr__(name: str) -> Any:
    if name not in IN_PYTHON:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".api.result", __name__), name)
