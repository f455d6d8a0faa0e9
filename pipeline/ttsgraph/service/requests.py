"""Parsing of clients' requests, which turns a conversation into a question for a graph.

The user's last message is the question; docs/serve.md describes how the other messages are used.
Parameters without effect are ignored, and the reply names them. Unsupported parameters that would
change the meaning of the answer are rejected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PositiveInt,
    PrivateAttr,
    StrictBool,
    ValidationInfo,
    model_validator,
)

from ttsgraph.deployment.bundle import Effort
from ttsgraph.models.actions import CALLS
from ttsgraph.models.client import Message, estimate_tokens
from ttsgraph.service.errors import ApiError
from ttsgraph.settings.service import ServiceSettings

_Object = dict[str, Any]

TOOLS_ADVICE = (
    "Another model gives the answer and reads yours as advice. It can call these functions, which "
    "you can't:\n{tools}\nSay in words which of them to call with which arguments, or what to "
    "answer without."
)
"""Instruction to advising nodes if the answer may be a tool call."""

JSON_ADVICE = (
    "Another model gives the answer as JSON{schema} and reads yours as advice. "
    "Say in words what it should hold."
)
"""Instruction to advising nodes if the answer is JSON."""

OPENAIS = {
    *("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "verbosity"),
    *("prediction", "user", "metadata", "store", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "prompt_cache_options", "service_tier", "logit_bias"),
    *("max_tool_calls",),
}
"""OpenAI's parameters that have no effect here: the deployed version determines the sampling, and
no conversation is stored. Unknown parameters are ignored too, or rejected by a strict server.
"""

_LOOKED_UP = ("previous_response_id", "conversation", "prompt")
"""Parameters that refer to stored data of an earlier request. This server stores none."""

_NEVER = (
    *("web_search_options", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    *("guided_decoding", "structured_outputs", "json_schema", "response_schema"),
    *("moderation", "image", "audio"),
)
REFUSED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys((*_LOOKED_UP, *_NEVER), ()),
    **dict.fromkeys(("functions", "documents", "context_management"), ([],)),
    **dict.fromkeys(("grammar", "format", "system"), ("",)),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "background": (False,),
    "truncation": ("disabled", "auto"),
}
"""Map from each parameter that would change the answer's meaning, and is rejected, to its values
that, besides null, request nothing and are accepted.
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

_TEXTS = {**dict.fromkeys(("text", "input_text", "output_text"), "text"), "refusal": "refusal"}
"""Map from the type of a text part, in chat or /v1/responses, to the name of its text field."""


def dumped(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def _text_of(content: Any) -> str | None:
    """Return a message's content, given as a string or as text parts, as one string.

    Raises ValueError for other content.
    """
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError("expected text, or a list of text parts")
    texts: list[str] = []
    for part in content:
        kind = str(part.get("type")) if isinstance(part, dict) else type(part).__name__
        text = part.get(_TEXTS.get(kind)) if isinstance(part, dict) else None
        if not isinstance(text, str):
            why = f"expected text parts, each with its text, found a part of type {kind[:40]!r}"
            raise ValueError(why)
        texts.append(text)
    return "".join(texts)


class _AsSent(BaseModel):
    """Part of a request that also keeps its data as the client sent it."""

    _sent: _Object = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, data: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        found = check(data)
        found._sent = data
        return found

    @property
    def sent(self) -> _Object:
        """The data as the client sent it."""
        return self._sent


class _ChatMessage(_AsSent):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str | None, BeforeValidator(_text_of)] = None
    tool_calls: list[_Object] | None = None
    tool_call_id: str | None = None
    images: Any = None
    audio: Any = None

    @model_validator(mode="after")
    def _complete(self) -> _ChatMessage:
        if self.images or self.audio:
            raise ValueError("expected text only, found images or audio")
        if self.content is None and self.role != "assistant":
            raise ValueError("expected `content`, found none")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("expected the `tool_call_id` of the call that returned this result")
        return self

    @property
    def plain(self) -> Message:
        """The message as text.

        A message with tool calls or a tool's result also keeps its JSON (`whole`), in which the
        content is one string.
        """
        role = "system" if self.role == "developer" else self.role
        about_tools = role == "tool" or (role == "assistant" and self.tool_calls)
        whole = dumped(self._sent | {"content": self.content}) if about_tools else None
        return Message(role, self.content or "", whole)


