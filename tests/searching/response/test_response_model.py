"""The response model: what is kept of evaluated graphs call by call, what is learnt of it, and what
is foretold: estimates against pairs of draws counted one by one, the urn against its closed form.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

from tests.graphs.test_stopping import READS, voting_graphs
from tests.support.fakes import ScriptedClient
from tests.support.routers import by_field
from tests.support.running import branches, environment
from ttsgraph.base.special import expit, logit
from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import VOTER
from ttsgraph.graphs.stopping import Gate
from ttsgraph.graphs.topologies import with_sink
from ttsgraph.searching.response.calibration import TAILS, latency_along, own_shift, valued
from ttsgraph.searching.response.draws import SHARES, fit_draws, sample_draws, wrong_form
from ttsgraph.searching.response.evidence import BLANK, FORMS, UNKNOWN, Evidence, GraphGrades, Rows
from ttsgraph.searching.response.model import Prediction, ResponseModel
from ttsgraph.searching.response.reactions import Reactions, fit_reactions
from ttsgraph.tasks.base import Question


def asked(count: int) -> list[Question]:
    """Every other one is about law."""
    topics = ({"fields": {"subject": subject}} for subject in cycle(("chess", "law")))
    return [Question(f"q{k}", str(k), "", next(topics)) for k in range(count)]


def evidence_of(draws: Mapping[str, Sequence[Sequence[int]]]) -> Evidence:
    """Each model's draws (k, Q) of classes."""
    found = Evidence(asked(len(next(iter(draws.values()))[0])))
    found.draws = {m: {k: np.array(row) for k, row in enumerate(rows)} for m, rows in draws.items()}
    return found


def test_of_simulated_models_all_that_is_estimated_is_near_the_truth():
    """`a` and `b` find the same questions hard, `c` others; errors are of one form in 0.7."""
    rng = np.random.default_rng(3)
    hard, other = rng.random((2, 2000))
    truth = {"a": hard, "b": 0.1 + 0.8 * hard, "c": other}
    said = {}
    for model, chance in truth.items():
        wrong = np.where(rng.random((3, 2000)) < 0.7, 1, rng.integers(2, FORMS, (3, 2000)))
        said[model] = np.where(rng.random((3, 2000)) < chance, 0, wrong)
        said[model][rng.random((3, 2000)) < 0.2] = BLANK
    said["c"][:, :500] = UNKNOWN
    draws = fit_draws(evidence_of(said), "abc")
    assert draws.means == pytest.approx([0.5, 0.5, 0.5], abs=0.03)
    assert draws.blank.mean(axis=1) == pytest.approx([0.2] * 3, abs=0.02)
    for k, chance in enumerate(truth.values()):  # in each fifth as often right as expected
        for part in np.array_split(np.argsort(draws.expected[k]), 5):
            assert draws.expected[k][part].mean() == pytest.approx(chance[part].mean(), abs=0.06)
    assert np.ptp(draws.expected[2][:500]) < 0.2 < 0.5 < np.ptp(draws.expected[2][500:])
    # By others' draws much is known of a and b, of c nothing.
    known = [np.corrcoef(draws.others[k], chance)[0, 1] for k, chance in enumerate(truth.values())]
    assert min(known[:2]) > 0.6
    assert abs(known[2]) < 0.15
    # Of c one of three draws is an old one.
    assert draws.novelty[2] == pytest.approx(2, rel=0.2)
    # Wrong forms are drawn as often as they were seen.
    forms = wrong_form(np.repeat(draws.wrong, 9, axis=0).T, rng.random(18_000))
    assert (forms == 1).mean() == pytest.approx(0.5, abs=0.1)
    assert (forms > 0).all()


def test_nothing_is_certain_and_what_never_differs_is_the_questions_own():
    sure = fit_draws(evidence_of({"a": [[0] * 300] * 2}), ("a", "b"))
    assert sure.means[1] == 0.5 < 0.99 < sure.means[0] < 1
    assert sure.expected[0] == pytest.approx(SHARES[1])
    assert (sure.blank == 0).all()
    assert (fit_draws(evidence_of({"a": [[BLANK, UNKNOWN]]}), ("a",)).blank == 1).all()
    alike = fit_draws(evidence_of({"a": [[0, 1] * 150] * 3}), ("a",))
    mixed = fit_draws(evidence_of({"a": [[0, 1] * 150, [1, 0] * 150]}), ("a",))
    assert alike.novelty[0] < 0.05 < 20 < mixed.novelty[0]
    assert alike.repeats[0] > 0.8
    assert alike.others[0] == pytest.approx(0.5)


