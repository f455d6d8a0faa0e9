"""Votes that stop when the answer is clear, and gates: the same answers for fewer calls."""

import asyncio
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.fakes import ScriptedClient, unit_draw
from tests.support.running import MODELS, POOL, environment, run
from ttsgraph.base.errors import GraphError
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel, Lengths
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import check_roles
from ttsgraph.graphs.stopping import LOSSLESS, NEVER, PASSED, Gate, Stop, decided, most_frequent
from ttsgraph.graphs.topologies import until_passed, with_sink
from ttsgraph.models.client import Request
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question

BETA = Stop("beta", 0.95)


def vote(count, waves=(), stop=LOSSLESS):
    graph = topologies.parallel(["m"] * count, "m", "voter")
    return with_sink(graph, waves=waves, stop=stop)


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5])
def test_a_vote_is_decided_exactly_when_no_completion_changes_it(total):
    forms = ("a", "b", "c", None)
    for known in product((*forms, "missing"), repeat=total):
        there = {k: form for k, form in enumerate(known) if form != "missing"}
        gaps = [k for k in range(total) if k not in there]
        ends = set()
        for rest in product(forms, repeat=len(gaps)):
            whole = there | dict(zip(gaps, rest, strict=True))
            ends.add(most_frequent(whole[k] for k in range(total)))
        one = len(ends) == 1 and (not gaps or any(there.values()))
        assert decided(there, total) == one, known


@pytest.mark.parametrize(
    ("replies", "waves", "stop", "asked", "seconds"),
    [
        ("7797899", (3, 1), LOSSLESS, 5, 1.5),  # decided
        ("78787", (2, 2, 1), LOSSLESS, 5, 1.5),
        ("7777777", (4,), NEVER, 7, 1.0),
        ("777788888", (1,), BETA, 4, 2.0),  # clear before it is decided
        ("    7", (1,), BETA, 5, 2.5),  # blanks have no form
    ],
)
def test_a_vote_in_waves_stops_by_its_rule(replies, waves, stop, asked, seconds):
    client = ScriptedClient(lambda request: replies[request.replica])
    answer = run(vote(len(replies), waves, stop), client)
    assert answer.text == "7"
    assert sorted(request.replica for request in client.requests) == list(range(asked))
    assert answer.latency_s == pytest.approx(seconds)


READS = ("voter", "voter", "assistant", "fuser")


@st.composite
def voting_graphs(draw, gates=False, readers=READS, most=9):
    """DAGs of up to `most` nodes with votes in waves, perhaps until one passes, and perhaps gates;
    `readers` are the roles of those that hear others.
    """
    n = draw(st.integers(2, most))
    edges = {(i, j) for j in range(n) for i in range(j) if draw(st.booleans())}
    edges |= {(i, n - 1) for i in range(n - 1) if not any(a == i for a, _ in edges)}
    nodes = []
    for i in range(n):
        before = [a for a, b in sorted(edges) if b == i]
        role = draw(st.sampled_from(readers)) if before else "assistant"
        gate = None
        if gates and before and draw(st.booleans()):
            watches = tuple(draw(st.sets(st.sampled_from(before), min_size=1)))
            if role != "voter" or len(watches) < len(before):
                gate = Gate(draw(st.sampled_from((0.0, 0.34, 0.5))), watches)
        sizes, stop = [], PASSED if role == "verifier" else LOSSLESS
        if role in ("voter", "verifier"):
            least = int(role == "verifier")
            sizes = draw(st.lists(st.integers(1, 3), min_size=least, max_size=3))
        nodes.append(Node(i, role, draw(st.sampled_from(MODELS)), stop, tuple(sizes), gate))
    return CollaborationGraph(tuple(nodes), tuple(edges))


def replying(seed):
    """Answers with ties, and some without a form."""

    def reply(request: Request) -> str:
        number = int(unit_draw(replace(request, revision=f"{seed}")) * 5)
        said = f"{number % 3} it is, says draw {request.replica}: {number % 3}"
        return "I don't know" if number == 4 else said

    return reply


FUSED = topologies.parallel(["m"] * 3, "n", "fuser")
# Three cheap votes, and two of another model that alone decide where those disagree.
CASCADE = with_sink(topologies.parallel([*"mmmnn"], "m", "voter"), gate=Gate(0.0, (0, 1, 2)))


@pytest.mark.parametrize(
    ("graph", "replies", "text", "dear", "seconds"),
    [
        # A gate that disagrees or sees no form runs its node.
        (with_sink(FUSED, gate=Gate(0.34)), "787", "7", 0, 0.5),
        (with_sink(FUSED, gate=Gate(0.0)), "787", "9", 1, 1.0),
        (with_sink(FUSED, gate=Gate(0.0)), "   ", "9", 1, 1.0),
        # A branch behind a gate runs only where it is needed, and alone decides.
        (CASCADE, "777", "7", 0, 0.5),
        (CASCADE, "787", "9", 2, 1.0),
    ],
)
def test_a_gate_asks_what_is_behind_it_where_answers_differ(graph, replies, text, dear, seconds):
    client = ScriptedClient(lambda r: "9" if r.model == "n" else replies[r.replica])
    answer = run(graph, client)
    assert (answer.text, answer.latency_s) == (text, seconds)
    assert [request.model for request in client.requests] == ["m"] * 3 + ["n"] * dear


