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
from ttsgraph.service.errors import reported
from ttsgraph.service.requests import as_chat, some

MOST_SHOWN = 40
LONGEST_NAME = 60
"""Maximum number of parameters that a header or log line names, and of characters per name."""

COMMENT = b": working\n\n"
"""Comment in a stream, which clients ignore but which shows proxies that the stream is alive."""

_Object = dict[str, Any]


class Reply:
    """Reply to a chat request, given its body, trace id and running answer."""

    names: ClassVar[Mapping[str, str]] = {}
    """Map from names of chat parameters to the client's names, if these differ."""

    @staticmethod
    def as_chat(data: _Object) -> _Object:
        """Return the body of the equivalent chat request."""
        return data

    def __init__(self, body: _Object, trace_id: str, answering: RunningAnswer) -> None:
        self.body = body
        self.trace_id = trace_id
        self.created = int(time.time())
        self.answering = answering
        self.deployed = answering.live.deployed
        number, graph = answering.live.labels
        self.made_by = {
            "model": answering.live.name,
            "system_fingerprint": f"{number}-{graph[:12]}",
        }
        self.ignored = sorted(self.names.get(name, name) for name in answering.ignored)

    def headers(self) -> dict[str, str]:
        """Return headers with the answer's origin and the names of parameters without effect."""
        found = {
            "x-ttsgraph-graph-hash": self.deployed.graph.content_hash,
            "x-ttsgraph-model-version": self.deployed.version,
            "x-ttsgraph-trace-id": self.trace_id,
        }
        return found | ({"x-ttsgraph-ignored": shown(self.ignored)} if self.ignored else {})

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
        yield self._chunk({"ttsgraph": self.origin(answer)}, **ends[-1])
        if self._counts:
            usage = {"usage": self._usage(answer)}
            yield _event(self._body("chat.completion.chunk", [], usage))
        yield b"data: [DONE]\n\n"

    def failed(self, error: _Object) -> bytes:
        """Return the event of an error, which ends the stream."""
        return _event(error)

    def origin(self, answer: NodeAnswer) -> _Object:
        """Return the answer's origin and cost, and its missing calls, if there are any."""
        graph = self.deployed.graph
        origin = {
            "graph_hash": graph.content_hash,
            "model_version": self.deployed.version,
            "trace_id": self.trace_id,
            "ignored": self.ignored,
            **self.answering.account(),
        }
        if graph.route is not None:
            origin["branch"] = graph.route.taken(answer.stages)
        if self.answering.asked.ttsgraph_trace:
            origin["trace"] = self.answering.nodes(answer)
        return origin

    @property
    def _counts(self) -> bool:
        options = self.answering.asked.stream_options
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
_TEXTS = {"output_text": "text", "refusal": "refusal", "function_call": "arguments"}
"""Map from the kind of a message's part, or of a call, to the name of its text field."""

_ECHOED = (
    *("instructions", "metadata", "max_output_tokens", "parallel_tool_calls", "reasoning"),
    *("temperature", "text", "tool_choice", "tools", "top_p", "truncation"),
)
"""Parameters of a request to /v1/responses that the reply repeats."""


