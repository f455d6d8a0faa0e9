"""Forms of answers that a client can request: tools, JSON, several choices, log probabilities.

Acting nodes are called with the requested form. These are the last node or, if the last node
selects an answer (by a vote, a judge or a closed gate), the nodes among whose answers it selects.
Other nodes give advice in plain text, and their prompt describes the requested form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any

from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.actions import calls_in, normal_json
from ttsgraph.models.client import Message
from ttsgraph.service.requests import ChatRequest, dumped
from ttsgraph.tasks.base import Task

MOST_CHECKS = 5000
"""Maximum number of schema checks per call, because references can multiply them without limit."""


class FormedTask:
    """Task whose answers are compared in the form that a client requested.

    Tool calls are compared by the tools' names, then by the arguments; JSON by its normal form; and
    other text as in the inner task. Votes ignore calls of unknown tools, and calls whose arguments
    violate the tool's schema.
    """

    def __init__(self, inner: Task, asked: ChatRequest) -> None:
        self.name = inner.name
        self.instruction = inner.instruction
        self.inner = inner
        self.parse = inner.parse
        self.render = inner.render
        self.grade = inner.grade
        self.asked = asked

    def extract(self, text: str) -> str | None:
        """Return the text by which votes compare this answer, or None if they ignore it.

        With tools, the first line of this text has the names of the called tools; it is empty for
        an answer without calls. The calls or the answer follow.
        """
        if not self.asked.tools:
            return normal_json(text)
        if (calls := calls_in(text)) is not None:
            return "\n".join(calls) if all(map(self._fits, json.loads(calls[1]))) else None
        form = normal_json(text) if self.asked.as_json else self.inner.extract(text)
        return f"\n{text.strip() if form is None else form}"

    def _fits(self, call: Mapping[str, Any]) -> bool:
        """Return True if a call's tool exists and its arguments match the schema."""
        name = call["name"]
        # Some models send an empty string if there are no arguments.
        arguments = dumped(call["arguments"] or {})
        schema = self.asked.schemas.get(name)
        return schema is not None and _is_valid(schema, arguments)

    def head(self, form: str) -> str:
        """Return what a vote compares first: the called tools' names, or the whole JSON."""
        return form.partition("\n")[0] if self.asked.tools else form


@cache
def _validator() -> tuple[type[Any], list[int]]:
    """Return the class of validators, and the count of checks that they made, as a one-item list.

    Validators ignore regular expressions, which could take forever.
    """
    from jsonschema import Draft202012Validator, validators  # slow to import

    made = [0]

    def counted(check: Callable[..., Any], *given: Any) -> Any:
        made[0] += 1
        if made[0] > MOST_CHECKS:
            raise RecursionError
        return check(*given)

    checks = {
        name: partial(counted, check) for name, check in Draft202012Validator.VALIDATORS.items()
    }
    skipped = dict.fromkeys(("pattern", "patternProperties"), lambda *_: ())
    return validators.extend(Draft202012Validator, checks | skipped), made


@lru_cache(maxsize=1024)
def _is_valid(schema: str, arguments: str) -> bool:
    from referencing import Registry

    given = json.loads(arguments)
    validator, made = _validator()
    made[0] = 0
    try:  # no references are downloaded
        valid = validator(json.loads(schema), registry=Registry()).is_valid(given)
    except Exception:  # undecidable: invalid schema, missing reference, or too much nesting or work
        valid = True
    return isinstance(given, dict) and bool(valid)


def actors(graph: CollaborationGraph) -> tuple[frozenset[int], frozenset[int]]:
    """Return the nodes whose answer can become the graph's answer unchanged, and the nodes that
    select among such answers.
    """
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
    """Return messages with `turns` inserted after `text`, the question's text.

    If the last message contains more than `text`, the rest becomes a separate message at the end.
    """
    *before, last = messages
    shown = text if last.content.startswith(text) else last.content
    more = last.content.removeprefix(shown).strip()
    end = (Message("user", more),) if more else ()
    return (*before, Message(last.role, shown), *turns, *end)


def with_advice(messages: Sequence[Message], advice: str) -> tuple[Message, ...]:
    """Return messages with the instruction `advice`, unless it is empty, added at the end."""
    if not advice:
        return tuple(messages)
    *before, last = messages
    if last.role != "user" or last.whole is not None:
        return (*messages, Message("user", advice))
    return (*before, replace(last, content=f"{last.content}\n\n{advice}"))