@settings(max_examples=40, deadline=None)
@given(voting_graphs(gates=True), st.integers(0, 99))
def test_json_and_hash_know_stops_waves_and_gates(graph, shift):
    assert CollaborationGraph.from_json(graph.to_json()) == graph
    assert CollaborationGraph.from_digraph(graph.digraph) == graph

    def moved(node):
        gate = node.gate and Gate(node.gate.over, tuple(i + shift for i in node.gate.watches))
        return replace(node, id=node.id + shift, gate=gate)

    edges = tuple((a + shift, b + shift) for a, b in graph.edges)
    other = CollaborationGraph(tuple(map(moved, graph.nodes)), edges)
    assert other.content_hash == graph.content_hash


@settings(max_examples=40, deadline=None)
@given(voting_graphs(gates=True), st.floats(1, 8), st.sampled_from(("dollars", "runtime")))
@example(vote(3, (1,)), 2.0, "runtime")  # one wave after another
def test_trimming_keeps_what_makes_sense_of_gates_and_waves(graph, calls, metric):
    cost = CostModel(POOL, Lengths(100, 10), metric)
    limit = calls * cost.single("m")
    smaller = Budget(cost, limit).trim(graph)
    check_roles(smaller)
    assert cost.graph_cost(smaller) <= limit
    assert graph == Budget(cost).trim(graph)


def test_what_is_asked_later_is_another_graph():
    stops = (BETA, Stop("beta", 0.9), NEVER)
    graphs = [vote(5), vote(5, (3,)), vote(5, (3, 1)), *(vote(5, (1,), stop) for stop in stops)]
    plain = topologies.parallel([*"mmnn"], "m")
    graphs += [with_sink(plain, gate=Gate(0.2, w)) for w in ((0, 1), (0, 2), (2, 3))]
    assert len({graph.content_hash for graph in graphs}) == len(graphs)


OF_0_3 = {"over": 0.3}


@pytest.mark.parametrize(
    ("settings_of_it", "message"),
    [
        ({"stop": "soon"}, "found 'soon'"),
        ({"stop": {"rule": "beta"}}, "expected a stop level"),
        ({"stop": {"rule": "beta", "level": 0.9}}, "needs 'wave'"),
        ({"wave": 0}, "'wave.0'.* found 0"),
        ({"gate": {"over": 1}}, "'over' of a gate to be at least 0 and below 1"),
        ({"gate": OF_0_3 | {"watches": [7]}}, "not among its predecessors"),
        ({"gate": OF_0_3}, "the same either way"),
        ({"role": "fuser", "wave": 2}, "found lossless at role 'fuser'"),
        ({"stop": "passed", "wave": 1}, "at a node that checks"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_with_the_reason(settings_of_it, message):
    data = topologies.parallel(["m"] * 3, "m", "voter").to_dict()
    data["nodes"][3] |= settings_of_it
    with pytest.raises(GraphError, match=message):
        check_roles(CollaborationGraph.from_dict(data))


TWICE = Question(
    "q",
    'def twice(x):\n    """Twice a number.\n\n    >>> twice(3)\n    6\n    """\n',
    "    return 2 * x\n",
    {"entry_point": "twice", "test": "def check(f):\n    assert f(3) == 6 and f(4) == 8\n"},
)
WRONG, LUCKY, RIGHT = (f"    return {said}\n" for said in ("x", "6", "2 * x"))


@pytest.mark.parametrize(
    ("replies", "passing", "right", "taken"),
    [
        ((RIGHT, WRONG, WRONG), [True], [True], RIGHT),
        ((WRONG, LUCKY, RIGHT), [False, True], [False, False], LUCKY),
        ((WRONG, "no code", WRONG), [False] * 3, [False] * 3, WRONG),
    ],
)
def test_the_examples_of_a_problem_decide_and_not_its_hidden_tests(replies, passing, right, taken):
    client = ScriptedClient(lambda request: replies[request.replica])
    graph = until_passed(["m"] * 3, "verifier")
    checking = environment(client, get_task("humaneval"), grade_nodes=True)
    (found,) = asyncio.run(checking.evaluate(graph, [TWICE])).results
    asked = [node for i, node in found.nodes.items() if i != graph.sink]
    assert [node.passes for node in asked] == passing
    assert [node.correct for node in asked] == right
    assert (found.answer, len(client.requests)) == (taken, len(passing))
