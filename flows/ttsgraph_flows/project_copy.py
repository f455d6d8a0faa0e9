"""Copy of a project in another folder, for a run with another seed or for a verification: the code
is linked, and the copy has its own params.yaml, results and MLflow database.
"""

import shutil
from pathlib import Path

import yaml

from ttsgraph.base.files import write_text
from ttsgraph.base.state import SERVE_PYTHON, STATE
from ttsgraph.settings.profile import Params, load_profile

MADE_HERE = (
    *("data", "results", "reports", "research", "calls"),
    *("promotions", "mlruns", "mlflow.db", "params.yaml", "dvc.lock", "seeds", "site"),
)
COPIED = ("inputs", "profiles")
"""Folders that are copied into a copy of the project; other folders are linked."""


def copy_into(folder: Path, params: Params) -> None:
    """Copy or link the inputs of stages into a folder, in place of earlier copies, with a separate
    MLflow database; only the folders in COPIED are copied.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for link in filter(Path.is_symlink, folder.iterdir()):
        link.unlink()
    for path in Path().iterdir():
        if path.name.startswith((".", "mlflow.db")) or path.name in MADE_HERE:
            continue
        copy = folder / path.name
        if path.name in COPIED:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy)
        else:
            copy.symlink_to(path.resolve())
    own = params.model_copy(update={"tracking_uri": f"sqlite:///{folder}/mlflow.db"})
    write_text(folder / "params.yaml", yaml.safe_dump(own.model_dump(mode="json")))
    load_profile(params.profile)


def link_state(folder: Path, state: Path = STATE) -> None:
    """Link this project's models and the calls in `state` into a copy of the project."""
    state.mkdir(parents=True, exist_ok=True)
    (folder / STATE).symlink_to(state.resolve())
    serving = Path(SERVE_PYTHON).parents[1]
    (folder / serving).symlink_to(serving.resolve())
