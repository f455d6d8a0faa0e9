"""A deployed version as a value and as a file: what it promises to whoever stores or serves it."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.project import merged
from ttsgraph.base.errors import DeploymentError, GraphError, InputError, SettingsError
from ttsgraph.deployment.bundle import DeployedVersion, Figures, FileLoader, Rung
from ttsgraph.graphs.topologies import chain, parallel
from ttsgraph.settings.profile import load_profile
from ttsgraph.tasks.base import Question

PROFILE = load_profile("laptop", Path(__file__).parents[2] / "profiles")
SHOTS = (Question("s1", "2 + 2", "4", {"n": 1}), Question("s2", "3 + 4", "7"))


FUSED = parallel(["smollm2-135m"] * 2, "gemma3-270m", "fuser")
VOTED = parallel(["smollm2-135m"] * 2, "gemma3-270m", "voter")


def test_a_bundle_comes_back_the_same_and_has_its_hash_as_version(tmp_path):
    plain = DeployedVersion("math", FUSED, PROFILE, SHOTS)
    rungs = tuple(Rung(graph, 1.0, 0.1, "test") for graph in (FUSED, VOTED))
    tested = Figures(0.8, 1e-6, None, "majority of 3 x smollm2-135m", 3e-6)
    made = replace(plain, tested=tested, front=rungs, found_by="search")
    read = DeployedVersion.read(made.write(tmp_path))
    assert read == replace(made, version=read.version)
    # What service is held against is no part of its hash.
    assert read.bundle_hash == made.bundle_hash == plain.bundle_hash
    assert read.version == made.bundle_hash[:12]


def test_medium_effort_is_nearest_to_the_geometric_mean_of_the_costs():
    graphs = {n: parallel(["smollm2-135m"] * n, "gemma3-270m", "voter") for n in (1, 3, 6, 10)}
    front = tuple(Rung(graph, float(n), 0.0, "test") for n, graph in graphs.items())
    rungs = DeployedVersion("math", FUSED, PROFILE, SHOTS, front=front).rungs
    assert [rung.graph for rung in rungs.values()] == [graphs[1], graphs[3], graphs[10]]


def test_the_hash_changes_with_the_graph_the_settings_and_the_shots():
    made = DeployedVersion("math", FUSED, PROFILE, SHOTS)
    sampling = PROFILE.tasks["math"].sampling.model_copy(update={"temperature": 0.1})
    colder = PROFILE.tasks["math"].model_copy(update={"sampling": sampling})
    cold = PROFILE.model_copy(update={"tasks": PROFILE.tasks | {"math": colder}})
    others = [
        DeployedVersion("math", VOTED, PROFILE, SHOTS),
        DeployedVersion("math", FUSED, cold, SHOTS),
        DeployedVersion("math", FUSED, PROFILE, SHOTS[:1]),
        DeployedVersion("mmlu", FUSED, PROFILE, SHOTS),
    ]
    assert len({deployed.bundle_hash for deployed in [made, *others]}) == 5


def test_what_could_not_be_served_is_refused_at_once():
    with pytest.raises(SettingsError, match="unknown task 'chess'"):
        DeployedVersion("chess", FUSED, PROFILE)
    with pytest.raises(SettingsError, match="unknown model 'other'"):
        DeployedVersion("math", chain(["other"]), PROFILE)
    with pytest.raises(GraphError, match="unknown role"):
        DeployedVersion("math", parallel(["smollm2-135m"], "gemma3-270m", "oracle"), PROFILE)


LENGTHS = {"measured": {"SMALL": {"prompt_tokens": 9, "generated_tokens": math.nan}}}


NOT_WHOLE = {
    "tested.luck": {"tested": {"luck": 1}},
    "missing key 'graph'": {"graph": None},
    "profile.colour": {"profile": {"colour": "red"}},
    "front.0": {"front": [{}]},
    "generated_tokens": {"profile": {"tasks": {"math": {"lengths": LENGTHS}}}},
}


@pytest.mark.parametrize(("message", "change"), NOT_WHOLE.items())
def test_a_bundle_that_is_not_whole_is_named(tmp_path, change, message):
    path = DeployedVersion("math", FUSED, PROFILE, SHOTS).write(tmp_path)
    path.write_text(json.dumps(merged(json.loads(path.read_text()), change)))
    with pytest.raises(InputError, match=message) as caught:
        DeployedVersion.read(path)
    assert str(path) in str(caught.value)


def test_a_folder_is_served_under_its_task_and_name_and_read_anew(tmp_path):
    blue = tmp_path / "a" / "blue"
    DeployedVersion("math", FUSED, PROFILE, SHOTS).write(blue)
    loader = FileLoader((blue,))
    assert loader.names == ("math@blue",)
    before = loader.resolve("math@blue")
    DeployedVersion("math", VOTED, PROFILE, SHOTS).write(blue)
    assert loader.resolve("math@blue").graph == VOTED != before.graph
    with pytest.raises(DeploymentError, match="unknown model 'math@green'; known: math@blue"):
        loader.resolve("math@green")
    other = tmp_path / "b" / "blue"
    DeployedVersion("math", FUSED, PROFILE).write(other)
    with pytest.raises(InputError, match="different names"):
        FileLoader((blue, other))
    with pytest.raises(InputError, match=f"name {blue}"):  # in this folder
        FileLoader((tmp_path / "a",))
