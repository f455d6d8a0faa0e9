"""Replies in OpenAI's formats, complete or as server-sent events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar
from urllib.parse import quote

from starlette.responses import Response

from ttsgraph.base.files import json_text
from ttsgraph.evaluation.executor import NodeAnswer
from ttsgraph.models.actions import CALLS
from ttsgraph.models.client import Piece
from ttsgraph.service.answering import ALIVE, RunningAnswer
from ttsgraph.service.deployments import LiveVersion
from ttsgraph.service.errors import ApiError, reported
from ttsgraph.service.requests import ChatRequest, ItemsRequest, some

MOST_SHOWN = 40
LONGEST_NAME = 60
"""Maximum number of parameters that a header or log line names, and of characters per name."""

COMMENT = b": working\n\n"
"""Comment in a stream, which clients ignore but which shows proxies that the stream is alive."""

_Object = dict[str, Any]


class Reply:
    """Reply to a chat request, given its trace id and running answer."""

    asks: ClassVar[type[ChatRequest]] = ChatRequest
    """Model of the requests that have this reply."""

    def __init__(self, trace_id: str, answering: RunningAnswer) -> None:
        version, graph = answering.live.labels
        fingerprint = f"{version}-{graph[:12]}"
        options = answering.asked.stream_options
        self.trace_id = trace_id
        self.created = int(time.time())
        self.answering = answering
        self.made_by = {"model": answering.live.name, "system_fingerprint": fingerprint}
        self.origin = {"graph_hash": graph, "model_version": version, "trace_id": trace_id}
        self.ignored = sorted(answering.ignored)
        self._counts = options is not None and bool(options.include_usage)

    def headers(self) -> dict[str, str]:
        """Return headers with the answer's origin and the names of parameters without effect."""
        shown_too = {"ignored": shown(self.ignored)} if self.ignored else {}
        named = (self.origin | shown_too).items()
        return {f"x-ttsgraph-{name.replace('_', '-')}": value for name, value in named}

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events of a streamed answer; if the answer fails, the last event says why."""
        for event in self.first():
            yield event
        try:
            async for piece in self.answering.pieces():
                for event in [COMMENT] if piece == ALIVE else self.grown(piece):
                    yield event
            answer = await self.answering.task
        except Exception as error:  # once a stream has begun, only an event can report an error
            yield self.failed(reported(error, self.trace_id))
            return
        for event in self.last(answer):
            yield event

    def whole(self, answer: NodeAnswer) -> _Object:
        """Return the body of an answer that is not streamed."""
        more = {"usage": self._usage(answer), "ttsgraph": self._account(answer)}
        return self._body("chat.completion", self.answering.choices, more)

    def first(self) -> Iterator[bytes]:
        """Yield the events that precede the first piece."""
        if not self.answering.asked.form:
            yield self._chunk(delta={"role": "assistant", "content": ""})

    def grown(self, piece: Piece) -> Iterator[bytes]:
        """Yield the events of a piece."""
        yield self._chunk(**piece)

    def last(self, answer: NodeAnswer) -> Iterator[bytes]:
        """Yield the events after the last piece."""
        ends = [some(choice, "index", "finish_reason") for choice in self.answering.choices]
        for end in ends[:-1]:
            yield self._chunk(**end)
        yield self._chunk({"ttsgraph": self._account(answer)}, **ends[-1])
        if self._counts:
            usage = {"usage": self._usage(answer)}
            yield _event(self._body("chat.completion.chunk", [], usage))
        yield b"data: [DONE]\n\n"

    def failed(self, error: ApiError) -> bytes:
        """Return the event of an error, which ends the stream."""
        return _event(error.body())

    def _account(self, answer: NodeAnswer) -> _Object:
        """Return the answer's origin and cost, and its missing calls, if there are any."""
        answering = self.answering
        account = {**self.origin, "ignored": self.ignored, **answering.account()}
        if (route := answering.live.deployed.graph.route) is not None:
            account["branch"] = route.taken(answer.stages)
        if answering.asked.ttsgraph_trace:
            account["trace"] = answering.nodes(answer)
        return account

    def _chunk(self, more: Mapping[str, Any] = {}, **grown: Any) -> bytes:
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None} | grown
        usage = {"usage": None} if self._counts else {}
        return _event(self._body("chat.completion.chunk", [choice], {**usage, **more}))

    def _body(self, kind: str, choices: Iterable[Any], more: Mapping[str, Any]) -> _Object:
        own = {"id": f"chatcmpl-{self.trace_id}", "object": kind, "created": self.created}
        return {**own, **self.made_by, "choices": list(choices), **more}

    def _usage(self, answer: NodeAnswer) -> dict[str, int]:
        read = answer.usage.prompt_tokens
        written = answer.usage.completion_tokens
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_TEXTS = {"output_text": "text", "refusal": "refusal", "function_call": "arguments"}
"""Map from the kind of a message's part, or of a call, to the name of its text field."""

