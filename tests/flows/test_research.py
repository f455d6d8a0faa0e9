"""What a change calls for, what a warm search finds, and what becomes of the champion."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path

import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph.base.errors import DeploymentError
from ttsgraph_flows import report, research
from ttsgraph_flows.lineage import lineage
from ttsgraph_flows.repro import changed_stages

pytestmark = pytest.mark.slow
STRONG = "llama-3.1-8b"
USELESS = "gemma-1.1-2b"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Searched without the strong model; the tests run in order and add models."""
    project = SimulatedProject(tmp_path_factory.mktemp("research"))
    project.settings["deploy"] = {"promote": "better", "confidence": 0.6}
    project.save()
    project.build("agent_reinforce")
    with chdir(project.folder):
        report.report.fn()
    project.dvc("commit", "-f", "-q")
    return project


def run(project, reason="test"):
    with chdir(project.folder):
        return research.research.fn("math", reason=reason)


def stale(project):
    with chdir(project.folder):
        return changed_stages()


def test_nothing_is_searched_when_nothing_changed(project):
    outcome = run(project)
    assert (outcome["plan"], outcome["champion"], outcome["calls"]) == ("nothing", "math/1", 0)
    assert "no model joined" in outcome["reason"]


def test_a_search_that_was_killed_after_its_promotion_is_finished_by_the_next_start(
    project, tmp_path, monkeypatch
):
    copy = project.copy(tmp_path / "copy")
    copy.settings["pool"][STRONG] = copy.whole_pool[STRONG]
    copy.save()

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(research, "sealed", killed)
        with pytest.raises(KeyboardInterrupt):
            run(copy)
    outcome = run(copy)
    assert (outcome["plan"], outcome["champion"], outcome["promoted"]) == ("warm", "math/2", True)
    assert stale(copy) == {}
    with chdir(copy.folder):
        assert lineage("math@champion", copy.uri).broken == ()
    assert run(copy)["plan"] == "nothing"


def test_the_champion_stays_when_the_newcomer_is_useless_and_it_is_tried_once(project):
    project.settings["pool"][USELESS] = project.whole_pool[USELESS]
    project.save()
    outcome = run(project)
    assert (outcome["plan"], outcome["champion"], outcome["promoted"]) == ("warm", "math/1", False)
    assert outcome["calls"] > 0
    assert stale(project) == {}  # so the next `make repro` searches nothing from the start
    again = run(project)
    assert (again["plan"], again["calls"]) == ("nothing", 0)
    assert "has already been searched" in again["reason"]


def test_two_triggers_at_once_make_one_search_and_a_strong_newcomer_becomes_the_champion(project):
    project.settings["pool"][STRONG] = project.whole_pool[STRONG]
    project.save()
    with chdir(project.folder), ThreadPoolExecutor() as threads:
        outcomes = [*threads.map(research.research.fn, ["math"] * 2)]
    assert sorted(outcome["plan"] for outcome in outcomes) == ["nothing", "warm"]
    (outcome,) = [outcome for outcome in outcomes if outcome["plan"] == "warm"]
    assert (outcome["champion"], outcome["promoted"]) == ("math/2", True), outcome
    assert "better: of 200 test questions" in outcome["reason"]
    assert stale(project) == {}


def test_the_new_version_has_a_whole_lineage_back_to_the_version_it_replaced(project):
    with chdir(project.folder):
        walked = lineage("math@champion", project.uri)
        assert walked.broken == ()
        assert walked.record.warm_from == "math/1"
        assert STRONG in walked.record.models
        assert ("replaces", "math/1") in {(link.name, link.subject) for link in walked.links}
        Path("research/simulated-small/math/archive.parquet").write_bytes(b"forged")
        assert "not what DVC recorded" in lineage("math@champion", project.uri).broken[0].detail


def test_rollback_brings_the_version_before_back_and_promote_by_hand_undoes_it(project):
    done = project.ttsgraph("rollback", "math")
    assert '"champion": "math/1"' in done.stdout
    with project.registry() as registry:
        assert registry.champion("math").number == "1"
        assert "rolled back" in registry.judge(registry.find("math/2"), "better", 0.6).reason
        registry.promote(registry.find("math/2"))
        assert registry.champion("math").number == "2"
        registry.rollback("math")
        with pytest.raises(DeploymentError, match="there is nothing to restore"):
            registry.rollback("math")


def test_other_changes_call_for_a_search_from_the_start(project):
    project.settings["search"]["batch"] = 12
    project.save()
    with chdir(project.folder):
        stage = research.load_stage("math")
        registry = research.Registry(project.uri)
        plan = research.planned(stage, registry, registry.find("math@champion"))
    assert (plan.kind, plan.reason) == ("cold", "settings other than the pool changed")
