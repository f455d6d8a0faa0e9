"""`search.way: paper` is Algorithm 1 of arXiv 2511.00086: what is asked, run and changed, when."""

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import logit

from lab.pools.arrays import ArrayEnvironment
from tests.searching.contest.test_contest import TRAIN, VAL, scored, world_of
from tests.support.agent_server import settings
from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import parse
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Completion
from ttsgraph.searching.agent.base import family_size_trials
from ttsgraph.searching.agent.heuristic import make_agent
from ttsgraph.searching.loop import Bench, find
from ttsgraph.searching.methods import Problem, searcher_class
from ttsgraph.settings.profile import Profile, SearchSettings
from ttsgraph.stages.project import StepModels
from ttsgraph.stages.trials import start_trial, trial_cases, trials_of
from ttsgraph.tasks.base import Question

MODEL = "llama-3.2-1b"
ITERATIONS = 3
CHANGE = {"source": 0, "target": 2, "probability": 0.9, "reason": "did well"}
MULTISETS = [{"instances": [{"model": MODEL, "count": n}], "reason": "x"} for n in (3, 4)]
ANSWERS = {
    "family_size": {"ranking": [MODEL], "reason": "x"},
    "instances": {"combinations": MULTISETS},
    "update": {"edge_changes": [CHANGE], "role_changes": [], "graph": None, "reason": "x"},
}


class Traced(ArrayEnvironment):
    """Notes how many questions each graph is run on."""

    trace: list[tuple[str, Any]]

    def _evaluate(self, graph: CollaborationGraph, questions: Sequence[Question]) -> Feedback:
        self.trace.append(("run", len(questions)))
        return super()._evaluate(graph, questions)


@pytest.fixture(scope="module")
def ran(profile):
    """A small run: its trace, the iterations of its journal, what it found, and the brief."""
    world = world_of(profile)
    environment = Traced(world.world, world.questions, world.lengths)
    brief = scored(profile, world, 18.0)
    trace = environment.trace = []

    def speak(messages: Any, name: str, schema: str) -> tuple[Completion, float]:
        trace.append((name, messages[0].content))
        return Completion(json.dumps(ANSWERS[name]), 1, 1, 0.0), 0.0

    plain = ("evidence", "proposes")
    agent = settings(base_url="http://127.0.0.1:9", price=0, without=plain)
    terms = {"max_iterations": ITERATIONS, "patience": 10, "candidates": 4, "batch": 32}
    search = SearchSettings(way="paper", **terms)
    every = world.questions
    rng = np.random.default_rng(0)
    chooser = make_agent(agent, rng, speak)

    def trials(multisets: Any) -> Any:
        cases = trial_cases(multisets, brief, 10, rng)
        first = every[:32]
        return asyncio.run(StepModels(environment).scores(cases, brief.cost, first))

    table = trials(family_size_trials(brief))
    preference = chooser.select_family_size(brief, trials_of(table, brief.objective))
    assert (preference.models[0], preference.reason) == (MODEL, "x")
    start = start_trial(trials(chooser.select_instances(brief, preference, 6)), brief, "paper")
    problem = Problem(brief, search, agent, start.counts, 0, speak)
    archive = Archive()
    snapshots: list[dict[str, Any]] = []
    archive.event = lambda kind, **told: snapshots.append({"type": kind, **told})  # type: ignore[method-assign]
    searcher, bench = searcher_class("agent_reinforce").of(problem), Bench(environment, archive)
    found, _ = asyncio.run(find(searcher, search, bench, every[:TRAIN], every[TRAIN:]))
    return trace, [told for told in snapshots if told["type"] == "iteration"], found, brief


def runs_between(trace: Sequence[tuple[str, Any]]) -> list[list[int]]:
    """Questions of the graphs that were run before, between and after the prompts."""
    prompts = [k for k, (what, _) in enumerate(trace) if what != "run"]
    return [[told for _, told in trace[a + 1 : b]] for a, b in pairwise([-1, *prompts, len(trace)])]


def test_the_agent_is_asked_and_graphs_are_run_in_the_papers_order_and_nothing_else(ran):
    trace, _, _, brief = ran
    prompts = [what for what, _ in trace if what != "run"]
    assert prompts == ["family_size", "instances", *["update"] * ITERATIONS]
    first, between, second, *loop = runs_between(trace)
    topologies = sum(1 if sum(c.values()) == 1 else 10 for c in family_size_trials(brief))
    assert first == [32] * topologies
    assert between == []
    assert second == [32] * (20 + 4)
    # Candidates before each update; validations of decodings run beside the next ones.
    for k, part in enumerate(loop, 1):
        candidates = 4 if k < ITERATIONS else 0
        assert part[:candidates] == [32] * candidates
        assert len(part) <= candidates + 1
        assert set(part[candidates:]) <= {VAL}


def test_logits_begin_at_0_change_by_the_agents_words_alone_and_decode_to_what_is_found(ran):
    _, iterations, found, brief = ran
    for told in iterations:
        distribution = GraphDistribution.from_dict(told["distribution"], np.random.default_rng(0))
        wanted = np.zeros((distribution.n, distribution.n))
        place = {i: row for row, i in enumerate(distribution.ids)}
        if {0, 2} <= set(place):
            wanted[place[0], place[2]] = logit(0.9)
        forward = distribution.forward
        assert distribution.theta[forward] == pytest.approx(wanted[forward], abs=1e-9)
        assert np.ptp(distribution.pi) == 0
        assert not distribution.open_models().any()
    assert found.graph == distribution.decode(0.5, brief.budget)
    assert found.found_by.startswith("loop")


def test_one_key_sets_what_follows_from_it_and_refuses_what_contradicts_it(profile):
    told = profile.model_dump(mode="json", exclude={"init", "agent"})
    told["search"] |= {"way": "paper"}
    found = parse(Profile, told | {"init": {}, "agent": {}}, "profile")
    assert (found.init.questions, found.init.topologies) == (32, 10)
    assert not found.init.contest.enabled
    assert found.agent.without == ("evidence", "proposes")
    assert parse(Profile, found.model_dump(mode="json", exclude_none=True), "profile") == found
    told["init"] = {"contest": {"enabled": True}}
    with pytest.raises(SettingsError, match=r"init\.contest\.enabled"):
        parse(Profile, told, "profile")
