"""Variants through the stages, the registry, the report and a re-search, on the simulated pool."""

from contextlib import chdir

import pandas as pd
import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph_flows import research

pytestmark = pytest.mark.slow
SMALL = "llama-3.2-1b"
WISE = f"{SMALL}:wise"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Searched with a variant that is by far the best there is, and one that is as its model."""
    project = SimulatedProject(tmp_path_factory.mktemp("variants"))
    variants = {"wise": {"reasoning_effort": "high"}, "t0": {"temperature": 0}}
    project.settings["pool"][SMALL] = project.settings["pool"][SMALL] | {"variants": variants}
    project.settings["simulation"]["skill"][WISE] = 4.0
    project.build("agent_reinforce")
    return project


def test_a_search_finds_a_graph_of_the_best_variant_and_has_to_beat_it_alone(project):
    profile = pd.read_parquet(project.results / "profile.parquet").set_index("model")
    assert profile.loc[WISE, "accuracy"] > profile.loc[SMALL, "accuracy"] + 0.3
    assert profile.loc[WISE, "budget_units"] == profile.loc[SMALL, "budget_units"]
    found = CollaborationGraph.read(project.results / "agent_reinforce" / "graph.json")
    assert WISE in found.model_counts()
    test = pd.read_parquet(project.results / "agent_reinforce" / "test.parquet").set_index("arm")
    assert test.loc["single", "label"] == WISE


def test_a_variant_that_joins_is_a_newcomer_and_one_that_changes_ends_its_champion(project):
    before = project.settings["pool"][SMALL]

    def plan(**variants):
        known = before | {"variants": before["variants"] | variants}
        project.settings["pool"][SMALL] = known
        project.save()
        with chdir(project.folder):
            registry = research.Registry(project.uri)
            champion = registry.find("math@champion")
            return research.planned(research.load_stage("math"), registry, champion)

    assert plan().kind == "nothing"
    joined = plan(cold={"temperature": 0.1})
    assert (joined.kind, joined.newcomers) == ("warm", (f"{SMALL}:cold",))
    changed = plan(wise={"reasoning_effort": "low"})
    assert changed.reason == f"the champion uses {WISE}, which left the pool or changed"
