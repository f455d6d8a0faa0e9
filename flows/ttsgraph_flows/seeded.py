"""`make repro SEED=n`: the whole run with another seed, in seeds/<n>/.

The folder has links to the code, and its own params.yaml, results, report, MLflow database and DVC
cache; it shares model servers, weights and recorded calls with the project. The project's
params.yaml stays unchanged.
"""

import shutil
from contextlib import chdir
from pathlib import Path

from ttsgraph.settings.profile import load_params
from ttsgraph_flows.dvc_stages import dvc
from ttsgraph_flows.ending import command
from ttsgraph_flows.project_copy import copy_into, link_state
from ttsgraph_flows.repro import repro

SEEDS = Path("seeds")
DVC = Path(".dvc")
IGNORED = Path(".dvcignore")


def seeded(seed: int, profile: str = "") -> None:
    """Rebuild changed results with this seed in seeds/<seed>/, where results of earlier runs are
    kept. Ends in the same way as `repro`.
    """
    params = load_params(profile=profile)
    folder = SEEDS / str(seed)
    copy_into(folder.absolute(), params.model_copy(update={"seed": seed}))
    link_state(folder)
    shutil.copy(IGNORED, folder)
    if not (folder / DVC).exists():
        made = shutil.ignore_patterns("cache", "tmp")
        shutil.copytree(DVC, folder / DVC, ignore=made)
        dvc("config", "core.no_scm", "true", folder=folder)
    with chdir(folder):
        repro(folder=folder)


if __name__ == "__main__":
    command(seeded, seed={"type": int, "required": True}, profile={"default": ""})
