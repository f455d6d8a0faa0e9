"""/v1/responses: read as the chat request that says the same, and answered as a message, or calls
of functions, whole or as server-sent events.

Nothing is kept here, so a conversation comes whole, in `input`; a reply that would be looked up
later (background, previous_response_id, conversation) is refused, and so are tools that run
elsewhere than with the client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ttsgraph.models.actions import CALLS
from ttsgraph.service.answering import ALIVE, Piece
from ttsgraph.service.errors import ApiError
from ttsgraph.service.requests import ChatRequest, chat_request, read_object, refuse
from ttsgraph.service.responses import COMMENT, Reply, dumped, finite
from ttsgraph.service.run import Served

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

_READ = {
    *("input", "instructions", "tools", "tool_choice", "text", "reasoning", "max_output_tokens"),
    *("include", "top_logprobs", "stream_options", "max_tool_calls", "prompt_cache_options"),
}
"""Parameters that are read or without effect here, and are not those of a chat request."""

_CHAT_ALONE = ("messages", "response_format", "max_tokens", "n", "stop")
_LOGPROBS = "message.output_text.logprobs"
_PARAMS = {
    "messages": "input",
    "response_format": "text",
    "max_tokens": "max_output_tokens",
    "logprobs": "include",
}
"""What a chat request's parameters are called here."""

_ECHOED = {
    *("instructions", "metadata", "max_output_tokens", "parallel_tool_calls", "reasoning"),
    *("temperature", "text", "tool_choice", "tools", "top_p", "truncation"),
}
"""What a response repeats of its request."""

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def parse_response(raw: bytes, max_input_tokens: int) -> ChatRequest:
    """Read a request's body. Raises ApiError that names the first parameter that can't be used."""
    data = {name: value for name, value in read_object(raw).items() if value is not None}
    why = "is not supported by this server: send the whole conversation in input"
    refuse(data, _REFUSED, why)
    for name in _CHAT_ALONE:
        if name in data:
            raise ApiError(400, f"unknown parameter: {name!r}", name, "unknown_parameter")
    chat = {
        name: value for name, value in data.items() if name not in _READ and name not in _REFUSED
    }
    system = _expect(data.get("instructions", ""), str, "instructions", "a text")
    items = _expect(data.get("input"), str | list, "input", "a text or a list of items")
    chat["messages"] = [{"role": "system", "content": system}] if system else []
    chat["messages"] += _messages(items)
    if tools := _expect(data.get("tools", []), list, "tools", "a list"):
        chat["tools"] = [_tool(tool) for tool in tools]
    if (choice := data.get("tool_choice")) is not None:
        chat["tool_choice"] = _choice(choice) if isinstance(choice, Mapping) else choice
    if (limit := data.get("max_output_tokens")) is not None:
        chat["max_tokens"] = limit
    chat["reasoning_effort"] = _object(data.get("reasoning", {}), "reasoning").get("effort")
    if (output := _object(data.get("text", {}), "text").get("format")) is not None:
        chat["response_format"] = _format(_object(output, "text"))
    if _LOGPROBS in data.get("include", []):
        chat |= {"logprobs": True, "top_logprobs": data.get("top_logprobs")}
    echo = {name: data[name] for name in _ECHOED if name in data}
    try:
        return replace(chat_request(chat, max_input_tokens), echo=echo)
    except ApiError as error:
        error.param = _PARAMS.get(error.param or "", error.param)
        raise


def _expect(value: Any, kind: Any, name: str, words: str) -> Any:
    if not isinstance(value, kind):
        raise ApiError(400, f"{name}: expected {words}", name)
    return value


