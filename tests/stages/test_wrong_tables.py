"""Archives that can't be right are refused, by a message that names row and rule."""

import math
from dataclasses import asdict

import pandas as pd
import pytest

from tests.support.oracles import PAPER_POOL
from ttsgraph.base.errors import DataError
from ttsgraph.evaluation.archive import record_of
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.graphs.budget import CostModel, Lengths
from ttsgraph.graphs.topologies import parallel, single
from ttsgraph.models.client import Usage
from ttsgraph.stages.schemas import Candidates, check, check_archive

COST = CostModel(PAPER_POOL, Lengths(202, 275))
SMALL = "llama-3.2-1b"
LARGE = "llama-3.1-8b"


def record(number: int, split: str = "train", correct: tuple[bool | None, ...] = (True, False)):
    graph = parallel([SMALL] * 2, LARGE) if number % 2 else single(SMALL)
    results = tuple(
        QuestionResult(f"q{k}", each, "", 1.5, "" if each is not None else "the server went away")
        for k, each in enumerate(correct * 5)
    )
    status = "ok" if any(each is not None for each in correct) else "failed"
    usage = Usage(100, 200, 0.1, 0.1, 10 * len(graph.nodes), 0)
    feedback = Feedback(results, usage, 0.3)
    units = COST.graph_cost(graph)
    iteration = 1 + number // 3
    said = "loop, iteration 1"
    return record_of(number, "random", iteration, split, graph, units, feedback, status, said)


@pytest.fixture(scope="module")
def archive() -> pd.DataFrame:
    rows = [record(k, "val" if k % 3 == 2 else "train") for k in range(8)]
    rows.append(record(8, correct=(None, None)))
    rows.append(record(9, correct=(True, None)))
    return pd.DataFrame([asdict(row) for row in rows])


def checked(table: pd.DataFrame) -> None:
    check_archive(check(table, Candidates, "archive"), COST, "random", "archive")


def test_an_archive_as_searches_write_it_holds(archive):
    checked(archive)


OTHER_MODEL = parallel(["another"] * 2, LARGE)

WRONG = {
    "no accuracy though questions were scored": {"accuracy": math.nan},
    "infinite dollars": {"dollars": math.inf},
    "infinite latency": {"latency_s": math.inf},
    "accuracy above its interval": {"accuracy_high": 0.4},
    "accuracy below its interval": {"accuracy_low": 0.6},
    "low above high": {"accuracy_low": 0.9, "accuracy_high": 0.1},
    "an accuracy of no questions": {"n_scored": 0},
    "another graph's hash": {"graph_hash": "0123456789abcdef"},
    "nodes that the graph lacks": {"n_nodes": 5},
    "another width": {"width": 7},
    "another depth": {"depth": 7},
    "a model that the pool lacks": {
        "graph": OTHER_MODEL.to_json(),
        "graph_hash": OTHER_MODEL.content_hash,
    },
    "an unknown method": {"method": "guess"},
    "an error though all was scored": {"error": "the server went away"},
    "budget units 100 times off": {"budget_units": 1234.0},
    "numbers with a gap": {"candidate_id": 70},
    "a number twice": {"candidate_id": 2},
    "iterations that go back": {"iteration": 9},
    "iteration 0": {"iteration": 0},
    "fewer calls than right answers": {"calls": 1},
    "negative dollars": {"dollars": -1.0},
    "accuracy above 1": {"accuracy": 1.5},
    "an unknown split": {"split": "test"},
    "an unknown status": {"status": "done"},
    "no graph": {"graph": "{}"},
    "nobody who found it": {"found_by": "somebody"},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_row_is_refused_with_its_number(archive, wrong):
    table = archive.copy()
    for column, value in WRONG[wrong].items():
        table.loc[3, column] = value
    with pytest.raises(DataError, match=r"archive: .*\brow \d"):
        checked(table)


@pytest.mark.parametrize(
    "made",
    [
        lambda table: table[:0],
        lambda table: table.drop(columns="calls"),
        lambda table: table.assign(more=1),
        lambda table: table.assign(method="guess"),
        lambda table: table.assign(calls=table["calls"].astype(str)),
        lambda table: table[::-1].reset_index(drop=True),
    ],
)
def test_a_wrong_table_is_refused(archive, made):
    with pytest.raises(DataError, match=r"archive: "):
        checked(made(archive))


def test_a_message_names_the_rule_and_each_row_once(archive):
    table = archive.assign(accuracy_low=1.0)
    with pytest.raises(DataError) as caught:
        checked(table)
    message = str(caught.value)
    assert message.count("accuracy_within_its_interval") == 1
    assert "row 0, row 1, row 2 and " in message
