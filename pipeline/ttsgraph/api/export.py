"""A found graph as one file of its own, that a person can read: a Python program that needs the
openai package alone, or a LangGraph program.

It asks the same models the same prompts as the executor does, and gates and votes go by the same
rules, so that with the same replies it gives the same answer. What can't be written so is named:
prompts other than those of chat, roles of one's own that ask a model, answers whose form needs
more than the standard library.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

from ttsgraph.api.portable import ahead_of_all, ahead_of_one
from ttsgraph.api.written import Written
from ttsgraph.base.errors import InputError
from ttsgraph.base.state import STATE
from ttsgraph.deployment.bundle import Deployed
from ttsgraph.evaluation.executor import Manner, manner_of
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import Ballot, chosen, get_role, majority, with_waves
from ttsgraph.graphs.stopping import decided, disagreement
from ttsgraph.models.client import cut_at_stop
from ttsgraph.models.dialect import HABITS, Dialect, Habits, habit_name
from ttsgraph.models.reasoning import without_thoughts
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.tasks.base import ReadableTask, Task
from ttsgraph.tasks.prompts import QUOTED, mark_for

FORMS = ("python", "langgraph")

TEMPLATES = Path(__file__).with_name("templates")
_IMPORTS = {"import asyncio", "import json", "import os", "import sys"}
_OF_LANGGRAPH = {"import operator", "from typing import Annotated", "from typing import TypedDict"}


def export(deployed: Deployed, form: str = "python") -> str:
    """The file, in one of FORMS. Raises InputError that names what can't be written."""
    if form not in FORMS:
        raise InputError(f"expected a form among {', '.join(FORMS)}, found {form!r}")
    graph = with_waves(deployed.graph, deployed.profile.budget.wave)
    if graph.route is not None:
        raise InputError(
            "expected a graph without a router to export, found one: its parameters are no program;"
            " serve it (ttsgraph serve), or export one of its branches"
        )
    adaptive = graph.adaptive
    nodes = {i: _entry(deployed, graph, graph.node(i)) for i in graph.order}
    roles = {node.role: get_role(node.role) for node in graph.nodes}
    decides = {name: way for name, role in roles.items() if (way := role.decide or role.pick)}
    spoken = [entry for entry in nodes.values() if "model" in entry]
    facts = {
        "judges": any(role.read is chosen for role in roles.values()),
        "stops": any("stop" in entry["sampling"] for entry in spoken),
        "gates": any(node.gate for node in graph.nodes),
        "waves": any(node.waves for node in graph.nodes),
        "confident": any(node.stop.confident for node in graph.nodes),
        "systemless": any(not entry["system_role"] for entry in spoken),
    }
    written = Written({*_IMPORTS, *(_OF_LANGGRAPH if form == "langgraph" else ())})
    used: list[Callable[..., Any]] = [mark_for, without_thoughts, *decides.values()]
    used += [Ballot] if any(role.pick for role in roles.values()) else []
    used += [chosen] if facts["judges"] else []
    used += [cut_at_stop] if facts["stops"] else []
    used += [majority] if adaptive else []
    used += [disagreement] if facts["gates"] else []
    used += [decided] if facts["waves"] else []
    used += [ahead_of_one, ahead_of_all] if facts["confident"] else []
    written.take(used)
    written.imports |= {"from collections import Counter"} if facts["confident"] else set()
    reads = ""
    reading: dict[str, Any] = {}
    if decides or adaptive:
        reads, reading = _reading(deployed.grader, decides, written)
    elif facts["judges"]:
        try:
            reads, reading = _reading(deployed.grader, decides, written)
        except InputError:  # then a judge that names no answer takes the first
            reads = "lambda text: None"
            written.imports.add("from types import SimpleNamespace")
    for entry in spoken if not facts["systemless"] else []:
        del entry["system_role"]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    data = {
        "task": deployed.task,
        "requests": {name: role.asks for name, role in roles.items() if role.asks},
        "nodes": nodes,
        "sink": graph.sink,
        "quoted": QUOTED,
        "reading": reading,
    }
    names = ", ".join(f"{name!r}: {decide.__name__}" for name, decide in decides.items())
    return environment.get_template("answers.py.j2").render(
        facts,
        imports=_in_order(written.imports),
        data=_shown(data),
        code=written.code,
        reads=reads,
        decides=f"{{{names}}}" if decides else "",
        picks=[name for name, role in roles.items() if role.pick is not None],
        adaptive=adaptive,
        langgraph=form == "langgraph",
    )


def _shown(value: Any) -> str:
    """Data as JSON that may stand in a raw string between three single quotes: texts of a bundle
    are data for the file, whatever they hold, never a part of its code.
    """
    return json.dumps(value, indent=1).replace("'", "\\u0027")


