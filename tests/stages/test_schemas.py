"""Tables come back as written; those that can't be right are refused with row and rule."""

import math
import operator

import pandas as pd
import pytest

from tests.support.oracles import PAPER_POOL
from ttsgraph.base.errors import DataError
from ttsgraph.evaluation.archive import record_of
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.graphs.budget import CostModel, Lengths
from ttsgraph.graphs.topologies import parallel, single
from ttsgraph.models.client import Usage
from ttsgraph.stages import schemas
from ttsgraph.stages.bookkeeping import BOOKKEEPING, beside
from ttsgraph.stages.schemas import (
    Candidates,
    Profiles,
    Questions,
    check,
    check_archive,
    read_table,
    write_table,
)
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import questions_of, questions_table


def questions(**changes) -> pd.DataFrame:
    train = [Question("a", "1 + 1", "2", {"k": [1]}), Question("b", "1 + 2", "3")]
    splits = {"train": train, "val": [Question("c", "2 + 2", "4")]}
    return questions_table(splits).assign(**changes)


def test_a_table_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "deep" / "questions.parquet"
    write_table(questions(), Questions, path)
    back = questions_of(read_table(Questions, path, "sample"))
    assert back["train"][0] == Question("a", "1 + 1", "2", {"k": [1]})
    assert [len(back[split]) for split in ("shots", "train", "val", "test")] == [0, 2, 1, 0]


def test_all_problems_are_named_at_once_and_nothing_is_written(tmp_path):
    table = questions(split=["train", "trian", "tset"], extra=1).drop(columns="meta")
    with pytest.raises(DataError, match=r"questions\.parquet") as caught:
        write_table(table, Questions, tmp_path / "questions.parquet")
    message = str(caught.value)
    for part in ("'meta'", "'extra'", "'split' fails isin", "row 1: 'trian'; row 2: 'tset'"):
        assert part in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir())


def test_a_table_that_can_not_be_used_names_the_stage_that_makes_it(tmp_path):
    absent, text, other = (tmp_path / name for name in ("absent", "text", "other"))
    text.write_text("not parquet")
    questions().drop(columns="meta").to_parquet(other)
    for path in (absent, text, other):
        with pytest.raises(DataError, match=rf"^{path}: .*`python -m ttsgraph_flows\.sample`"):
            read_table(Questions, path, "sample")


