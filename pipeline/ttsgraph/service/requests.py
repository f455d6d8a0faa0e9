"""Clients' requests: their parsing, and the form in which a graph's nodes answer them.

The user's last message is the question; docs/serve.md describes how the other messages are used.
Parameters without effect are ignored, and the reply names them. Unsupported parameters that would
change the meaning of the answer are rejected.

A client can request a form: tools or JSON. Acting nodes are called with this form. These are the
last node or, if the last node selects an answer (by a vote, a judge or a closed gate), the nodes
among whose answers it selects. Other nodes give advice in plain text, and their prompt describes
the requested form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import (
    AliasChoices,
    AliasGenerator,
    AliasPath,
    BaseModel,
    BeforeValidator,
    Field,
    PositiveInt,
    StrictBool,
    ValidationError,
)
from pydantic_core import from_json
from starlette.requests import Request

from ttsgraph.deployment.bundle import Effort
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.actions import CALLS, calls_in, normal_json
from ttsgraph.models.client import Message, estimate_tokens
from ttsgraph.service.errors import ApiError
from ttsgraph.settings.service import ServiceSettings
from ttsgraph.tasks.base import Task

T = TypeVar("T")
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
    *("structured_outputs", "truncation", "n", "logprobs"),
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

_EFFORTS = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
"""Map from OpenAI's efforts to the efforts of rungs, if their names differ."""

MOST_CHARACTERS = 30
"""Characters per token above which text is too long, however many tokens it has."""


def some(data: Mapping[str, Any], *names: str) -> _Object:
    """Return the named items that are present and not None."""
    return {name: data[name] for name in names if data.get(name) is not None}


def _of(kind: type, form: Callable[[Any], Any]) -> BeforeValidator:
    """Return a validator that gives values of this kind another form, and keeps other values."""
    return BeforeValidator(lambda value: form(value) if isinstance(value, kind) else value)


class _Part(BaseModel):
    type: Literal["text", "input_text", "output_text", "refusal"]
    text: str = Field(validation_alias=AliasChoices("text", "refusal"))


_Parts = Annotated[list[_Part] | None, _of(str, lambda text: [{"type": "text", "text": text}])]


class _ChatMessage(BaseModel, extra="allow"):
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
        return Message(role, text, json.dumps(whole, ensure_ascii=False))


Text = Annotated[str, Field(min_length=1)]


class _Function(BaseModel, extra="allow"):
    name: Text


class _Tool(BaseModel, extra="allow"):
    type: Literal["function"]
    function: _Function


class _Output(BaseModel, extra="allow"):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Object | None = None


_Effort = Annotated[Effort | None, _of(str, lambda effort: _EFFORTS.get(effort, effort))]
_Choice = Literal["none", "auto", "required"] | _Tool | None
_Stops = Annotated[list[Text] | None, Field(max_length=16), _of(str, lambda stop: [stop])]


def _wanted(data: _Object) -> _Object:
    """Return the parameters that request something. Raises ApiError for an unsupported one."""
    wanted = {name: v for name, v in data.items() if v not in (None, *NOTHING.get(name, ()))}
    for name in sorted(REFUSED & wanted.keys()):
        why = f"{name} is not supported: expected a whole conversation of text, with `tools`"
        why += " or a format of the answer if needed"
        raise ApiError(400, why, name, "unsupported_parameter")
    if "tools" not in wanted:
        wanted.pop("parallel_tool_calls", None)
        if wanted.pop("tool_choice", "none") not in ("none", "auto"):
            why = "tool_choice: expected tools to choose from, found none"
            raise ApiError(400, why, "tool_choice")
    return wanted


def _within(kind: str, *fields: str) -> BeforeValidator:
    """Return a validator that moves an object's fields into an inner object, as in chat format."""

    def moved(value: _Object) -> _Object:
        if value.get("type") != kind or kind in value:
            return value
        return {"type": kind, kind: some(value, *fields)}

    return _of(dict, moved)


_FUNCTION = _within("function", "name", "description", "parameters", "strict")
_SCHEMA = _within("json_schema", "name", "description", "schema", "strict")


_OF_ITEMS = ("id", "status", "type", "phase")
"""Fields of an item that chat messages don't have, so that some endpoints refuse them."""