def test_further_draws_are_what_the_ones_before_foretell():
    rng = np.random.default_rng(5)
    every = np.arange(4000)
    wrong = np.where(rng.random((4, 4000)) < 0.6, 1, rng.integers(2, FORMS, (4, 4000)))
    said = np.where(rng.random((4, 4000)) < rng.random(4000), 0, wrong)
    draws = fit_draws(evidence_of({"m": said[:2]}), ("m",))
    more = sample_draws(draws, 0, every, 2, False, rng)
    for right in range(3):
        alike = (said[:2] == 0).sum(axis=0) == right
        for drawn, true in ((more[:1], said[2:3]), (more, said[2:])):
            found, wanted = ((each[:, alike] == 0).all(axis=0).mean() for each in (drawn, true))
            assert found == pytest.approx(wanted, abs=0.06)
    err = (said[:2] == 1).all(axis=0)
    assert (more[0][err] == 1).mean() == pytest.approx((said[2][err] == 1).mean(), abs=0.12)
    once = fit_draws(evidence_of({"m": said[:1]}), ("m",))
    assert (sample_draws(once, 0, every, 3, True, rng) == said[0]).all()


@pytest.mark.parametrize(("steady", "again"), [(True, 0.8), (False, 0.4)])
def test_a_question_that_was_left_blank_is_left_blank_again_as_far_as_pairs_say(steady, again):
    rng = np.random.default_rng(7)
    blank = np.tile(rng.random(200) < 0.3, (3, 1)) if steady else rng.random((3, 200)) < 0.3
    said = np.where(blank, BLANK, rng.random((3, 200)) > 0.8)
    said[1:, 60:] = UNKNOWN
    draws = fit_draws(evidence_of({"m": said}), ("m",))
    first = np.flatnonzero((said[0] == BLANK) & (said[1] == UNKNOWN))
    share = (sample_draws(draws, 0, np.repeat(first, 50), 4, False, rng) == BLANK).mean()
    assert share > again if steady else share < again


RIGHT = "7"
LAW = by_field("subject", {"law": 1}, [0.5, 0.5])


def said(place: int, *forms: str | None) -> QuestionResult:
    """What the nodes said to a question, in their order; None of one that was not needed."""
    nodes = {i: NodeResult(f == RIGHT, f) for i, f in enumerate(forms) if f is not None}
    return QuestionResult(f"q{place}", forms[-1] == RIGHT, nodes=nodes)


def add(evidence: Evidence, graph: CollaborationGraph, *results: QuestionResult) -> None:
    evidence.add(graph, Feedback(results))


FAN = topologies.parallel(["m", "m"], "n")


def test_draws_and_reading_calls_are_kept_once_by_class():
    evidence = Evidence(asked(4))
    add(evidence, FAN, said(2, "1", RIGHT, RIGHT), said(0, "2", "1", "2"), said(1, "", "3", ""))
    draws = {k: known.tolist() for k, known in evidence.draws["m"].items()}
    assert draws == {0: [1, BLANK, 1, UNKNOWN], 1: [2, 1, 0, UNKNOWN]}
    assert evidence.graphs[FAN].questions.tolist() == [2, 0, 1]
    assert evidence.graphs[FAN].right.tolist() == [1, 0, 0]
    (row,) = evidence.rows
    assert (row.model, row.role, row.level, row.questions.tolist()) == ("n", "fuser", 1, [2, 0, 1])
    assert row.inputs.tolist() == [[1, 1, BLANK], [0, 2, 1]]
    assert row.answers.tolist() == [0, 1, BLANK]
    every = np.arange(4)
    assert evidence.new_calls(FAN, every) == 3
    assert evidence.missing(FAN, every).tolist() == [3]
    # Again, with a question more that was lost.
    add(evidence, FAN, said(0, "2", "1", "2"), QuestionResult("q3", None, error="no route"))
    assert [each.questions.tolist() for each in evidence.rows] == [[2, 0, 1]]
    assert evidence.graphs[FAN].questions.tolist() == [2, 0, 1]


