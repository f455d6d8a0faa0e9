"""/v1/responses: read as the chat request that says the same, and answered as a message, or calls
of functions, whole or as server-sent events.

Nothing is kept here, so a conversation comes whole, in `input`; a reply that would be looked up
later (background, previous_response_id, conversation) is refused, and so are tools that run
elsewhere than with the client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from ttsgraph.models.actions import CALLS
from ttsgraph.service.answering import ALIVE
from ttsgraph.service.errors import ApiError
from ttsgraph.service.requests import ChatRequest, chat_request, refuse, said_of
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

_WITHOUT_EFFECT = ("stream_options", "max_tool_calls", "prompt_cache_options")
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


_Object = dict[str, Any]


class _Body(BaseModel):
    """What a chat request says in other words, or not at all; all else is as there."""

    model_config = ConfigDict(extra="allow", strict=True)

    input: str | list[_Object]
    instructions: str = ""
    tools: list[_Object] = []
    tool_choice: str | _Object | None = None
    max_output_tokens: Any = None
    reasoning: _Object = {}
    text: _Object = {}
    include: list[str] = []
    top_logprobs: Any = None


def response_request(data: dict[str, Any], max_input_tokens: int) -> ChatRequest:
    """Read a request's body. Raises ApiError that names the first parameter that can't be used."""
    data = {name: value for name, value in data.items() if value is not None}
    why = "is not supported by this server: send the whole conversation in input"
    refuse(data, _REFUSED, why)
    for name in _CHAT_ALONE:
        if name in data:
            raise ApiError(400, f"unknown parameter: {name!r}", name, "unknown_parameter")
    try:
        body = _Body.model_validate(data)
    except ValidationError as error:
        raise said_of(error) from None
    left_out = {*_REFUSED, *_WITHOUT_EFFECT}
    chat = {name: value for name, value in (body.model_extra or {}).items() if name not in left_out}
    system = [{"role": "system", "content": body.instructions}] if body.instructions else []
    chat["messages"] = [*system, *_messages(body.input)]
    chat["tools"] = [_tool(tool) for tool in body.tools] or None
    chat["tool_choice"] = _choice(body.tool_choice)
    chat["max_tokens"] = body.max_output_tokens
    chat["reasoning_effort"] = body.reasoning.get("effort")
    if (output := body.text.get("format")) is not None:
        chat["response_format"] = _format(output)
    if _LOGPROBS in body.include:
        chat |= {"logprobs": True, "top_logprobs": body.top_logprobs}
    echo = {name: data[name] for name in _ECHOED if name in data}
    try:
        return replace(chat_request(chat, max_input_tokens), echo=echo)
    except ApiError as error:
        error.param = _PARAMS.get(error.param or "", error.param)
        raise


def _messages(items: str | list[_Object]) -> list[_Object]:
    """Items as the messages of a chat: calls stand in the assistant's message that made them."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    found: list[_Object] = []
    for item in items:
        kind = item.get("type") or "message"
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
    """A content as a chat request has it, which also names what is none."""
    if not isinstance(content, list):
        return content
    return [
        part | {"type": "text"}
        if isinstance(part, dict) and part.get("type") in ("input_text", "output_text")
        else part
        for part in content
    ]


def _some(data: _Object, *names: str) -> _Object:
    return {name: data[name] for name in names if data.get(name) is not None}


def _tool(tool: _Object) -> _Object:
    if tool.get("type") != "function":
        said = "tools: expected tools of type function, which the client runs itself"
        raise ApiError(400, said, "tools", "unsupported_parameter")
    function = _some(tool, "name", "description", "parameters", "strict")
    return {"type": "function", "function": function}


def _choice(choice: str | _Object | None) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") != "function" or not isinstance(choice.get("name"), str):
        said = "tool_choice: expected none, auto, required or a function by its name"
        raise ApiError(400, said, "tool_choice", "unsupported_parameter")
    return {"type": "function", "function": {"name": choice["name"]}}


def _format(output: Any) -> Any:
    if not isinstance(output, dict) or output.get("type") != "json_schema":
        return output
    schema = _some(output, "name", "description", "schema", "strict")
    return {"type": "json_schema", "json_schema": schema}


