"""Paths where a project keeps its state."""

from pathlib import Path


def home() -> Path:
    """Return the folder of the project: the working directory, as a relative path.

    In the copy of an experiment (`dvc exp run --temp` or `--queue`), return the original project's
    folder. Experiments thus share the project's call cache, spending, models and MLflow database,
    which outlast the copy.
    """
    # DVC copies the project into this folder for an experiment outside the working tree.
    copies = (each for each in Path.cwd().parents if each.parts[-3:] == (".dvc", "tmp", "exps"))
    return next((folder.parents[2] for folder in copies), Path())


STATE = home() / ".ttsgraph"
"""Folder with converted models, logs, the record of running servers, and the call cache."""

SERVE_PYTHON = str(home() / ".venv-serve/bin/python")
"""Path of the Python interpreter in the environment that serves models."""
