"""`make repro SEED=n`: the whole run from another seed, in a folder of its own."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.simulated_project import SimulatedProject

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> SimulatedProject:
    return SimulatedProject(tmp_path_factory.mktemp("seeded"))


def rebuilt(project: SimulatedProject, seed: int) -> subprocess.CompletedProcess[str]:
    done = project.stage("seeded", "--seed", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def made_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_seed_is_run_whole_in_its_own_folder_and_the_project_stays_as_it_was(
    project: SimulatedProject,
) -> None:
    params = (project.folder / "params.yaml").read_text()
    before = made_in(project.folder)
    done = rebuilt(project, 5)
    own = project.folder / "seeds" / "5"
    page = "reports/simulated-small/index.html"
    assert "math: " in done.stdout
    assert done.stdout.strip().endswith(f"report: seeds/5/{page}")
    assert (own / page).exists()
    assert yaml.safe_load((own / "params.yaml").read_text())["seed"] == 5
    assert (own / "mlflow.db").exists()
    assert (own / "dvc.lock").exists()
    assert (project.folder / "params.yaml").read_text() == params
    assert made_in(project.folder) - before <= {"seeds", ".ttsgraph"}


def test_the_same_seed_again_is_up_to_date(project: SimulatedProject) -> None:
    assert "up to date" in rebuilt(project, 5).stdout