def test_asking_until_one_passes_is_foretold_from_what_passed():
    """A call is right in 0.4; right answers pass the check, and one in ten of the others."""
    rng = np.random.default_rng(2)
    evidence = Evidence(asked(1000))
    fan = topologies.parallel(["m"] * 3, "m", VOTER)
    for place in range(1000):
        forms = [RIGHT if rng.random() < 0.4 else str(rng.integers(100, 200)) for _ in range(3)]
        checked = [form == RIGHT or rng.random() < 0.1 for form in forms]
        drawn = zip(forms, checked, strict=True)
        nodes = dict(enumerate(NodeResult(f == RIGHT, f, passes=passed) for f, passed in drawn))
        nodes[3] = nodes[0]
        add(evidence, fan, QuestionResult(f"q{place}", forms[0] == RIGHT, nodes=nodes))
    model = ResponseModel(evidence, ("m",), rng, 8)
    tried = model.predict(topologies.until_passed(["m"] * 3, "verifier")).accuracy
    assert tried == pytest.approx(0.4 * (1 + 0.54 + 0.54**2), abs=0.05)
    assert model.predict(topologies.single("m")).accuracy == pytest.approx(0.4, abs=0.03)


def test_what_a_vote_did_not_ask_for_and_what_a_gate_took_are_no_calls():
    evidence = Evidence(asked(3))
    gated = with_sink(FAN, gate=Gate(0.0))
    answers = ("1", "1", "1"), ("1", RIGHT, "2"), (RIGHT, None, None)
    add(evidence, gated, *(said(k, *each) for k, each in enumerate(answers)))
    assert evidence.draws["m"][1].tolist() == [1, 0, UNKNOWN]
    assert [row.questions.tolist() for row in evidence.rows] == [[1]]
    assert evidence.new_calls(gated, np.arange(3)) == 2 + 1


GRAPHS = st.sampled_from((READS, ("assistant", "fuser"))).flatmap(
    lambda readers: st.lists(voting_graphs(readers=readers), min_size=2, max_size=4)
)


@settings(max_examples=40, deadline=None)
@given(GRAPHS)
def test_the_calls_that_a_graph_adds_are_counted_beforehand(graphs):
    questions = [Question(f"q{k}", f"{k} + 4", str(k + 4)) for k in range(3)]
    every = np.arange(3)
    evidence = Evidence(questions)
    made: set[str] = set()
    for graph in graphs:
        client = ScriptedClient(lambda r: str(int(r.key()[:12], 16)))
        counted = evidence.new_calls(graph, every)
        evaluated = environment(client, grade_nodes=True).evaluate(graph, questions)
        evidence.add(graph, asyncio.run(evaluated))
        new = {request.key() for request in client.requests} - made
        made |= new
        if any(node.role == "voter" for node in graph.nodes):  # which may do without some
            assert len(new) <= counted
        else:
            assert (len(new), evidence.new_calls(graph, every)) == (counted, 0)


def test_of_a_route_a_question_takes_the_calls_of_its_branch():
    route = topologies.routed(LAW, [topologies.single("m"), topologies.chain(["n", "n"])])
    evidence = Evidence(asked(5))
    every = np.arange(5)
    assert evidence.sent(route).tolist() == [0, 1, 0, 1, 0]
    assert evidence.sent(FAN).tolist() == [0] * 5
    assert evidence.new_calls(route, every) == 3 + 2 * 2
    planned: dict[int, np.ndarray] = {}
    evidence.plan(route, every[:3], planned)
    assert evidence.made == {}
    assert evidence.new_calls(route, every, planned) == 1 + 2
    assert evidence.new_calls(topologies.single("n"), every, planned) == 4
    add(evidence, route, said(0, "1", "1"), said(1, None, RIGHT, RIGHT))
    assert evidence.draws["m"][0].tolist() == [1] + [UNKNOWN] * 4
    assert evidence.draws["n"][0].tolist() == [UNKNOWN, 0] + [UNKNOWN] * 3
    assert [row.questions.tolist() for row in evidence.rows] == [[1]]
    evidence.plan(topologies.single("n"), every[2:3], planned)
    assert evidence.new_calls(topologies.single("n"), every, planned) == 3