Text = Annotated[str, Field(min_length=1)]


class _Function(BaseModel):
    name: Text
    parameters: Any = None


class _Tool(_AsSent):
    type: Literal["function"]
    function: _Function


class _Output(_AsSent):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Object | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> _Output:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("expected `json_schema`, found none")
        return self


class _StreamOptions(BaseModel):
    include_usage: StrictBool | None = False


def _effort(effort: Any) -> Any:
    return _EFFORTS.get(str(effort), effort)


def _stops(stop: Any) -> Any:
    stops = [stop] if isinstance(stop, str) else stop
    return [each for each in stops if each != ""] if isinstance(stops, list) else stops


Limit = Annotated[PositiveInt | None, BeforeValidator(lambda value: None if value == -1 else value)]
"""Maximum number of tokens; -1, which many clients send, means no limit."""


class Conversation(NamedTuple):
    """Question of a request; `system` and `history` precede it, and tool `turns` follow it."""

    system: tuple[str, ...]
    history: tuple[Message, ...]
    question: str
    turns: tuple[Message, ...]


class ChatRequest(_AsSent):
    """Chat request; its fields are the parameters that have an effect.

    It is validated in the context of the server's settings.
    """

    refused: ClassVar = REFUSED

    model: str
    messages: list[_ChatMessage] = Field(min_length=1)
    stream: StrictBool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: Limit = None
    max_completion_tokens: Limit = None
    ttsgraph_trace: StrictBool | None = False
    reasoning_effort: Annotated[Effort | None, BeforeValidator(_effort)] = None
    stop: Annotated[list[Text] | None, Field(max_length=16), BeforeValidator(_stops)] = None
    tools: list[_Tool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    response_format: _Output | None = None
    n: Annotated[int | None, Field(ge=1, le=128)] = None
    logprobs: StrictBool | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=20)] = None

    @model_validator(mode="after")
    def _supported(self, info: ValidationInfo[ServiceSettings]) -> Self:
        if not self.tools and self.tool_choice not in (None, "none", "auto"):
            why = "tool_choice: expected tools to choose from, found none"
            raise ApiError(400, why, "tool_choice")
        for name, nothing in self.refused.items():
            if (value := self._sent.get(name)) is not None and value not in nothing:
                instead = ": send the whole conversation instead" if name in _LOOKED_UP else ""
                why = f"{name} is not supported by this server{instead}"
                raise ApiError(400, why, name, "unsupported_parameter")
        unknown = sorted(set(self.ignored) - OPENAIS)
        if unknown and info.context.strict:
            name = unknown[0]
            raise ApiError(400, f"unknown parameter: {name!r}", name, "unknown_parameter")
        return self

    @model_validator(mode="after")
    def _asks(self) -> Self:
        roles = [message.role for message in self.said]
        ends = "user" in roles and roles[-1] in ("user", "tool")
        if not ends or not self.conversation.question.strip():
            why = "expected the last message to be the user's question, as text, or the result of"
            raise ApiError(400, f"{why} a tool", self.named("messages"))
        return self

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo[ServiceSettings]) -> Self:
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
        return str(cls.model_fields[field].validation_alias or field)

    @cached_property
    def said(self) -> Sequence[Message]:
        """The messages as text."""
        return [message.plain for message in self.messages]

    @cached_property
    def conversation(self) -> Conversation:
        """The question with the messages around it."""
        said = self.said
        place = max((k for k, each in enumerate(said) if each.role == "user"), default=0)
        return Conversation(
            tuple(each.content for each in said if each.role == "system"),
            tuple(each for each in said[:place] if each.role != "system"),
            said[place].content,
            tuple(each for each in said[place + 1 :] if each.role != "system"),
        )

    @property
    def ignored(self) -> list[str]:
        """Names of the parameters that no graph uses."""
        known = {*map(self.named, type(self).model_fields), *self.refused}
        return sorted(name for name in some(self._sent, *self._sent) if name not in known)

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
        output = self.response_format
        wanted = {
            "tools": [tool.sent for tool in self.tools or ()] or None,
            "tool_choice": self.tool_choice if self.tools else None,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
            "response_format": output.sent if output and self.as_json else None,
            "n": None if self.n == 1 else self.n,
            "logprobs": self.logprobs or None,
            "top_logprobs": self.top_logprobs if self.logprobs else None,
        }
        wanted = some(wanted, *wanted)
        return dumped(wanted) if wanted else None

    @cached_property
    def advice(self) -> str:
        """Instruction to advising nodes, or "" if the answer is plain text."""
        if self.tools:
            return TOOLS_ADVICE.format(tools="\n".join(dumped(tool.sent) for tool in self.tools))
        if self.response_format is None or not self.as_json:
            return ""
        schema = (self.response_format.json_schema or {}).get("schema")
        return JSON_ADVICE.format(schema=f" of this schema:\n{dumped(schema)}\n" if schema else ",")

    @cached_property
    def schemas(self) -> Mapping[str, str]:
        """Map from each tool's name to the JSON schema of its arguments."""
        functions = [tool.function for tool in self.tools or ()]
        return {each.name: dumped(each.parameters or {}) for each in functions}


