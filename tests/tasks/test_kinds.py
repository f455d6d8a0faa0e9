"""What the kinds that need no code read out of a reply, and how they grade it."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support.project import ROOT
from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.base.parsing import load
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import can_vote

LABELED = get_task("choice", {"choices": ["billing", "bug report", "other"]})
GRADES = yaml.safe_load(Path(__file__).with_name("grades.yaml").read_text())
ENDLESS = {"kind": "regex", "row": {"answer": "(a+)+$"}, "grades": {"a" * 200 + "b": 0}}


@pytest.mark.parametrize(
    "case", [*GRADES, ENDLESS], ids=lambda case: f"{case['kind']} {case['row']}"
)
def test_a_reply_has_the_grade_that_its_kind_says(case):
    task = get_task(case["kind"], case.get("grading", {}))
    question = task.parse({"question": "q"} | case["row"], "f:1")
    found = {reply: task.grade(question, reply) for reply in case["grades"]}
    assert found == pytest.approx(case["grades"])


WEATHER = ["sun", "rain", "snow", "fog"]


@pytest.mark.parametrize("labels", ["1234", "ABCD", "0123", "WXYZ"])
def test_an_answer_that_is_a_choices_own_label_is_that_choice(labels):
    pairs = [*zip(labels, WEATHER, strict=True)]
    entries = [{"label": label, "text": text} for label, text in pairs]
    for choices in ({"text": WEATHER, "label": list(labels)}, dict(pairs), entries):
        row = {"question": "q", "choices": choices}
        parsed = [get_task("choice").parse(row | {"answer": label}, "f:1") for label in labels]
        assert [question.answer for question in parsed] == list("ABCD")
        assert parsed[0].meta["choices"] == WEATHER


def test_a_row_whose_answer_can_not_be_right_is_named():
    with pytest.raises(DataError, match=r"^f:1: expected .*found 'soon'; for text answers, choose"):
        get_task("number").parse({"question": "q", "answer": "soon"}, "f:1")
    with pytest.raises(DataError, match=r"^f:1: expected .*found 'crash'"):
        LABELED.parse({"question": "q", "answer": "crash"}, "f:1")
    assert "billing, bug report, other" in LABELED.instruction


def test_answers_in_one_spelling_can_vote():
    assert can_vote(get_task("regex", {"pattern": r"\d+"}))
    assert not can_vote(get_task("regex"))
    one = '{"b": 1, "a": [{}]} '
    other = 'x {"a": [{}],\n"b": 1}'
    assert get_task("json").extract(one) == get_task("json").extract(other) == '{"a":[{}],"b":1}'
    assert get_task("number").extract("Answer: 1,234.50") == "1234.5"


@pytest.mark.parametrize(
    ("kind", "grading", "said"),
    [
        ("number", {"tolerence": 1}, "unknown key 'tolerence', did you mean 'tolerance'?"),
        ("regex", {"pattern": "("}, "'pattern': expected a regular expression, but it can't be"),
        ("json", {"schema": {"type": "thing"}}, "key 'schema': expected a JSON schema, but"),
        ("math", {"tolerance": 1}, "unknown key 'tolerance'"),
        ("humaneval", {"tolerance": 1}, "has no settings: expected no grading, found tolerance"),
    ],
)
def test_wrong_settings_are_named(kind, grading, said):
    with pytest.raises(SettingsError, match=f"kind '?{kind}.*{re.escape(said)}"):
        get_task(kind, grading)


def profile_with(tmp_path: Path, **task: object) -> Path:
    data = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    first = next(iter(data["tasks"].values()))
    data["tasks"] = {"support": first | task}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(data))
    return tmp_path / "p.yaml"


def test_a_profile_offers_votes_only_where_answers_can_be_counted(tmp_path):
    free = load(Profile, profile_with(tmp_path, kind="similarity"))
    assert "voter" in free.roles
    assert free.roles_on("support") == tuple(role for role in free.roles if role != "voter")
    exact = load(Profile, profile_with(tmp_path, kind="exact"))
    assert exact.roles_on("support") == exact.roles
