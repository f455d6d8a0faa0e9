"""Variants: members of the pool that ask a model in another way, and share all else with it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import openai
import pandas as pd
import pytest
import yaml

from tests.pool.test_simulated import client_of, evaluate, questions_of
from tests.support.fakes import ScriptedClient, unit_draw
from tests.support.project import MODEL, ROOT
from tests.support.service import NAME, PoolStub, Shelf, profile_of, running, serving
from tests.support.stub_server import StubServer, serve
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import parse
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.deployment.provenance import pool_fingerprint, revisions
from ttsgraph.endpoints.endpoints import FailurePolicy
from ttsgraph.endpoints.openai_client import OpenAIClient, Retries
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import chain, parallel, single
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Message, Request, Sampling
from ttsgraph.runtime.clients import endpoints
from ttsgraph.runtime.limits import Meter, MeteredClient
from ttsgraph.serving import running as local_servers
from ttsgraph.serving.environment import Build
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.stages import LimitSettings
from ttsgraph.stages import trials
from ttsgraph.stages.estimate import estimate_run
from ttsgraph.stages.trials import best_single, evaluate_cases, profile_table, single_cases
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question

VARIANTS: dict[str, dict[str, Any]] = {
    "t0": {"temperature": 0},
    "t0.5": {"temperature": 0.5, "top_p": 0.8},
    "same": {"temperature": 0.9},  # as the task itself
    "brief": {"max_tokens": 5, "stop": ["."], "instruction": "Say the number."},
    "thinking": {"reasoning_effort": "high"},
}
QUESTION = Question("q1", "3 + 4", "7")


def profile(
    variants: dict[str, Any] = VARIANTS,
    url: str = "http://127.0.0.1:9/v1",
    style: str = "chat",
    **sections: Any,
) -> Profile:
    """`small` with these variants and `large`, on a task that samples at 0.9 and 64 tokens."""
    data = profile_of(url, style).model_dump(mode="json", exclude_none=True)
    data["pool"]["small"] |= {"variants": variants, "revision": "r1"}
    return parse(Profile, data | sections, "mine.yaml")


def run(graph: CollaborationGraph, client: Any, known: Profile | None = None) -> Any:
    known = known or profile()
    deployed = DeployedVersion("math", graph, known)
    return asyncio.run(deployed.runner(client).answer(QUESTION))


class TestSettings:
    def test_each_variant_is_a_member_of_the_pool_with_its_models_facts(self):
        pool = profile().model_pool()
        assert list(pool) == ["small", *(f"small:{name}" for name in VARIANTS), "large"]
        plain = pool["small"]
        variant = pool["small:t0"]
        assert (variant.model, plain.model) == ("small", "small")
        assert replace(variant, name="small", variant_of=None, variant=None) == plain
        assert next(spec.name for spec in pool.families["f"]) == "small"

    @pytest.mark.parametrize(
        ("variants", "message"),
        [
            (
                {"t0": {"temperature": 3}},
                r"key 'pool\.small\.variants\.t0\.temperature': .*less than or equal to 2, found 3",
            ),
            ({"t0": {}}, r"variants\.t0': expected one of temperature, .* found none"),
            ({"a:b": {"temperature": 0}}, r"expected a variant named with letters, .* found 'a:b'"),
            ({"a": {"top_p": 1}, "b": {"top_p": 1}}, r"found 'a' and 'b' with the same settings"),
            ({"t": {"reasoning_effort": "a lot"}}, r"reasoning_effort': .*found 'a lot'"),
        ],
    )
    def test_a_wrong_variant_is_named(self, variants, message):
        with pytest.raises(SettingsError, match=message) as caught:
            profile(variants)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("section", ["pool", "newcomers"])
    def test_a_variant_can_not_have_a_models_name(self, section):
        data = profile().model_dump(mode="json", exclude_none=True)
        data.setdefault(section, {})["small:t0"] = MODEL | {"base_url": "http://x/v1"}
        said = "variant 't0' of 'small': expected another name, but a model has its name"
        with pytest.raises(SettingsError, match=said):
            parse(Profile, data, "mine.yaml")

    def test_what_a_variant_asks_is_in_its_identity_and_in_the_pools_and_in_no_models(self):
        before = profile({"t": {"temperature": 0}})
        after = profile({"t": {"temperature": 0.1}})
        known = revisions(before)
        changed = revisions(after)
        assert known["small:t"].revision == known["small"].revision == "r1"
        assert known["small"] == changed["small"] == revisions(profile({}))["small"]
        assert known["small:t"] != changed["small:t"]
        assert len({pool_fingerprint(found) for found in (before, after, profile({}))}) == 3
        bodies = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
        one, same = (revisions(profile({"t": {"extra_body": body}})) for body in bodies)
        assert one["small:t"] == same["small:t"]


class TestCalls:
    def asked(self, *models: str, known: Profile | None = None) -> list[Request]:
        """What one node of each of these, side by side, asks."""
        client = ScriptedClient()
        run(parallel(list(models), "large", "voter"), client, known)
        return client.requests

    def test_a_call_without_variants_has_the_key_that_it_always_had(self):
        sampling = Sampling(0.9, 1.0, 8, ("\n",))
        request = Request("small", "r1", (Message("user", "Q: 1 + 1"),), sampling, 2)
        assert request.key() == "e291d868f38435ba63d60709568d3bed8393a6c79592051ce874587db2d6df08"

    def test_a_variants_prompt_is_for_its_nodes_alone(self):
        plain, variant = self.asked("small", "small:brief")
        assert (variant.model, variant.revision) == (plain.model, plain.revision)
        assert variant.messages[0] == Message("system", "Say the number.")
        assert plain.messages[0] != variant.messages[0]
        assert (variant.sampling.max_tokens, variant.sampling.stop) == (5, (".",))

    def test_members_that_ask_the_same_are_different_draws_of_one(self):
        assert self.asked("small")[0].key() == self.asked("small:same")[0].key()
        asked = self.asked("small", "small:same", "small:t0.5", "small")
        assert [request.replica for request in asked] == [0, 1, 0, 2]

    def test_greedy_calls_that_ask_the_same_are_one(self, tmp_path):
        client = ScriptedClient(lambda request: f"{unit_draw(request):.6f}")
        graph = parallel(["small:t0"] * 3 + ["small"] * 2, "large", "fuser")
        with contextlib.closing(CallCache(tmp_path)) as cache:
            answer = run(graph, CachedClient(client, cache))
        drawn = [(request.sampling.temperature, request.replica) for request in client.requests]
        assert drawn == [(0, 0), (0.9, 0), (0.9, 1), (0.9, 0)]
        assert len({answer.node_texts[i] for i in range(3)}) == 1
        assert (answer.usage.calls, answer.usage.cached_calls) == (6, 2)

    def test_a_limit_pays_for_a_variants_call_at_its_models_price(self):
        meter = Meter(LimitSettings())
        pool = profile().model_pool()
        answer = run(single("small:t0"), MeteredClient(ScriptedClient(), meter, pool))
        assert meter.spent.dollars == answer.usage.dollars == pool["small"].dollars(10, 2) > 0


def test_over_a_socket_the_server_knows_models_only_and_gets_the_variants_parameters():
    stub = StubServer(("small", "large"))
    members = ["small", "small:t0", "small:t0.5", "small:brief", "small:thinking"]
    with serve(stub) as url:
        known = profile(url=url)

        async def ask() -> None:
            client = OpenAIClient(endpoints(known, {}), Retries(0), FailurePolicy())
            await client.check()
            graph = parallel(members, "large", "fuser")
            await DeployedVersion("math", graph, known).runner(client).answer(QUESTION)
            await client.aclose()

        asyncio.run(ask())
    assert {body["model"] for body in stub.requests} == {"small", "large"}
    names = ("temperature", "top_p", "max_tokens", "reasoning_effort")
    sent = [tuple(body.get(name, "") for name in names) for body in stub.requests]
    usual = (0.9, 1, 64, "")
    other = [(0, 1, 64, ""), (0.5, 0.8, 64, ""), (0.9, 1, 5, ""), (0.9, 1, 64, "high")]
    assert sorted(sent) == sorted([*other, usual, usual])
    assert not any("seed" in body for body in stub.requests)


def test_a_variant_costs_what_its_model_costs_and_does_not_move_the_unit():
    cost = profile().cost_model("math")
    plain = profile({}).cost_model("math")
    assert cost.unit == plain.unit
    for name, spec in cost.pool.items():
        assert cost.single(name) == plain.single(spec.model)
    both = (cost.graph_cost(chain(["small", name])) for name in ("small:t0", "small"))
    assert len({*both, plain.graph_cost(chain(["small", "small"]))}) == 1
    more, calls = (
        estimate_run(known, "math")["calls"]["profile"] for known in (profile(), profile({}))
    )
    assert more / calls == 7 / 2


def profiled(cost: CostModel, **right: float) -> Any:
    """The profile stage's table where each model answers this share of 20 questions right."""

    def reply(request: Request) -> str:
        kind = "greedy" if request.sampling.temperature == 0 else request.model
        return "7" if int(request.messages[-1].content.split("+")[0]) < 20 * right[kind] else "0"

    known = profile()
    prompt = DeployedVersion("math", single("small"), known).prompt
    sampling = known.task("math").sampling.sampling()
    environment = Environment(get_task("math"), prompt, sampling, cost.pool, ScriptedClient(reply))
    asked = [Question(str(k), f"{k}+1", "7") for k in range(20)]
    cases = evaluate_cases(single_cases(cost.pool), environment, cost, asked)
    return profile_table(asyncio.run(cases), cost)


