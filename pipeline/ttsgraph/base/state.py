"""The places of a project's state."""

from pathlib import Path

EXPERIMENTS = (".dvc", "tmp", "exps")
"""The folder of DVC's copy of a project, for an experiment that is not run in its working tree."""


def home() -> Path:
    """The project's folder: the working directory, as a relative path; in a copy of an experiment
    (`dvc exp run --temp`, `--queue`) the folder that it is a copy of. So calls, spendings, models
    and MLflow's database are the project's there too, and outlast the copy.
    """
    here = Path.cwd()
    copies = (folder for folder in here.parents if folder.parts[-3:] == EXPERIMENTS)
    return next((folder.parents[2] for folder in copies), Path())


STATE = home() / ".ttsgraph"
"""Converted models, logs, the running servers, the call cache."""

SERVE_PYTHON = str(home() / ".venv-serve/bin/python")
"""The Python of the environment that serves models."""
