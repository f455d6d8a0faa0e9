import pandas as pd
import pytest

from ttsgraph.base.bookkeeping import BOOKKEEPING, beside
from ttsgraph.base.errors import DataError
from ttsgraph.stages.schemas import (
    Candidates,
    Profiles,
    Questions,
    Trajectory,
    check,
    read_table,
    write_table,
)
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.questions import questions_of, questions_table


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


def test_all_problems_are_named_at_once_with_column_check_and_first_rows(tmp_path):
    table = questions(split=["train", "trian", "tset"], answer=["2", "", "4"], extra=1).drop(
        columns="meta"
    )
    with pytest.raises(DataError) as caught:
        write_table(table, Questions, tmp_path / "questions.parquet")
    message = str(caught.value)
    assert "questions.parquet: " in message
    assert "missing column 'meta'" in message
    assert "unexpected column 'extra'" in message
    assert "column 'split' fails isin" in message
    assert "row 1: 'trian'; row 2: 'tset'" in message
    assert "column 'answer' fails str_length" in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir())


def test_only_the_first_offending_rows_are_shown():
    table = pd.concat([questions(split="nowhere", id=f"{k}", text=f"{k}") for k in range(3)])
    with pytest.raises(DataError, match=r"and \d+ more\)"):
        check(table, Questions, "questions")


MADE_BY = "the stage 'sample' makes it: `python -m ttsgraph_flows.sample`"


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: None, "expected a table, but there is none; "),
        (lambda path: path.write_text("not parquet"), "expected a table, but it can't be read"),
        (lambda path: questions().drop(columns="meta").to_parquet(path), "missing column 'meta'; "),
    ],
)
def test_a_table_that_can_not_be_used_names_the_stage_that_makes_it(tmp_path, write, said):
    path = tmp_path / "questions.parquet"
    write(path)
    with pytest.raises(DataError) as caught:
        read_table(Questions, path, "sample")
    assert str(caught.value).startswith(f"{path}: {said}")
    assert MADE_BY in str(caught.value)


def test_the_archive_has_the_promised_columns():
    promised = """candidate_id method iteration graph graph_hash n_nodes width depth budget_units
    accuracy accuracy_low accuracy_high n_scored n_unscored latency_s prompt_tokens
    completion_tokens dollars calls status error"""
    assert set(promised.split()) <= set(Candidates.to_schema().columns)


def test_what_the_clock_and_the_cache_said_is_in_a_file_beside(tmp_path):
    assert not {*BOOKKEEPING} & {*Candidates.to_schema().columns, *Profiles.to_schema().columns}
    path = tmp_path / "questions.parquet"
    for wall_s in (1.0, 2.0):
        write_table(questions().assign(wall_s=wall_s, cached_calls=3), Questions, path)
        written = path.read_bytes()
        apart = pd.read_parquet(beside(path))
        assert list(apart) == ["wall_s", "cached_calls"]
        assert (apart["wall_s"] == wall_s).all()
    write_table(questions(), Questions, tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == written


def test_a_hash_of_digits_stays_text_in_a_csv(tmp_path):
    path = tmp_path / "trajectory.csv"
    digits = "1234567890e12345"
    row = dict.fromkeys(Trajectory.to_schema().columns, 0.5)
    row |= {"result_hash": digits, "iteration": 1, "width": 1, "depth": 1, "n_nodes": 1}
    write_table(pd.DataFrame([row]), Trajectory, path)
    assert read_table(Trajectory, path, "search")["result_hash"][0] == digits
