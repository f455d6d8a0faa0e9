"""A role registered in one place takes part in contest, loops, costs, pictures and serving."""

from itertools import cycle

import pytest

from tests.searching.methods.test_search import BRIEF, COST, loop
from tests.support.service import NAME, PoolStub, chat, client_of, deployed, pooled
from ttsgraph.graphs import roles, topologies
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.contenders import Contenders
from ttsgraph.searching.methods import Problem, searcher_class
from ttsgraph.settings.profile import AgentSettings, SearchSettings
from ttsgraph.tasks.prompts import REQUESTS, compose

MODEL = "llama-3.2-1b"


def shortest(task, answers):
    return min(answers, key=len)


def critic(task, prompt, question, answers):
    return compose(task, prompt, question, answers, "refine")


DECIDES = roles.Role("shortest", decide=shortest, min_in_degree=1, does="takes the shortest one")
ASKS = roles.Role("critic", speak=critic, min_in_degree=1, does="names the worst mistake")


@pytest.fixture(params=[DECIDES, ASKS], ids=lambda role: role.name)
def role(request, monkeypatch):
    """A role of one's own, forgotten afterwards."""
    monkeypatch.setattr(roles, "_ROLES", dict(roles._ROLES))
    roles.register_role(request.param)
    return request.param


@pytest.fixture
def brief(role):
    return Brief("math", BRIEF.budget, BRIEF.single_scores, (*BRIEF.roles, role.name))


def test_the_contest_tries_it_where_answers_of_one_model_and_of_several_meet(role, brief):
    tried = [graph for graph in Contenders(brief).graphs if role.name in graph.to_json()]
    assert {len(graph.model_counts()) > 1 for graph in tried} == {True, False}


def test_a_loop_proposes_it(role, brief):
    problem = Problem(brief, SearchSettings(), AgentSettings(), {MODEL: 6}, 0)
    proposed = loop(searcher_class("agent_reinforce").of(problem), rounds=10)
    assert any(f'"{role.name}"' in text for text in proposed)


def test_it_costs_a_call_of_its_model_or_nothing(role):
    graph = topologies.parallel([MODEL] * 3, MODEL, role.name)
    calls = [COST.node_cost(node, 0) for node in graph.nodes[:-1]]
    sink = COST.graph_cost(graph) - sum(calls)
    assert (sink > max(calls)) if role.calls_model else sink == pytest.approx(0)


def test_it_is_served(role):
    drafts = cycle(["The answer is 7.", "7", "It is 7."])
    said = "The worst mistake is none: 7"
    graph = topologies.parallel(["small"] * 3, "small", role.name)
    with pooled(PoolStub()) as pool, deployed(pool, graph) as url:
        pool.reply = lambda body: (
            said if REQUESTS["refine"] in body["messages"][-1]["content"] else next(drafts)
        )
        answer = client_of(url).chat.completions.create(**chat())
    assert answer.choices[0].message.content == (said if role.calls_model else "7")
    assert answer.model == NAME