def _in_order(imports: set[str]) -> str:
    """Imports in blocks of one kind, by name."""
    return "\n".join(sorted(imports, key=lambda line: (line.startswith("from"), line)))


def _entry(deployed: Deployed, graph: CollaborationGraph, node: Node) -> dict[str, Any]:
    """A node as the file has it: what it reads, and how its model is asked."""
    if node.top_k is not None:
        raise InputError(f"node {node.id}: expected no top_k to export, found {node.top_k}")
    entry: dict[str, Any] = {"role": node.role, "reads": list(graph.reads[node.id])}
    if graph.adaptive:
        entry["stages"] = [list(stage) for stage in graph.stages[node.id]]
        if any(other.gate for other in graph.nodes):
            entry["gate"] = None if node.gate is None else node.gate.over
        entry |= {"stop": (node.stop.rule, node.stop.level)} if node.waves else {}
    role = get_role(node.role)
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
            f"node {node.id}: expected a role that says what it asks, or picks an answer itself, to"
            f" export, found {node.role}; serve it with `ttsgraph serve` instead"
        )
    return entry | _asking(deployed, node.model)


def _asking(deployed: Deployed, member: str) -> dict[str, Any]:
    """How a node asks its model. Raises InputError for what is no chat prompt."""
    pool = deployed.profile.model_pool()
    settings = deployed.profile.task(deployed.task)
    manner = manner_of(pool[member], settings.sampling.sampling(), deployed.prompt)
    if manner.prompt.style != "chat":
        raise InputError(f"{member}: expected chat prompts to export, found {manner.prompt.style}")
    model = deployed.profile.pool[manner.model]
    if not model.base_urls:
        raise InputError(
            f"{member}: expected a model with a base_url to export, found one that is served here"
        )
    for key in ("api_key_header", "query"):
        if getattr(model, key):
            raise InputError(f"{member}: expected a model without {key} to export")
    name = model.served_as or manner.model
    known = Habits(STATE / HABITS).get(habit_name(model.base_urls[0], name, manner.sampling))
    dialect = model.dialect if known is None else model.dialect.joined(known)
    return {
        "model": name,
        "base_url": model.base_urls[0],
        "api_key_env": model.api_key_env,
        "instruction": manner.prompt.instruction,
        "system_role": dialect.system,
        "sampling": _sampling(manner, model, dialect),
    }


def _sampling(manner: Manner, model: ModelSettings, dialect: Dialect) -> dict[str, Any]:
    """The arguments of a call beside model and messages."""
    sampling = manner.sampling
    asked = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stop": list(sampling.stop) or None,
        "reasoning_effort": sampling.reasoning_effort,
    }
    asked = ({dialect.bound: dialect.bounded(sampling.max_tokens)} if dialect.bound else {}) | asked
    left_out = {*dialect.left_out, *sampling.left_out}
    sent = {key: value for key, value in asked.items() if value is not None and key not in left_out}
    extra = model.extra_body | json.loads(sampling.extra_body or "{}")
    return sent | ({"extra_body": extra} if extra else {})


def _reading(task: Task, decides: dict[str, Any], written: Written) -> tuple[str, dict[str, Any]]:
    """The function that reads an answer, and its settings; what it needs is added.

    Raises InputError for a kind whose answers can't be read so.
    """
    serve = "serve it with `ttsgraph serve` instead"
    plain = isinstance(task, ReadableTask) and _says_how(task) and not hasattr(task, "head")
    reader = task.reader() if isinstance(task, ReadableTask) and plain else None
    if reader is None:
        raise InputError(
            f"expected a graph that compares no answers, or of a kind with a `reader`, to export:"
            f" how answers of kind {task.name} are read is more than one file holds; {serve}"
        )
    checks = getattr(task, "checks", "an answer in its own way") if _checks(task) else ""
    if checks and any(get_role(name).checks for name in decides):
        raise InputError(
            f"expected no verifier to export where kind {task.name} checks {checks}; {serve}"
        )
    written.take([reader.func])
    written.imports.add("from types import SimpleNamespace")
    written.imports.add("from functools import partial")
    return reader.func.__name__, dict(reader.keywords)


def _checks(task: Task) -> bool:
    return hasattr(task, "passes") or hasattr(task, "passes_on")


def _says_how(task: Task) -> bool:
    """Whether a kind's `reader` is of the class that has its `extract`, or of one derived from it:
    else it may read answers otherwise.
    """
    owners = [
        next(place for place, each in enumerate(type(task).__mro__) if name in vars(each))
        for name in ("reader", "extract")
    ]
    return owners[0] <= owners[1]