class ResponseReply(Reply):
    """Reply to a request to /v1/responses.

    The text is streamed as it arrives, as the first item; refusals and calls follow at the end.
    """

    names: ClassVar[Mapping[str, str]] = {
        "messages": "input",
        "response_format": "text",
        "max_tokens": "max_output_tokens",
        "logprobs": "include",
        "reasoning_effort": "reasoning",
    }
    as_chat = staticmethod(as_chat)

    _streams = False  # the first item has begun
    _number = 0

    def whole(self, answer: NodeAnswer) -> _Object:
        """Return the body of an answer that is not streamed."""
        used = answer.usage  # covers all calls of the graph
        cut = _INCOMPLETE.get(self.answering.choices[0]["finish_reason"])
        return self._response() | {
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": cut} if cut else None,
            "output": self._items(),
            "usage": {
                "input_tokens": used.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": used.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": used.prompt_tokens + used.completion_tokens,
            },
            "ttsgraph": self.origin(answer),
        }

    def first(self) -> Iterator[bytes]:
        """Yield the events before any piece."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._response())

    def grown(self, piece: Piece) -> Iterator[bytes]:
        """Yield the events of a piece."""
        if text := piece["delta"].get("content"):
            item = self._message(0, _text_part("", []))
            if not self._streams:
                self._streams = True
                yield from self._begin(0, item)
            more = (piece.get("logprobs") or {}).get("content") or []
            where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
            yield self._event("response.output_text.delta", **where, delta=text, logprobs=more)

    def last(self, answer: NodeAnswer) -> Iterator[bytes]:
        """Yield the events after the last piece."""
        for place, item in enumerate(self._items()):
            yield from self._end(place, item)
        response = self.whole(answer)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, error: _Object) -> bytes:
        """Return the event of an error, which ends the stream."""
        names = ("code", "message", "param")
        return self._event("error", **{name: error["error"][name] for name in names})

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
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "text": {"format": {"type": "text"}},
            "metadata": {},
            "instructions": None,
            **some(self.body, *_ECHOED),
        }

    def _items(self) -> list[_Object]:
        """Return the complete items: messages with a text or a refusal, then calls."""
        choice = self.answering.choices[0]
        message = choice["message"]
        text, refusal, calls = (message.get(name) for name in ("content", "refusal", CALLS))
        logprobs = (choice.get("logprobs") or {}).get("content") or []
        parts: list[_Object] = []
        if text or self._streams or not (refusal or calls):
            parts.append(_text_part(text or "", logprobs))
        if refusal:
            parts.append({"type": "refusal", "refusal": refusal})
        items = [self._message(place, part) for place, part in enumerate(parts)]
        for call in calls or ():
            function = call["function"]
            items.append(
                {
                    "id": f"fc_{self.trace_id}_{len(items)}",
                    "type": "function_call",
                    "call_id": call.get("id") or "",
                    "name": function["name"],
                    "arguments": function["arguments"] or "",
                    "status": "completed",
                }
            )
        return items

    def _message(self, place: int, part: _Object) -> _Object:
        own = {"id": f"msg_{self.trace_id}_{place}", "type": "message", "status": "completed"}
        return own | {"role": "assistant", "content": [part]}

    def _begin(self, place: int, item: _Object) -> Iterator[bytes]:
        """Yield the events that begin an item, without its text."""
        part = item.get("content", [item])[0]  # a call is its own part
        empty = part | {_TEXTS[part["type"]]: ""}
        added = empty if part is item else item | {"content": []}
        added |= {"status": "in_progress"}
        yield self._event("response.output_item.added", output_index=place, item=added)
        if part is not item:
            where = {"item_id": item["id"], "output_index": place, "content_index": 0}
            yield self._event("response.content_part.added", **where, part=empty)

    def _end(self, place: int, item: _Object) -> Iterator[bytes]:
        """Yield the remaining events of an item; the first item's text may have been streamed."""
        part = item.get("content", [item])[0]
        text = _TEXTS[part["type"]]
        where = {"item_id": item["id"], "output_index": place}
        where |= {} if part is item else {"content_index": 0}
        kind = "function_call_arguments" if part is item else part["type"]
        if place or not self._streams:
            yield from self._begin(place, item)
            if part[text]:
                yield self._event(f"response.{kind}.delta", **where, delta=part[text])
        done = some(part, text, "name", "logprobs")
        yield self._event(f"response.{kind}.done", **where, **done)
        if part is not item:
            yield self._event("response.content_part.done", **where, part=part)
        yield self._event("response.output_item.done", output_index=place, item=item)


def _text_part(text: str, logprobs: list[Any]) -> _Object:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


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
