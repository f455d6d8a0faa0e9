"""Questions of other tools: tables, tasks of lm-eval and inspect_ai."""

import json
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from ttsgraph.api.given import questions_file
from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.tasks import get_task
from ttsgraph.tasks.evaluations import lm_eval_rows, lm_eval_task
from ttsgraph.tasks.sources import (
    InspectSource,
    JsonlSource,
    LmEvalSource,
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


needs_lm_eval = pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm_eval is not installed")


@needs_lm_eval
def test_a_task_of_lm_eval_is_read_by_its_name_and_its_templates() -> None:
    task = lm_eval_task("gsm8k")
    assert (task["dataset_path"], task["dataset_name"]) == ("openai/gsm8k", "main")
    docs = [("d:0", {"question": "Two apples and one?", "answer": "2 + 1 = 3\n#### 3"})]
    ((_, row),) = lm_eval_rows("gsm8k", task, docs)
    assert row == {"question": "Question: Two apples and one?\nAnswer:", "answer": "3"}
    choices = {"text": ["sun", "moon"], "label": ["A", "B"]}
    doc = {"question": "What shines by day?", "choices": choices, "answerKey": "A"}
    ((where, row),) = lm_eval_rows("arc_easy", lm_eval_task("arc_easy"), [("d:0", doc)])
    assert (row["answer"], row["choices"]) == (0, ["sun", "moon"])
    assert get_task("choice").parse(row, where).answer == "A"
    with pytest.raises(DataError, match="lm-eval: expected a task that it has, found 'gsm9k'"):
        load_rows(LmEvalSource(kind="lm_eval", task="gsm9k"), 0)
    with pytest.raises(DataError, match="expected templates, but its process_docs is code"):
        lm_eval_rows("hellaswag", lm_eval_task("hellaswag"), [])


EVAL = """
from types import SimpleNamespace as Made

def sums(count):
    said = [Made(role="system", text="Add."), Made(role="user", text="1 + 1")]
    samples = [Made(input=said, target="2", choices=None, id="first")]
    for k in range(count):
        samples.append(Made(input=f"{k} + 1", target=[str(k + 1)], choices=None, id=None))
    return Made(dataset=samples)

def colours():
    choices = ["grass", "the sky"]
    return Made(dataset=[Made(input="What is blue?", target="B", choices=choices, id=None)])
"""


def test_a_task_of_inspect_ai_gives_its_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_eval.py").write_text(EVAL)
    for place in ("my_eval.py@sums", "my_eval@sums"):
        source = InspectSource(kind="inspect_ai", task=place, args={"count": 3})
        found = load_questions(get_task("exact"), source, 0)
        assert [(q.text, q.answer) for q in found[:2]] == [("1 + 1", "2"), ("0 + 1", "1")]
        assert found[0].id == "first"
    chosen = InspectSource(kind="inspect_ai", task="my_eval@colours")
    assert [q.answer for q in load_questions(get_task("choice"), chosen, 0)] == ["B"]
    with pytest.raises(DataError, match=r"my_eval@nothing: .* no attribute 'nothing'"):
        load_rows(InspectSource(kind="inspect_ai", task="my_eval@nothing"), 0)
    (tmp_path / "needs.py").write_text("import inspect_ai_that_is_missing\n")
    with pytest.raises(DataError, match=r"needs\.py@sums: expected questions, but"):
        load_rows(InspectSource(kind="inspect_ai", task="needs.py@sums"), 0)


def test_python_takes_a_source_as_a_profile_has_it(tmp_path: Path) -> None:
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    source = {"kind": "jsonl", "path": str(tmp_path / "qa.jsonl")}
    path = questions_file(source, tmp_path / "state")
    assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS
    with pytest.raises(SettingsError, match=r"questions: .*steam"):
        questions_file({"kind": "steam"}, tmp_path / "state")
