"""`make repro SEED=n`: the whole run from another seed, in a folder of its own."""

import pytest
import yaml

from tests.support.simulated_project import SimulatedProject


@pytest.mark.slow
def test_a_seed_is_run_whole_in_its_own_folder_and_the_project_stays_as_it_was(tmp_path):
    project = SimulatedProject(tmp_path / "project")
    params = (project.folder / "params.yaml").read_text()
    before = {path.name for path in project.folder.iterdir()}
    done = project.stage("seeded", "--seed", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    own = project.folder / "seeds" / "5"
    page = "reports/simulated-small/index.html"
    assert "math: " in done.stdout
    assert done.stdout.strip().endswith(f"report: seeds/5/{page}")
    assert yaml.safe_load((own / "params.yaml").read_text())["seed"] == 5
    assert all((own / name).exists() for name in (page, "mlflow.db", "dvc.lock"))
    assert (project.folder / "params.yaml").read_text() == params
    made = {path.name for path in project.folder.iterdir()} - before
    assert made <= {"seeds", ".ttsgraph"}
    assert "up to date" in project.stage("seeded", "--seed", "5").stdout
