"""Clients' requests: their parsing, and the form in which a graph's nodes answer them.

The user's last message is the question; docs/serve.md describes how the other messages are used.
Parameters without effect are ignored, and the reply names them. Unsupported parameters that would
change the meaning of the answer are rejected.

A client can request a form: tools, JSON, several choices, log probabilities. Acting nodes are
called with this form. These are the last node or, if the last node selects an answer (by a vote, a
judge or a closed gate), the nodes among whose answers it selects. Other nodes give advice in plain
text, and their prompt describes the requested form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    StrictBool,
    ValidationInfo,
    model_validator,
)

from ttsgraph.deployment.bundle import Effort
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.actions import CALLS, calls_in, normal_json
from ttsgraph.models.client import Message, estimate_tokens
from ttsgraph.service.errors import ApiError
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks.base import Task

_Object = dict[str, Any]

ADVICE = (
    "Another model gives the answer and reads yours as advice. It can call functions, or answers in"
    " a form, which you can't:\n{form}\nSay in words which functions to call with which arguments,"
    " or what the answer should hold."
)
"""Instruction to advising nodes if the answer may be a tool call or is JSON."""

REFUSED = {
    *("previous_response_id", "conversation", "prompt", "background", "context_management"),
    *("web_search_options", "modalities", "moderation", "image", "audio", "documents", "system"),
    *("functions", "function_call", "format", "grammar", "json_schema", "response_schema"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding"),
    *("structured_outputs", "truncation"),
}
"""Parameters that would change the answer's meaning, and are rejected. Other parameters without a
field in the request's model have no effect.
"""

NOTHING: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("tools", "functions", "documents", "context_management"), ([],)),
    **dict.fromkeys(("stop", "grammar", "format", "system"), ("",)),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), (-1,)),
    "n": (1,),
    "logprobs": (False,),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "background": (False,),
    "truncation": ("disabled", "auto"),
}
"""Map from a parameter to the values that, like null, request nothing. The parameter is then
treated as if it were absent.
"""

_EFFORTS = {
    **dict.fromkeys(("none", "minimal", "low"), "low"),
    **dict.fromkeys(("high", "xhigh", "max"), "high"),
}
"""Map from OpenAI's efforts to the efforts of rungs, if their names differ."""

CHARACTERS, MOST_CHARACTERS = 6, 30
"""Characters per token: the estimate for very long text (CHARACTERS), and the number above which
tokens are not counted (MOST_CHARACTERS). The latter is larger because blanks are not tokens.
"""