@pytest.fixture(scope="module")
def greedy():
    """Three greedy models on 12 questions, and whether they are right (3, 12)."""
    evidence = Evidence(asked(12), frozenset("abc"))
    right = np.random.default_rng(4).random((3, 12)) < np.array([[0.8], [0.6], [0.5]])
    for model, known in zip("abc", right, strict=True):
        answers = [said(k, RIGHT if good else "1") for k, good in enumerate(known)]
        add(evidence, topologies.single(model), *answers)
    return evidence, right


def test_greedy_models_are_predicted_to_say_again_what_they_said(greedy):
    evidence, right = greedy
    model = ResponseModel(evidence, tuple("abc"), np.random.default_rng(0), samples=3)
    vote = topologies.parallel(list("abc"), "a", "voter")
    route = topologies.routed(LAW, [topologies.single("a"), topologies.single("c")])
    law = np.arange(12) % 2 == 1
    for graph, known in (
        (topologies.single("b"), right[1]),
        (vote, right.sum(axis=0) > 1),
        (route, np.where(law, right[2], right[0])),
    ):
        found = model.predict(graph)
        assert found.shares == pytest.approx(known.astype(float))
        assert found.accuracy == pytest.approx(np.mean(known))
        assert (found.spread, found.own) == (pytest.approx(0), 0)
        by = model.difference(graph, topologies.single("a"))
        more = found.accuracy - model.predict(topologies.single("a")).accuracy
        assert (by.mean, by.spread) == pytest.approx((more, 0))


def test_a_vote_is_predicted_to_gain_what_others_say_in_place_of_a_blank():
    rng = np.random.default_rng(0)
    wrong = np.where(rng.random((3, 300)) < 0.9, 0, rng.integers(1, 6, (3, 300)))
    evidence = evidence_of({"m": np.where(rng.random((3, 300)) < 0.5, BLANK, wrong)})
    model = ResponseModel(evidence, ("m",), np.random.default_rng(1), samples=8)
    one, fan = topologies.single("m"), topologies.parallel(["m"] * 3, "m")
    vote = topologies.parallel(["m"] * 6, "m", "voter")
    alone, voted, fused = (model.predict(graph).accuracy for graph in (one, vote, fan))
    assert alone == pytest.approx(0.41, abs=0.03)  # as often as it answers right here
    assert voted > 0.85
    assert 0.2 < fused < 1


@pytest.mark.parametrize("alike", [False, True])
def test_a_vote_of_readers_gains_what_their_answers_differ_by(alike):
    """Two readers of one wrong answer, right on the same questions or each on its own."""
    rng = np.random.default_rng(5)
    first, second = rng.random((2, 240)) < 0.65
    read = np.ones((1, 240), dtype=int)
    evidence = evidence_of({"m": read})
    for right in (first, first if alike else second):
        said = Rows("n", "assistant", 1, np.arange(240), read, np.where(right, 0, 1))
        evidence.rows.append(said)
    model = ResponseModel(evidence, ("m", "n"), np.random.default_rng(0), samples=8)
    graphs = (topologies.layered(["m", "n" * count], "n", "voter") for count in (2, 9))
    few, many = (model.predict(graph).accuracy for graph in graphs)
    assert (many - few > 0.06) != alike


ALL_WRONG = [(1, 2, 3), (-1, 1, -1)]
ALL_RIGHT = [(0, 0, 0), (0, -1, 0)]
SOME_RIGHT = dict.fromkeys([(0, 1, 2), (0, 1, 1), (7, 0, 7)], (1, 2))
SOME_RIGHT |= {(0, 0, 1): (2, 1), (0, -1, 1): (1, 1)}
"""What three nodes say (0 is right, -1 can't be read), and how many are right and wrong."""

