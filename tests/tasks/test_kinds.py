"""The kinds that need no code: what each reads out of a reply, what it grades, and what it says of
votes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.project import ROOT
from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.base.parsing import load
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import can_vote, get_task

KINDS = ("exact", "choice", "number", "regex", "json", "contains", "similarity")
EXACT = {"question": "Who wrote it?", "answer": "The Brothers Grimm"}


def graded(kind: str, row: dict, reply: str, **grading: object) -> float:
    task = get_task(kind, grading)
    return task.grade(task.parse(row, "f:1"), reply)


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("the brothers grimm", True),
        ("Brothers  Grimm.", True),
        ("It is old.\nAnswer: *Brothers Grimm*", True),
        ("Grimm", False),
        ("Answer: Grimm\nAnswer: the Brothers Grimm", True),
        ("", False),
    ],
)
def test_exact_is_the_same_words(reply: str, right: bool) -> None:
    assert graded("exact", EXACT, reply) is right


def test_exact_keeps_what_words_are_made_of() -> None:
    assert not graded("exact", {"question": "q", "answer": "-3.5"}, "3.5")
    assert not graded("exact", {"question": "q", "answer": "3.5"}, "35")
    assert graded("exact", {"question": "q", "answer": "A"}, "a.")


def test_a_list_of_answers_accepts_each() -> None:
    row = {"question": "q", "answers": ["UK", "United Kingdom"]}
    assert [graded("exact", row, said) for said in ("the UK", "United kingdom", "Britain")] == [
        True,
        True,
        False,
    ]
    assert graded("similarity", row, "United Kingdom") == 1


@pytest.mark.parametrize(
    ("answer", "reply", "right"),
    [
        ("1,200", "Answer: $1200.00", True),
        ("40 %", "40", True),
        ("3/4", "so it is 0.75", True),
        ("2", "no idea", False),
    ],
)
def test_number_compares_values(answer: str, reply: str, right: bool) -> None:
    assert graded("number", {"question": "q", "answer": answer}, reply) is right


def test_number_allows_what_it_is_told_to() -> None:
    row = {"question": "q", "answer": 200}
    assert [graded("number", row, said, relative=0.01) for said in ("202", "198", "203")] == [
        True,
        True,
        False,
    ]
    assert [graded("number", row, said, tolerance=5) for said in ("205", "206")] == [True, False]
    assert get_task("number").extract("Answer: 1,234.50") == "1234.5"


def test_number_names_a_row_whose_answer_is_text() -> None:
    with pytest.raises(
        DataError,
        match=r"^f:1: expected a number as the answer, found 'soon'; for texts choose exact",
    ):
        graded("number", {"question": "q", "answer": "soon"}, "")


ROW_OF_CHOICES = {"question": "q", "choices": ["red", "blue", "I don't know"], "answer": "blue"}


@pytest.mark.parametrize("answer", ["B", "b", 1, "1", "Blue"])
def test_choice_takes_a_letter_an_index_or_the_text(answer: object) -> None:
    assert get_task("choice").parse(ROW_OF_CHOICES | {"answer": answer}, "f:1").answer == "B"


def test_choice_among_labels() -> None:
    labels = {"choices": ["billing", "bug report", "other"]}
    task = get_task("choice", labels)
    row = {"text": "It crashes.", "label": "Bug report"}
    assert task.parse(row, "f:1").answer == "bug report"
    assert [
        graded("choice", row, said, **labels)
        for said in ("bug report", "Not billing. Answer: Bug Report!", "other")
    ] == [
        True,
        True,
        False,
    ]
    assert "billing, bug report, other" in task.instruction
    with pytest.raises(
        DataError,
        match=r"^f:1: expected an answer among grading.choices \(billing, .*found 'crash'",
    ):
        task.parse({"text": "x", "label": "crash"}, "f:1")


def test_regex_finds_the_answer_or_is_the_answer() -> None:
    row = {"question": "q", "answer": "ab-12"}
    assert [
        graded("regex", row, said, pattern=r"id (\S+)") for said in ("id x, id AB-12", "AB-12")
    ] == [True, False]
    row = {"question": "q", "answer": r"^(yes|ja)\b"}
    assert [graded("regex", row, said) for said in ("ja, gern", "no, yes")] == [True, False]
    assert can_vote(get_task("regex", {"pattern": r"\d+"}))
    assert not can_vote(get_task("regex"))


def test_a_regex_that_never_ends_is_stopped() -> None:
    assert graded("regex", {"question": "q", "answer": "(a+)+$"}, "a" * 200 + "b") is False


def test_json_counts_the_fields_that_are_right() -> None:
    row = {"question": "q", "answer": {"name": "Ann", "age": 30, "paid": True}}
    said = 'Here: ```json\n{"age": 30.0, "name": "ann", "paid": 1}\n```'
    assert graded("json", row, said) == pytest.approx(2 / 3)
    assert graded("json", row, said, fields=["age", "name"]) == 1
    assert graded("json", row, "no json") == 0
    schema = {"type": "object", "properties": {"paid": {"type": "boolean"}}}
    assert graded("json", row, said, schema=schema) == 0
    task = get_task("json")
    assert (
        task.extract('{"b": 1, "a": [{}]} ')
        == '{"a":[{}],"b":1}'
        == task.extract('x {"a": [{}],\n"b": 1}')
    )


def test_contains_is_the_share_of_phrases() -> None:
    row = {"question": "q", "answers": ["30 days", "receipt"]}
    assert graded("contains", row, "Within 30 days, with the receipt.") == 1
    assert graded("contains", row, "Within 130 days and a receipt") == 0.5


def test_similarity_is_the_f1_of_words() -> None:
    row = {"question": "q", "answer": "Refunds take five days"}
    # Two of four words are the reference's, two of the reference's four are there.
    assert graded("similarity", row, "Five days at most.") == pytest.approx(0.5)
    assert graded("similarity", row, "five days, refunds take") == 1
    assert graded("similarity", row, "no") == 0


def test_rouge_comes_with_its_package() -> None:
    row = {"question": "q", "answer": "Refunds take five days"}
    try:
        import rouge_score  # noqa: F401
    except ImportError:
        with pytest.raises(
            SettingsError,
            match=r"metric rougeL needs the package rouge-score: pip install 'ttsgraph\[rouge\]'",
        ):
            graded("similarity", row, "five days", metric="rougeL")
    else:
        assert graded("similarity", row, "five days", metric="rougeL") == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("kind", "grading", "expected"),
    [
        (
            "number",
            {"tolerence": 1},
            "grading of kind number: unknown key 'tolerence', did you mean 'tolerance'?",
        ),
        (
            "regex",
            {"pattern": "("},
            "grading of kind regex: key 'pattern': expected a regular expression, but missing \\)",
        ),
        (
            "json",
            {"schema": {"type": "thing"}},
            "grading of kind json: key 'schema': expected a JSON schema, but",
        ),
        (
            "math",
            {"tolerance": 1},
            "kind 'math' has no settings: expected no grading, found tolerance",
        ),
    ],
)
def test_wrong_settings_are_named(kind: str, grading: dict, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        get_task(kind, grading)


def profile_with(tmp_path: Path, **task: object) -> Path:
    import yaml

    data = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    first = next(iter(data["tasks"].values()))
    data["tasks"] = {"support": first | task}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(data))
    return tmp_path / "p.yaml"


def test_a_profile_offers_votes_only_where_answers_can_be_counted(tmp_path: Path) -> None:
    free = load(Profile, profile_with(tmp_path, kind="similarity", grading={"metric": "token_f1"}))
    assert "voter" in free.roles
    assert free.roles_on("support") == tuple(role for role in free.roles if role != "voter")
    exact = load(Profile, profile_with(tmp_path, kind="exact"))
    assert exact.roles_on("support") == exact.roles


def test_a_profile_names_the_key_of_wrong_grading(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"key 'tasks\.support': grading of kind similarity: key 'metric'"
    ):
        load(Profile, profile_with(tmp_path, kind="similarity", grading={"metric": "bleu"}))


def test_a_profile_without_grading_is_written_as_before(tmp_path: Path) -> None:
    profile = load(Profile, profile_with(tmp_path, kind="exact"))
    assert "grading" not in json.loads(profile.model_dump_json())["tasks"]["support"]