def _object(value: Any, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _expect(value, Mapping, name, "an object")
    return found


def _messages(items: Any) -> list[dict[str, Any]]:
    """Items as the messages of a chat: calls stand in the assistant's message that made them."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    found: list[dict[str, Any]] = []
    for item in items:
        kind = _object(item, "input").get("type") or "message"
        if kind == "message":
            found.append({"role": item.get("role"), "content": _text(item.get("content"))})
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant", "content": None})
            found[-1].setdefault(CALLS, []).append(call)
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
        kind = _object(part, "input").get("type")
        known = kind in ("input_text", "output_text", "text")
        if not known or not isinstance(part.get("text"), str):
            raise ApiError(400, f"input: parts of type {str(kind)[:40]!r} are not taken", "input")
    return "".join(part["text"] for part in content)


def _some(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: data[name] for name in names if data.get(name) is not None}


def _tool(tool: Any) -> dict[str, Any]:
    if _object(tool, "tools").get("type") != "function":
        said = "tools: expected tools of type function, which the client runs itself"
        raise ApiError(400, said, "tools", "unsupported_parameter")
    function = _some(tool, "name", "description", "parameters", "strict")
    return {"type": "function", "function": function}


def _choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    if choice.get("type") != "function" or not isinstance(choice.get("name"), str):
        said = "tool_choice: expected none, auto, required or a function by its name"
        raise ApiError(400, said, "tool_choice", "unsupported_parameter")
    return {"type": "function", "function": {"name": choice["name"]}}


def _format(output: Mapping[str, Any]) -> dict[str, Any]:
    if output.get("type") != "json_schema":
        return dict(output)
    schema = _some(output, "name", "description", "schema", "strict")
    return {"type": "json_schema", "json_schema": schema}


@dataclass(frozen=True)
class ResponseReply(Reply):
    """How one request to /v1/responses is answered."""

    def whole(self, answer: Served) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        items = _Items(self.trace_id)
        for choice in self.answering.choices[:1]:
            items.add(choice["message"], choice.get("logprobs"))
        if not self.answering.choices:
            items.add({"content": answer.text or ""}, None)
        items.close()
        return finite(self._response(items, answer))

    async def events(self, pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
        """The answer's events; one that fails on the way ends with an error."""
        items = _Items(self.trace_id)
        number = 0

        def event(kind: str, data: Mapping[str, Any]) -> bytes:
            nonlocal number
            said = dumped({"type": kind, "sequence_number": number, **data})
            number += 1
            return f"event: {kind}\ndata: {said}\n\n".encode()

        begun = {"response": self._response(items, None)}
        yield event("response.created", begun)
        yield event("response.in_progress", begun)
        try:
            async for piece in pieces:
                if piece == ALIVE:
                    yield COMMENT
                    continue
                grown = {"delta": {"content": piece}} if isinstance(piece, str) else piece
                for kind, data in items.add(grown["delta"], grown.get("logprobs")):
                    yield event(kind, data)
            answer = await self.answering.task
        except Exception as error:  # a stream that has begun has no other place to say so
            told = (error if isinstance(error, ApiError) else ApiError(500)).body()["error"]
            yield event("error", {name: told[name] for name in ("code", "message", "param")})
            return
        for kind, data in items.close():
            yield event(kind, data)
        response = self._response(items, answer)
        yield event(f"response.{response['status']}", {"response": response})

    def _response(self, items: _Items, answer: Served | None) -> dict[str, Any]:
        response = self._frame | {
            "id": f"resp_{self.trace_id}",
            "object": "response",
            "created_at": self.created,
            "error": None,
            "incomplete_details": None,
            "status": "in_progress",
            "output": [dict(item) for item in items.done],
            "usage": None,
            "store": False,
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "text": {"format": {"type": "text"}},
            "metadata": {},
            "instructions": None,
            **(self.answering.asked.echo or {}),
        }
        del response["created"]  # which only a chat's answer has
        if answer is None:
            return response
        choices = self.answering.choices
        reason = choices[0]["finish_reason"] if choices else self.answering.finish_reason(answer)
        response["status"] = "completed"
        if (cut := _INCOMPLETE.get(reason)) is not None:
            response |= {"status": "incomplete", "incomplete_details": {"reason": cut}}
        return response | {"usage": self._usage(answer), "ttsgraph": self._origin(answer)}

    def _usage(self, answer: Served) -> dict[str, Any]:
        """Tokens of all calls of the graph."""
        used = super()._usage(answer)
        return {
            "input_tokens": used["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": used["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used["total_tokens"],
        }


Events = list[tuple[str, dict[str, Any]]]

_FIELDS = {"output_text": "text", "refusal": "refusal"}
"""Where a part of a message has its words."""


@dataclass
class _Items:
    """The items of a response as they grow, each of which says what begins, grows and ends.

    One is open at a time: a message, or a call of a function.
    """

    trace_id: str
    done: list[dict[str, Any]] = field(default_factory=list)
    _open: dict[str, Any] = field(default_factory=dict)  # empty: none is
    _call: Any = None

    def add(self, delta: Mapping[str, Any], logprobs: Any) -> Events:
        """Take in what a choice grows by."""
        found: Events = []
        for name, kind in (("content", "output_text"), ("refusal", "refusal")):
            if text := delta.get(name):
                found += self._said(kind, text, (logprobs or {}).get("content") or [])
        for place, call in enumerate(delta.get(CALLS) or ()):
            found += self._called(call.get("index", place), call)
        return found

    def close(self) -> Events:
        """Nothing more comes; what said nothing is an empty message."""
        found = [] if self.done or self._open else self._begin_part("output_text")
        return found + self._end()

    def _where(self, **more: Any) -> dict[str, Any]:
        return {"item_id": self._open["id"], "output_index": len(self.done), **more}

    def _begin(self, kind: str, prefix: str, **more: Any) -> Events:
        found = self._end()
        number = len(self.done)
        name = f"{prefix}_{self.trace_id}_{number}"
        self._open = {"id": name, "type": kind, "status": "in_progress", **more}
        added = {"output_index": number, "item": dict(self._open)}
        return [*found, ("response.output_item.added", added)]

    def _begin_part(self, kind: str) -> Events:
        found: Events = []
        if self._open.get("type") != "message":
            found = self._begin("message", "msg", role="assistant", content=[])
        elif self._open["content"]:
            found = self._end_part()
        part: dict[str, Any] = {"type": kind, _FIELDS[kind]: ""}
        part |= {"annotations": [], "logprobs": []} if kind == "output_text" else {}
        place = self._where(content_index=len(self._open["content"]), part=dict(part))
        self._open["content"] = [*self._open["content"], part]
        return [*found, ("response.content_part.added", place)]

    def _said(self, kind: str, text: str, logprobs: list[Any]) -> Events:
        found: Events = []
        if self._open.get("type") != "message" or self._open["content"][-1]["type"] != kind:
            found = self._begin_part(kind)
        part = self._open["content"][-1]
        part[_FIELDS[kind]] += text
        told: dict[str, Any] = {"delta": text}
        if kind == "output_text":
            part["logprobs"] = part["logprobs"] + logprobs
            told["logprobs"] = logprobs
        place = self._where(content_index=len(self._open["content"]) - 1, **told)
        return [*found, (f"response.{kind}.delta", place)]

    def _called(self, index: Any, call: Mapping[str, Any]) -> Events:
        found: Events = []
        function = call.get("function") or {}
        if self._open.get("type") != "function_call" or self._call != index:
            named = {"call_id": call.get("id") or "", "name": function.get("name") or ""}
            found = self._begin("function_call", "fc", **named, arguments="")
            self._call = index
        if arguments := function.get("arguments"):
            self._open["arguments"] += arguments
            delta = self._where(delta=arguments)
            found.append(("response.function_call_arguments.delta", delta))
        return found

    def _end_part(self) -> Events:
        part = self._open["content"][-1]
        told = {name: part[name] for name in (_FIELDS[part["type"]], "logprobs") if name in part}
        place = self._where(content_index=len(self._open["content"]) - 1)
        return [
            (f"response.{part['type']}.done", place | told),
            ("response.content_part.done", place | {"part": dict(part)}),
        ]

    def _end(self) -> Events:
        if not self._open:
            return []
        if self._open["type"] == "message":
            found = self._end_part()
        else:
            done = self._where(arguments=self._open["arguments"], name=self._open["name"])
            found = [("response.function_call_arguments.done", done)]
        item = self._open | {"status": "completed"}
        found.append(("response.output_item.done", {"output_index": len(self.done), "item": item}))
        self.done.append(item)
        self._open = {}
        return found
