"""Questions from tables, and from sources given in Python."""

import json
from pathlib import Path

import pandas as pd
import pytest

from ttsgraph.api.given import questions_file
from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.tasks import get_task
from ttsgraph.tasks.sources import (
    JsonlSource,
    load_questions,
    load_rows,
)

ROWS = [{"question": f"{k} + 1", "answer": str(k + 1)} for k in range(5)]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_is_a_file_of_questions(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"qa.{suffix}"
    frame = pd.DataFrame(ROWS)
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    found = load_questions(get_task("number"), JsonlSource(kind="jsonl", path=path), 0)
    assert [question.answer for question in found] == [row["answer"] for row in ROWS]
    frame.drop(columns="answer").to_csv(tmp_path / "half.csv", index=False)
    half = JsonlSource(kind="jsonl", path=tmp_path / "half.csv")
    with pytest.raises(DataError, match=r"half\.csv:1: expected an answer in field 'answer'"):
        load_questions(get_task("number"), half, 0)
    with pytest.raises(DataError, match=r"none\.csv: expected a question file, but there is none"):
        load_rows(JsonlSource(kind="jsonl", path=tmp_path / "none.csv"), 0)


def test_python_takes_a_source_as_a_profile_has_it(tmp_path: Path) -> None:
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    source = {"kind": "jsonl", "path": str(tmp_path / "qa.jsonl")}
    path = questions_file(source, tmp_path / "state")
    assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS
    with pytest.raises(SettingsError, match=r"questions: .*steam"):
        questions_file({"kind": "steam"}, tmp_path / "state")