_EVENTS = {"function_call": "function_call_arguments"}
"""Map from such a kind to the name in its events, if that differs."""

_ECHOED: _Object = {
    **dict.fromkeys(("instructions", "max_output_tokens", "reasoning", "temperature", "top_p")),
    "metadata": {},
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "truncation": "disabled",
}
"""Parameters of a request to /v1/responses that the reply repeats, with their defaults."""


class ResponseReply(Reply):
    """Reply to a request to /v1/responses; at most one of its items is open, the last one."""

    asks = ItemsRequest

    _number = 0
    _open: tuple[str, int] | None = None  # kind of the open item, and a call's index among calls

    def __init__(self, trace_id: str, answering: RunningAnswer) -> None:
        super().__init__(trace_id, answering)
        self._items: list[_Object] = []
        self._part: _Object = {}  # of the open item; a call is its own part

    def whole(self, answer: NodeAnswer) -> _Object:
        """Return the body of an answer that is not streamed."""
        choice = self.answering.choices[0]
        list(self.grown({**choice, "delta": choice["message"]}))  # the events are not sent
        list(self._close())
        return self._complete(answer)

    def _complete(self, answer: NodeAnswer) -> _Object:
        used = answer.usage  # covers all calls of the graph
        cut = _INCOMPLETE.get(self.answering.choices[0]["finish_reason"])
        return self._response() | {
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": cut} if cut else None,
            "output": self._items,
            "usage": {
                "input_tokens": used.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": used.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": used.prompt_tokens + used.completion_tokens,
            },
            "ttsgraph": self._account(answer),
        }

    def first(self) -> Iterator[bytes]:
        """Yield the events that precede the first piece."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._response())

    def grown(self, piece: Piece) -> Iterator[bytes]:
        """Yield the events of a piece."""
        delta = piece["delta"]
        if text := delta.get("content"):
            yield from self._begin("output_text", annotations=[], logprobs=[])
            more = (piece.get("logprobs") or {}).get("content") or []
            self._part["logprobs"] += more
            yield self._add(text, logprobs=more)
        if text := delta.get("refusal"):
            yield from self._begin("refusal")
            yield self._add(text)
        for place, call in enumerate(delta.get(CALLS) or ()):
            function = call.get("function") or {}
            named = {"call_id": call.get("id") or "", "name": function.get("name") or ""}
            yield from self._begin("function_call", call.get("index", place), **named)
            if arguments := function.get("arguments"):
                yield self._add(arguments)

    def last(self, answer: NodeAnswer) -> Iterator[bytes]:
        """Yield the events after the last piece."""
        yield from self._close()
        response = self._complete(answer)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, error: ApiError) -> bytes:
        """Return the event of an error, which ends the stream."""
        return self._event("error", code=error.code, message=str(error), param=error.param)

    def _event(self, kind: str, **data: Any) -> bytes:
        numbered = {"type": kind, "sequence_number": self._number, **data}
        self._number += 1
        return f"event: {kind}\n".encode() + _event(numbered)

    def _response(self) -> _Object:
        return {
            "id": f"resp_{self.trace_id}",
            "object": "response",
            "created_at": self.created,
            **self.made_by,
            "error": None,
            "incomplete_details": None,
            "status": "in_progress",
            "output": [],
            "usage": None,
            "store": False,
            **_ECHOED,
            **some(self.answering.asked.sent, *_ECHOED),
        }

    def _begin(self, kind: str, place: int = 0, **more: Any) -> Iterator[bytes]:
        """Yield the events that end the open item and begin the next, unless it is open already."""
        if self._open == (kind, place):
            return
        yield from self._end()
        self._open = kind, place
        name = f"{self.trace_id}_{len(self._items)}"
        self._part = {"type": kind, _TEXTS[kind]: "", **more}
        if kind == "function_call":
            item = self._part = {"id": f"fc_{name}", "status": "in_progress", **self._part}
        else:
            item = {"id": f"msg_{name}", "type": "message", "status": "in_progress"}
            item |= {"role": "assistant", "content": []}
        self._items.append(item)
        number = len(self._items) - 1
        yield self._event("response.output_item.added", output_index=number, item=item)
        if item is not self._part:
            yield self._of_part("content_part.added", part=self._part)
            item["content"] = [self._part]

    def _add(self, text: str, **more: Any) -> bytes:
        """Add text to the open item, and return the event."""
        self._part[_TEXTS[self._part["type"]]] += text
        return self._of_text("delta", delta=text, **more)

    def _end(self) -> Iterator[bytes]:
        """Yield the events that end the open item, if there is one."""
        if self._open is None:
            return
        self._open = None
        item, part = self._items[-1], self._part
        yield self._of_text("done", **some(part, _TEXTS[part["type"]], "name", "logprobs"))
        if item is not part:
            yield self._of_part("content_part.done", part=part)
        item["status"] = "completed"
        yield self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)

    def _close(self) -> Iterator[bytes]:
        """Yield the events that end the last item; if there is none, an empty message's events."""
        if not self._items:
            yield from self._begin("output_text", annotations=[], logprobs=[])
        yield from self._end()

    def _of_text(self, what: str, **more: Any) -> bytes:
        kind = self._part["type"]
        return self._of_part(f"{_EVENTS.get(kind, kind)}.{what}", **more)

    def _of_part(self, what: str, **more: Any) -> bytes:
        item = self._items[-1]
        where = {"item_id": item["id"], "output_index": len(self._items) - 1}
        where |= {} if item is self._part else {"content_index": 0}
        return self._event(f"response.{what}", **where, **more)


def shown(names: Iterable[str]) -> str:
    """Return parameter names in a form that is safe for a header or a log."""
    return ", ".join(quote(name[:LONGEST_NAME]) for name in islice(names, MOST_SHOWN))


def model_of(live: LiveVersion, created: int) -> _Object:
    """Return a served version's entry in /v1/models."""
    deployed = live.deployed
    origin = {
        "task": deployed.task,
        "model_version": deployed.version,
        "graph_hash": deployed.graph.content_hash,
    }
    origin |= {"found_by": deployed.found_by} if deployed.found_by else {}
    entry = {"id": live.name, "object": "model", "created": created, "owned_by": "ttsgraph"}
    return entry | {"ttsgraph": origin}


def json_response(
    data: _Object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an HTTP response with plain data as JSON."""
    return Response(_dumped(data), status, headers, "application/json")


def _dumped(data: _Object) -> bytes:
    # A model may send half a surrogate pair, which JSON can contain, but UTF-8 can't.
    text = json_text(data, indent=None, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="replace")


def _event(data: _Object) -> bytes:
    return b"data: " + _dumped(data) + b"\n\n"
