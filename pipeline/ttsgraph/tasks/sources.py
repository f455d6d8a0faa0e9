"""Sources of questions: the Hugging Face hub, JSONL files, Python packages, generators, synthetic
questions, and mixtures; also the table of questions that stages exchange (schemas.Questions).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field, PositiveInt

from ttsgraph.base.errors import DataError
from ttsgraph.base.extras import EXTRAS
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.base.wording import first_line
from ttsgraph.tasks import synthetic
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.files import Rows, file_rows

if TYPE_CHECKING:
    import pandas as pd

_INSTALL = {"lm_eval": "--no-deps lm-eval==0.4.13"}
"""Arguments of pip that install packages that no extra provides."""

_ITEM = re.compile(r"^Q: (.*?)\nA: (.*?)(?=\n+Q: |\Z)", re.DOTALL | re.MULTILINE)
_CHOICE = re.compile(r"\s*\(([A-E])\)\s")
_ANSWER = re.compile(r"answer is:? *\(?([A-E])\b", re.IGNORECASE)

_GENERATE = """
import json, reasoning_gym, sys
dataset, size, config = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr
data = reasoning_gym.create_dataset(dataset, **size, **config)
json.dump([{"question": item["question"], "answer": str(item["answer"])} for item in data], out)
"""


class HubSource(ClosedModel):
    """Data set on the Hugging Face hub. Several configurations (`name`) are read one after
    another.
    """

    kind: Literal["hf"]
    path: str
    """the data set's id on the hub"""
    name: str | tuple[str, ...] | None = None
    """name of its configuration, or several names"""
    split: str = "train"
    """its split"""
    revision: str | None = None
    """its commit; the newest if not given"""

    def rows(self, seed: int) -> Rows:
        """Return the rows of all configurations."""
        _folder("datasets")
        from datasets import load_dataset

        found: Rows = []
        for name in self.name if isinstance(self.name, tuple) else (self.name,):
            label = f"{self.path}{f'/{name}' if name else ''}[{self.split}]"
            try:
                table = load_dataset(self.path, name, split=self.split, revision=self.revision)
            except Exception as error:  # of many types: offline, gated, renamed, a wrong split
                raise DataError(
                    f"{label}: expected a data set on the Hugging Face hub, but it can't be"
                    f" loaded: {first_line(error)}; check the name and the network, or point"
                    " HF_HOME at a cache that holds it"
                ) from None
            found += [(f"{label}:{number}", dict(row)) for number, row in enumerate(table)]
        return found


class JsonlSource(ClosedModel):
    """File with one JSON object per line, plain or compressed with gzip (.gz); or with a list of
    objects (.json); or with a table of questions (.csv, .tsv, .parquet, .xlsx).
    """

    kind: Literal["jsonl"]
    path: Path
    """the file: .jsonl, .jsonl.gz, .json, .csv, .tsv, .parquet or .xlsx"""

    def rows(self, seed: int) -> Rows:
        """Return the rows of the file."""
        return file_rows(self.path)


class PackageSource(ClosedModel):
    """File inside an installed Python package: JSON lines, or lm-eval's MMLU examples with
    reasoning.
    """

    kind: Literal["package"]
    package: str
    """name of an installed Python package"""
    file: str
    """path inside the package"""
    format: Literal["jsonl", "mmlu_flan_cot"] = "jsonl"
    """format of the file"""
    longest: ClassVar = 300
    """maximum number of characters of an example in lm-eval's format: an example task on a CPU
    needs no long prompts
    """

    def rows(self, seed: int) -> Rows:
        """Return the rows of the file. Raises DataError if the package isn't installed."""
        top, *inner = self.package.split(".")
        rows = file_rows(_folder(top).joinpath(*inner, self.file))
        if self.format == "jsonl":
            return rows

        def length(row: Mapping[str, Any]) -> int:
            return sum(map(len, (row["question"], *row["choices"])))

        return [each for each in _worked_examples(rows) if length(each[1]) <= self.longest]


