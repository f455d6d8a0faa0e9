"""Export a found graph as one readable Python program that needs only the openai package.

Given the same replies, the program gives the same answer as the executor. Features that don't fit
in such a program are refused: for example, prompts that aren't chat, roles other than votes and
those that state their request, and answers whose parsing needs more than the standard library.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jinja2

from ttsgraph.base.errors import InputError
from ttsgraph.base.state import STATE
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.evaluation.executor import manner_of
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import get_role, head_of, with_waves
from ttsgraph.graphs.stopping import decided, disagreement, most_frequent
from ttsgraph.models.client import Request, cut_at_stop
from ttsgraph.models.dialect import HABITS, DialectStore, habit_name
from ttsgraph.models.reasoning import content_of, without_end, without_thoughts
from ttsgraph.runtime.clients import endpoint_of
from ttsgraph.tasks.base import ReadableTask, Task
from ttsgraph.tasks.prompts import QUOTED, mark_for

OWN = {"ttsgraph", "finalanswer"}
SERVE = "serve the graph with `ttsgraph serve` instead"
TEMPLATE = Path(__file__).with_name("templates") / "answers.py.j2"
READS_REPLIES = (content_of, without_end, without_thoughts, cut_at_stop)


def export(deployed: DeployedVersion) -> str:
    """Return the program's text. Raises InputError naming the first unsupported feature, if there
    is one.
    """
    graph = with_waves(deployed.graph, deployed.profile.budget.wave)
    nodes = {i: _entry(deployed, graph, graph.node(i)) for i in graph.order}
    functions: list[Callable[..., Any]] = [mark_for, *READS_REPLIES]
    reader = None
    if graph.adaptive or any("model" not in entry for entry in nodes.values()):
        reader = _reader(deployed.grader)
        functions += [most_frequent, decided, disagreement, reader.func]
    code = ExportedCode()
    for function in functions:
        code.take(function)
    data = {
        "requests": {node.role: get_role(node.role).asks for node in graph.nodes},
        "nodes": nodes,
        "sink": graph.sink,
        "quoted": QUOTED,
        "reading": reader.keywords if reader else {},
    }
    template = jinja2.Template(
        TEMPLATE.read_text(), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return template.render(
        imports="\n".join(sorted(code.imports)),
        # Without single quotes, no text of a bundle can end the string that holds the data.
        data=json.dumps(data, indent=1).replace("'", "\\u0027"),
        code="\n\n\n".join(source for _, source in code.sources.values()),
        reader=reader and reader.func.__name__,
    )


def _entry(deployed: DeployedVersion, graph: CollaborationGraph, node: Node) -> dict[str, Any]:
    """Return a node's entry in the program's data: its inputs and, unless it is a vote, the request
    to its model. Raises InputError if the node can't be exported.
    """
    role = get_role(node.role)
    if not (role.by_majority or (role.asks and role.read is None)):
        raise InputError(
            f"node {node.id}: expected a vote, or a role that states its request and reads all"
            f" answers, found {node.role}; {SERVE}"
        )
    entry = {
        "role": node.role,
        "reads": graph.reads[node.id],
        "stages": graph.stages[node.id],
        "gate": node.gate and node.gate.over,
        "stop": (node.stop.rule, node.stop.level) if node.waves else ("none", 0),
    }
    return entry | (_request(deployed, node.model) if role.calls_model else {})


def _request(deployed: DeployedVersion, member: str) -> dict[str, Any]:
    """Return the request settings of a member of the pool.

    Raises InputError if its prompts aren't chat, or if its endpoint can't be called with only a
    base URL and a key.
    """
    pool = deployed.profile.model_pool()
    settings = deployed.profile.task(deployed.task)
    manner = manner_of(pool[member], settings.sampling.sampling(), deployed.prompt)
    if manner.prompt.style != "chat":
        raise InputError(f"{member}: expected chat prompts to export, found {manner.prompt.style}")
    model = deployed.profile.pool[manner.model]
    if not model.base_urls or model.api_key_header or model.query:
        raise InputError(
            f"{member}: expected a model with a `base_url`, and without `api_key_header` and"
            f" `query`, to export; {SERVE}"
        )
    endpoint = replace(endpoint_of(manner.model, model), extra_body=None)
    url, sampling = endpoint.base_urls[0], manner.sampling
    known = DialectStore(STATE / HABITS).get(habit_name(url, endpoint.served_as, sampling))
    dialect = model.dialect if known is None else model.dialect.joined(known)
    sent = endpoint.body(Request(member, "", (), replace(sampling, extra_body=None)), dialect)
    for key in ("model", "messages"):
        del sent[key]
    if extra := model.extra_body | json.loads(sampling.extra_body or "{}"):
        sent["extra_body"] = extra
    return {
        "model": endpoint.served_as,
        "base_url": url,
        "api_key_env": model.api_key_env,
        "instruction": manner.prompt.instruction,
        "system_role": dialect.system,
        "sampling": sent,
    }


def _reader(task: Task) -> partial[str | None]:
    """Return the function that parses an answer. Raises InputError if the task's kind has none, or
    has one that doesn't apply because a derived class overrides `extract`.
    """
    if isinstance(task, ReadableTask) and head_of(task) is None:
        owners = type(task).__mro__
        last = next(each for each in owners if {"reader", "extract"} & vars(each).keys())
        if "reader" in vars(last):
            return task.reader()
    raise InputError(
        "expected a graph without votes and gates, or a task kind with a `reader`:"
        f" the parser for answers of kind {task.name} can't be exported; {SERVE}"
    )


@dataclass(slots=True)
class ExportedCode:
    """Import lines, and the modules and sources of exported functions and of their dependencies, by
    name. The sources come from the functions' own packages and from this one, so that the file
    needs neither.
    """

    imports: set[str] = field(default_factory=set)
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)

    def take(self, function: Callable[..., Any]) -> None:
        """Add a function and its dependencies. Raises InputError if one of them can't be
        exported.
        """
        module = function.__module__
        self._take(module, function.__name__, OWN | {module.split(".")[0]})

    def _take(self, module: str, name: str, roots: set[str]) -> None:
        if name not in (definitions := _definitions(module)):
            raise InputError(
                f"{module}: expected {name} at the top level of its module, and named; {SERVE}"
            )
        statement, source = definitions[name]
        match statement:
            case ast.ImportFrom(module=str(origin)) if origin.split(".")[0] in roots:
                return self._take(origin, name, roots)
            case ast.Import() | ast.ImportFrom():
                _require_standard(statement, f"{module}: {name}")
                self.imports.add(ast.unparse(statement))
                return None
        if name in self.sources:
            if self.sources[name][0] != module:
                raise InputError(
                    f"expected a single definition of {name}, found {self.sources[name][0]}.{name}"
                    f" and {module}.{name}"
                )
            return None
        self.sources[name] = module, source  # set before its dependencies, because they may use it
        used = set()
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Name):
                used.add(inner.id)
            elif isinstance(inner, ast.Import | ast.ImportFrom):
                _require_standard(inner, f"{module}.{name}")
        for other in sorted(used & definitions.keys() - {name}):
            self._take(module, other, roots)
        self.sources[name] = self.sources.pop(name)
        return None


@cache
def _definitions(module: str) -> dict[str, tuple[ast.stmt, str]]:
    """Return, for each top-level name of a module, the statement that defines it and its source."""
    source = inspect.getsource(importlib.import_module(module))
    lines = source.splitlines()
    found: dict[str, tuple[ast.stmt, str]] = {}
    for statement in ast.parse(source).body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names = [statement.name]
            case ast.Import() | ast.ImportFrom():
                names = [alias.asname or alias.name for alias in statement.names]
            case _:
                inner = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
                names = [each.id for each in inner if isinstance(each.ctx, ast.Store)]
        decorators = getattr(statement, "decorator_list", ())
        first = min([statement.lineno, *(each.lineno for each in decorators)])
        text = "\n".join(lines[first - 1 : statement.end_lineno])
        found |= dict.fromkeys(names, (statement, text))
    return found


def _require_standard(statement: ast.Import | ast.ImportFrom, where: str) -> None:
    """Raise InputError unless a statement imports from the standard library."""
    names = [alias.name for alias in statement.names]
    name = statement.module if isinstance(statement, ast.ImportFrom) else names[0]
    root = (name or "").split(".")[0]
    if root not in sys.stdlib_module_names:
        raise InputError(f"{where}: expected imports from the standard library only, found {root}")
