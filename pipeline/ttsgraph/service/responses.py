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
_UNSET: _Object = {
    **dict.fromkeys(("error", "incomplete_details", "usage", "temperature", "top_p")),
    "metadata": {},
    "parallel_tool_calls": True,
    "store": False,
    "tool_choice": "auto",
    "tools": [],
}
"""Fields of a response that clients' types require."""


class ResponseReply(Reply):
    """Reply to a request to /v1/responses: a message or tool calls, or both.

    A message's text is streamed as it arrives, and each call in one piece.
    """

    asks = ItemsRequest

    _number = 0  # of the next event
    _begun = False  # the events that begin the message have been sent

    def whole(self, answer: NodeAnswer) -> _Object:
        """Return the body of an answer that is not streamed."""
        used = answer.usage  # covers all calls of the graph
        cut = _INCOMPLETE.get(self.answering.choices[0]["finish_reason"])
        return self._response("incomplete" if cut else "completed", self._output()) | {
            "incomplete_details": {"reason": cut} if cut else None,
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
            yield self._event(kind, response=self._response("in_progress", []))

    def grown(self, piece: Piece) -> Iterator[bytes]:
        """Yield the events of a piece of the message's text."""
        if text := piece["delta"].get("content"):
            message = self._message("")
            yield from self._begin(message)
            where = {"item_id": message["id"], "output_index": 0, "content_index": 0}
            yield self._event("response.output_text.delta", **where, delta=text, logprobs=[])

    def last(self, answer: NodeAnswer) -> Iterator[bytes]:
        """Yield the events after the last piece."""
        for place, item in enumerate(self._output()):
            ends = self._end if item["type"] == "message" else self._called
            yield from ends(item, {"item_id": item["id"], "output_index": place})
            yield self._event("response.output_item.done", output_index=place, item=item)
        response = self.whole(answer)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, error: ApiError) -> bytes:
        """Return the event of an error, which ends the stream."""
        return self._event("error", code=error.code, message=str(error), param=error.param)

    def _response(self, status: str, output: list[_Object]) -> _Object:
        own = {"id": f"resp_{self.trace_id}", "object": "response", "created_at": self.created}
        asked = {"instructions": getattr(self.answering.asked, "instructions", None)}
        return {**own, **self.made_by, **_UNSET, **asked, "status": status, "output": output}

    def _output(self) -> list[_Object]:
        """Return the items of the answer: its message first, then its tool calls."""
        said = self.answering.choices[0]["message"]
        text, refusal, calls = (said.get(name) for name in ("content", "refusal", CALLS))
        items = [self._message(text or "", refusal)] if text or refusal or not calls else []
        for number, call in enumerate(calls or ()):
            item = {"type": "function_call", "id": f"fc_{self.trace_id}_{number}"}
            item |= {"status": "completed", "call_id": call.get("id") or ""}
            items.append(item | some(call["function"], "name", "arguments"))
        return items

    def _message(self, text: str, refusal: str | None = None) -> _Object:
        """Return the message, which is a text or a refusal, as an item."""
        part: _Object = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        if refusal and not text:
            part = {"type": "refusal", "refusal": refusal}
        item = {"type": "message", "id": f"msg_{self.trace_id}", "role": "assistant"}
        return item | {"status": "completed", "content": [part]}

    def _begin(self, message: _Object) -> Iterator[bytes]:
        """Yield the events that begin the message, unless they have been sent."""
        if not self._begun:
            self._begun = True
            begun = message | {"status": "in_progress", "content": []}
            yield self._event("response.output_item.added", output_index=0, item=begun)
            where = {"item_id": message["id"], "output_index": 0, "content_index": 0}
            (part,) = message["content"]
            yield self._event("response.content_part.added", **where, part=part)

    def _end(self, message: _Object, where: _Object) -> Iterator[bytes]:
        """Yield the events that end the message's only part."""
        yield from self._begin(message)
        where = where | {"content_index": 0}
        (part,) = message["content"]
        if "text" in part:
            yield self._event(
                "response.output_text.done", **where, **some(part, "text", "logprobs")
            )
        yield self._event("response.content_part.done", **where, part=part)

    def _called(self, call: _Object, where: _Object) -> Iterator[bytes]:
        """Yield the events of a tool call, except for the last."""
        begun = call | {"status": "in_progress", "arguments": ""}
        yield self._event(
            "response.output_item.added", output_index=where["output_index"], item=begun
        )
        kind = "response.function_call_arguments"
        yield self._event(f"{kind}.delta", **where, delta=call["arguments"])
        yield self._event(f"{kind}.done", **where, **some(call, "name", "arguments"))

    def _event(self, kind: str, **data: Any) -> bytes:
        numbered = {"type": kind, "sequence_number": self._number, **data}
        self._number += 1
        return f"event: {kind}\n".encode() + _event(numbered)


def shown(names: Iterable[str]) -> str:
    """Return parameter names in a form that is safe for a header or a log."""
    return ", ".join(quote(name[:LONGEST_NAME]) for name in islice(names, MOST_SHOWN))


def model_of(live: LiveVersion, created: int) -> _Object:
    """Return a served version's entry in /v1/models."""
    task, found_by = live.deployed.task, live.deployed.found_by
    version, graph = live.labels
    origin = {"task": task, "model_version": version, "graph_hash": graph}
    origin |= {"found_by": found_by} if found_by else {}
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