@dataclass(frozen=True)
class ResponseReply(Reply):
    """How one request to /v1/responses is answered."""

    def whole(self, answer: Served) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        items = _Items(self.trace_id)
        choice = self.answering.choices[0]
        items.add(choice["message"], choice.get("logprobs"))
        items.close()
        return finite(self._response(items, answer))

    async def events(self) -> AsyncIterator[bytes]:
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
            async for piece in self.answering.pieces():
                if piece == ALIVE:
                    yield COMMENT
                    continue
                for kind, data in items.add(piece["delta"], piece.get("logprobs")):
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
        response["status"] = "completed"
        if cut := _INCOMPLETE.get(self.answering.choices[0]["finish_reason"]):
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


class _Part(NamedTuple):
    """A part of a message, or a call: where its words are, what events call it, and what is told
    again when it ends.
    """

    words: str
    event: str
    told: tuple[str, ...]


_PARTS = {
    "output_text": _Part("text", "output_text", ("text", "logprobs")),
    "refusal": _Part("refusal", "refusal", ("refusal",)),
    "function_call": _Part("arguments", "function_call_arguments", ("arguments", "name")),
}


@dataclass
class _Items:
    """The items of a response as they grow, each of which says what begins, grows and ends.

    One is open at a time: a message of one part, or a call of a function, known by its kind and its
    place among the calls.
    """

    trace_id: str
    done: list[dict[str, Any]] = field(default_factory=list)
    _item: dict[str, Any] = field(default_factory=dict)
    _grows: dict[str, Any] = field(default_factory=dict)  # the item's part, or the call itself
    _known_by: tuple[str, Any] | None = None  # None: none is open

    def add(self, delta: Mapping[str, Any], logprobs: Any) -> Events:
        """Take in what a choice grows by."""
        found: Events = []
        if text := delta.get("content"):
            found += self._begin("output_text")
            more = (logprobs or {}).get("content") or []
            self._grows["logprobs"] = self._grows["logprobs"] + more
            found += self._grow(text, logprobs=more)
        if text := delta.get("refusal"):
            found += self._begin("refusal") + self._grow(text)
        for place, call in enumerate(delta.get(CALLS) or ()):
            function = call.get("function") or {}
            named = {"call_id": call.get("id") or "", "name": function.get("name") or ""}
            found += self._begin("function_call", call.get("index", place), **named)
            if arguments := function.get("arguments"):
                found += self._grow(arguments)
        return found

    def close(self) -> Events:
        """Nothing more comes; what said nothing is an empty message."""
        found = [] if self.done or self._known_by else self._begin("output_text")
        return found + self._end()

    def _begin(self, kind: str, place: Any = None, **named: str) -> Events:
        """Open an item, unless it is open."""
        if self._known_by == (kind, place):
            return []
        found = self._end()
        self._known_by = kind, place
        is_call = kind == "function_call"
        name = f"{'fc' if is_call else 'msg'}_{self.trace_id}_{len(self.done)}"
        item = {"id": name, "type": kind if is_call else "message", "status": "in_progress"}
        more = named | {"arguments": ""} if is_call else {"role": "assistant", "content": []}
        added = {"output_index": len(self.done), "item": item | more}
        found.append(("response.output_item.added", added))
        self._item = self._grows = item | more
        if not is_call:
            self._grows = {"type": kind, _PARTS[kind].words: ""}
            self._grows |= {"annotations": [], "logprobs": []} if kind == "output_text" else {}
            place_of = self._where(part=dict(self._grows))
            found.append(("response.content_part.added", place_of))
            self._item = self._item | {"content": [self._grows]}
        return found

    def _grow(self, text: str, **more: Any) -> Events:
        part = _PARTS[self._grows["type"]]
        self._grows[part.words] += text
        return [(f"response.{part.event}.delta", self._where(delta=text, **more))]

    def _where(self, **more: Any) -> dict[str, Any]:
        found = {"item_id": self._item["id"], "output_index": len(self.done)}
        return found | ({} if self._grows is self._item else {"content_index": 0}) | more

    def _end(self) -> Events:
        if self._known_by is None:
            return []
        kind = self._grows["type"]
        part = _PARTS[kind]
        told = {name: self._grows[name] for name in part.told}
        found = [(f"response.{part.event}.done", self._where(**told))]
        if kind != "function_call":
            found.append(("response.content_part.done", self._where(part=dict(self._grows))))
        item = self._item | {"status": "completed"}
        found.append(("response.output_item.done", {"output_index": len(self.done), "item": item}))
        self.done.append(item)
        self._known_by = None
        return found
