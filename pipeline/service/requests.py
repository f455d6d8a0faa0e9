"""What a client may ask: the request's shape, and how a conversation becomes a question to a graph.

The last message has to be the user's: it is the question, which every node is given. What came
before it is shown to every node between the task's instruction and the question: system and
developer messages extend the instruction, user and assistant messages stand as they are. Few-shot
prompts are one text that a model continues and have no place for either; there, only a question
alone is taken.

A deployed version answers with the sampling it was evaluated with, so a client's sampling
parameters have no effect, and the answer names those that were sent (`ignored`). Only max_tokens
does: it can lower the limit of the last node's answer. Parameters that would give the answer
another form (tools, several choices, log probabilities, ...) are refused, unless they ask for
nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)

from ttsgraph.agent.context import estimate_tokens
from ttsgraph.models.client import Message
from ttsgraph.service.errors import ApiError
from ttsgraph.tasks.prompts import Prompt

IGNORED = {
    *(
        "temperature",
        "top_p",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "reasoning_effort",
        "verbosity",
        "prediction",
    ),
    *(
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
    ),
}
"""Parameters without effect: sampling is the version's, and nothing is stored."""

REFUSED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "stop": ([],),
    "web_search_options": (),
}
"""Parameters that are refused, and the values that ask for nothing, which are not. None is always
one.
"""


def _text_of(content: Any) -> str:
    """A message's content, given as text or as text parts."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ValueError("expected text, or a list of text parts")
    for part in parts:
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ValueError(f"expected parts of type text, found {str(part.get('type'))[:40]!r}")
    return "".join(part["text"] for part in parts)


class _ChatMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_text_of)]

    def plain(self) -> Message:
        return Message("system" if self.role == "developer" else self.role, self.content)


class _StreamOptions(BaseModel):
    include_usage: bool = False


class _Body(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    messages: list[_ChatMessage] = Field(min_length=1)
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    ttsgraph_trace: bool | None = False
    timeout_s: PositiveFloat | None = None


_BODY = TypeAdapter(_Body)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question: to which model, with what before it, and in which form the answer goes back;
    within `timeout_s` seconds, if given, with what there is by then.
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

    def prompt(self, prompt: Prompt, has_place: bool) -> Prompt | None:
        """The version's prompt with the conversation in it; None when there is none. Raises
        ApiError where it has no place.
        """
        if not self.system and not self.history:
            return None
        if not has_place:
            raise ApiError(
                400,
                "this model answers a single question: expected one user message and no other",
                "messages",
            )
        return replace(prompt, system=self.system, history=self.history)


def parse_chat(raw: bytes, max_input_tokens: int) -> ChatRequest:
    """Read a request's body. Raises ApiError that names the first parameter that can't be used."""
    try:
        data = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ApiError(
            400, "expected a JSON object as the request's body, but it is not JSON"
        ) from None
    if not isinstance(data, dict):
        raise ApiError(
            400, f"expected a JSON object as the request's body, found {type(data).__name__}"
        )
    try:
        body = _BODY.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"]) or "the request's body"
        param = str(first["loc"][0]) if first["loc"] else None
        raise ApiError(
            400, f"{path}: {first['msg'].removeprefix('Value error, ')}", param
        ) from None
    ignored = _check_others(body.model_extra or {})
    messages = [message.plain() for message in body.messages]
    _check_messages(messages, max_input_tokens)
    limits = [limit for limit in (body.max_tokens, body.max_completion_tokens) if limit is not None]
    return ChatRequest(
        body.model,
        messages[-1].content,
        tuple(message.content for message in messages if message.role == "system"),
        tuple(message for message in messages[:-1] if message.role != "system"),
        bool(body.stream),
        body.stream_options is not None and body.stream_options.include_usage,
        min(limits, default=None),
        bool(body.ttsgraph_trace),
        ignored,
        body.timeout_s,
    )


def _no_number(name: str) -> float:
    """NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(name)


def _check_others(others: dict[str, Any]) -> tuple[str, ...]:
    """The parameters without effect. Raises ApiError for one that is refused or unknown."""
    for name, value in others.items():
        if name in REFUSED:
            if value is not None and value not in REFUSED[name]:
                raise ApiError(
                    400, f"{name} is not supported by this server", name, "unsupported_parameter"
                )
        elif name not in IGNORED:
            raise ApiError(400, f"unknown parameter: {name!r}", name, "unknown_parameter")
    return tuple(
        sorted(name for name, value in others.items() if name in IGNORED and value is not None)
    )


def _check_messages(messages: list[Message], max_input_tokens: int) -> None:
    if messages[-1].role != "user" or not messages[-1].content.strip():
        raise ApiError(
            400, "expected the last message to be the user's question, with text in it", "messages"
        )
    text = "\n".join(message.content for message in messages)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ApiError(
            400, "expected messages in valid Unicode, found a lone surrogate", "messages"
        ) from None
    if (found := estimate_tokens(text)) > max_input_tokens:
        said = (
            f"expected messages of at most {max_input_tokens} tokens together, found about {found}"
        )
        raise ApiError(400, said, "messages", "context_length_exceeded")