def test_the_best_single_model_may_be_a_variant_and_votes_are_of_one_whose_answers_differ():
    cost = profile().cost_model("math")
    table = profiled(cost, greedy=0.9, small=0.5, large=0.2)
    assert list(table["model"]) == list(cost.pool)
    best, voting = (
        best_single(table, Budget(cost, 100), repeated=repeated) for repeated in (False, True)
    )
    assert (best, voting) == ("small:t0", "small")
    none = pd.DataFrame(columns=["graph", "accuracy", "budget_units"])
    cases = trials.test_cases(single(best), none, table, Budget(cost, 4, 12))
    arms = {case.columns["arm"]: case.columns["label"] for case in cases}
    vote = {"self_consistency": "majority of 4 x small"}
    assert arms == {"found": "found graph", "single": "small:t0"} | vote


class TestServing:
    GRAPH = parallel(["small:t0", "small:t0", "small:brief"], "small:thinking", "fuser")

    def test_a_model_has_one_server_for_all_its_variants(self, tmp_path, monkeypatch):
        data = profile().model_dump(mode="json", exclude_none=True)
        data["engine"] = {"kind": "vllm", "device": "cpu"}
        data["pool"] = {
            name: model | {"base_url": None, "weights": {"path": str(tmp_path)}}
            for name, model in data["pool"].items()
        }
        monkeypatch.setattr(local_servers, "vllm_build", lambda python: Build("0", "cpu"))
        specs = local_servers.local_specs(parse(Profile, data, "mine.yaml"), tmp_path)
        assert [spec.model for spec in specs] == ["small", "large"]

    def test_a_bundle_comes_back_with_its_variants_and_needs_the_models_that_they_are_of(
        self, tmp_path
    ):
        made = DeployedVersion("math", self.GRAPH, profile())
        read = DeployedVersion.read(made.write(tmp_path))
        assert (read.profile, read.bundle_hash) == (made.profile, made.bundle_hash)
        assert set(read.profile_with().pool) == {"small"}
        assert set(endpoints(read.profile_with(), {})) == {"small"}

    def test_a_graph_whose_variant_is_gone_is_refused(self):
        gone = "unknown model 'small:t0'; the pool has small, small:brief, large"
        with pytest.raises(SettingsError, match=gone):
            DeployedVersion("math", self.GRAPH, profile({"brief": VARIANTS["brief"]}))

    def said(self, stub: PoolStub, graph: CollaborationGraph, **known: Any) -> Any:
        messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "3 + 4"}]
        with running(stub.app) as pool:
            version = DeployedVersion("math", graph, profile(url=f"{pool}/v1", **known), (), "1")
            with serving(Shelf(math_champion=version)) as service:
                client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0)
                return client.chat.completions.create(model=NAME, messages=messages)  # type: ignore[arg-type]

    def test_a_served_graph_asks_as_its_variants_say_and_extends_their_instructions(self):
        stub = PoolStub()
        stub.reply = lambda body: "w " * 64
        answer = self.said(stub, self.GRAPH)
        assert {body["model"] for body in stub.bodies} == {"small"}
        # Twice, as a service has no call cache unless it is told to.
        assert [body["temperature"] for body in stub.bodies].count(0) == 2
        assert stub.bodies[-1]["reasoning_effort"] == "high"
        brief = next(body for body in stub.bodies if body["max_tokens"] == 5)
        assert brief["messages"][0]["content"] == "Say the number.\n\nBe kind."
        assert answer.choices[0].finish_reason == "length"

    def test_a_node_of_a_few_shot_variant_has_no_place_for_a_conversation(self):
        graph = chain(["small:shown", "large"])
        with pytest.raises(openai.BadRequestError, match="answers a single question"):
            self.said(PoolStub(), graph, variants={"shown": {"style": "few_shot"}})


