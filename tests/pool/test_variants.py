"""Variants: members of the pool that ask a model in another way, and share all else with it."""

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import openai
import pytest

from tests.support.fakes import ScriptedClient, unit_draw
from tests.support.project import MODEL
from tests.support.service import NAME, PoolStub, Shelf, client_of, pooled, profile_of, serving
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import parse
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.deployment.provenance import pool_fingerprint, revisions
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import chain, parallel
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Request
from ttsgraph.runtime.clients import endpoints
from ttsgraph.settings.profile import Profile
from ttsgraph.stages.estimate import estimate_run
from ttsgraph.tasks.base import Question

VARIANTS: dict[str, dict[str, Any]] = {
    "t0": {"temperature": 0},
    "t0.5": {"temperature": 0.5, "top_p": 0.8},
    "same": {"temperature": 0.9},  # as the task itself
    "brief": {"max_tokens": 5, "stop": ["."], "instruction": "Say the number."},
    "thinking": {"reasoning_effort": "high"},
}
QUESTION = Question("q1", "3 + 4", "7")


def profile(variants: dict = VARIANTS, url: str = "http://127.0.0.1:9/v1") -> Profile:
    """`small` with these variants and `large`, on a task that samples at 0.9 and 64 tokens."""
    data = profile_of(url).model_dump(mode="json", exclude_none=True)
    data["pool"]["small"] |= {"variants": variants, "revision": "r1"}
    return parse(Profile, data, "mine.yaml")


def run(graph: CollaborationGraph, client: Any) -> Any:
    deployed = DeployedVersion("math", graph, profile())
    return asyncio.run(deployed.runner(client).answer(QUESTION))


class TestSettings:
    def test_each_variant_is_a_member_of_the_pool_with_its_models_facts(self):
        pool = profile().model_pool()
        assert list(pool) == ["small", *(f"small:{name}" for name in VARIANTS), "large"]
        plain, variant = pool["small"], pool["small:t0"]
        assert (variant.model, plain.model) == ("small", "small")
        assert replace(variant, name="small", variant_of=None, variant=None) == plain
        assert next(spec.name for spec in pool.families["f"]) == "small"

    @pytest.mark.parametrize(
        ("variants", "message"),
        [
            ({"t0": {}}, r"variants\.t0.*expected one of temperature"),
            ({"a:b": {"temperature": 0}}, "found 'a:b'"),
            ({"a": {"top_p": 1}, "b": {"top_p": 1}}, "found 'a' and 'b' with the same"),
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
        with pytest.raises(SettingsError, match="variant 't0' of 'small'"):
            parse(Profile, data, "mine.yaml")

    def test_what_a_variant_asks_is_in_its_identity_and_in_the_pools_and_in_no_models(self):
        before, after = (profile({"t": {"temperature": heat}}) for heat in (0, 0.1))
        known, changed = revisions(before), revisions(after)
        assert known["small:t"].revision == known["small"].revision == "r1"
        assert known["small"] == changed["small"] == revisions(profile({}))["small"]
        assert known["small:t"] != changed["small:t"]
        assert len({pool_fingerprint(found) for found in (before, after, profile({}))}) == 3
        bodies = {"a": 1, "b": 2}, {"b": 2, "a": 1}
        one, same = (revisions(profile({"t": {"extra_body": body}})) for body in bodies)
        assert one["small:t"] == same["small:t"]


class TestCalls:
    def asked(self, *models: str) -> list[Request]:
        """What one node of each of these, side by side, asks."""
        client = ScriptedClient()
        run(parallel(list(models), "large", "voter"), client)
        return client.requests

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


def test_a_variant_costs_what_its_model_costs_and_does_not_move_the_unit():
    cost = profile().cost_model("math")
    plain = profile({}).cost_model("math")
    assert cost.unit == plain.unit
    for name, spec in cost.pool.items():
        assert cost.single(name) == plain.single(spec.model)
    both = (cost.graph_cost(chain(["small", name])) for name in ("small:t0", "small"))
    assert len({*both, plain.graph_cost(chain(["small", "small"]))}) == 1
    calls = [estimate_run(each, "math")["calls"]["profile"] for each in (profile(), profile({}))]
    assert calls[0] / calls[1] == 7 / 2


class TestServing:
    GRAPH = parallel(["small:t0", "small:t0", "small:brief"], "small:thinking", "fuser")

    def test_a_bundle_comes_back_with_its_variants_and_needs_their_models(self, tmp_path):
        made = DeployedVersion("math", self.GRAPH, profile())
        read = DeployedVersion.read(made.write(tmp_path))
        assert (read.profile, read.bundle_hash) == (made.profile, made.bundle_hash)
        assert set(read.profile_with().pool) == {"small"}
        assert set(endpoints(read.profile_with(), {})) == {"small"}

    def said(self, stub: PoolStub, graph: CollaborationGraph, **known: Any) -> Any:
        messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "3 + 4"}]
        with pooled(stub):
            version = DeployedVersion("math", graph, profile(url=stub.url, **known), (), "1")
            with serving(Shelf(math_champion=version)) as service:
                create = client_of(service.url).chat.completions.create
                return create(model=NAME, messages=messages)

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
        with pytest.raises(openai.BadRequestError, match="single question"):
            self.said(PoolStub(), graph, variants={"shown": {"style": "few_shot"}})
