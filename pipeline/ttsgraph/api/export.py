"""Export a found graph as one readable Python program that needs only the packages openai and, for
votes and gates, finalanswer.

Given the same replies, the program gives the same answer as the executor. Features that don't fit
in such a program are refused: for example, prompts that aren't chat, roles other than votes and
those that state their request, and answers of a kind whose parser isn't in finalanswer.
"""

import ast
import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jinja2

from ttsgraph.base.errors import InputError
from ttsgraph.base.state import STATE
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.evaluation.executor import manner_of
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.stopping import decided, disagreement, most_frequent
from ttsgraph.models import reasoning
from ttsgraph.models.client import Request, cut_at_stop
from ttsgraph.models.dialect import HABITS, DialectStore, habit_name
from ttsgraph.runtime.clients import endpoint_of
from ttsgraph.tasks.base import ReadTask, Task
from ttsgraph.tasks.prompts import QUOTED, mark_for

SERVE = "serve the graph with `ttsgraph serve` instead"
TEMPLATE = Path(__file__).with_name("templates") / "answers.py.j2"


def export(deployed: DeployedVersion) -> str:
    """Return the program's text. Raises InputError naming the first unsupported feature, if there
    is one.
    """
    graph = deployed.graph
    nodes = {i: _entry(deployed, graph, graph.node(i)) for i in graph.order}
    functions: list[Callable[..., Any]] = [mark_for, cut_at_stop]
    reader = None
    if graph.adaptive or any("model" not in entry for entry in nodes.values()):
        reader = _reader(deployed.grader)
        functions += [most_frequent, decided, disagreement]
    source = inspect.getsource(reasoning)
    imports = [each for each in ast.parse(source).body if isinstance(each, ast.ImportFrom)]
    below = "\n".join(source.splitlines()[imports[-1].end_lineno :])
    code = [below, *(inspect.getsource(function) for function in functions)]
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
        # Without single quotes, no text of a bundle can end the string that holds the data.
        data=json.dumps(data, indent=1).replace("'", "\\u0027"),
        code="\n\n\n".join(each.strip() for each in code),
        reader=reader and reader.func,
    )


def _entry(deployed: DeployedVersion, graph: CollaborationGraph, node: Node) -> dict[str, Any]:
    """Return a node's entry in the program's data: its inputs and, unless it is a vote, the request
    to its model. Raises InputError if the node can't be exported.
    """
    role = get_role(node.role)
    if not (role.by_majority or (role.asks and role.read is None)):
        raise InputError(
            f"node {node.id}: expected a vote or a plain role to export, found {node.role}; {SERVE}"
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
    if not model.base_urls or model.api_key_header or "?" in model.base_urls[0]:
        raise InputError(
            f"{member}: expected a model with a `base_url` without a query, and without header;"
            f" {SERVE}"
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
    """Return the function that parses an answer. Raises InputError if the task's kind has none in
    the package finalanswer, or extracts answers in another way.
    """
    own = inspect.getattr_static(type(task), "extract") is not ReadTask.extract
    if isinstance(task, ReadTask) and not own:
        reader = task.reader()
        if reader.func.__module__.startswith("finalanswer."):
            return reader
    raise InputError(
        f"expected no votes and gates, or a kind of finalanswer, found kind {task.name}; {SERVE}"
    )
