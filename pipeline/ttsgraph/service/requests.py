"""Parsing of clients' requests, which turns a conversation into a question for a graph.

The user's last message is the question; docs/serve.md describes how the other messages are used.
Parameters without effect are ignored, and the reply names them. Unsupported parameters that would
change the meaning of the answer are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    StrictBool,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from ttsgraph.deployment.bundle import Effort
from ttsgraph.models.actions import CALLS
from ttsgraph.models.client import Message, estimate_tokens
from ttsgraph.service.errors import ApiError
from ttsgraph.service.forms import JSON_ADVICE, TOOLS_ADVICE, Form, dumped

_Object = dict[str, Any]
Body = TypeVar("Body", bound=BaseModel)

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

REFUSED: dict[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "web_search_options": (),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), ()),
    **dict.fromkeys(
        ("guided_decoding", "structured_outputs", "json_schema", "response_schema"), ()
    ),
    **dict.fromkeys(("grammar", "format", "system"), ("",)),
    "documents": ([],),
    "background": (False,),
    **dict.fromkeys(_LOOKED_UP, ()),
    "truncation": ("disabled", "auto"),
    "context_management": ([],),
    **dict.fromkeys(("moderation", "image", "audio"), ()),
}
"""Map from each rejected parameter to the values, besides null, that request nothing and are
therefore accepted.
"""

CHARACTERS, MOST_CHARACTERS = 6, 30
"""Characters per token: the estimate for very long text (CHARACTERS), and the number above which
tokens are not counted (MOST_CHARACTERS). The latter is larger because blanks are not tokens.
"""

_TEXTS = {**dict.fromkeys(("text", "input_text", "output_text"), "text"), "refusal": "refusal"}
"""Map from the type of a text part, in chat or /v1/responses, to the name of its text field."""


def _text_of(content: Any) -> str | None:
    """Return a message's content, given as a string or as text parts, as one string.

    Raises ValueError for other content.
    """
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise ValueError("expected text, or a list of text parts")
    texts = [part.get(_TEXTS.get(str(part.get("type")))) for part in content]
    for part, text in zip(content, texts, strict=True):
        if not isinstance(text, str):
            found = str(part.get("type"))[:40]
            raise ValueError(
                f"expected text parts, each with its text, found a part of type {found!r}"
            )
    return "".join(texts)


class _ChatMessage(BaseModel):
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

    def plain(self, raw: _Object) -> Message:
        """Return the message as text.

        A message with tool calls or a tool's result also keeps its JSON (`whole`), in which the
        content is one string.
        """
        role = "system" if self.role == "developer" else self.role
        about_tools = role == "tool" or (role == "assistant" and self.tool_calls)
        whole = dumped(raw | {"content": self.content}) if about_tools else None
        return Message(role, self.content or "", whole)


Text = Annotated[str, Field(min_length=1)]


class _Function(BaseModel):
    name: Text
    parameters: Any = None


class _Tool(BaseModel):
    type: Literal["function"]
    function: _Function


class _Output(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Object | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> _Output:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("expected `json_schema`, found none")
        return self


class _StreamOptions(BaseModel):
    include_usage: StrictBool | None = False


def _stops(stop: Any) -> Any:
    stops = [stop] if isinstance(stop, str) else stop
    return [each for each in stops if each != ""] if isinstance(stops, list) else stops


Limit = Annotated[PositiveInt | None, BeforeValidator(lambda value: None if value == -1 else value)]
"""Maximum number of tokens; -1, which many clients send, means no limit."""


class ChatBody(BaseModel):
    """Body of a chat request, with the parameters that have an effect."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[_ChatMessage] = Field(min_length=1)
    stream: StrictBool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: Limit = None
    max_completion_tokens: Limit = None
    ttsgraph_trace: StrictBool | None = False
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", None] = (
        None
    )
    stop: Annotated[list[Text] | None, Field(max_length=16), BeforeValidator(_stops)] = None
    tools: list[_Tool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    response_format: _Output | None = None
    n: Annotated[int | None, Field(ge=1, le=128)] = None
    logprobs: StrictBool | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=20)] = None

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens of the answer, or None for no limit."""
        return min(filter(None, (self.max_tokens, self.max_completion_tokens)), default=None)

    @property
    def effort(self) -> Effort | None:
        """Effort of the requested rung, or None if the request has none."""
        return _EFFORTS.get(self.reasoning_effort)

    def form(self, raw: Mapping[str, Any]) -> Form:
        """Return the requested form; `raw` is the body as the client sent it.

        Raises ApiError if tool_choice needs tools, but the request has none.
        """
        tools = self.tools or []
        as_json = self.response_format is not None and self.response_format.type != "text"
        if not tools and self.tool_choice not in (None, "none", "auto"):
            raise ApiError(
                400, "tool_choice: expected tools to choose from, found none", "tool_choice"
            )
        wanted: _Object = {"tools": raw["tools"]} if tools else {}
        wanted |= _some(raw, "tool_choice", "parallel_tool_calls") if tools else {}
        wanted |= {"response_format": raw["response_format"]} if as_json else {}
        wanted |= {"n": self.n} if self.n and self.n > 1 else {}
        if self.logprobs:
            more = {} if self.top_logprobs is None else {"top_logprobs": self.top_logprobs}
            wanted |= {"logprobs": True, **more}
        advice = ""
        if tools:
            advice = TOOLS_ADVICE.format(tools="\n".join(map(dumped, raw["tools"])))
        elif as_json:
            schema = (raw["response_format"].get("json_schema") or {}).get("schema")
            shape = f" of this schema:\n{dumped(schema)}\n" if schema else ","
            advice = JSON_ADVICE.format(schema=shape)
        return Form(
            parameters=dumped(wanted) if wanted else None,
            stop=tuple(self.stop or ()),
            tools=bool(tools),
            as_json=as_json,
            choices=self.n or 1,
            advice=advice,
            schemas={t.function.name: dumped(t.function.parameters or {}) for t in tools},
        )


_EFFORTS: dict[str | None, Effort] = {
    **dict.fromkeys(("none", "minimal", "low"), "low"),
    "medium": "medium",
    **dict.fromkeys(("high", "xhigh", "max"), "high"),
}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Question with the requested form of its answer and the conversation around it.

    `system` and `history` precede the question; `turns` (tool calls and results) follow it.
    `ignored` names the parameters without effect. `echo` holds parameters that the reply repeats.
    `names` maps names of chat parameters to the client's names, if they differ.
    """

    body: ChatBody
    question: str
    system: tuple[str, ...]
    history: tuple[Message, ...]
    turns: tuple[Message, ...]
    ignored: tuple[str, ...]
    form: Form
    echo: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def ignoring(self, name: str) -> ChatRequest:
        """Return the request with one more ignored parameter, given by its chat name."""
        return replace(self, ignored=(*self.ignored, self.names.get(name, name)))


