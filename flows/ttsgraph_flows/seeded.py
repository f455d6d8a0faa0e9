"""`make repro SEED=n`: the whole run with another seed, in seeds/<n>/.

The folder has links to the code, and its own params.yaml, results, report, MLflow database and DVC
cache; it shares model servers, weights and recorded calls with the project. The project's
params.yaml stays unchanged.
"""

import shutil
from contextlib import chdir
from pathlib import Path

from ttsgraph.settings.profile import Params, load_params
from ttsgraph_flows.dvc_stages import dvc
from ttsgraph_flows.ending import command
from ttsgraph_flows.repro import repro
from ttsgraph_flows.verify import COPIED, copy_into, link_state

SEEDS = Path("seeds")
DVC = Path(".dvc")
IGNORED = Path(".dvcignore")


def refresh(folder: Path, params: Params) -> None:
    """Copy or link the project's code, settings and models into a folder, with these params.
    Results of earlier runs in that folder are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_symlink():
            path.unlink()
        elif path.name in COPIED:
            shutil.rmtree(path)
    copy_into(folder.resolve(), params)
    link_state(folder)


def seeded(seed: int, profile: str = "") -> None:
    """Rebuild changed results with this seed in seeds/<seed>/. Ends as `repro` does."""
    params = load_params()
    own = {"seed": seed, "profile": profile or params.profile}
    folder = SEEDS / str(seed)
    refresh(folder, params.model_copy(update=own))
    shutil.copy(IGNORED, folder)
    if not (folder / DVC).exists():
        made = shutil.ignore_patterns("cache", "tmp")
        shutil.copytree(DVC, folder / DVC, ignore=made)
        dvc("config", "core.no_scm", "true", folder=folder)
    with chdir(folder):
        repro(folder=folder)


if __name__ == "__main__":
    command(seeded, seed={"type": int, "required": True}, profile={"default": ""})