READ = [*ALL_WRONG, *ALL_RIGHT, *SOME_RIGHT]
COUNT = 4000
DRAWS = fit_draws(evidence_of({m: [[0] * (COUNT // 2) + [1] * (COUNT // 2)] for m in "ab"}), "ab")


def fitted(*rows: Rows, samples: int = 200) -> Reactions:
    return fit_reactions(rows, DRAWS, samples, np.random.default_rng(3))


def chances(reactions: Reactions, level: int = 1, alone: float = 0.0) -> dict[tuple, float]:
    """The log odds that the model `a` is right at the mean of the coefficients."""
    mean = Reactions(reactions.coefficients.mean(axis=0, keepdims=True), reactions.blank, 0.0)
    given = np.full(len(READ), alone)
    odds = mean.log_odds(0, level, np.array(READ).T, given, np.zeros(len(READ), dtype=int))
    return dict(zip(READ, odds.tolist(), strict=True))


def test_before_evidence_a_reader_is_right_as_often_as_what_it_reads():
    prior = fitted(samples=2)
    once, twice, able = chances(prior), chances(prior, level=2), chances(prior, alone=1.0)
    assert once[ALL_WRONG[0]] < -1 < 1 < once[ALL_RIGHT[0]] == -once[ALL_WRONG[0]]
    for each, (right, wrong) in SOME_RIGHT.items():  # one of the answers, each as likely
        assert once[each] == pytest.approx(math.log((right + 0.5) / (wrong + 0.5)))
    for each in READ:  # a further revision repairs less, and keeps less
        assert twice[each] < once[each] <= able[each] < once[each] + 1


def test_what_a_reader_does_is_learnt():
    """It repairs 0.3, keeps 0.9, takes the right one of several answers in 0.8, and leaves 0.4 of
    what is wrong blank.
    """
    rng = np.random.default_rng(1)
    inputs = np.array(READ).T[:, rng.integers(len(READ), size=COUNT)]
    right = ((inputs == 0).any(axis=0)).astype(int) + (~(inputs > 0).any(axis=0))
    fails = np.where(rng.random(COUNT) < 0.4, BLANK, 1)
    answers = np.where(rng.random(COUNT) < np.choose(right, [0.3, 0.8, 0.9]), 0, fails)
    found = fitted(Rows("a", "fuser", 1, np.arange(COUNT), inputs, answers))
    alone = float(logit(DRAWS.expected[0]).mean())
    odds = chances(found, alone=alone)
    for reads, chance in ((ALL_WRONG, 0.3), (SOME_RIGHT, 0.8), (ALL_RIGHT, 0.9)):
        assert np.mean([expit(odds[each]) for each in reads]) == pytest.approx(chance, abs=0.04)
    assert found.blank[0] == pytest.approx(0.4, abs=0.03)
    # Another model leans on what this one does, and less is known of it.
    reads = np.ones((3, 200), dtype=int), np.zeros(200), np.arange(200)
    mine, other = (found.log_odds(model, 1, *reads) for model in (0, 1))
    assert other.mean() == pytest.approx(mine.mean(), abs=0.5)
    assert 0 < mine.std() < 0.5 * other.std()


def test_own_shift_is_the_mean_under_a_student_prior_and_normal_noise():
    shifts = np.linspace(-1, 1, 20_001)
    for residual, error, scale in ((-0.1, 0.08, 0.02), (0.3, 0.05, 0.1), (-0.45, 0.08, 0.02)):
        chance = student.pdf(shifts / scale, TAILS) * norm.pdf(residual, shifts, error)
        mean = chance @ shifts / chance.sum()
        spread = math.sqrt(chance @ (shifts - mean) ** 2 / chance.sum())
        assert own_shift(residual, error, scale) == pytest.approx((mean, spread), abs=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("right", [0.0, 0.5, 1.0])
def test_an_expected_accuracy_is_a_share_whatever_was_seen(share, right):
    evidence, graph = Evidence(asked(1)), topologies.single("m")
    evidence.graphs[graph] = GraphGrades(np.array([0]), np.array([right]))

    class Known:
        predict = staticmethod(lambda graph: Prediction(share, 0.0, np.array([share])))

    known = valued(graph, Known(), evidence)
    assert 0 <= known.value <= 1
    assert 0 <= known.spread < 1


def test_seconds_add_up_along_the_longest_way_and_a_vote_takes_none():
    graph = branches([["a", "b"], ["c"]], "a", "voter")
    assert latency_along(graph, {"a": 2.0, "b": 3.0, "c": 4.0}) == 5.0
    assert latency_along(topologies.parallel(["a"], "b"), {"a": 2.0, "b": 3.0}) == 5.0
