"""Export a found graph as one readable Python program that needs only the openai package.

Given the same replies, the program gives the same answer as the executor. Features that don't fit
in such a program are refused: for example, prompts that aren't chat, roles that don't state their
request, and answers whose parsing needs more than the standard library.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from math import comb
from pathlib import Path
from typing import Any

import jinja2

from ttsgraph.base.errors import InputError
from ttsgraph.base.state import STATE
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.evaluation.executor import manner_of
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import Ballot, get_role, majority, with_waves
from ttsgraph.graphs.stopping import decided, disagreement
from ttsgraph.models.client import Request, cut_at_stop
from ttsgraph.models.dialect import HABITS, DialectStore, habit_name
from ttsgraph.models.reasoning import without_thoughts
from ttsgraph.runtime.clients import endpoint_of
from ttsgraph.tasks.base import ReadableTask, Task
from ttsgraph.tasks.prompts import QUOTED, mark_for

OWN = {__name__.split(".")[0], "finalanswer"}
_IMPORTS = {"import asyncio", "import json", "import os", "import sys"}
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=False,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)


def ahead_of_one(votes: Sequence[int]) -> Fraction:
    """Return `ttsgraph.graphs.stopping.confidence` exactly, without NumPy: the probability that the
    leader stays ahead of the runner-up.

    `votes` are counts, the largest first.
    """
    leader = votes[0]
    rival = votes[1] if len(votes) > 1 else 0
    throws = leader + rival + 1
    return Fraction(sum(comb(throws, k) for k in range(rival + 1, throws + 1)), 2**throws)


STOPS = (majority, disagreement, decided, ahead_of_one)
"""Functions with which the program decides when a gate opens and when a vote stops early."""


def export(deployed: DeployedVersion) -> str:
    """Return the program's text. Raises InputError naming the first unsupported feature, if there
    is one.
    """
    graph = with_waves(deployed.graph, deployed.profile.budget.wave)
    if graph.route is not None:
        raise InputError(
            "expected a graph without a router, because a router's parameters don't fit in a"
            " program; serve the graph with `ttsgraph serve`, or export one of its branches"
        )
    roles = {node.role: get_role(node.role) for node in graph.nodes}
    decides = {name: way for name, role in roles.items() if (way := role.decide or role.pick)}
    judges = {name: role.read for name, role in roles.items() if role.read}
    picks = any(role.pick for role in roles.values())
    written = ExportedCode(set(_IMPORTS))
    written.take([mark_for, without_thoughts, cut_at_stop, *judges.values(), *decides.values()])
    written.take([Ballot] if picks else [])
    if graph.adaptive:
        written.take(STOPS)
        written.imports.add("from collections import Counter")
    reads = ""
    reading: dict[str, Any] = {}
    if decides or judges or graph.adaptive:
        written.imports.add("from types import SimpleNamespace")
        try:
            reads, reading = _reading(deployed.grader, decides, written)
        except InputError:
            if decides or graph.adaptive:
                raise
            reads = "lambda text: None"  # a judge's reply without a choice selects the first answer
    data = {
        "task": deployed.task,
        "requests": {name: role.asks for name, role in roles.items() if role.asks},
        "nodes": {i: _entry(deployed, graph, graph.node(i)) for i in graph.order},
        "sink": graph.sink,
        "quoted": QUOTED,
        "reading": reading,
    }
    return _TEMPLATES.get_template("answers.py.j2").render(
        imports="\n".join(sorted(written.imports, key=lambda line: (line[:4] == "from", line))),
        data=_shown(data),
        code="\n\n\n".join(written.sources.values()),
        reads=reads,
        decides=_mapping(decides),
        judges=_mapping(judges),
        picks=picks,
        adaptive=graph.adaptive,
    )


def _mapping(functions: Mapping[str, Callable[..., Any]]) -> str:
    """Return the Python text of a dict of functions by role, or "" if there are none."""
    names = ", ".join(f"{role!r}: {function.__name__}" for role, function in functions.items())
    return f"{{{names}}}" if names else ""


def _shown(value: Any) -> str:
    """Return a value as JSON that can't end a raw string in triple single quotes, so that text in a
    bundle never becomes code.
    """
    return json.dumps(value, indent=1).replace("'", "\\u0027")


def _entry(deployed: DeployedVersion, graph: CollaborationGraph, node: Node) -> dict[str, Any]:
    """Return a node's entry in the program's data: its inputs, and the request to its model. Raises
    InputError if the node can't be exported.
    """
    role = get_role(node.role)
    entry: dict[str, Any] = {
        "role": node.role,
        "reads": graph.reads[node.id],
        "stages": graph.stages[node.id],
    }
    if graph.adaptive:
        entry["gate"] = None if node.gate is None else node.gate.over
        entry["stop"] = (node.stop.rule, node.stop.level) if node.waves else ("none", 0)
    if role.pick is not None:
        known = deployed.profile.model_pool(deployed.task)
        models = [graph.node(i) for i in graph.reads[node.id]]
        entry["accuracies"] = [
            known[one.model].accuracy if get_role(one.role).calls_model else None for one in models
        ]
    if not role.calls_model:
        return entry
    if not role.asks:
        raise InputError(
            f"node {node.id}: expected a role that states its request, or picks an answer without a"
            f" call, found {node.role}; serve the graph with `ttsgraph serve` instead"
        )
    return entry | _asking(deployed, node.model)


def _asking(deployed: DeployedVersion, member: str) -> dict[str, Any]:
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
    if not model.base_urls:
        raise InputError(
            f"{member}: expected a model with a `base_url` to export, found a locally served one"
        )
    for key in ("api_key_header", "query"):
        if getattr(model, key):
            raise InputError(f"{member}: expected a model without `{key}`, which can't be exported")
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


def _reading(
    task: Task, decides: dict[str, Any], written: ExportedCode
) -> tuple[str, dict[str, Any]]:
    """Add to `written` the function that parses an answer; return the function's name and settings.

    Raises InputError if the task's kind has no such function, or has one that no longer applies
    because a derived class overrides `extract`, or if a verifier's check can't be exported.
    """
    serve = "serve the graph with `ttsgraph serve` instead"
    reader = None
    if isinstance(task, ReadableTask) and not hasattr(task, "head"):
        owners = type(task).__mro__
        last = next(each for each in owners if {"reader", "extract"} & vars(each).keys())
        reader = task.reader() if "reader" in vars(last) else None
    if reader is None:
        raise InputError(
            "expected a graph without votes, or a task kind with a `reader`:"
            f" the parser for answers of kind {task.name} can't be exported; {serve}"
        )
    if hasattr(task, "passes") or hasattr(task, "passes_on"):
        checks = getattr(task, "checks", "an answer in its own way")
        if checks and any(get_role(name).checks for name in decides):
            raise InputError(
                f"expected a graph without verifiers: kind {task.name} checks {checks}, which can't"
                f" be exported; {serve}"
            )
    written.take([reader.func])
    written.imports.add("from functools import partial")
    return reader.func.__name__, dict(reader.keywords)


@dataclass(slots=True)
class ExportedCode:
    """Import lines, and, by name, the sources of exported functions and of their dependencies.

    The sources of dependencies are added if they come from the function's own package or from this
    one, so that the file needs neither package.
    """

    imports: set[str] = field(default_factory=set)
    sources: dict[str, str] = field(default_factory=dict)
    _homes: dict[str, str] = field(default_factory=dict)

    def take(self, functions: Iterable[Callable[..., Any]]) -> None:
        """Add functions and their dependencies. Raises InputError naming the first one that can't
        be exported, if there is one.
        """
        for function in functions:
            if "<" in function.__qualname__:
                raise InputError(
                    f"{function.__module__}: expected a function with a name at the top level of"
                    f" its module, found {function.__qualname__}"
                )
            roots = OWN | {function.__module__.split(".")[0]}
            self._take(function.__module__, function.__name__, roots)

    def _take(self, module: str, name: str, roots: set[str]) -> None:
        definitions = _definitions(module)
        statement, source = definitions[name]
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._follow(statement, f"{module}: {name}", name, roots)
            return
        if self._homes.setdefault(name, module) != module:
            raise InputError(
                f"expected a single definition of {name}, found {self._homes[name]}.{name} and"
                f" {module}.{name}"
            )
        if name in self.sources:
            return
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Import | ast.ImportFrom):
                _require_standard(inner, f"{module}.{name}")
        self.sources[name] = source  # set before its dependencies, because they may use it
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        used = _used(statement)
        for other in sorted(names & definitions.keys() - {name}):
            if other in used or _is_standard(definitions[other][0]):
                self._take(module, other, roots)
        self.sources[name] = self.sources.pop(name)

    def _follow(
        self, statement: ast.Import | ast.ImportFrom, where: str, name: str, roots: set[str]
    ) -> None:
        """Add the source of an imported name, or the import if it is from the standard library."""
        aliases = [alias for alias in statement.names if (alias.asname or alias.name) == name]
        if isinstance(statement, ast.ImportFrom) and _root(statement) in roots:
            if aliases[0].asname:
                raise InputError(f"{where}: expected {name} to be imported without `as`")
            self._take(str(statement.module), name, roots)
            return
        _require_standard(statement, where)
        line: ast.stmt = ast.Import(aliases)
        if isinstance(statement, ast.ImportFrom):
            line = ast.ImportFrom(statement.module, aliases, 0)
        self.imports.add(ast.unparse(line))


@cache
def _definitions(module: str) -> dict[str, tuple[ast.stmt, str]]:
    """Return, for each top-level name of a module, the statement that defines it and its source."""
    source = inspect.getsource(importlib.import_module(module))
    lines = source.splitlines()
    found: dict[str, tuple[ast.stmt, str]] = {}
    for statement in ast.parse(source).body:
        names: list[str] = []
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names = [statement.name]
            case ast.Import() | ast.ImportFrom():
                names = [alias.asname or alias.name for alias in statement.names]
            case ast.Assign():
                names = [each.id for each in statement.targets if isinstance(each, ast.Name)]
            case ast.AnnAssign(ast.Name(name)):
                names = [name]
        decorators = getattr(statement, "decorator_list", ())
        first = min([statement.lineno, *(each.lineno for each in decorators)])
        text = "\n".join(lines[first - 1 : statement.end_lineno])
        found |= dict.fromkeys(names, (statement, text))
    return found


def _used(statement: ast.stmt) -> set[str]:
    """Return the names used by a statement, except in annotations."""
    nodes = list(ast.walk(statement))
    notes = [getattr(node, field, None) for node in nodes for field in ("annotation", "returns")]
    noted = {id(inner) for note in notes if note is not None for inner in ast.walk(note)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in noted}


def _root(statement: ast.Import | ast.ImportFrom) -> str:
    """Return the top-level package of an import, or "" for a relative import without a module."""
    name = statement.module if isinstance(statement, ast.ImportFrom) else statement.names[0].name
    return (name or "").split(".")[0]


def _is_standard(statement: ast.stmt) -> bool:
    """Return True if the statement imports from the standard library."""
    if not isinstance(statement, ast.Import | ast.ImportFrom):
        return False
    return _root(statement) in sys.stdlib_module_names


def _require_standard(statement: ast.Import | ast.ImportFrom, where: str) -> None:
    if not _is_standard(statement):
        raise InputError(
            f"{where}: expected imports from the standard library only, found {_root(statement)}"
        )
