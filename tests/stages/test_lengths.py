"""Costs that follow from measured lengths are what graphs cost, or a little more."""

import asyncio
from typing import Any

import pytest
import yaml

from tests.support.project import ROOT, laptop_on
from ttsgraph.base.errors import ContextOverflow, DataError, SettingsError
from ttsgraph.base.parsing import parse
from ttsgraph.graphs import topologies
from ttsgraph.models.client import Client, Completion, Request
from ttsgraph.runtime.workers import environment_for
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.estimate import estimate_run
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.project import (
    Folder,
    Project,
    StepModels,
    measured_lengths,
    profiled,
    with_lengths,
)
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import questions_table

WORDS = {"small": 5, "large": 40}
TRAIN = [Question(str(k), f"{k} + 1", str(k + 1)) for k in range(12)]


class Wordy(Client):
    """Models that say so many words each; some take no prompt."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused

    async def complete(self, request: Request) -> Completion:
        if request.model in self.refused:
            raise ContextOverflow("2049 tokens, and it takes 2048")
        written = WORDS[request.model]
        read = sum(len(message.content.split()) for message in request.messages)
        return Completion("so " * (written - 1) + "2", read, written, 0.1)


def profile(**task) -> Profile:
    there = {"price": {"prompt": 1, "completion": 4}, "base_url": "http://127.0.0.1:1/v1"}
    budget = {"metric": "dollars", "limit": 0.01}
    laptop = laptop_on(dict.fromkeys(WORDS, there), budget=budget)
    math = laptop["tasks"]["math"] | {"prompt": {"style": "chat"}}
    del math["lengths"]
    laptop["tasks"] = {"math": math | task}
    return parse(Profile, laptop, "here")


def table(known: Profile, *refused: str):
    asked = StepModels(environment_for(known, "math", Wordy(*refused), ()))
    project = Project(known, "math", 0, Folder.temporary())
    project.folder.write("questions", questions_table({"train": TRAIN}))
    return asyncio.run(profiled(project, known, list(known.model_pool()), asked))


def test_costs_wait_for_lengths_that_are_neither_given_nor_measured():
    with pytest.raises(SettingsError, match=r"ttsgraph_flows\.profile --task math"):
        profile().cost_model("math")
    assert measured_lengths(table(profile()))["large"].generated_tokens == 40
    with pytest.raises(SettingsError, match=r"or neither \(then they are measured"):
        profile(lengths={"prompt_tokens": 10})


@pytest.mark.parametrize("refused", WORDS)
def test_a_model_that_takes_no_prompt_costs_what_the_one_with_the_longest_answers_does(refused):
    known = profile()
    made = table(known, refused)
    cost = with_lengths(known, "math", made).cost_model("math")
    assert cost.single("small") == cost.single("large") > 0
    assert made.set_index("model").loc[refused, "accuracy"] == 0
    with pytest.raises(DataError, match=r"it takes 2048.*splits.shots"):
        table(known, *WORDS)


def test_measured_costs_are_what_graphs_cost_or_a_little_more():
    measured = with_lengths(profile(), "math", table(profile()))
    cost = measured.cost_model("math")
    evaluate = environment_for(measured, "math", Wordy(), ()).evaluate
    graphs = [topologies.single(name) for name in WORDS]
    graphs += [topologies.chain([a, b, a]) for a in WORDS for b in WORDS]
    drafts = ["large"] * 4 + ["small"]
    graphs += [topologies.parallel(drafts, m, role) for m in WORDS for role in ("fuser", "voter")]
    for graph in graphs:
        spent = asyncio.run(evaluate(graph, TRAIN)).usage.dollars / len(TRAIN)
        assert spent <= cost.graph_cost(graph) * (1 + 1e-9)
        assert spent > 0.4 * cost.graph_cost(graph)
    for name in WORDS:
        alone = asyncio.run(evaluate(topologies.single(name), TRAIN)).usage.dollars / len(TRAIN)
        assert cost.single(name) == pytest.approx(alone)


def test_accuracies_are_kept_where_votes_are_weighed_and_are_no_part_of_the_identity():
    plain = profile()
    measured = with_lengths(plain, "math", table(plain))
    assert measured.task("math").accuracies == {}
    weighing = plain.model_copy(update={"roles": ("assistant", "weighted")})
    found = with_lengths(weighing, "math", table(weighing))
    shares = {name: spec.accuracy for name, spec in found.model_pool("math").items()}
    assert shares.keys() == WORDS.keys()
    assert all(0 <= share <= 1 for share in shares.values())
    assert {spec.accuracy for spec in found.model_pool().values()} == {None}
    assert settings_sha256(found, "math") == settings_sha256(weighing, "math")


SIMULATED = yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())
MODEL = "llama-3.2-1b"


def one_model(calls: int = 1000, **more: Any) -> Profile:
    """A contest of one model, whose calls take $0.000003 each and, 32 at a time, 180 seconds of
    these 5760; a budget of five calls. Of 200 training questions a contest sees 160.
    """
    splits = {"train": 200, "val": 10, "test": 20}
    lengths = {"prompt_tokens": 100, "generated_tokens": 50}
    data = SIMULATED | {
        "pool": {MODEL: SIMULATED["pool"][MODEL] | {"speed": [28.8, 57.6]}},
        "tasks": {"math": SIMULATED["tasks"]["math"] | {"splits": splits, "lengths": lengths}},
        "budget": {"metric": "dollars", "limit": 1.5e-5, "max_nodes": 10},
        "init": {"contest": {"calls": calls}},
        "evaluate": {"ablation": 8},
    }
    return parse(Profile, data | more, "here")


def test_what_a_contest_of_one_model_takes_adds_up():
    found = estimate_run(one_model(), "math")
    calls = found["calls"] | {"pilot": 0}
    steps = {"profile": 200, "pilot": 0, "init_family": 300, "init_instances": 700}
    steps |= {"evaluate": 20 * 5, "ablation": 8 * 5}
    assert calls == steps | {"total": 1340 + found["calls"]["pilot"]}
    # What reads answers, on the way to a graph, takes a quarter more; pilot and ablation are not
    # part of `ttsgraph run`.
    dollars = (200 + 1.25 * 1000 + 100) * 3e-6
    run = found["expected"]["calls"]
    assert run == {stage: calls[stage] for stage in run if stage != "total"} | {"total": 1300}
    assert sum(run.values()) == 2 * 1300
    assert found["expected"]["dollars"] == pytest.approx(dollars)
    assert found["expected"]["dollars_between"] == pytest.approx([dollars / 2, dollars * 2])
    # Of a larger allowance it takes what its 160 questions, and 10 to validate, give occasion for.
    more = estimate_run(one_model(calls=5000), "math")["calls"]
    assert more["init_family"] + more["init_instances"] == round(170 * (2.4 + 2.0 + 0.4 * 5))


def test_an_agent_with_a_language_model_takes_at_most_its_limits():
    agent = {"model": "guide", "base_url": "http://127.0.0.1:1/v1", "price": 0.02}
    profile = one_model(agent=agent | {"context_tokens": 1000})
    calls = (profile.search.max_iterations + 2) * 2
    dollars = pytest.approx(1500 * calls * 0.02e-6)
    told = {"calls": calls, "tokens": 1500 * calls, "dollars": dollars}
    assert estimate_run(profile, "math")["agent"] == told
