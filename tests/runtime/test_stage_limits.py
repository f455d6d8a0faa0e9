"""Limits hold for every stage that asks models, the contest of the init stages among them."""

from __future__ import annotations

import json
from contextlib import chdir
from typing import Any

import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph.base.errors import LimitReached
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.topologies import single
from ttsgraph_flows.init_family import init_family
from ttsgraph_flows.init_instances import init_instances
from ttsgraph_flows.pilot import pilot
from ttsgraph_flows.profile import profile_models
from ttsgraph_flows.sample import sample
from ttsgraph_flows.stage import load_stage

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


@pytest.mark.slow
def test_other_settings_begin_another_account_and_other_limits_do_not(tmp_path):
    project = SimulatedProject(tmp_path)

    async def some_calls(environment: Environment) -> None:
        await environment.evaluate(
            single("llama-3.2-1b"), load_stage("math").questions["train"][:2]
        )

    def known(**changes: Any) -> int:
        project.settings.update(changes)
        project.save()
        stage = load_stage("math")
        before = stage.meter("one").spent.tokens
        stage.with_models(some_calls, account="one")
        return before

    with chdir(project.folder):
        sample.fn("math")
        assert known(limits={"tokens": 10**9}) == 0
        first = known()
        assert first > 0
        assert known(limits={"tokens": 10**8}) == 2 * first
        assert known(roles=["assistant"]) == 0