def read_object(raw: bytes) -> _Object:
    """Return the JSON object in a body. Raises ApiError if the body is anything else."""
    expected = "expected a JSON object as the request's body"
    try:
        data = from_json(raw, allow_inf_nan=False)
    except ValueError:  # also raised for deep nesting or invalid UTF-8
        raise ApiError(400, f"{expected}, but it is not JSON") from None
    if not isinstance(data, dict):
        raise ApiError(400, f"{expected}, found {type(data).__name__}")
    return data


def validated(kind: type[Body], data: _Object) -> Body:
    """Return a body's parameters. Raises ApiError naming the first invalid one, if any."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, first["loc"])) or "the request's body"
        param = str(first["loc"][0]) if first["loc"] else None
        message = f"{path}: {first['msg'].removeprefix('Value error, ')}"
        raise ApiError(400, message, param) from None


def chat_request(data: _Object, max_input_tokens: int, strict: bool = False) -> ChatRequest:
    """Return the request that a body describes.

    Raises ApiError naming the first invalid parameter, if there is one. With `strict`, unknown
    parameters are invalid.
    """
    body = validated(ChatBody, data)
    form = body.form(data)
    others = body.model_extra or {}
    for name, nothing in REFUSED.items():
        if (value := others.get(name)) is not None and value not in nothing:
            instead = ": send the whole conversation instead" if name in _LOOKED_UP else ""
            said = f"{name} is not supported by this server{instead}"
            raise ApiError(400, said, name, "unsupported_parameter")
    ignored = {name for name, value in others.items() if value is not None} - set(REFUSED)
    if strict and (unknown := sorted(ignored - OPENAIS)):
        raise ApiError(400, f"unknown parameter: {unknown[0]!r}", unknown[0], "unknown_parameter")
    given = zip(body.messages, data["messages"], strict=True)
    messages = [message.plain(raw) for message, raw in given]
    last = max((k for k, message in enumerate(messages) if message.role == "user"), default=None)
    ends = messages[-1].role in ("user", "tool")
    if last is None or not ends or not messages[last].content.strip():
        said = "expected the last message to be the user's question, as text, or the result of a"
        raise ApiError(400, f"{said} tool", "messages")
    parts = [message.whole or message.content for message in messages]
    text = "\n".join([*parts, form.parameters or ""])
    # Counting takes 100 ms per megabyte, so tokens are only estimated if text is far too long.
    counted = len(text) < MOST_CHARACTERS * max_input_tokens
    found = estimate_tokens(text) if counted else len(text) // CHARACTERS
    if found > max_input_tokens:
        said = f"expected messages of at most {max_input_tokens} tokens in total, found about"
        raise ApiError(400, f"{said} {found}", "messages", "context_length_exceeded")
    return ChatRequest(
        body,
        messages[last].content,
        system=tuple(message.content for message in messages if message.role == "system"),
        history=tuple(message for message in messages[:last] if message.role != "system"),
        turns=tuple(message for message in messages[last + 1 :] if message.role != "system"),
        ignored=tuple(sorted(ignored)),
        form=form,
        names={} if body.max_tokens else {"max_tokens": "max_completion_tokens"},
    )


_CHAT_ALONE = ("messages", "response_format", "max_tokens", "n", "stop")
_LOGPROBS = "message.output_text.logprobs"
_PARAMS = {
    "messages": "input",
    "response_format": "text",
    "max_tokens": "max_output_tokens",
    "logprobs": "include",
    "reasoning_effort": "reasoning",
}
"""Map from names of chat parameters to their names in /v1/responses, if these differ."""

_ECHOED = {
    *("instructions", "metadata", "max_output_tokens", "parallel_tool_calls", "reasoning"),
    *("temperature", "text", "tool_choice", "tools", "top_p", "truncation"),
}
"""Parameters of a request to /v1/responses that the reply repeats."""


class _ItemsBody(BaseModel):
    """Parameters of /v1/responses that chat requests lack or name differently."""

    model_config = ConfigDict(extra="allow")

    input: str | list[_Object]
    instructions: str = ""
    tools: list[_Object] = []
    tool_choice: str | _Object | None = None
    max_output_tokens: Any = None
    reasoning: _Object = {}
    text: _Object = {}
    include: list[str] = []
    top_logprobs: Any = None


def response_request(data: _Object, max_input_tokens: int, strict: bool = False) -> ChatRequest:
    """Convert a body of /v1/responses to the equivalent chat request.

    Raises ApiError naming the first invalid parameter, if there is one. No replies are stored, so
    parameters that need stored replies (background, previous_response_id, conversation) are
    invalid. Tools that don't run on the client are invalid, too.
    """
    data = {name: value for name, value in data.items() if value is not None}
    for name in _CHAT_ALONE:
        if name in data:
            raise ApiError(400, f"unknown parameter: {name!r}", name, "unknown_parameter")
    body = validated(_ItemsBody, data)
    system = [{"role": "system", "content": body.instructions}] if body.instructions else []
    chat = {
        **(body.model_extra or {}),
        "messages": [*system, *_messages(body.input)],
        "tools": [_function(tool) for tool in body.tools] or None,
        "tool_choice": body.tool_choice,
        "max_tokens": body.max_output_tokens,
        "reasoning_effort": body.reasoning.get("effort"),
        "response_format": body.text.get("format"),
    }
    if isinstance(choice := body.tool_choice, dict):
        if choice.get("type") != "function" or not isinstance(choice.get("name"), str):
            message = "tool_choice: expected 'none', 'auto', 'required' or a named function"
            raise ApiError(400, message, "tool_choice", "unsupported_parameter")
        chat["tool_choice"] = _function(choice)
    output = chat["response_format"]
    if isinstance(output, dict) and output.get("type") == "json_schema":
        schema = _some(output, "name", "description", "schema", "strict")
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    if _LOGPROBS in body.include:
        chat |= {"logprobs": True, "top_logprobs": body.top_logprobs}
    try:
        asked = chat_request(chat, max_input_tokens, strict)
        return replace(asked, echo=_some(data, *sorted(_ECHOED)), names=_PARAMS)
    except ApiError as error:
        error.param = _PARAMS.get(error.param or "", error.param)
        raise


def _some(data: Mapping[str, Any], *names: str) -> _Object:
    return {name: data[name] for name in names if data.get(name) is not None}


def _function(tool: _Object) -> _Object:
    """Return a function tool, or the choice of a function, in chat format."""
    function = _some(tool, "name", "description", "parameters", "strict")
    return {"type": tool.get("type"), "function": function}


def _messages(items: str | list[_Object]) -> list[_Object]:
    """Return input items as chat messages; calls are part of the assistant message before them."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
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
