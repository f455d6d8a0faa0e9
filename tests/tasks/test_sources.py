"""Where questions come from, and how they are told apart and split."""

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest
from pydantic import TypeAdapter, ValidationError

from ttsgraph.base.errors import DataError
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import PackageSource, Source, load_questions, split_questions

MATH = get_task("math")
MMLU = get_task("mmlu")
GZIP = b"\x1f\x8b"
ROWS = [{"question": f"a\u2028{k} + {k}\x85", "answer": 2 * k} for k in range(20)]
"""With characters that end lines elsewhere, but not in JSON lines."""

CONFIG = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
CHAIN_SUM = {"kind": "generator", "dataset": "chain_sum", "size": 30, "config": CONFIG}
CHAIN_SUM |= {"pattern": r"problem: (.+) =$"}
FLAN = {"kind": "package", "package": "lm_eval", "format": "mmlu_flan_cot"}
FLAN |= {"file": "tasks/mmlu/flan_cot_fewshot/_cot_prompts.json"}


def needs(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def source(**settings):
    return TypeAdapter(Source).validate_python(settings)


def rows_of(seed=0, **settings):
    return [row for _, row in source(**settings).rows(seed)]


def write(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def questions_of(task, path: Path, rows):
    return load_questions(task, source(kind="jsonl", path=write(path, rows)), seed=0)


# jsonl


def test_a_file_is_read_in_order_and_a_compressed_one_the_same(tmp_path):
    plain = write(tmp_path / "q.jsonl", ROWS)
    packed = tmp_path / "q.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert rows_of(kind="jsonl", path=plain) == rows_of(kind="jsonl", path=packed) == ROWS


CUT = gzip.compress(b'{"a": 1}\n' * 1000, mtime=0)[:-20]
NO_ANSWER = b'{"question": "1?", "answer": 1}\n\n{"question": "?", "choices": []}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "at least one question, found none"),
        (b"[]\n", "at least one question, found none"),
        (b'{"a": 1}\n\n{"a"\n', r"q\.jsonl:3: .* at column \d+"),
        (b"[1]\n", r"q\.jsonl:1: .*found int"),
        (CUT, "it can't be read"),
        (b"\xff\xfe\n", "it can't be read"),
        (NO_ANSWER, r"q\.jsonl:3: .* field 'answer', found fields question"),
        (b'{"question": "?", "answer": null}\n', "found None"),
        (b'{"question": "?", "answer": NaN}\n', "found None"),
    ],
)
def test_a_broken_file_is_told_with_its_line(tmp_path, content, message):
    path = tmp_path / ("q.jsonl.gz" if content.startswith(GZIP) else "q.jsonl")
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_questions(MATH, source(kind="jsonl", path=path), seed=0)


# packages


@needs("lm_eval")
def test_lm_eval_ships_mmlu_questions(monkeypatch):
    short = rows_of(**FLAN)
    assert {sum(map(len, (row["question"], *row["choices"]))) <= 300 for row in short} == {True}
    monkeypatch.setattr(PackageSource, "longest", 10**9)
    rows = rows_of(**FLAN)
    assert len(rows) == 282 > len(short)
    assert len({row["subject"] for row in rows}) == 57
    assert {len(row["choices"]) for row in rows} == {4, 5}
    first = next(row for row in rows if row["id"] == "anatomy/0")
    assert first["choices"] == ["Abdominal", "Cranial", "Pleural", "Spinal"]
    assert first["answer"] == "B"


# generators


@needs("reasoning_gym")
def test_generated_questions_depend_on_the_seed_alone():
    sums = rows_of(1, **CHAIN_SUM)
    assert sums == rows_of(1, **CHAIN_SUM) != rows_of(2, **CHAIN_SUM)
    assert len(sums) == 30
    for row in sums:
        left, sign, right = row["question"].split()
        assert int(row["answer"]) == int(left) + int(f"{sign}{right}")
    found = rows_of(1, **CHAIN_SUM, template="What is {question}?")
    assert [row["question"] for row in found] == [f"What is {row['question']}?" for row in sums]


UNFIT = [({"dataset": "chain_some"}, "chain_some: .*not registered")]
UNFIT += [({"config": {"terms": 2}}, "chain_sum: .*unexpected keyword argument 'terms'")]
UNFIT += [({"pattern": "sum of (.+)"}, "chain_sum:0: .* matching pattern .*, found")]


@needs("reasoning_gym")
@pytest.mark.parametrize(("change", "message"), UNFIT)
def test_a_wrong_generator_is_told(change, message):
    with pytest.raises(DataError, match=message):
        rows_of(**CHAIN_SUM | change)


# mixtures