def test_what_the_clock_and_the_cache_said_is_in_a_file_beside(tmp_path):
    assert not {*BOOKKEEPING} & {*Candidates.columns, *Profiles.columns}
    path = tmp_path / "questions.parquet"
    for wall_s in (1.0, 2.0):
        write_table(questions().assign(wall_s=wall_s, cached_calls=3), Questions, path)
        written = path.read_bytes()
        apart = pd.read_parquet(beside(path))
        assert list(apart) == ["wall_s", "cached_calls"]
        assert (apart["wall_s"] == wall_s).all()
    write_table(questions(), Questions, tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == written


COST = CostModel(PAPER_POOL, Lengths(202, 275))
SMALL = "llama-3.2-1b"
LARGE = "llama-3.1-8b"


def record(number: int, split: str = "train", correct: tuple[bool | None, ...] = (True, False)):
    graph = parallel([SMALL] * 2, LARGE) if number % 2 else single(SMALL)
    results = tuple(
        QuestionResult(f"q{k}", each, "", 1.5, "" if each is not None else "the server went away")
        for k, each in enumerate(correct * 5)
    )
    failed = all(each is None for each in correct)
    feedback = Feedback(results, Usage(100, 200, 1e-6, 1e-6, 10 * len(graph.nodes), 0), 0.3)
    what = 1 + number // 3, split, graph, COST.graph_cost(graph), feedback, failed
    return record_of(number, "random", *what, "loop, iteration 1")


@pytest.fixture(scope="module")
def archive():
    rows = [record(k, "val" if k % 3 == 2 else "train") for k in range(8)]
    return pd.DataFrame([*rows, record(8, correct=(None, None)), record(9, correct=(True, None))])


def checked(table: pd.DataFrame) -> None:
    check_archive(check(table, Candidates, "archive"), COST, "random", "archive")


def test_an_archive_as_searches_write_it_holds(archive):
    checked(archive)


OTHER = parallel(["another"] * 2, LARGE)
NOTHING = operator.itemgetter(slice(0))
WITHOUT_FIRST = operator.itemgetter(slice(1, None))


def every(**values):
    return lambda table: table.assign(**values)


def twice(table):
    return pd.concat([table, table[:1]], ignore_index=True)


WRONG = {
    # in a row, or in a whole table
    "no rows": NOTHING,
    "a column too few": lambda table: table.drop(columns="calls"),
    "a column too many": every(more=1),
    "an unknown method everywhere": every(method="guess"),
    "later iterations": lambda table: table.assign(iteration=table["iteration"] + 100),
    "numbers as texts": lambda table: table.assign(calls=table["calls"].astype(str)),
    "rows in reverse": lambda table: table[::-1].reset_index(drop=True),
    "no accuracy though questions were scored": {"accuracy": math.nan},
    "infinite dollars": {"dollars": math.inf},
    "accuracy above its interval": {"accuracy_high": 0.4},
    "low above high": {"accuracy_low": 0.9, "accuracy_high": 0.1},
    "an accuracy of no questions": {"n_scored": 0},
    "another graph's hash": {"graph_hash": "0123456789abcdef"},
    "nodes that the graph lacks": {"n_nodes": 5},
    "another width": {"width": 7},
    "a model that the pool lacks": {"graph": OTHER.to_json(), "graph_hash": OTHER.content_hash},
    "an unknown method": {"method": "guess"},
    "an error though all was scored": {"error": "the server went away"},
    "budget units 100 times off": {"budget_units": 1234.0},
    "numbers with a gap": {"candidate_id": 70},
    "a number twice": {"candidate_id": 2},
    "iterations that go back": {"iteration": 9},
    "fewer calls than right answers": {"calls": 1},
    "negative dollars": {"dollars": -1.0},
    "accuracy above 1": {"accuracy": 1.5},
    "an unknown split": {"split": "test"},
    "no graph": {"graph": "{}"},
    "an interval of fewer questions": {"accuracy_low": 0.0, "accuracy_high": 1.0},
    "tokens without a call": {"calls": 0, "accuracy": 0.0, "accuracy_low": 0.0},
    "dollars without tokens": {"prompt_tokens": 0, "completion_tokens": 0},
    "more dollars than tokens cost": {"dollars": 1e6},
    "no latency though questions were scored": {"latency_s": math.nan},
    "failed though all was scored": {"status": "failed"},
}


def changed(table, change, row=0):
    """A table with these values in a row, or what a function makes of it."""
    if callable(change):
        return change(table)
    for column, value in change.items():
        table.loc[row, column] = value
    return table


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_table_is_refused_with_the_number_of_a_wrong_row(archive, wrong):
    row = "" if callable(WRONG[wrong]) else r".*\brow \d"
    with pytest.raises(DataError, match=f"archive: {row}"):
        checked(changed(archive.copy(), WRONG[wrong], 3))


OTHERS = {
    "random/trajectory.csv": (
        schemas.Trajectory,
        *({"best_val_value": 1.0}, WITHOUT_FIRST, {"val_low": 0.9, "val_high": 0.1}),
        *({"val_accuracy": 0.99, "val_high": 0.6}, {"train_best": 0.0, "train_mean": 0.5}),
    ),
    "random/nodes.parquet": (
        schemas.Nodes,
        *({"repaired": 99_999}, {"spoilt": 99_999}, {"repairable": 99_999}, twice),
        *({"nodes_left": 99}, every(is_sink=True), every(cost_share=1.0)),
    ),
    "random/test.parquet": (
        schemas.Evaluations,
        *(NOTHING, WITHOUT_FIRST, twice, {"found_only": 5}, {"n_unscored": 7}),
        *(every(rival_only=99_999), every(p_differs=0.001)),
    ),
    "random/answers.parquet": (schemas.Answers, twice, WITHOUT_FIRST, {"correct": None}),
    "random/evidence.parquet": (schemas.Evidence, twice, {"inputs_right": 99.0}),
    "profile.parquet": (Profiles, NOTHING, twice, {"reading_by_role": "other"}),
    "pilot.parquet": (schemas.Pilots, twice, {"budget_units": math.inf}),
    "../../../data/simulated-small/math/questions.parquet": (
        Questions,
        *({"text": "  "}, every(text="the same"), NOTHING),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_wrong_tables_are_refused_too(searched, name):
    schema, *changes = OTHERS[name]
    right = read_table(schema, searched.results / name, "search")
    for change in changes:
        with pytest.raises(DataError, match="table: "):
            check(changed(right.copy(), change).reset_index(drop=True), schema, "table")
