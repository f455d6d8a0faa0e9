"""Replies in OpenAI's formats, complete or as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from ttsgraph.base.files import json_text
from ttsgraph.evaluation.executor import NodeAnswer
from ttsgraph.models.actions import CALLS
from ttsgraph.models.client import Piece
from ttsgraph.service.answering import ALIVE, RunningAnswer
from ttsgraph.service.deployments import LiveVersion
from ttsgraph.service.errors import reported

MOST_SHOWN = 40
LONGEST_NAME = 60
"""Maximum number of parameters that a header or log line names, and of characters per name."""

COMMENT = b": working\n\n"
"""Comment in a stream, which clients ignore but which shows proxies that the stream is alive."""

_Object = dict[str, Any]


class Reply:
    """Reply to a chat request: trace id, creation time (Unix seconds) and running answer."""

    def __init__(self, trace_id: str, created: int, answering: RunningAnswer) -> None:
        self.trace_id = trace_id
        self.created = created
        self.answering = answering
        deployed = answering.live.deployed
        self.made_by = {
            "model": answering.live.name,
            "system_fingerprint": f"{deployed.version}-{deployed.graph.content_hash[:12]}",
        }

    def headers(self) -> dict[str, str]:
        """Return headers with the answer's origin and the names of parameters without effect."""
        deployed = self.answering.live.deployed
        found = {
            "x-ttsgraph-graph-hash": deployed.graph.content_hash,
            "x-ttsgraph-model-version": deployed.version,
            "x-ttsgraph-trace-id": self.trace_id,
        }
        ignored = shown(self.answering.ignored)
        return found | ({"x-ttsgraph-ignored": ignored} if ignored else {})

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
            yield self.failed(reported(error, self.trace_id).body())
            return
        for event in self.last(answer):
            yield event

    def whole(self, answer: NodeAnswer) -> _Object:
        """Return the body of an answer that is not streamed."""
        more = {"usage": self._usage(answer), "ttsgraph": self.origin(answer)}
        return self._body("chat.completion", self.answering.choices, more)

    def first(self) -> Iterator[bytes]:
        """Yield the events before any piece."""
        if not self.answering.formed:
            yield self._chunk(delta={"role": "assistant", "content": ""})

    def grown(self, piece: Piece) -> Iterator[bytes]:
        """Yield the events of a piece."""
        yield self._chunk(**piece)

    def last(self, answer: NodeAnswer) -> Iterator[bytes]:
        """Yield the events after the last piece."""
        *others, last = self.answering.choices
        for choice in others:
            yield self._chunk(**_some(choice, "index", "finish_reason"))
        origin = {"ttsgraph": self.origin(answer)}
        yield self._chunk(origin, **_some(last, "index", "finish_reason"))
        if self._counts:
            usage = {"usage": self._usage(answer)}
            yield _event(self._body("chat.completion.chunk", [], usage))
        yield b"data: [DONE]\n\n"

    def failed(self, error: _Object) -> bytes:
        """Return the event of an error, which ends the stream."""
        return _event(error)

    def origin(self, answer: NodeAnswer) -> _Object:
        """Return the answer's origin and cost, and its missing calls, if there are any."""
        answering = self.answering
        deployed = answering.live.deployed
        graph = deployed.graph
        origin = {
            "graph_hash": graph.content_hash,
            "model_version": deployed.version,
            "trace_id": self.trace_id,
            "ignored": answering.ignored,
            **answering.served.account(),
        }
        if graph.route is not None:
            origin["branch"] = graph.route.taken(answer.stages)
        if answering.asked.body.ttsgraph_trace:
            origin["trace"] = answering.trace(answer)
        return origin

    @property
    def _counts(self) -> bool:
        options = self.answering.asked.body.stream_options
        return options is not None and bool(options.include_usage)

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