SIMULATED = "llama-3.2-1b"


def simulated(variants: dict[str, Any], **skills: float) -> Profile:
    data = yaml.safe_load((ROOT / "profiles" / "simulated.yaml").read_text())
    data["pool"] = {SIMULATED: data["pool"][SIMULATED] | {"variants": variants}}
    skill = data["simulation"]["tasks"]["math"]["skill"]
    skill |= {f"{SIMULATED}:{name}": value for name, value in skills.items()}
    return parse(Profile, data, "simulated.yaml")


def test_a_simulated_variant_is_as_able_as_its_model_unless_it_has_traits_of_its_own():
    def answers(known: Profile, name: str = "") -> list[bool | None]:
        asked = questions_of(known, "math", 300)
        graph = single(SIMULATED + name)
        return [
            found.correct
            for found in evaluate(known, "math", graph, asked, client_of(known)).results
        ]

    known = simulated({"t0": {"temperature": 0}, "wise": {"reasoning_effort": "high"}}, wise=9.0)
    plain, cold, wise = (answers(known, name) for name in ("", ":t0", ":wise"))
    assert plain == answers(simulated({}))
    assert cold != plain
    assert abs(sum(map(bool, cold)) - sum(map(bool, plain))) < 40
    assert sum(map(bool, wise)) > 250


def test_only_chat_prompts_can_be_simulated():
    said = r"variant 'llama-3\.2-1b:shown': expected chat prompts for the simulation"
    with pytest.raises(SettingsError, match=said):
        simulated({"shown": {"style": "few_shot"}})
