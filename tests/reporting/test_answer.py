"""The sentence that says what to use claims no more than its paired test shows."""

import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import chain, parallel, single
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.reporting.answer import Recommendation, answer_of
from ttsgraph.reporting.explain import in_brief
from ttsgraph.reporting.figures import Row, TableSource, shown


def pool_of(*models: str) -> ModelPool:
    return ModelPool(
        tuple(ModelSpec(name, "f", 1e9, 1e9, 1, 1, Price(1.0, 1.0)) for name in models)
    )


POOL = pool_of("a", "b")
FIVE = parallel(["a"] * 5, "b", "fuser")


def row(arm, label, graph, accuracy, **more):
    """A row of test.parquet."""
    known: dict[str, Any] = {"arm": arm, "label": label, "graph": graph.to_json()}
    known |= {"n_nodes": len(graph.nodes)}
    known |= {"accuracy": accuracy, "n_scored": 400, "n_unscored": 0}
    known |= {"accuracy_low": accuracy - 0.03, "accuracy_high": accuracy + 0.02}
    known |= {"dollars": 0.48, "latency_s": 2.14, "budget_units": 6.0}
    known |= {"found_only": 0, "rival_only": 0, "p_differs": 1.0}
    return known | more


ALONE = TableSource(
    "profile.parquet",
    pd.DataFrame(
        [("a", 0.87, 200, 1.2), ("b", 0.95, 200, 30.0)],
        columns=["model", "accuracy", "n_scored", "budget_units"],
    ),
)


def method(name: str, rows: list[dict[str, Any]], gate: dict[str, Any] | None, **more: Any) -> Any:
    """A method with this test, and what the gate selected."""
    lineage = Row("verdict.json", "", {"gate": gate} if gate else {})
    test = TableSource("test.parquet", pd.DataFrame(rows))
    return SimpleNamespace(name=name, test=test, lineage=lineage, **more)


def answer_for(*methods: Any, limit: float = math.inf) -> Recommendation:
    task: Any = SimpleNamespace(name="math", methods=methods, profile=ALONE)
    return answer_of(task, POOL, limit)


def answer(rows, gate=None, limit=math.inf):
    return answer_for(method("random", rows, gate), limit=limit)


def against(p, found_only, rival_only, accuracy=0.87, **more):
    paired: dict[str, Any] = {"p_differs": p, "found_only": found_only, "rival_only": rival_only}
    return row("single", "a", single("a"), accuracy, **paired, **more)


GATE = {"arm": "single", "label": "a"}
CHEAP = {"budget_units": 1.2, "dollars": 0.004, "latency_s": 0.43}
THREE = parallel(["a"] * 3, "a", "voter")
VOTES = row("self_consistency", "majority of 3 x a", THREE, 0.88, budget_units=3.0, p_differs=0.9)


def found(accuracy: float, graph: CollaborationGraph = FIVE, **more: Any) -> dict[str, Any]:
    return row("found", "found graph", graph, accuracy, **more)


