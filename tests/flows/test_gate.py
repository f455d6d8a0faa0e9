"""The gate on a real MLflow database. The tests run in order."""

import json
from contextlib import chdir, suppress
from types import SimpleNamespace

import mlflow
import pandas as pd
import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import single
from ttsgraph.pool.simulated import worlds
from ttsgraph_flows import evaluate
from ttsgraph_flows.lineage import lineage
from ttsgraph_flows.registry import Registry

pytestmark = pytest.mark.slow
SMALL = "llama-3.2-1b"
BEST = "llama-3.2-3b"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Searched in a world where reading others' answers ruins one's own."""
    project = SimulatedProject(tmp_path_factory.mktemp("gate"))
    changes = {"corrupt": 0.9, "repair": 0.0, "mend": 0.0, "insight": -2.0}
    changes |= {"discernment": 0.1, "favourite": (0.9, 0.95)}
    project.seed = 2  # another finds one call by itself, or a cheaper graph
    with pytest.MonkeyPatch.context() as patch:
        paper = worlds()["paper"]
        patch.setitem(paper, "math", paper["math"].model_copy(update=changes))
        project.build()
        yield project


def told(project):
    return json.loads((project.results / "random" / "lineage.json").read_text())


def row(project, arm, label):
    table = pd.read_parquet(project.results / "random" / "test.parquet")
    return table[(table["arm"] == arm) & (table["label"] == label)].iloc[0]


def aliases(project):
    with project.registry() as registry:
        return {each: found.label for found in registry.versions("math") for each in found.aliases}


def test_one_call_that_is_as_good_becomes_the_champion_and_is_served_as_what_it_is(project):
    gate = told(project)["gate"]
    record = told(project)["record"]
    found = CollaborationGraph.read(project.results / "random" / "graph.json")
    assert (told(project)["promoted"], gate["arm"], gate["label"]) == (True, "single", BEST), gate
    assert len(found.nodes) > 1
    tested = row(project, "found", "found graph")
    assert tested["graph_hash"] == found.content_hash == record["baseline"]["instead_of"]
    one = row(project, "single", BEST)
    assert one["graph_hash"] == record["graph_hash"] == single(BEST).content_hash
    assert record["method"] == f"baseline single: {BEST}"
    assert record["test"]["accuracy"] == one["accuracy"]
    assert aliases(project) == {"champion": "math/1"}
    with chdir(project.folder):
        assert Registry(project.uri).resolve("math@champion").graph == single(BEST)
    lines = project.ttsgraph("explain", "math@champion").stdout.splitlines()
    assert lines[0].startswith(f"math/1, a baseline ({BEST}), selected in place of the graph")
    assert "is expected on new questions" in lines[0]


def test_its_lineage_holds_and_a_changed_baseline_in_the_run_is_named(project):
    with chdir(project.folder):
        walked = lineage("math@champion", project.uri)
        assert walked.broken == ()
        assert walked.record.baseline.label == BEST
        client = mlflow.MlflowClient(project.uri)
        run = walked.record.run_id
        path = f"baselines/{walked.record.graph_hash}.json"
        before = mlflow.artifacts.load_text(f"{client.get_run(run).info.artifact_uri}/{path}")
        for key, value in (("accuracy", 0.99), ("label", "another"), ("instead_of", "0")):
            client.log_text(run, json.dumps(json.loads(before) | {key: value}), path)
            (link,) = lineage("math@champion", project.uri).broken
            assert (link.name, path in link.detail) == ("run", True)
        client.log_text(run, before, path)
        assert lineage("math@champion", project.uri).broken == ()


def test_evaluating_again_finds_the_version_and_comes_to_the_same_decision(project, capsys):
    path = project.results / "random" / "lineage.json"
    before = path.read_text()
    path.unlink()
    with chdir(project.folder):
        evaluate.evaluate.fn("math", "random")
    assert path.read_text() == before
    assert aliases(project) == {"champion": "math/1"}
    said = capsys.readouterr().err
    assert f"selected: a baseline in place of the found graph: {BEST} is" in said
    assert "version math/1 is promoted: there was no champion" in said
    project.commit()


class Stopped(BaseException):
    """As if the process had been killed."""


CHANGES = ("create_model_version", "set_registered_model_alias", "set_model_version_tag")
CHANGES += ("delete_registered_model_alias", "delete_model_version_tag")


@pytest.fixture
def left(monkeypatch):
    """How many `changes` in the registry are left until a process ends, once the last is made."""
    left = SimpleNamespace(changes=0)

    def counted(change):
        def call(*arguments, **options):
            done = change(*arguments, **options)
            left.changes -= 1
            if left.changes == 0:
                raise Stopped
            return done

        return call

    for name in CHANGES:
        monkeypatch.setattr(mlflow.MlflowClient, name, counted(getattr(mlflow.MlflowClient, name)))
    return left


def test_a_stop_at_any_change_leaves_one_alias_a_version_and_the_next_start_the_same_decision(
    project, left
):
    with project.registry() as registry:
        champion = registry.champion("math")
        record = registry.provenance(champion)
        deployed = registry.deployed(champion)

        def judged(k):
            """What becomes of a version that is surely better the higher k is."""
            outcomes = record.test.outcomes
            right = {q: bool(outcomes[q]) or n < 10 * k for n, q in enumerate(sorted(outcomes))}
            share = sum(right.values()) / len(right)
            its = record.test.model_copy(update={"accuracy": share, "outcomes": right})
            new = record.model_copy(update={"seed": 100 + k, "test": its})
            version = registry.register(deployed, new)
            return registry.judge(version, "better", 0.6), version

        for k in range(1, 20):
            left.changes = k
            with suppress(Stopped):
                judged(k)
            stopped = left.changes == 0
            assert all(len(version.aliases) <= 1 for version in registry.versions("math"))
            left.changes = 0
            for _ in range(2):
                decision, version = judged(k)
                assert decision.promote
                assert registry.find(version.label).aliases == ("champion",)
                assert len(registry.versions("math")) == k + 1
            assert "challenger" not in aliases(project)
            if not stopped:
                break
        assert not stopped
        first = registry.judge(registry.find("math/1"), "better", 0.6)  # though replaced since
        assert (first.promote, first.reason) == (True, "there was no champion")
        registry.rollback("math")
        assert all(len(version.aliases) <= 1 for version in registry.versions("math"))


def test_a_champion_whose_model_left_the_pool_serves_until_the_next_version(project):
    del project.settings["pool"][BEST]
    project.save()
    with project.registry() as registry:
        before = registry.champion("math")
        record = registry.provenance(before)
        profile = registry.deployed(before).profile
        assert Registry(project.uri).resolve("math@champion").graph == single(BEST)
        worse = record.test.model_copy(update={"accuracy": 0.0, "outcomes": {}})
        graph = single(SMALL)
        own = record.model_copy(update={"graph_hash": graph.content_hash, "test": worse})
        version = registry.register(DeployedVersion("math", graph, profile), own)
        decision = registry.judge(version, "better", 0.6)
        left = f"{before.label} uses {BEST}, which left the pool of simulated-small"
        assert (decision.promote, decision.reason) == (True, left)
        assert registry.find(version.label).aliases == ("champion",)