def dumped(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def some(data: Mapping[str, Any], *names: str) -> _Object:
    """Return the named items that are present and not None."""
    return {name: data[name] for name in names if data.get(name) is not None}


def _of(kind: type, form: Callable[[Any], Any]) -> BeforeValidator:
    """Return a validator that gives values of this kind another form, and keeps other values."""
    return BeforeValidator(lambda value: form(value) if isinstance(value, kind) else value)


class _Open(BaseModel):
    """Part of a request that also keeps the fields that it doesn't declare."""

    model_config = ConfigDict(extra="allow")


class _Part(BaseModel):
    type: Literal["text", "input_text", "output_text", "refusal"]
    text: str = Field(validation_alias=AliasChoices("text", "refusal"))


_Parts = Annotated[list[_Part] | None, _of(str, lambda text: [{"type": "text", "text": text}])]


class _ChatMessage(_Open):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: _Parts = None
    tool_calls: list[_Object] | None = None
    images: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None

    @property
    def plain(self) -> Message:
        """The message as text.

        A message with tool calls or a tool's result also keeps its JSON (`whole`), in which the
        content is one string.
        """
        role = "system" if self.role == "developer" else self.role
        text = "".join(part.text for part in self.content or ())
        if role != "tool" and not self.tool_calls:
            return Message(role, text)
        none = self.content is None and role == "assistant"
        whole = self.model_dump(exclude_unset=True) | {"content": None if none else text}
        return Message(role, text, dumped(whole))


Text = Annotated[str, Field(min_length=1)]


class _Function(_Open):
    name: Text


class _Tool(_Open):
    type: Literal["function"]
    function: _Function


class _Output(_Open):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Object | None = None


_Effort = Annotated[Effort | None, _of(str, lambda effort: _EFFORTS.get(effort, effort))]
_Choice = Literal["none", "auto", "required"] | _Tool | None
_Stops = Annotated[list[Text] | None, Field(max_length=16), _of(str, lambda stop: [stop])]


class Conversation(NamedTuple):
    """Question of a request; `system` and `history` precede it, and tool `turns` follow it."""

    system: tuple[str, ...]
    history: tuple[Message, ...]
    question: str
    turns: tuple[Message, ...]


class ChatRequest(_Open):
    """Chat request; its fields are the parameters that have an effect.

    It is validated in the context of the server's settings.
    """

    refused: ClassVar = REFUSED

    model: str
    messages: list[_ChatMessage] = Field(min_length=1)
    stream: StrictBool | None = False
    include_usage: StrictBool | None = Field(
        False, validation_alias=AliasPath("stream_options", "include_usage")
    )
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    reasoning_effort: _Effort = None
    stop: _Stops = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice = None
    parallel_tool_calls: Any = None
    response_format: _Output | None = None
    n: Annotated[int | None, Field(ge=1, le=128)] = None
    logprobs: StrictBool | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=20)] = None

    @model_validator(mode="before")
    @classmethod
    def _wanted(cls, data: _Object) -> _Object:
        """Return the parameters that request something. Raises ApiError for an unsupported one."""
        wanted = {
            name: value
            for name, value in data.items()
            if value is not None and value not in NOTHING.get(name, ())
        }
        if "logprobs" not in wanted:
            wanted.pop("top_logprobs", None)
        for name in sorted(cls.refused & wanted.keys()):
            why = f"{name} is not supported: expected a whole conversation of text, with `tools`"
            why += " or a format of the answer if needed"
            raise ApiError(400, why, name, "unsupported_parameter")
        if "tools" not in wanted:
            wanted.pop("parallel_tool_calls", None)
            if wanted.pop("tool_choice", "none") not in ("none", "auto"):
                why = "tool_choice: expected tools to choose from, found none"
                raise ApiError(400, why, "tool_choice")
        return wanted

    @model_validator(mode="after")
    def _answerable(self, info: ValidationInfo[ServiceSettings]) -> Self:
        if info.context.strict and self.ignored:
            name = self.ignored[0]
            why = f"{name!r} has no effect here, and service.strict refuses such parameters"
            raise ApiError(400, why, name, "unknown_parameter")
        roles = [message.role for message in self.said]
        ends = "user" in roles and roles[-1] in ("user", "tool")
        if not ends or not self.conversation.question.strip():
            why = "expected the last message to be the user's question, as text, or the result of"
            raise ApiError(400, f"{why} a tool", self.named("messages"))
        parts = [message.whole or message.content for message in self.said]
        text = "\n".join([*parts, self.form or ""])
        most = info.context.max_input_tokens
        # Counting takes 100 ms per megabyte, so tokens are only estimated if text is far too long.
        counted = len(text) < MOST_CHARACTERS * most
        found = estimate_tokens(text) if counted else len(text) // CHARACTERS
        if found > most:
            why = f"expected messages of at most {most} tokens in total, found about {found}"
            raise ApiError(400, why, self.named("messages"), "context_length_exceeded")
        return self

    @classmethod
    def named(cls, field: str) -> str:
        """Return the name that a field has in the client's request."""
        alias = cls.model_fields[field].validation_alias or field
        return str(alias.path[0] if isinstance(alias, AliasPath) else alias)

    @cached_property
    def said(self) -> Sequence[Message]:
        """The messages as text."""
        return [message.plain for message in self.messages]

    @cached_property
    def conversation(self) -> Conversation:
        """The question with the messages around it."""
        system = tuple(each.content for each in self.said if each.role == "system")
        said = tuple(each for each in self.said if each.role != "system")
        place = max((k for k, each in enumerate(said) if each.role == "user"), default=0)
        return Conversation(system, said[:place], said[place].content, said[place + 1 :])

    @property
    def ignored(self) -> list[str]:
        """Names of the parameters that no graph uses."""
        return sorted(self.model_extra or ())

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens of the answer, or None for no limit."""
        return min(filter(None, (self.max_tokens, self.max_completion_tokens)), default=None)

    @property
    def as_json(self) -> bool:
        """True if the answer's text has to be JSON."""
        return self.response_format is not None and self.response_format.type != "text"

    @property
    def structured(self) -> bool:
        """True if the answer is JSON or may call tools.

        For such answers, the task's stop sequences don't apply, and votes compare answers by form.
        """
        return bool(self.tools) or self.as_json

    @cached_property
    def form(self) -> str | None:
        """JSON object to add to the bodies of acting nodes' requests, or None if one text is
        requested.
        """
        names = {"tools", "tool_choice", "parallel_tool_calls", "n", "logprobs", "top_logprobs"}
        names |= {"response_format"} if self.as_json else set()
        wanted = self.model_dump(include=names, exclude_unset=True)
        return dumped(wanted) if wanted else None

    def shaped(
        self, messages: tuple[Message, ...], question: str, advises: bool
    ) -> tuple[Message, ...]:
        """Return a node's messages with the tool turns and, for an advising node, an instruction.

        The turns follow `question`, the question's text in the last message; the rest of that
        message becomes a separate message at the end.
        """
        *before, last = messages
        if turns := self.conversation.turns:
            asked = question if last.content.startswith(question) else last.content
            more = last.content.removeprefix(asked).strip()
            before = [*before, Message(last.role, asked), *turns]
            last = Message("user", more) if more else before.pop()
        if not (advises and self.structured):
            return (*before, last)
        advice = ADVICE.format(form=self.form)
        if last.role != "user" or last.whole is not None:
            return (*before, last, Message("user", advice))
        return (*before, replace(last, content=f"{last.content}\n\n{advice}"))