VOTE_GATE = {"arm": "self_consistency", "label": "majority of 3 x a"}
ON_PAR = {"budget_units": 1.2}
SAYS: dict[str, tuple[list[dict[str, Any]], dict[str, Any] | None, tuple[str, ...]]] = {
    # rows of the test, what the gate selected, and the facts of the sentence
    "shown better": (
        [found(0.91), against(0.002, 30, 14)], None,
        ("Use this: five calls of a and one of b", "91.0 % right (88.0 to 93.0)", "4.0 points",
         "(p = 0.002)", "$1.2 per 1,000 questions", "2.1 s"),
    ),
    "not shown better": (
        [found(0.91), against(0.059, 30, 17)], None,
        ("not proven", "91.0 % right", "87.0 %", "(p = 0.059)"),
    ),
    "one call as good": (
        [found(0.875), against(0.64, 12, 10, **CHEAP)], GATE,
        ("Don't use a graph: one call of a is as good (p = 0.640)", "a fifth of the cost",
         "87.0 % right (84.0 to 89.0) against 87.5 %", "$0.010 per 1,000 questions", "0.43 s"),
    ),
    "one call better": (
        [found(0.88), against(0.0002, 3, 30, **ON_PAR)], GATE, ("better (p < 0.001), for a fifth",)
    ),
    "one call worse": (
        [found(0.88), against(0.01, 30, 3, **ON_PAR)], GATE, ("not as good (p = 0.010)", "a fifth")
    ),
    "a vote as good": (
        [found(0.88), VOTES], VOTE_GATE,
        ("Use this: three calls of a and their majority", "as good", "(p = 0.900)", "half of the"),
    ),
    "one call was found": (
        [found(0.87, single("a")), against(1.0, 0, 0)], None,
        ("Don't use several calls: one call of a", "87.0 % right (84.0 to 89.0)"),
    ),
    "nothing was scored": (
        [found(float("nan"), n_scored=0), against(1.0, 0, 0)], None, ("no test question",)
    ),
    "scores, which are not right or wrong, and no price": (
        [found(0.9102, dollars=0.0), against(0.01, 9, 1)], None,
        ("91.0 % of the score (88.0 to 93.0)", "(p = 0.010), 2.1 s each."),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAYS)
def test_the_sentence_claims_what_the_paired_test_shows(case):
    rows, gate, facts = SAYS[case]
    told = answer(rows, gate)
    said = told.text.replace("\N{NO-BREAK SPACE}", " ")
    assert [fact for fact in facts if fact not in said] == [], said
    assert told.serve == "ttsgraph serve math@champion"


def method_of(name: str, right: str, gate: str) -> Any:
    """A method with a test; what was selected is right where `right` has a 1."""
    rows = [row("found", "found graph", FIVE, 0.5), row("single", "a", single("a"), 0.5)]
    asked = [
        {"arm": arm, "label": label, "question_id": str(k)}
        | {"correct": mark == "1" if arm == gate else False}
        for arm, label in (("found", "found graph"), ("single", "a"))
        for k, mark in enumerate(right)
    ]
    label = "found graph" if gate == "found" else "a"
    answers = TableSource("answers.parquet", pd.DataFrame(asked).astype({"correct": "boolean"}))
    return method(name, rows, {"arm": gate, "label": label}, answers=answers)


RIGHTS = [(["1111000000", "1111100000"], 0)]  # more right, which is not shown
RIGHTS += [(["1110000000", "1111111100", "1111111110"], 1), (["1111111100", "1110000000"], 0)]


@pytest.mark.parametrize(("rights", "speaks"), RIGHTS)
@pytest.mark.parametrize("gate", ["found", "single"])
def test_of_several_methods_the_one_speaks_whose_version_the_registry_keeps(rights, speaks, gate):
    told = answer_for(*(method_of(f"method {k}", each, gate) for k, each in enumerate(rights)))
    assert (told.method.name, told.row["arm"]) == (f"method {speaks}", gate)


def test_where_most_of_the_budget_is_unspent_it_is_said_what_a_dearer_call_has():
    rows = [found(0.875), against(0.64, 12, 10, **CHEAP)]
    said = answer(rows, GATE, limit=12.0).text
    assert ("unspent" in said, "one call of b" in said, "95.0 %" in said) == (True, True, True)
    for limit in (2.0, math.inf):
        assert "unspent" not in answer(rows, GATE, limit=limit).text
    best = answer([found(0.97, units=1.0), against(0.6, 12, 10)], limit=99.0).text
    assert ("unspent" in best, "one call of b" in best) == (True, False)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (parallel(["a", "b", "b"], "a", "voter"), "two calls of b, one of a and their majority"),
        (chain(["a"] * 4), "three calls of a and one more that has the last word, in four steps"),
    ],
)
def test_a_graph_in_a_few_words(graph, words):
    assert in_brief(graph, POOL) == words


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (3.5e-9, "price", "$0.0035 per million questions"),
        (0.2, "part", "a fifth of the cost"),
        (0.00191, "money", "$0.0019"),
        (float("nan"), "time", "–"),
    ],
)
def test_money_and_time_are_written_in_figures_that_say_something(value, form, text):
    assert shown(value, form).replace("\N{NO-BREAK SPACE}", " ") == text