def _messages(items: Any) -> Any:
    """Return input items as chat messages; calls are part of the assistant message before them.

    Raises ValueError for an item of another kind.
    """
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return items
    found: list[_Object] = []
    for item in items:
        kind = "message" if "role" in item else item.get("type") or "message"
        if kind == "message":
            found.append({name: item[name] for name in item if name not in _OF_ITEMS})
        elif kind == "function_call":
            function = some(item, "name", "arguments")
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            if not found or found[-1].get("role") != "assistant":
                found.append({"role": "assistant", "content": None})
            found[-1][CALLS] = [*(found[-1].get(CALLS) or ()), call]
        elif kind == "function_call_output":
            result = {"role": "tool", "tool_call_id": item.get("call_id")}
            found.append(result | {"content": item.get("output")})
        elif kind != "reasoning":
            raise ValueError(f"items of type {str(kind)[:40]!r} are not supported")
    return found


_OTHER_NAMES: Mapping[str, Sequence[str]] = {
    "messages": ["input"],
    "include_usage": ["stream_options.include_usage"],
    "max_tokens": ["max_completion_tokens", "max_output_tokens"],
    "reasoning_effort": ["reasoning.effort"],
    "response_format": ["text.format"],
}
"""Map from fields of a request to their other names in bodies; the first that a body has counts."""


def _names(field: str) -> AliasChoices:
    others = (AliasPath(*name.split(".")) for name in _OTHER_NAMES.get(field, ()))
    return AliasChoices(field, *others)


class Conversation(NamedTuple):
    """Question of a request; `system` and `history` precede it, and tool `turns` follow it."""

    system: tuple[str, ...]
    history: tuple[Message, ...]
    question: str
    turns: tuple[Message, ...]


class ChatRequest(
    BaseModel, extra="allow", alias_generator=AliasGenerator(validation_alias=_names)
):
    """Request for an answer, in the form of chat completions or of /v1/responses.

    Its fields are the parameters that have an effect. No replies are stored, so parameters that
    need stored replies (background, previous_response_id, conversation) are refused. Tools that
    don't run on the client are, too.
    """

    model: str
    messages: Annotated[list[_ChatMessage], Field(min_length=1), BeforeValidator(_messages)]
    instructions: str | None = None
    stream: StrictBool | None = False
    include_usage: StrictBool | None = False
    max_tokens: PositiveInt | None = None
    reasoning_effort: _Effort = None
    stop: _Stops = None
    tools: list[Annotated[_Tool, _FUNCTION]] | None = None
    tool_choice: Annotated[_Choice, _FUNCTION] = None
    parallel_tool_calls: Any = None
    response_format: Annotated[_Output | None, _SCHEMA] = None
    _sent: Collection[str] = ()

    @classmethod
    def of(cls, data: _Object, settings: ServiceSettings) -> ChatRequest:
        """Return the request with this body. Raises ApiError if it can't be answered."""
        wanted = _wanted(data)
        asked = cls.model_validate(wanted)
        asked._sent = wanted.keys()
        roles = [message.role for message in asked.said]
        ends = "user" in roles and roles[-1] in ("user", "tool")
        if not ends or not asked.conversation.question.strip():
            why = "expected the last message to be the user's question, as text, or the result of"
            raise ApiError(400, f"{why} a tool", asked.named("messages"))
        parts = [message.whole or message.content for message in asked.said]
        text = "\n".join([*parts, asked.form or ""])
        most = settings.max_input_tokens
        # Counting takes 100 ms per megabyte, so far too long text is counted only in part.
        counted = text[: MOST_CHARACTERS * most]
        found = estimate_tokens(counted)
        if found > most or len(counted) < len(text):
            why = f"expected messages of at most {most} tokens in total, found {found} or more"
            raise ApiError(400, why, asked.named("messages"), "context_length_exceeded")
        return asked

    def named(self, field: str) -> str:
        """Return the name that a field has in the client's request."""
        names = (field, *_OTHER_NAMES.get(field, ()))
        sent = (name.partition(".")[0] for name in names)
        return next((name for name in sent if name in self._sent), field)

    @cached_property
    def said(self) -> Sequence[Message]:
        """The instructions, if there are any, and the messages as text."""
        system = [Message("system", self.instructions)] if self.instructions else []
        return [*system, *(message.plain for message in self.messages)]

    @cached_property
    def conversation(self) -> Conversation:
        """The question with the messages around it."""
        system = tuple(each.content for each in self.said if each.role == "system")
        said = tuple(each for each in self.said if each.role != "system")
        place = max((k for k, each in enumerate(said) if each.role == "user"), default=0)
        return Conversation(system, said[:place], said[place].content, said[place + 1 :])

    @property
    def as_json(self) -> bool:
        """True if the answer's text has to be JSON."""
        return self.response_format is not None and self.response_format.type != "text"

    @cached_property
    def form(self) -> str | None:
        """JSON object to add to the bodies of acting nodes' requests, or None for plain text.

        With a form, the answer is JSON or may call tools. The task's stop sequences then don't
        apply, and votes compare answers by form.
        """
        names = {"tools", "tool_choice", "parallel_tool_calls"}
        names |= {"response_format"} if self.as_json else set()
        wanted = self.model_dump(include=names, exclude_unset=True)
        return json.dumps(wanted, ensure_ascii=False) if wanted else None

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
        if not (advises and self.form):
            return (*before, last)
        advice = ADVICE.format(form=self.form)
        if last.role != "user" or last.whole is not None:
            return (*before, last, Message("user", advice))
        return (*before, replace(last, content=f"{last.content}\n\n{advice}"))


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

        With tools, this text has two parts (see `most_frequent`): the names of the called tools,
        "" for an answer without calls, and the calls or the answer.
        """
        if not self.asked.tools:
            return normal_json(text)
        if (calls := calls_in(text)) is not None:
            return "\x1f".join(calls) if all(map(self._fits, json.loads(calls[1]))) else None
        form = normal_json(text) if self.asked.as_json else self.inner.extract(text)
        return f"\x1f{text.strip() if form is None else form}"

    def _fits(self, call: Mapping[str, Any]) -> bool:
        """Return True if a call's tool exists and its arguments are an object, or empty."""
        return call["name"] in self._tools and isinstance(call["arguments"] or {}, dict)


