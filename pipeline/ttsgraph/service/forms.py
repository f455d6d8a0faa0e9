"""In which form a client wants its answer: tools, JSON, several choices, log probabilities.

The nodes that act are asked in that form: the last one, or where that chooses (a vote, a judge, a
closed gate) those it chooses among. All others advise in text, knowing what is to come of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.actions import calls_in, normal_json
from ttsgraph.models.client import Message
from ttsgraph.tasks.base import Task

TOOLS_ADVICE = (
    "Another model gives the answer and reads yours as advice. It can call these functions, which "
    "you can't:\n{tools}\nSay in words which of them to call with which arguments, or what to "
    "answer without."
)
"""What nodes that advise are told where the answer may be a call."""

JSON_ADVICE = (
    "Another model gives the answer as JSON{schema} and reads yours as advice. "
    "Say in words what it should hold."
)
"""What they are told where it is JSON."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a request asks of its answer: `parameters` of the acting nodes' bodies (JSON), the
    client's `stop` sequences, `tools` that may be called, with `schemas` of their arguments (JSON)
    by name, a text that is JSON (`as_json`), how many `choices`. `advice` is what advising nodes
    are told.
    """

    parameters: str | None = None
    stop: tuple[str, ...] = ()
    tools: bool = False
    as_json: bool = False
    choices: int = 1
    advice: str = ""
    schemas: Mapping[str, str] = field(default_factory=dict)

    @property
    def structured(self) -> bool:
        """Whether the answer is more than free text: it has its own stops, and another vote."""
        return self.tools or self.as_json


def dumped(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False)


class FormedTask:
    """A kind of question whose answers are counted in the form that a client asked for. Calls of
    tools are told apart by the tools' names, then arguments; JSON by its normal form; other texts
    as the kind does. Calls of no tool of the client's, or not of its schema, do not count.
    """

    def __init__(self, inner: Task, form: Form) -> None:
        self.name = inner.name
        self.instruction = inner.instruction
        self.inner = inner
        self.parse = inner.parse
        self.render = inner.render
        self.grade = inner.grade
        self.form = form

    def extract(self, text: str) -> str | None:
        """What votes count: with tools, their names, an end of line, and the calls."""
        if not self.form.tools:
            return normal_json(text)
        if (calls := calls_in(text)) is not None:
            return "\n".join(calls) if all(map(self._fits, json.loads(calls[1]))) else None
        said = normal_json(text) if self.form.as_json else self.inner.extract(text)
        return f"\n{text.strip() if said is None else said}"

    def _fits(self, call: Mapping[str, Any]) -> bool:
        """Whether a call can be made: its tool is there, and the arguments are of its schema."""
        name = call["name"]
        arguments = dumped(call["arguments"] or {})  # some send no text where there are none
        schema = self.form.schemas.get(name)
        return schema is not None and _is_valid(schema, arguments)

    def head(self, form: str) -> str:
        """What a vote counts first: the names; for JSON alone, all there is."""
        return form.partition("\n")[0] if self.form.tools else form


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    """What checks values by a client's schema; None where it is none. It fetches nothing that the
    schema refers to, and searches no texts by its patterns, which could take for ever.
    """
    from jsonschema import Draft202012Validator, SchemaError, validators  # slow to import
    from referencing import Registry

    skipped = dict.fromkeys(("pattern", "patternProperties"), lambda *_: ())
    kind = validators.extend(Draft202012Validator, skipped)
    try:
        kind.check_schema(json.loads(schema))
    except SchemaError:
        return None
    return kind(json.loads(schema), registry=Registry())


@lru_cache(maxsize=1024)
def _is_valid(schema: str, arguments: str) -> bool:
    given = json.loads(arguments)
    if not isinstance(given, dict):
        return False
    try:
        validator = _validator(schema)
        return validator is None or bool(validator.is_valid(given))
    except Exception:  # what it refers to is not there, or it is too deep: nobody can tell
        return True


def actors(graph: CollaborationGraph) -> tuple[frozenset[int], frozenset[int]]:
    """Nodes whose answer can become the graph's as it is, and those that choose among these."""
    acting = set[int]()
    choosing = set[int]()
    asked = [graph.sink]
    while asked:
        i = asked.pop()
        if i in acting or i in choosing:
            continue
        node = graph.node(i)
        role = get_role(node.role)
        acts = role.calls_model and role.read is None
        (acting if acts else choosing).add(i)
        asked += [] if acts else graph.reads[i]
        asked += graph.stages[i][0] if node.gate else []
    return frozenset(acting), frozenset(choosing)


def with_turns(
    messages: Sequence[Message], text: str, turns: Sequence[Message]
) -> tuple[Message, ...]:
    """Messages with turns behind the question's text; what else a node is asked ends them."""
    *before, last = messages
    shown = text if last.content.startswith(text) else last.content
    more = last.content.removeprefix(shown).strip()
    end = (Message("user", more),) if more else ()
    return (*before, Message(last.role, shown), *turns, *end)


def with_advice(messages: Sequence[Message], advice: str) -> tuple[Message, ...]:
    """Messages that end by telling a node that it advises, where there is something to tell."""
    if not advice:
        return tuple(messages)
    *before, last = messages
    if last.role != "user" or last.whole is not None:
        return (*messages, Message("user", advice))
    return (*before, replace(last, content=f"{last.content}\n\n{advice}"))
