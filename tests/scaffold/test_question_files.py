"""What `ttsgraph init` makes of files whose answers are labels, numbers or missing."""

from __future__ import annotations

import json

import pandas as pd

from ttsgraph.api.given import questions_file
from ttsgraph.scaffold.question_file import look_at

LETTERED = [
    {"question": f"q{k}", "choices": {"text": ["w", "x", "y", "z"], "label": list("ABCD")}}
    | {"answerKey": "ABCD"[k % 4]}
    for k in range(12)
]


def test_numbers_in_a_file_of_letters_are_the_choices_own_labels(tmp_path):
    """As ARC has them: the key 2 among 1 to 4 is the second choice, in a file whose others are A
    to D.
    """
    numbered = {"text": ["w", "x", "y", "z"], "label": list("1234")}
    for choices in (numbered, numbered["text"]):
        rows = [*LETTERED, {"question": "last", "choices": choices, "answerKey": "2"}]
        file = tmp_path / "arc.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        looked = look_at(file)
        assert (looked.kind, looked.rows[-1]["answer"]) == ("choice", "B")


def test_a_missing_answer_is_left_out_and_said(tmp_path):
    table = pd.DataFrame({"question": [f"{k} + 1" for k in range(12)], "answer": range(1, 13)})
    table.loc[3, "answer"] = None
    looked = look_at(questions_file(table, tmp_path))
    assert len(looked.rows) == 11
    assert any("1 rows without a question or an answer left out" in line for line in looked.lines)


def test_a_dozen_labels_are_named_to_models(tmp_path):
    rows = [{"text": f"mail {k}", "label": f"topic {'abcdefghijkl'[k % 12]}"} for k in range(60)]
    file = tmp_path / "mails.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    looked = look_at(file)
    assert looked.kind == "choice"
    assert len(looked.grading["choices"]) == 12