class ResponseReply(Reply):
    """Reply to a request to /v1/responses."""

    def __init__(self, trace_id: str, created: int, answering: RunningAnswer) -> None:
        super().__init__(trace_id, created, answering)
        self._items = _Items(trace_id)
        self._number = 0

    def whole(self, answer: NodeAnswer) -> _Object:
        """Return the body of an answer that is not streamed."""
        choice = self.answering.choices[0]
        self._items.add(choice["message"], choice.get("logprobs"))
        self._items.close()
        return self._response(answer)

    def first(self) -> Iterator[bytes]:
        """Yield the events before any piece."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, {"response": self._response(None)})

    def grown(self, piece: Piece) -> Iterator[bytes]:
        """Yield the events of a piece."""
        for kind, data in self._items.add(piece["delta"], piece.get("logprobs")):
            yield self._event(kind, data)

    def last(self, answer: NodeAnswer) -> Iterator[bytes]:
        """Yield the events after the last piece."""
        for kind, data in self._items.close():
            yield self._event(kind, data)
        response = self._response(answer)
        yield self._event(f"response.{response['status']}", {"response": response})

    def failed(self, error: _Object) -> bytes:
        """Return the event of an error, which ends the stream."""
        return self._event("error", _some(error["error"], "code", "message", "param"))

    def _event(self, kind: str, data: Mapping[str, Any]) -> bytes:
        numbered = {"type": kind, "sequence_number": self._number, **data}
        self._number += 1
        return f"event: {kind}\n".encode() + _event(numbered)

    def _response(self, answer: NodeAnswer | None) -> _Object:
        response = {
            "id": f"resp_{self.trace_id}",
            "object": "response",
            "created_at": self.created,
            **self.made_by,
            "error": None,
            "incomplete_details": None,
            "status": "in_progress",
            "output": self._items.done,
            "usage": None,
            "store": False,
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "text": {"format": {"type": "text"}},
            "metadata": {},
            "instructions": None,
            **self.answering.asked.echo,
        }
        if answer is None:
            return response
        response["status"] = "completed"
        if cut := _INCOMPLETE.get(self.answering.choices[0]["finish_reason"]):
            response |= {"status": "incomplete", "incomplete_details": {"reason": cut}}
        used = answer.usage  # covers all calls of the graph
        response["usage"] = {
            "input_tokens": used.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": used.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used.prompt_tokens + used.completion_tokens,
        }
        return response | {"ttsgraph": self.origin(answer)}


Events = list[tuple[str, dict[str, Any]]]

_CALL = "function_call"
_WORDS = {"output_text": "text", "refusal": "refusal", _CALL: "arguments"}
"""Map from the kind of a message's part, or of a call, to the name of its text field."""


@dataclass
class _Items:
    """Items of a growing response; at most one of them is open.

    An item is a message with one part, or a function call. The open item is identified by the kind
    of its part and, for a function call, by its index among the calls.
    """

    trace_id: str
    done: list[dict[str, Any]] = field(default_factory=list)
    _item: dict[str, Any] = field(default_factory=dict)
    _part: dict[str, Any] = field(default_factory=dict)  # the item's part; a call is its own part
    _known_by: tuple[str, Any] | None = None  # None: no item is open

    def add(self, delta: Mapping[str, Any], logprobs: Any) -> Events:
        """Add a choice's delta, and return the resulting events."""
        found: Events = []
        if text := delta.get("content"):
            found += self._begin("output_text", annotations=[], logprobs=[])
            more = (logprobs or {}).get("content") or []
            self._part["logprobs"] = self._part["logprobs"] + more
            found.append(self._event("delta", delta=text, logprobs=more))
            self._part["text"] += text
        if text := delta.get("refusal"):
            found += self._begin("refusal")
            found.append(self._event("delta", delta=text))
            self._part["refusal"] += text
        for place, call in enumerate(delta.get(CALLS) or ()):
            function = call.get("function") or {}
            named = {"call_id": call.get("id") or "", "name": function.get("name") or ""}
            found += self._begin(_CALL, call.get("index", place), **named)
            if arguments := function.get("arguments"):
                found.append(self._event("delta", delta=arguments))
                self._part["arguments"] += arguments
        return found

    def close(self) -> Events:
        """Close the open item, and return the events; if there is no item, add an empty message."""
        found = []
        if not self.done and self._known_by is None:
            found = self._begin("output_text", annotations=[], logprobs=[])
        return found + self._end()

    def _begin(self, kind: str, place: Any = None, **more: Any) -> Events:
        if self._known_by == (kind, place):
            return []
        found = self._end()
        self._known_by = kind, place
        part = {"type": kind, _WORDS[kind]: "", **more}
        name = f"{self.trace_id}_{len(self.done)}"
        if kind == _CALL:
            self._item = self._part = {"id": f"fc_{name}", **part, "status": "in_progress"}
        else:
            frame = {"id": f"msg_{name}", "type": "message", "status": "in_progress"}
            self._item = frame | {"role": "assistant", "content": []}
            self._part = part
        added = {"output_index": len(self.done), "item": dict(self._item)}
        found.append(("response.output_item.added", added))
        if kind != _CALL:
            found.append(("response.content_part.added", self._at(part=dict(part))))
            self._item["content"] = [part]
        return found

    def _event(self, what: str, **more: Any) -> tuple[str, dict[str, Any]]:
        kind = "function_call_arguments" if self._item is self._part else self._part["type"]
        return f"response.{kind}.{what}", self._at(**more)

    def _at(self, **more: Any) -> dict[str, Any]:
        place = {} if self._item is self._part else {"content_index": 0}
        return {"item_id": self._item["id"], "output_index": len(self.done), **place, **more}

    def _end(self) -> Events:
        if self._known_by is None:
            return []
        part = self._part
        fields = {
            name: part[name] for name in (*_WORDS.values(), "name", "logprobs") if name in part
        }
        found = [self._event("done", **fields)]
        if self._item is not part:
            found.append(("response.content_part.done", self._at(part=part)))
        item = self._item | {"status": "completed"}
        found.append(("response.output_item.done", {"output_index": len(self.done), "item": item}))
        self.done.append(item)
        self._known_by = None
        return found


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


def _some(data: Mapping[str, Any], *names: str) -> _Object:
    return {name: data[name] for name in names}