def some(data: Mapping[str, Any], *names: str) -> _Object:
    """Return the named items that are present and not None."""
    return {name: data[name] for name in names if data.get(name) is not None}


def _function(tool: _Object) -> _Object:
    """Return a function tool, or the choice of a function, in chat format."""
    function = some(tool, "name", "description", "parameters", "strict")
    return {"type": tool.get("type"), "function": function}


def _choice(choice: _Object) -> _Object:
    """Return the choice of a function in chat format. Raises ApiError for any other choice."""
    if choice.get("type") != "function" or not isinstance(choice.get("name"), str):
        why = "tool_choice: expected 'none', 'auto', 'required' or a named function"
        raise ApiError(400, why, "tool_choice", "unsupported_parameter")
    return _function(choice)


def _format(text: _Object) -> Any:
    """Return the format of a text in chat format."""
    output = text.get("format")
    if not isinstance(output, dict) or output.get("type") != "json_schema":
        return output
    schema = some(output, "name", "description", "schema", "strict")
    return {"type": "json_schema", "json_schema": schema}


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
            call["function"] = {"name": item.get("name"), "arguments": item.get("arguments")}
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


_LOGPROBS = "message.output_text.logprobs"


def _of(kind: type, form: Callable[[Any], Any]) -> BeforeValidator:
    """Return a validator that gives values of this kind another form, and keeps other values."""
    return BeforeValidator(lambda value: form(value) if isinstance(value, kind) else value)


_Items = Annotated[list[_ChatMessage], BeforeValidator(_messages)]
_Reasoning = Annotated[Effort | None, _of(dict, lambda given: _effort(given.get("effort")))]
_TextOptions = Annotated[_Output | None, _of(dict, _format)]
_Include = Annotated[StrictBool | None, _of(list, lambda given: _LOGPROBS in given)]


class ItemsRequest(ChatRequest):
    """Request to /v1/responses; these parameters have another name or form in chat requests.

    No replies are stored, so parameters that need stored replies (background,
    previous_response_id, conversation) are refused. Tools that don't run on the client are, too.
    """

    refused: ClassVar = REFUSED | dict.fromkeys(
        ("messages", "response_format", "max_tokens", "n", "stop"), ()
    )

    messages: _Items = Field(validation_alias="input", min_length=1)
    instructions: str | None = None
    tools: list[Annotated[_Tool, _of(dict, _function)]] | None = None
    tool_choice: Annotated[Any, _of(dict, _choice)] = None
    max_tokens: Limit = Field(None, validation_alias="max_output_tokens")
    reasoning_effort: _Reasoning = Field(None, validation_alias="reasoning")
    response_format: _TextOptions = Field(None, validation_alias="text")
    logprobs: _Include = Field(None, validation_alias="include")

    @cached_property
    def said(self) -> Sequence[Message]:
        """The instructions, if there are any, and the messages as text."""
        system = [Message("system", self.instructions)] if self.instructions else []
        return [*system, *(message.plain for message in self.messages)]
