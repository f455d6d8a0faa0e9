"""The sentence that says what to use claims no more than its paired test shows."""

import io
import json
import math
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.topologies import chain, parallel, single
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.reporting.answer import Recommendation, answer_of
from ttsgraph.reporting.explain import in_brief, ways
from ttsgraph.reporting.figures import Row, TableSource, shown
from ttsgraph_flows.answers import answers_file, tell


def pool_of(*models: str) -> ModelPool:
    return ModelPool(
        tuple(ModelSpec(name, "f", 1e9, 1e9, 1, 1, Price(1.0, 1.0)) for name in models)
    )


POOL = pool_of("a", "b")
PAIR = pool_of("small", "large")
FIVE = parallel(["a"] * 5, "b", "fuser")


def row(
    arm: str, label: str, graph: CollaborationGraph, accuracy: float, **more: Any
) -> dict[str, Any]:
    """A row of test.parquet."""
    known: dict[str, Any] = {
        "arm": arm,
        "label": label,
        "graph": graph.to_json(),
        "n_nodes": len(graph.nodes),
    }
    known |= {"accuracy": accuracy, "n_scored": 400, "n_unscored": 0}
    known |= {"accuracy_low": accuracy - 0.03, "accuracy_high": accuracy + 0.02}
    known |= {"dollars": 0.48, "latency_s": 2.14, "budget_units": 6.0}
    known |= {"found_only": 0, "rival_only": 0, "p_differs": 1.0}
    return known | more


ALONE = TableSource(
    "profile.parquet",
    pd.DataFrame(
        [
            {"model": "a", "accuracy": 0.87, "n_scored": 200, "budget_units": 1.2},
            {"model": "b", "accuracy": 0.95, "n_scored": 200, "budget_units": 30.0},
        ]
    ),
)


def answer(
    rows: list[dict[str, Any]],
    gate: dict[str, Any] | None = None,
    limit: float = math.inf,
    **lineage: Any,
) -> Recommendation:
    """The answer for a task of one method with this test."""
    told = {"version": "math/3", "promoted": True} | ({"gate": gate} if gate else {}) | lineage
    method = SimpleNamespace(
        name="random",
        finder="found by random (iteration 2)",
        test=TableSource("test.parquet", pd.DataFrame(rows)),
        lineage=Row("lineage.json", "", told),
    )
    task: Any = SimpleNamespace(name="math", methods=(method,), profile=ALONE)
    return answer_of(task, POOL, limit=limit)


def against(
    p: float, found_only: int, rival_only: int, accuracy: float = 0.87, **more: Any
) -> dict[str, Any]:
    paired: dict[str, Any] = {"p_differs": p, "found_only": found_only, "rival_only": rival_only}
    return row("single", "a", single("a"), accuracy, **paired, **more)


GATE = {"arm": "single", "label": "a", "verdict": "as good"}
CHEAP = {"budget_units": 1.2, "dollars": 0.004, "latency_s": 0.43}
THREE = parallel(["a"] * 3, "a", "voter")
VOTES = row("self_consistency", "majority of 3 x a", THREE, 0.88, budget_units=3.0, p_differs=0.9)


def found(accuracy: float, graph: CollaborationGraph = FIVE, **more: Any) -> dict[str, Any]:
    return row("found", "found graph", graph, accuracy, **more)


VOTE_GATE = {"arm": "self_consistency", "label": "majority of 3 x a", "verdict": "x"}
FIVE_CALLS = "five calls of a and one of b that decides"
COST = "for $1.2 per 1,000 questions, 2.1 s each."


@pytest.mark.parametrize(
    ("rows", "gate", "says"),
    [
        (
            [found(0.91), against(0.002, 30, 14)],
            None,
            f"Use this: {FIVE_CALLS}. 91.0 % right (88.0 to 93.0), 4.0 points above the best single"
            f" call (p = 0.002), {COST}",
        ),
        (
            [found(0.91), against(0.059, 30, 17)],
            None,
            f"Use this, but it is not proven: {FIVE_CALLS}. 91.0 % right (88.0 to 93.0), not shown"
            f" to differ from the best single call's 87.0 % (p = 0.059), {COST}",
        ),
        (
            [found(0.875), against(0.64, 12, 10, **CHEAP)],
            GATE,
            "Don't use a graph: one call of a is as good (p = 0.640), for a fifth of the cost. 87.0"
            " % right (84.0 to 89.0) against 87.5 %, for $0.010 per 1,000 questions, 0.43 s each.",
        ),
        (
            [found(0.88), VOTES],
            VOTE_GATE,
            "Use this: three calls of a and their majority. It is as good as the graph that was"
            " found (p = 0.900), for half of the cost. 88.0 % right (85.0 to 90.0) against 88.0 %,"
            f" {COST}",
        ),
        (
            [found(0.87, single("a")), against(1.0, 0, 0)],
            None,
            "Don't use several calls: one call of a is the best that was found. 87.0 % right (84.0"
            f" to 89.0), {COST}",
        ),
        (
            [found(float("nan"), n_scored=0), against(1.0, 0, 0)],
            None,
            "Nothing can be said: no test question could be scored.",
        ),
        (  # scores, which are not called right, and calls without a price
            [found(0.9102, dollars=0.0), against(0.01, 9, 1)],
            None,
            f"Use this: {FIVE_CALLS}. 91.0 % of the score (88.0 to 93.0), 4.0 points above the best"
            " single call (p = 0.010), 2.1 s each.",
        ),
    ],
)
def test_the_sentence_claims_what_the_paired_test_shows(
    rows: list[dict[str, Any]], gate: dict[str, Any] | None, says: str
) -> None:
    told = answer(rows, gate)
    assert told.text == says
    assert told.serve == "ttsgraph serve math@champion"