def _folder(package: str) -> Path:
    """Return the folder of an installed package, which isn't imported, because that may be slow.
    Raises DataError if it isn't installed.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        extra = EXTRAS.get(package)
        wanted = f"'ttsgraph[{extra}]'" if extra else _INSTALL.get(package, package)
        raise DataError(
            f"package {package!r} is not installed; to get its questions: pip install {wanted}"
        )
    return Path(spec.submodule_search_locations[0])


def _worked_examples(rows: Rows) -> Rows:
    """Return the rows {id, question, choices, answer, subject} in lm-eval's worked examples, which
    are one text per subject with items "Q: question, (A) ... (B) ..., A: reasoning. The answer is
    (X)." Raises DataError if an item can't be parsed.
    """
    found: Rows = []
    for where, each in rows:  # the text is read as an answer, and its subject as the question
        subject, whole = each.get("question"), str(each.get("answer"))
        for number, (text, reasoning) in enumerate(_ITEM.findall(whole) or [(whole, "")]):
            name = f"{subject}/{number}"
            place = f"{where}, {name}"
            question, *rest = _CHOICE.split(text)
            answers = _ANSWER.findall(reasoning)
            if "".join(rest[::2]) not in ("ABCD", "ABCDE") or not answers:
                raise DataError(
                    f"{place}: expected choices (A) to (D) and 'The answer is (X)', found"
                    f" {text[-60:]!r}"
                )
            row = {"id": name, "question": question.strip(), "subject": subject}
            choices = [choice.strip() for choice in rest[1::2]]
            found.append((place, row | {"choices": choices, "answer": answers[-1].upper()}))
    return found


def _one_group(pattern: str) -> str:
    try:
        found: object = re.compile(pattern).groups
    except re.error as error:
        found = f"an error ({error})"
    if found != 1:
        raise ValueError(
            f"expected a regular expression with one group, found {found} in {pattern!r}"
        )
    return pattern


class GeneratorSource(ClosedModel):
    """Generator of reasoning-gym. `pattern` has one group: the part of each question's text that is
    kept. `template` is the new question, with that part in place of `{question}`. `size` counts
    generated questions, including duplicates. If `seed` is given, the questions don't depend on the
    run's seed, which then decides only how they are split.
    """

    kind: Literal["generator"]
    dataset: str
    """name of a reasoning-gym data set"""
    size: PositiveInt
    """number of generated questions"""
    seed: int | None = Field(default=None, ge=0, exclude_if=lambda seed: seed is None)
    """seed of the questions, independent of the run's seed"""
    config: dict[str, Any] = Field(default_factory=dict)
    """settings of the data set"""
    pattern: Annotated[str, AfterValidator(_one_group)] | None = None
    """regular expression whose group is the part of a question's text to keep"""
    template: str = Field(default="{question}", pattern=r"\{question\}")
    """new question, with that part in place of `{question}`"""

    def rows(self, seed: int) -> Rows:
        """Return the rows generated with the source's own seed, or else with `seed`. Raises
        DataError if the generator fails (with the last line of its error), or if `pattern` does not
        match a question.
        """
        what = f"generator {self.dataset}"
        size = {"size": self.size, "seed": seed if self.seed is None else self.seed}
        wanted = json.dumps([self.dataset, size, self.config])
        _folder("reasoning_gym")
        # Some generators iterate over sets, so their questions would differ between processes.
        env = os.environ | {"PYTHONHASHSEED": "0"}
        program = [sys.executable, "-c", _GENERATE]
        done = subprocess.run(program, input=wanted, capture_output=True, text=True, env=env)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise DataError(f"{what}: expected questions, but it failed: {reason}")
        rows = json.loads(done.stdout)
        for number, row in enumerate(rows):
            if (match := re.search(self.pattern or "(?s)(.*)", row["question"])) is None:
                raise DataError(
                    f"{what}:{number}: expected a question matching pattern {self.pattern!r},"
                    f" found {row['question']!r}"
                )
            row["question"] = self.template.replace("{question}", match[1])
        return [(f"{what}:{number}", row) for number, row in enumerate(rows)]


