"""Paths of a project's state."""

from pathlib import Path

EXPERIMENTS = (".dvc", "tmp", "exps")
"""Folder of DVC's copy of a project, for an experiment outside its working tree."""


def home() -> Path:
    """Folder of the project: the working directory, as a relative path; in an experiment's copy
    (`dvc exp run --temp`, `--queue`) the original folder. So calls, spending, models and MLflow's
    database are the project's there too, and outlast the copy.
    """
    here = Path.cwd()
    copies = (folder for folder in here.parents if folder.parts[-3:] == EXPERIMENTS)
    return next((folder.parents[2] for folder in copies), Path())


STATE = home() / ".ttsgraph"
"""Folder of converted models, logs, the running servers and the call cache."""

SERVE_PYTHON = str(home() / ".venv-serve/bin/python")
"""Python of the environment that serves models."""
