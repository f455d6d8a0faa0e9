"""The outcome of a search on Ray, which the development extra lacks, is that of one process."""

from importlib.util import find_spec

import pytest

from tests.flows.test_full_disk import outcome
from tests.support.simulated_project import SimulatedProject
from ttsgraph_flows.repro import prefect_server

MISSING = find_spec("prefect_ray") is None


@pytest.mark.long
@pytest.mark.skipif(MISSING, reason="prefect-ray is not installed: pip install 'ttsgraph[ray]'")
def test_workers_of_ray_find_what_one_process_finds(tmp_path):
    project = SimulatedProject(tmp_path)
    project.build()
    here = outcome(project.results / "random")
    project.settings["workers"] = {"kind": "ray", "count": 2}
    project.save()
    for path in (project.results / "random").glob("*"):
        path.unlink()
    with prefect_server(tmp_path / ".ttsgraph") as url:
        command = ("python", "-m", "ttsgraph_flows.search", "--task", "math", "--method", "random")
        done = project.run("env", f"PREFECT_API_URL={url}", *command)
    assert done.returncode == 0, done.stderr
    assert outcome(project.results / "random") == here
