"""Forms of answers that a client can request: tools, JSON, several choices, log probabilities.

Acting nodes are called with the requested form. These are the last node or, if the last node
selects an answer (by a vote, a judge or a closed gate), the nodes among whose answers it selects.
Other nodes give advice in plain text, and their prompt describes the requested form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.actions import calls_in, normal_json
from ttsgraph.models.client import Message
from ttsgraph.service.requests import ChatRequest
from ttsgraph.tasks.base import Task


class FormedTask:
    """Task whose answers are compared in the form that a client requested.

    Tool calls are compared by the tools' names, then by the arguments; JSON by its normal form; and
    other text as in the inner task. Votes ignore calls of unknown tools, and calls whose arguments
    aren't a JSON object.
    """

    def __init__(self, inner: Task, asked: ChatRequest) -> None:
        self.name = inner.name
        self.instruction = inner.instruction
        self.inner = inner
        self.parse = inner.parse
        self.render = inner.render
        self.grade = inner.grade
        self.asked = asked
        self._tools = {tool.function.name for tool in asked.tools or ()}

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
        """Return True if a call's tool exists and its arguments are an object, or empty."""
        return call["name"] in self._tools and isinstance(call["arguments"] or {}, dict)

    def head(self, form: str) -> str:
        """Return what a vote compares first: the called tools' names, or the whole JSON."""
        return form.partition("\n")[0] if self.asked.tools else form


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