def _function(tool: _Object) -> _Object:
    """Return a function tool, or the choice of a function, in chat format."""
    function = some(tool, "name", "description", "parameters", "strict")
    return {"type": tool.get("type"), "function": function}


def _format(output: _Object) -> _Object:
    """Return the format of a text in chat format."""
    schema = some(output, "name", "description", "schema", "strict")
    more = {"json_schema": schema} if output.get("type") == "json_schema" else {}
    return {"type": output.get("type"), **more}


def _messages(items: Any) -> Any:
    """Return input items as chat messages; calls are part of the assistant message before them.

    Raises ApiError for an item of another kind.
    """
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return items
    found: list[_Object] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind == "message":
            found.append({"role": item.get("role"), "content": item.get("content")})
        elif kind == "function_call":
            call = {"id": item.get("call_id"), "type": "function"}
            call["function"] = some(item, "name", "arguments")
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant", "content": None})
            found[-1].setdefault(CALLS, []).append(call)
        elif kind == "function_call_output":
            result = {"role": "tool", "tool_call_id": item.get("call_id")}
            found.append(result | {"content": item.get("output")})
        elif kind != "reasoning":
            said = f"input: items of type {str(kind)[:40]!r} are not supported"
            raise ApiError(400, said, "input")
    return found


class ItemsRequest(ChatRequest):
    """Request to /v1/responses; these parameters have another name or form in chat requests.

    No replies are stored, so parameters that need stored replies (background,
    previous_response_id, conversation) are refused. Tools that don't run on the client are, too.
    """

    refused: ClassVar = REFUSED | {"messages", "response_format", "n", "logprobs"}

    messages: Annotated[list[_ChatMessage], BeforeValidator(_messages)] = Field(
        validation_alias="input", min_length=1
    )
    instructions: str | None = None
    tools: list[Annotated[_Tool, _of(dict, _function)]] | None = None
    tool_choice: Annotated[_Choice, _of(dict, _function)] = None
    max_tokens: PositiveInt | None = Field(None, validation_alias="max_output_tokens")
    reasoning_effort: _Effort = Field(None, validation_alias=AliasPath("reasoning", "effort"))
    response_format: Annotated[_Output | None, _of(dict, _format)] = Field(
        None, validation_alias=AliasPath("text", "format")
    )

    @cached_property
    def said(self) -> Sequence[Message]:
        """The instructions, if there are any, and the messages as text."""
        system = [Message("system", self.instructions)] if self.instructions else []
        return [*system, *(message.plain for message in self.messages)]


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