def actors(graph: CollaborationGraph) -> dict[int, bool]:
    """Return the nodes whose answer can become the graph's answer unchanged (True), and the nodes
    that select among such answers (False).
    """
    acts: dict[int, bool] = {}
    asked = [graph.sink]
    while asked:
        i = asked.pop()
        if i not in acts:
            node = graph.node(i)
            role = get_role(node.role)
            acts[i] = role.calls_model and role.read is None
            asked += graph.stages[i][0] if node.gate else ()
            asked += () if acts[i] else graph.reads[i]
    return acts


MAX_BODY_BYTES = 2**20
"""Maximum size of a request's body in bytes: some 200,000 tokens of text."""


async def read(request: Request, parse: Callable[[_Object], T]) -> T:
    """Return the parsed body of a request, a JSON object.

    Raises ApiError 415 if the body isn't declared as JSON, 413 if it is longer than allowed, or
    400, naming the first invalid parameter, if it isn't valid.
    """
    form = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if form != "application/json":
        raise ApiError(415, f"expected Content-Type application/json, found {form or 'none'}")
    most = f"expected a body of at most {MAX_BODY_BYTES} bytes"
    too_large = ApiError(413, most, code="request_too_large")
    if int(request.headers.get("content-length", 0)) > MAX_BODY_BYTES:
        raise too_large  # reject it early: a client that waits for 100 Continue then sends no body
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise too_large
    expected = "expected a JSON object as the request's body"
    try:
        data = from_json(bytes(body), allow_inf_nan=False)
        if not isinstance(data, dict):
            raise ApiError(400, f"{expected}, found {type(data).__name__}")
        return parse(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = [str(name) for name in first["loc"]]
        if where == ["messages"] and request.url.path.endswith("/responses"):
            where = ["input"]
        message = f"{'.'.join(where)}: {first['msg'].removeprefix('Value error, ')}"
        raise ApiError(400, message, where[0]) from None
    except ValueError:  # also raised for deep nesting or invalid UTF-8
        raise ApiError(400, f"{expected}, but it is not JSON") from None
