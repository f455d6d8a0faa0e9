"""What a client may ask: the request's shape, and how a conversation becomes a question to a graph.

The user's last message is the question, which every node is given; docs/serve.md says what becomes
of the others and of each parameter. Those that give the answer another form (tools,
response_format, n, stop, log probabilities) are read in `forms`; those for which there is nothing
here (audio, ...) are refused, unless they ask for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from ttsgraph.agent.context import estimate_tokens
from ttsgraph.deployment.ladder import Effort
from ttsgraph.models.client import Message
from ttsgraph.service.errors import ApiError
from ttsgraph.service.forms import Form, FormedTask, FormParameters
from ttsgraph.tasks.base import Task
from ttsgraph.tasks.prompts import Prompt

IGNORED = {
    *("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "verbosity"),
    *("prediction", "user", "metadata", "store", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "service_tier"),
}
"""Parameters without effect: sampling is the version's, and nothing is stored."""

REFUSED: dict[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
}
"""Parameters that are refused, and the values that ask for nothing, which are not. None is always
one.
"""


def _text_of(content: Any) -> str | None:
    """A message's content, given as text or as text parts."""
    if content is None:
        return None
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ValueError("expected text, or a list of text parts")
    for part in parts:
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ValueError(f"expected parts of type text, found {str(part.get('type'))[:40]!r}")
    return "".join(part["text"] for part in parts)


class _ChatMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str | None, BeforeValidator(_text_of)] = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> _ChatMessage:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError("expected content")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("expected the tool_call_id of the call that this is the result of")
        return self

    def plain(self, raw: dict[str, Any]) -> Message:
        """The message, whole as it came where it is about tools."""
        role = "system" if self.role == "developer" else self.role
        whole = None
        if role == "tool" or (role == "assistant" and self.tool_calls):
            whole = json.dumps(raw, ensure_ascii=False)
        return Message(role, self.content or "", whole)


class _StreamOptions(BaseModel):
    include_usage: bool = False


class _Body(FormParameters):
    model: str
    messages: list[_ChatMessage] = Field(min_length=1)
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    ttsgraph_trace: bool | None = False
    timeout_s: PositiveFloat | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


_EFFORTS: dict[str | None, Effort] = {
    **dict.fromkeys(("none", "minimal", "low"), "low"),
    "medium": "medium",
    **dict.fromkeys(("high", "xhigh"), "high"),
}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question: to which model, with what before it, and in which form the answer goes back;
    within `timeout_s` seconds, if given, with what there is by then. `turns` are those after the
    question: calls of tools, and their results; `echo` is what the answer repeats of the request.
    """

    model: str
    question: str
    system: tuple[str, ...] = ()
    history: tuple[Message, ...] = ()
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    trace: bool = False
    ignored: tuple[str, ...] = ()
    timeout_s: float | None = None
    turns: tuple[Message, ...] = ()
    form: Form | None = None
    echo: Mapping[str, Any] | None = None
    effort: Effort | None = None

    def task(self, task: Task) -> Task:
        """The version's task, with a way to count answers of this form where there is one."""
        if self.form is None or not self.form.structured:
            return task
        return FormedTask(task, self.form)

    def prompt(self, prompt: Prompt, has_place: bool) -> Prompt:
        """The version's prompt with the conversation in it, if there is one. Raises ApiError where
        it has no place.
        """
        if not self.system and not self.history and not self.turns:
            return prompt
        if not has_place:
            said = "this model answers a single question: expected one user message and no other"
            raise ApiError(400, said, "messages")
        return replace(prompt, system=self.system, history=self.history)


def read_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that a body is. Raises ApiError for anything else."""
    expected = "expected a JSON object as the request's body"
    try:
        data = from_json(raw, allow_inf_nan=False)
    except ValueError:  # too deep, or half a character, too
        raise ApiError(400, f"{expected}, but it is not JSON") from None
    if not isinstance(data, dict):
        raise ApiError(400, f"{expected}, found {type(data).__name__}")
    return data


def said_of(error: ValidationError) -> ApiError:
    """The first of what is wrong with a body's parameters."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"]) or "the request's body"
    param = str(first["loc"][0]) if first["loc"] else None
    return ApiError(400, f"{path}: {first['msg'].removeprefix('Value error, ')}", param)


def chat_request(data: dict[str, Any], max_input_tokens: int) -> ChatRequest:
    """Read a request's body. Raises ApiError that names the first parameter that can't be used."""
    try:
        body = _Body.model_validate(data)
    except ValidationError as error:
        raise said_of(error) from None
    form = body.form(data)
    ignored = _check_others(body.model_extra or {})
    given = zip(body.messages, data["messages"], strict=True)
    messages = [message.plain(raw) for message, raw in given]
    last = _check_messages(messages, form, max_input_tokens)
    limits = [limit for limit in (body.max_tokens, body.max_completion_tokens) if limit is not None]
    return ChatRequest(
        body.model,
        messages[last].content,
        tuple(message.content for message in messages if message.role == "system"),
        tuple(message for message in messages[:last] if message.role != "system"),
        bool(body.stream),
        body.stream_options is not None and body.stream_options.include_usage,
        min(limits, default=None),
        bool(body.ttsgraph_trace),
        ignored,
        body.timeout_s,
        tuple(message for message in messages[last + 1 :] if message.role != "system"),
        form,
        effort=_EFFORTS.get(body.reasoning_effort),
    )


def refuse(data: Mapping[str, Any], refused: Mapping[str, tuple[Any, ...]], why: str) -> None:
    """Raises ApiError for the first of these parameters that asks for something."""
    for name, nothing in refused.items():
        if (value := data.get(name)) is not None and value not in nothing:
            raise ApiError(400, f"{name} {why}", name, "unsupported_parameter")


def _check_others(others: Mapping[str, Any]) -> tuple[str, ...]:
    """The parameters without effect. Raises ApiError for one that is refused or unknown."""
    refuse(others, REFUSED, "is not supported by this server")
    if unknown := [name for name in others if name not in REFUSED and name not in IGNORED]:
        raise ApiError(400, f"unknown parameter: {unknown[0]!r}", unknown[0], "unknown_parameter")
    return tuple(sorted(name for name in IGNORED if others.get(name) is not None))


def _check_messages(messages: list[Message], form: Form | None, max_input_tokens: int) -> int:
    """The place of the question: the user's last message. Raises ApiError."""
    asked = [k for k, message in enumerate(messages) if message.role == "user"]
    ends = messages[-1].role in ("user", "tool")
    if not asked or not ends or not messages[asked[-1]].content.strip():
        said = "expected the last message to be the user's question, with text in it, or a tool's"
        raise ApiError(400, f"{said} result", "messages")
    parts = [message.whole or message.content for message in messages]
    text = "\n".join([*parts, (form and form.parameters) or ""])
    if (found := estimate_tokens(text)) > max_input_tokens:
        most = f"at most {max_input_tokens} tokens together"
        said = f"expected messages of {most}, found about {found}"
        raise ApiError(400, said, "messages", "context_length_exceeded")
    return asked[-1]
