"""Limits hold for every stage that asks models, the contest of the init stages among them."""

from __future__ import annotations

import json
from contextlib import chdir

import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph.base.errors import LimitReached
from ttsgraph_flows.init_family import init_family
from ttsgraph_flows.init_instances import init_instances
from ttsgraph_flows.pilot import pilot
from ttsgraph_flows.profile import profile_models
from ttsgraph_flows.sample import sample

TOKENS = 40_000


@pytest.mark.slow
def test_every_stage_stops_at_the_limit_and_goes_on_with_a_higher_one(tmp_path):
    project = SimulatedProject(tmp_path)
    stages = {"profile": profile_models, "pilot": pilot}
    stages |= {"init_family": init_family, "init_instances": init_instances}

    def limited(**limits: int) -> None:
        project.settings["limits"] = limits
        project.save()

    def spent(stage: str) -> int:
        return json.loads((project.results / "spent" / f"{stage}.json").read_text())["tokens"]

    with chdir(project.folder):
        sample.fn("math")
        for name, stage in stages.items():
            made = project.results / f"{name}.parquet"
            limited(tokens=2000)
            found = set()
            for _ in range(2):
                with pytest.raises(LimitReached, match=r"limits\.tokens of 2000 reached"):
                    stage.fn("math")
                found.add(spent(name))
            (first,) = found  # nothing more, when it is started again
            assert 2000 <= first < TOKENS
            assert not made.exists()
            limited(tokens=10**9)
            stage.fn("math")
            assert made.exists()
            assert spent(name) > first
            limited()
            stage.fn("math")  # as before: nothing is counted where nothing is limited
