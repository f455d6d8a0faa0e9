"""A node that checks answers stops once one passes: one by one, the same answers everywhere."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes import ScriptedClient
from tests.support.running import POOL, PROMPT, run_graph
from tests.support.timed import waited
from ttsgraph.base.errors import GraphError
from ttsgraph.evaluation.environment import Environment
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import check_roles
from ttsgraph.graphs.settle import answered, needs
from ttsgraph.graphs.topologies import until_passed
from ttsgraph.models.client import Sampling
from ttsgraph.searching.response.evidence import FORMS
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question

TWICE = Question(
    "q",
    'def twice(x):\n    """Twice a number.\n\n    >>> twice(3)\n    6\n    """\n',
    "    return 2 * x\n",
    {"entry_point": "twice", "test": "def check(f):\n    assert f(3) == 6 and f(4) == 8\n"},
)
WRONG = "    return x\n"
LUCKY = "    return 6\n"
RIGHT = "    return 2 * x\n"


class Even:
    """Numbers, of which the even ones pass the check and 0 is right."""

    def __init__(self):
        self.math = get_task("math")

    def __getattr__(self, name):
        return getattr(self.math, name)

    checks = "whether it is even"

    def passes(self, text):
        return self.math.extract(text) in {"0", "2", "4"}


def run(graph, client, task, question):
    return asyncio.run(run_graph(graph, question, task, PROMPT, Sampling(), POOL, client))


@pytest.mark.parametrize(
    ("replies", "asked", "taken"),
    [
        ((RIGHT, WRONG, WRONG), 1, RIGHT),
        ((WRONG, RIGHT, LUCKY), 2, RIGHT),
        ((WRONG, LUCKY, RIGHT), 2, LUCKY),
        ((WRONG, "no code", WRONG), 3, WRONG),
    ],
)
def test_the_examples_of_a_problem_decide_and_not_its_hidden_tests(replies, asked, taken):
    client = ScriptedClient(lambda request: replies[request.replica])
    answer = run(until_passed(["m"] * 3, "verifier"), client, get_task("humaneval"), TWICE)
    assert (len(client.requests), answer.text) == (asked, taken)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(-1, 5), min_size=4, max_size=4), min_size=1, max_size=5),
    st.sampled_from([(1,), (2,), (1, 3)]),
    st.sampled_from([{}, {"gate": {"over": 0.0, "watches": [0, 1]}}]),
)
def test_arrays_searches_and_services_stop_at_the_same_answer(columns, waves, gate):
    plain = until_passed(["m"] * 4, "verifier").to_dict()
    plain["nodes"][-1] |= {"wave": list(waves)} | gate
    graph = CollaborationGraph.from_dict(plain)
    classes = {i: np.array([column[i] for column in columns]) for i in range(4)}
    passing = np.zeros((FORMS, len(columns)), dtype=bool)
    passing[[0, 2, 4]] = True
    classes[4] = answered(graph, 4, classes, lambda: classes[0], passing)
    wanted = needs(graph, classes, passing)
    for k, column in enumerate(columns):

        def reply(request, column=column):
            return "no idea" if column[request.replica] < 0 else f"{column[request.replica]}"

        client = ScriptedClient(reply)
        question = Question("q", "?", "0")
        answer = run(graph, client, Even(), question)
        assert len(client.requests) == wanted.count()[k]
        assert answer.text == ("no idea" if classes[4][k] < 0 else str(classes[4][k]))
        served, begun = waited(graph, reply, Even(), question)
        assert (served.text, begun) == (answer.text, set(answer.completions))


def test_other_nodes_refuse_the_rule_and_one_wave_has_nothing_to_stop():
    def check(role, **settings_of_it):
        data = topologies.parallel(["m"] * 3, "m", role).to_dict()
        data["nodes"][3] |= settings_of_it
        check_roles(CollaborationGraph.from_dict(data))

    for role, stop in (("voter", "passed"), ("verifier", "lossless")):
        with pytest.raises(GraphError, match="expected stop passed and wave at a node that checks"):
            check(role, stop=stop, wave=1)
    with pytest.raises(GraphError, match="needs wave"):
        check("verifier", stop="passed")


def test_every_node_s_answer_is_checked_where_its_question_carries_a_check():
    client = ScriptedClient(lambda request: (WRONG, LUCKY, RIGHT)[request.replica])
    environment = Environment(
        get_task("humaneval"), PROMPT, Sampling(), POOL, client, grade_nodes=True
    )
    graph = topologies.parallel(["m"] * 3, "m", "verifier")
    found = asyncio.run(environment.evaluate(graph, [TWICE])).results[0].nodes
    assert [found[i].passes for i in range(3)] == [False, True, True]
    assert [found[i].correct for i in range(3)] == [False, False, True]
