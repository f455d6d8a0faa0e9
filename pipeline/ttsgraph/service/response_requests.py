"""What a client may ask of /v1/responses: read as the chat request that says the same.

Nothing is kept here, so a conversation comes whole, in `input`; a reply that would be looked up
later (background, previous_response_id, conversation) is refused, and so are tools that run
elsewhere than with the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ttsgraph.service.errors import ApiError
from ttsgraph.service.requests import ChatRequest, chat_request, read_object

_REFUSED: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "truncation": ("disabled",),
    "context_management": ([],),
    "moderation": (),
    "image": (),
}
"""Parameters that are refused, and the values that ask for nothing. None is always one."""

_SAME = ("model", "stream", "tool_choice", "parallel_tool_calls", "timeout_s", "ttsgraph_trace")
"""Parameters that mean the same in a chat request."""

_ADDED = (
    *("input", "instructions", "tools", "text", "reasoning", "max_output_tokens", "include"),
    *("top_logprobs", "stream_options", "max_tool_calls", "prompt_cache_options"),
)
"""Parameters that are read or without effect here, and which a chat request does not have."""

_LOGPROBS = "message.output_text.logprobs"
_PARAMS = {
    "messages": "input",
    "response_format": "text",
    "max_tokens": "max_output_tokens",
    "logprobs": "include",
}
"""What a chat request's parameters are called here."""

_PARTS = ("input_text", "output_text", "text")
ECHOED = (
    *("instructions", "metadata", "max_output_tokens", "parallel_tool_calls", "reasoning"),
    *("temperature", "text", "tool_choice", "tools", "top_p", "truncation"),
)
"""What a response repeats of its request."""


def parse_response(raw: bytes, max_input_tokens: int) -> ChatRequest:
    """Read a request's body. Raises ApiError that names the first parameter that can't be used."""
    data = read_object(raw)
    for name, nothing in _REFUSED.items():
        if (value := data.get(name)) is not None and value not in nothing:
            said = f"{name} is not supported by this server: send the whole conversation in input"
            raise ApiError(400, said, name, "unsupported_parameter")
    known = (*_REFUSED, *_SAME, *_ADDED)
    chat = {name: value for name, value in data.items() if name in _SAME or name not in known}
    for name in ("messages", "response_format", "max_tokens", "n", "stop"):
        if name in data:
            raise ApiError(400, f"unknown parameter: {name!r}", name, "unknown_parameter")
    chat["messages"] = [
        *_system(data.get("instructions")),
        *_messages(_expect(data.get("input"), str | list, "input", "a text or a list of items")),
    ]
    if tools := _expect(data.get("tools") or [], list, "tools", "a list"):
        chat["tools"] = [_tool(tool) for tool in tools]
    if isinstance(choice := data.get("tool_choice"), Mapping):
        chat["tool_choice"] = {"type": "function", "function": {"name": _named(choice)}}
    if (limit := data.get("max_output_tokens")) is not None:
        chat["max_tokens"] = limit
    if effort := _mapping(data.get("reasoning"), "reasoning").get("effort"):
        chat["reasoning_effort"] = effort
    if (output := _mapping(data.get("text"), "text").get("format")) is not None:
        chat["response_format"] = _format(_mapping(output, "text"))
    if _LOGPROBS in (data.get("include") or []):
        chat |= {"logprobs": True, "top_logprobs": data.get("top_logprobs")}
    echo = {name: data[name] for name in ECHOED if data.get(name) is not None}
    try:
        return replace(chat_request(chat, max_input_tokens), echo=echo)
    except ApiError as error:
        error.param = _PARAMS.get(error.param or "", error.param)
        raise


def _expect(value: Any, kind: Any, name: str, words: str) -> Any:
    if not isinstance(value, kind):
        raise ApiError(400, f"{name}: expected {words}", name)
    return value


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _expect({} if value is None else value, Mapping, name, "an object")
    return found


def _system(instructions: Any) -> list[dict[str, Any]]:
    if instructions is None:
        return []
    _expect(instructions, str, "instructions", "a text")
    return [{"role": "system", "content": instructions}]


def _messages(items: Any) -> list[dict[str, Any]]:
    """Items as the messages of a chat: calls stand in the assistant's message that made them."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    found: list[dict[str, Any]] = []
    for item in items:
        kind = _mapping(item, "input").get("type") or "message"
        if kind == "message":
            found.append({"role": item.get("role"), "content": _text(item.get("content"))})
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant", "content": None})
            found[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            result = {"role": "tool", "tool_call_id": item.get("call_id")}
            found.append(result | {"content": _text(item.get("output"))})
        elif kind != "reasoning":
            raise ApiError(400, f"input: items of type {str(kind)[:40]!r} are not taken", "input")
    return found


def _text(content: Any) -> Any:
    """A content of typed parts as one text; what is none is left for the chat request to name."""
    if not isinstance(content, list):
        return content
    for part in content:
        kind = _mapping(part, "input").get("type")
        if kind not in _PARTS or not isinstance(part.get("text"), str):
            raise ApiError(400, f"input: parts of type {str(kind)[:40]!r} are not taken", "input")
    return "".join(part["text"] for part in content)


def _tool(tool: Any) -> dict[str, Any]:
    if _mapping(tool, "tools").get("type") != "function":
        said = "tools: expected tools of type function, which the client runs itself"
        raise ApiError(400, said, "tools", "unsupported_parameter")
    names = ("name", "description", "parameters", "strict")
    function = {name: tool[name] for name in names if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _named(choice: Mapping[str, Any]) -> str:
    if choice.get("type") != "function" or not isinstance(choice.get("name"), str):
        said = "tool_choice: expected none, auto, required or a function by its name"
        raise ApiError(400, said, "tool_choice", "unsupported_parameter")
    return str(choice["name"])


def _format(output: Mapping[str, Any]) -> dict[str, Any]:
    if output.get("type") != "json_schema":
        return dict(output)
    names = ("name", "description", "schema", "strict")
    schema = {name: output[name] for name in names if output.get(name) is not None}
    return {"type": "json_schema", "json_schema": schema}