def test_a_mixture_is_spread_evenly_with_each_part_in_its_order(tmp_path):
    counts = {"a": 6, "b": 2, "c": 1}
    parts = []
    for name, count in counts.items():
        rows = [{"question": f"{name}{k}"} for k in range(count)]
        parts.append({"kind": "jsonl", "path": write(tmp_path / f"{name}.jsonl", rows)})
    asked = [row["question"] for row in rows_of(kind="mixture", parts=parts)]
    for name, count in counts.items():
        assert [q for q in asked if q[0] == name] == [f"{name}{k}" for k in range(count)]
        for seen in range(len(asked) + 1):  # to within one question, in every stretch
            there = sum(q[0] == name for q in asked[:seen])
            assert abs(there - count * seen / len(asked)) <= 1
    parts.append({"kind": "jsonl", "path": tmp_path / "none.jsonl"})
    with pytest.raises(DataError, match=r"none\.jsonl: expected a question file, but there is"):
        rows_of(kind="mixture", parts=parts)


# the hub


@needs("datasets")
def test_hub_questions_are_read_through_datasets(tmp_path, monkeypatch):
    """A folder stands for the repository; the library reads both the same way."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    names = ("algebra", "geometry")
    folder = tmp_path / "data"
    card = "".join(f"- config_name: {name}\n  data_files: {name}.jsonl\n" for name in names)
    folder.mkdir()
    (folder / "README.md").write_text(f"---\nconfigs:\n{card}---\n")
    for name in names:
        rows = [{"problem": f"{name} {k}", "answer": str(k)} for k in range(3)]
        write(folder / f"{name}.jsonl", rows)
    hub = source(kind="hf", path=str(folder), name=list(names), split="train")
    asked = [q.text for q in load_questions(MATH, hub, seed=0)]
    assert asked == [f"{name} {k}" for name in names for k in range(3)]


@needs("datasets")
def test_an_unreachable_hub_is_told(monkeypatch):
    offline = Mock(side_effect=ConnectionError("Couldn't reach 'some/set' on the Hub"))
    monkeypatch.setattr("datasets.load_dataset", offline)
    with pytest.raises(DataError, match=r"some/set/all\[test\]: .*Couldn't reach.*HF_HOME"):
        rows_of(kind="hf", path="some/set", name="all", split="test")


# settings


MIXED = {"kind": "mixture", "parts": [{"kind": "mixture", "parts": [CHAIN_SUM]}]}
WRONG = [(MIXED, "'mixture' .* does not match")]
WRONG += [(CHAIN_SUM | {"pattern": "problem"}, "with one group, found 0 in 'problem'")]
WRONG += [(CHAIN_SUM | {"template": "sum ="}, "template\n.*match pattern")]


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        source(**settings)


# telling apart, splitting


def test_equal_questions_are_kept_once_and_ids_are_unique(tmp_path):
    rows = [{"id": "a", "question": "1?", "answer": 1}, {"id": "b", "question": "1?", "answer": 2}]
    rows += [{"id": "a", "question": "2?", "answer": 2}, {"question": "3?", "answer": 3}]
    questions = questions_of(MATH, tmp_path / "q.jsonl", rows)
    assert [(q.text, q.answer) for q in questions] == [("1?", "1"), ("2?", "2"), ("3?", "3")]
    assert len({q.id for q in questions}) == 3
    assert questions[0].id == "a"
    # Those that differ in their choices are two.
    choices = (["a", "b"], ["c", "d"], ["a", "b"])
    rows = [{"question": "Which is true?", "choices": each, "answer": 0} for each in choices]
    assert len(questions_of(MMLU, tmp_path / "q.jsonl", rows)) == 2


def test_the_answer_of_mmlu_is_an_index_even_among_choices_that_are_numbers():
    row = {"question": "3 - 0?", "choices": ["3", "1", "4", "0"], "answer": 0}
    assert [MMLU.parse(row | {"answer": k}, "here").answer for k in range(4)] == [*"ABCD"]
    with pytest.raises(DataError, match="expected an answer among A, B, C, D"):
        MMLU.parse(row | {"answer": 4}, "here")


QUESTIONS = [Question(str(k), f"{k}?", str(k)) for k in range(50)]


def test_splits_are_disjoint_seeded_and_of_the_wanted_sizes():
    sizes = {"shots": 4, "train": 20, "val": 0, "test": 26}
    splits = split_questions(QUESTIONS, sizes, seed=3)
    assert {split: len(found) for split, found in splits.items()} == sizes
    assert len({q.id for found in splits.values() for q in found}) == 50
    assert splits == split_questions(QUESTIONS, sizes, seed=3)
    assert splits != split_questions(QUESTIONS, sizes, seed=4)
    # A later split's size leaves the earlier ones alone.
    small, large = (split_questions(QUESTIONS, {"train": 10, "test": n}, seed=0) for n in (5, 40))
    assert small == {"train": large["train"], "test": large["test"][:5]}
    with pytest.raises(DataError, match=r"at least 60 .*found 50"):
        split_questions(QUESTIONS, {"train": 40, "test": 20}, seed=0)