class SyntheticSource(ClosedModel):
    """First `size` synthetic questions of a kind, for the simulated pool. They don't depend on the
    seed.
    """

    kind: Literal["synthetic"]
    task: synthetic.Kind
    """kind of the synthetic questions"""
    size: PositiveInt
    """number of questions"""

    def rows(self, seed: int) -> Rows:
        """Return the rows; they are the same for every seed."""
        made = [synthetic.problem(self.task, number) for number in range(self.size)]
        return [(f"synthetic {each.name}", each.row) for each in made]


OneSource = HubSource | JsonlSource | PackageSource | GeneratorSource | SyntheticSource
SourcePart = Annotated[OneSource, Field(discriminator="kind")]


class MixtureSource(ClosedModel):
    """Several sources as one, interleaved evenly: in any stretch of rows, each source has about the
    same share as in all rows.
    """

    kind: Literal["mixture"]
    parts: Annotated[tuple[SourcePart, ...], Field(min_length=1)]
    """sources, each with its kind"""

    def rows(self, seed: int) -> Rows:
        """Return the rows of all parts, interleaved in proportion to their sizes."""
        parts = [part.rows(seed) for part in self.parts]
        places = [((k + 0.5) / len(rows), row) for rows in parts for k, row in enumerate(rows)]
        return [row for _, row in sorted(places, key=lambda place: place[0])]


Source = Annotated[OneSource | MixtureSource, Field(discriminator="kind")]


def load_questions(task: Task, source: Source, seed: int) -> list[Question]:
    """Return all questions of a source, in the source's order, with unique ids and texts (of
    questions with equal texts, the first is kept). Raises DataError naming the file and line (or
    row) of the problem.
    """
    questions: dict[str, Question] = {}
    ids: set[str] = set()
    for where, row in source.rows(seed):
        question = task.parse(row, where)
        if (shown := task.render(question)) not in questions:
            name = f"{question.id}#{len(ids)}" if question.id in ids else question.id
            questions[shown] = replace(question, id=name)
            ids.add(name)
    return list(questions.values())


def split_questions(
    questions: Sequence[Question], sizes: Mapping[str, int], seed: int
) -> dict[str, list[Question]]:
    """Return disjoint splits of the given sizes, drawn in order from a seeded shuffle. Raises
    DataError if there are too few questions.
    """
    needed = sum(sizes.values())
    if needed > len(questions):
        listing = ", ".join(f"{split} {size}" for split, size in sizes.items())
        raise DataError(
            f"expected at least {needed} different questions ({listing}), found {len(questions)}"
        )
    order = iter(np.random.default_rng(seed).permutation(len(questions)).tolist())
    return {split: [questions[k] for k in islice(order, size)] for split, size in sizes.items()}


SPLITS = ("shots", "train", "val", "test")


def questions_path(profile: str, task: str) -> Path:
    """Return the path, relative to the working directory, of the file in which the sample stage
    stores a task's questions.
    """
    return Path("data") / profile / task / "questions.parquet"


def questions_table(splits: Mapping[str, Sequence[Question]]) -> pd.DataFrame:
    """Return a table with one row per question, including its split."""
    rows = [
        (split, q.id, q.text, q.answer, json.dumps(dict(q.meta), sort_keys=True))
        for split, questions in splits.items()
        for q in questions
    ]
    import pandas as pd  # slow to import, and needed only for tables

    return pd.DataFrame(rows, columns=["split", "id", "text", "answer", "meta"])


def questions_of(table: pd.DataFrame) -> dict[str, list[Question]]:
    """Return the questions of each split; a split without rows is empty."""
    found: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for row in table.to_dict("records"):
        asked = Question(row["id"], row["text"], row["answer"], json.loads(row["meta"]))
        found[row["split"]].append(asked)
    return found
