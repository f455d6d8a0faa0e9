"""Costs that follow from measured lengths are what graphs cost, or a little more."""

import asyncio
from dataclasses import replace

import pytest
import yaml

from tests.support.project import ROOT
from ttsgraph.base.errors import ContextOverflow, DataError, SettingsError
from ttsgraph.base.parsing import parse
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs import topologies
from ttsgraph.models.client import Client, Completion, Request
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.identity import settings_sha256
from ttsgraph.stages.lengths import measured_lengths, profiled, with_lengths
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import REQUESTS

WORDS = {"small": 5, "large": 40}
TRAIN = [Question(str(k), f"{k} + 1", str(k + 1)) for k in range(12)]


class Wordy(Client):
    async def complete(self, request: Request) -> Completion:
        said = " ".join(["so"] * (WORDS[request.model] - 1) + ["2"])
        return Completion(
            said, sum(len(m.content.split()) for m in request.messages), WORDS[request.model], 0.1
        )

    async def aclose(self) -> None:
        """Nothing is open."""


def profile(**task) -> Profile:
    laptop = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    laptop |= {"engine": {"kind": "external"}, "budget": {"metric": "dollars", "limit": 0.01}}
    laptop["pool"] = {
        name: {"price": {"prompt": 1, "completion": 4}, "base_url": "http://127.0.0.1:1/v1"}
        for name in WORDS
    }
    laptop["tasks"] = {
        "math": {key: v for key, v in laptop["tasks"]["math"].items() if key != "lengths"}
    }
    laptop["tasks"]["math"] |= {"prompt": {"style": "chat"}} | task
    return parse(Profile, laptop, "here")


def environment(known: Profile, client: Client | None = None) -> Environment:
    settings = known.task("math")
    prompt = settings.prompt.prompt(get_task("math"), ())
    sampling = settings.sampling.sampling()
    return Environment(get_task("math"), prompt, sampling, known.model_pool(), client or Wordy())


def table(known: Profile):
    return asyncio.run(profiled(known, "math", list(known.model_pool()), environment(known), TRAIN))


def test_costs_wait_for_lengths_that_are_neither_given_nor_measured():
    with pytest.raises(SettingsError, match=r"ttsgraph_flows\.profile --task math"):
        profile().cost_model("math")
    assert measured_lengths(table(profile()))["large"].generated_tokens == 40
    with pytest.raises(SettingsError, match="or neither, so that they are measured"):
        profile(lengths={"prompt_tokens": 10})


class Refusing(Wordy):
    """One that takes no prompt of some models."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused

    async def complete(self, request: Request) -> Completion:
        if request.model in self.refused:
            raise ContextOverflow("2049 tokens, and it takes 2048")
        return await super().complete(request)


@pytest.mark.parametrize("refused", WORDS)
def test_a_model_that_takes_no_prompt_costs_what_the_one_with_the_longest_answers_does(refused):
    known = profile()
    asked = environment(known, Refusing(refused))
    made = asyncio.run(profiled(known, "math", list(WORDS), asked, TRAIN))
    cost = with_lengths(known, "math", made).cost_model("math")
    assert cost.single("small") == cost.single("large") > 0
    assert made.set_index("model").loc[refused, "accuracy"] == 0


def test_where_no_model_takes_a_prompt_it_is_said_what_to_do():
    known = profile()
    asked = environment(known, Refusing(*WORDS))
    with pytest.raises(DataError, match=r"it takes 2048.*splits.shots"):
        asyncio.run(profiled(known, "math", list(WORDS), asked, TRAIN))


def test_measured_costs_are_what_graphs_cost_or_a_little_more():
    measured = with_lengths(profile(), "math", table(profile()))
    cost = measured.cost_model("math")
    evaluate = environment(measured).evaluate
    graphs = [topologies.single(name) for name in WORDS]
    graphs += [topologies.chain([a, b, a]) for a in WORDS for b in WORDS]
    graphs += [
        topologies.parallel(["large"] * 4 + ["small"], name, role)
        for name in WORDS
        for role in ("fuser", "voter")
    ]
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


def test_a_fuser_is_charged_what_it_reads_and_not_what_a_refining_call_adds():
    """Models here write more where they refine one answer, never where they fuse several."""

    class Refining(Wordy):
        async def complete(self, request: Request) -> Completion:
            done = await super().complete(request)
            refines = REQUESTS["refine"] in request.messages[-1].content
            return replace(done, completion_tokens=done.completion_tokens * (3 if refines else 1))

    known = profile()
    asked = environment(known, Refining())
    made = asyncio.run(profiled(known, "math", list(known.model_pool()), asked, TRAIN))
    cost = with_lengths(known, "math", made).cost_model("math")
    fan = topologies.parallel(["large"] * 6, "large", "fuser")
    chain = topologies.chain(["large", "large"])
    for graph in (fan, chain):
        spent = asyncio.run(asked.evaluate(graph, TRAIN)).usage.dollars / len(TRAIN)
        assert cost.graph_cost(graph) == pytest.approx(spent, rel=0.1)