@pytest.mark.parametrize(
    ("p", "found_only", "rival_only", "words"),
    [
        (0.0002, 3, 30, "is better (p < 0.001), for a fifth"),
        (0.3, 3, 7, "is as good (p = 0.300), for a fifth"),
        (0.01, 30, 3, "is not as good (p = 0.010), but takes a fifth"),
    ],
)
def test_only_the_paired_test_says_better_or_as_good(
    p: float, found_only: int, rival_only: int, words: str
) -> None:
    rows = [found(0.88), against(p, found_only, rival_only, budget_units=1.2)]
    for verdict in ("as good", "better"):
        assert words in answer(rows, GATE | {"verdict": verdict}).text


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
    lineage = Row("verdict.json", "", {"gate": {"arm": gate, "label": label, "verdict": "x"}})
    test = TableSource("test.parquet", pd.DataFrame(rows))
    answers = TableSource("answers.parquet", pd.DataFrame(asked).astype({"correct": "boolean"}))
    return SimpleNamespace(
        name=name, finder=f"found by {name}", test=test, answers=answers, lineage=lineage
    )


@pytest.mark.parametrize(
    ("rights", "speaks"),
    [
        (["1111000000", "1111100000"], "method 0"),  # more right, which is not shown
        (["1110000000", "1111111100"], "method 1"),
        (["1110000000", "1111111100", "1111111110"], "method 1"),
        (["1111111100", "1110000000"], "method 0"),
    ],
)
@pytest.mark.parametrize("gate", ["found", "single"])
def test_of_several_methods_the_one_speaks_whose_version_the_registry_keeps(
    rights: list[str], speaks: str, gate: str
) -> None:
    methods = tuple(method_of(f"method {k}", right, gate) for k, right in enumerate(rights))
    task: Any = SimpleNamespace(name="math", methods=methods, profile=ALONE)
    told = answer_of(task, POOL)
    assert told.method.name == speaks
    assert told.row["arm"] == gate


def test_where_most_of_the_budget_is_unspent_it_is_said_what_a_dearer_call_has() -> None:
    rows = [found(0.875), against(0.64, 12, 10, **CHEAP)]
    said = "Most of the budget is unspent; one call of b, which costs more, has 95.0 % of the"
    assert said in answer(rows, GATE, limit=12.0).text
    for limit in (2.0, math.inf):
        assert "unspent" not in answer(rows, GATE, limit=limit).text
    best = answer([found(0.97, units=1.0), against(0.6, 12, 10)], limit=99.0).text
    assert best.endswith("Most of the budget is unspent.")


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (chain(["a", "a"]), "one call of a and one more that has the last word"),
        (parallel(["a", "b", "b"], "a", "voter"), "two calls of b, one of a and their majority"),
        (chain(["a"] * 4), "three calls of a and one more that has the last word, in four steps"),
    ],
)
def test_a_graph_in_a_few_words(graph: CollaborationGraph, words: str) -> None:
    assert in_brief(graph, POOL) == words


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (3.5e-9, "price", "$0.0035 per million questions"),
        (0.256, "price", "$0.256 a question"),
        (0.0, "price", "$0"),
        (0.0451, "time", "45 ms"),
        (210.0, "time", "3.5 min"),
        (0.2, "part", "a fifth of the cost"),
        (0.58, "part", "58 % of the cost"),
        (1.0, "part", "the same cost"),
        (1.5, "part", "1.5 times the cost"),
        (0.00035, "thousand", "0.35"),
        (0.00191, "money", "$0.0019"),
        (12.345, "money", "$12.35"),
        (float("nan"), "time", "–"),
    ],
)
def test_money_and_time_are_written_in_figures_that_say_something(
    value: float, form: str, text: str
) -> None:
    assert shown(value, form).replace("\N{NO-BREAK SPACE}", " ") == text


def test_the_steps_of_a_graph_in_words() -> None:
    nodes = tuple(Node(i, "assistant", "small") for i in range(3))
    told = list(ways(CollaborationGraph(nodes, ((0, 1), (0, 2), (1, 2))), PAIR))
    assert told[0] == "step 1: node 0 (assistant, small) answers the question alone"
    assert [line.partition(":")[0] for line in told[:-1]] == ["step 1", "step 2", "step 3"]
    assert told[-1] == "the final answer is that of node 2, the assistant"


def test_a_run_ends_with_the_sentence_the_graph_and_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = "→ found by random|50.8 %|45.9 to 55.6|$0.012 per 1,000 questions|7.20|2.1 s|"
    one = "small|47.3 %|42.4 to 52.1|$0.0018 per 1,000 questions|1.10|0.31 s|0.059"
    told = {
        "task": "math",
        "sentence": "Use this, but it is not proven: three calls. " + "50.8 % right " * 12,
        "serve": "ttsgraph serve math@champion",
        "graph": ["step 1: 3 nodes each answer the question alone"],
        "heads": ["graph", "right", "interval", "price", "units", "time", "p"],
        "rows": [found.split("|"), one.split("|")],
    }
    path = tmp_path / answers_file("laptop")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"profile": "laptop", "simulated": False, "tasks": [told]}))
    console = Console(file=io.StringIO(), width=120, force_terminal=True, record=True)
    with chdir(tmp_path):
        tell("laptop", console)
        tell("laptop")
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 120
    (used,) = [line for line in shown.splitlines() if "→" in line]
    assert used.split("  ")[1].strip() == "→ found by random"
    for part in ("math: Use this, but it is not proven", *told["graph"], told["serve"]):
        assert part in shown
    assert "report: reports/laptop/index.html" in shown
    log = capsys.readouterr().out
    assert "\x1b" not in log
    assert sum("Use this" in line and "50.8 % right" in line for line in log.splitlines()) == 1
