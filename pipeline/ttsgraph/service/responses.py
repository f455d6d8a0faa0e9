"""Replies in OpenAI's formats, complete or as server-sent events."""

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from ttsgraph.base.files import json_text
from ttsgraph.evaluation.executor import NodeAnswer
from ttsgraph.models.actions import CALLS
from ttsgraph.service.answering import Answering
from ttsgraph.service.deployments import LiveVersion
from ttsgraph.service.errors import ApiError, reported
from ttsgraph.service.requests import some

MOST_SHOWN = 40
LONGEST_NAME = 60
"""Maximum number of parameters that a header or log line names, and of characters per name."""

COMMENT = b": working\n\n"
"""Comment in a stream, which clients ignore but which shows proxies that the stream is alive."""

_Object = dict[str, Any]


class Reply:
    """Reply to a chat request, whose question is being answered."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.created = int(time.time())

    def headers(self) -> dict[str, str]:
        """Return a header with the names of parameters without effect, if there are any."""
        ignored = self.answering.ignored
        return {"x-ttsgraph-ignored": shown(ignored)} if ignored else {}

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events of a streamed answer, with comments during pauses.

        If the answer fails, the last event says why.
        """
        try:
            async for event in self._events():
                yield event
        except Exception as error:  # once a stream has begun, only an event can report an error
            yield self._failed(reported(error, self.answering.id))

    def whole(self, answer: NodeAnswer) -> _Object:
        """Return the body of an answer."""
        more = {"usage": self._usage(answer), "ttsgraph": self.answering.account()}
        return self._body("chat.completion", [self.answering.choice], **more)

    async def _events(self) -> AsyncIterator[bytes]:
        answering, asked = self.answering, self.answering.asked
        usage = {"usage": None} if asked.include_usage else {}

        def chunk(grown: Mapping[str, Any], **more: Any) -> bytes:
            choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None, **grown}
            return _event(self._body("chat.completion.chunk", [choice], **usage, **more))

        if not asked.form:
            yield chunk({"delta": {"role": "assistant", "content": ""}})
        async for piece in answering.arriving():
            yield chunk(piece) if piece else COMMENT
        answer = await answering.task
        end = {"finish_reason": answering.choice["finish_reason"]}
        yield chunk(end, ttsgraph=self.answering.account())
        if asked.include_usage:
            yield _event(self._body("chat.completion.chunk", [], usage=self._usage(answer)))
        yield b"data: [DONE]\n\n"

    def _failed(self, error: ApiError) -> bytes:
        return _event({"error": error.said})

    def _body(self, kind: str, choices: Sequence[Any], **more: Any) -> _Object:
        own = {"id": f"chatcmpl-{self.answering.id}", "object": kind, "created": self.created}
        return {**own, "model": self.answering.live.name, "choices": choices, **more}

    def _usage(self, answer: NodeAnswer) -> dict[str, int]:
        read, written = answer.usage.prompt_tokens, answer.usage.completion_tokens
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_UNSET = ("error", "incomplete_details", "usage", "temperature", "top_p")
_USUAL: _Object = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
_USUAL |= {"metadata": {}, "store": False}
"""Fields of a response that clients' types require, without a value and with their usual value."""


class ResponseReply(Reply):
    """Reply to a request to /v1/responses: a message or tool calls, or both.

    A message's text is streamed as it arrives, and each call in one piece.
    """

    _number = 0  # of the next event

    def whole(self, answer: NodeAnswer) -> _Object:
        """Return the body of an answer."""
        used = answer.usage  # covers all calls of the graph
        cut = _INCOMPLETE.get(self.answering.choice["finish_reason"])
        return self._response("incomplete" if cut else "completed", self._output()) | {
            "incomplete_details": {"reason": cut} if cut else None,
            "usage": {
                "input_tokens": used.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": used.completion_tokens,
                "total_tokens": used.prompt_tokens + used.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
            },
            "ttsgraph": self.answering.account(),
        }

    async def _events(self) -> AsyncIterator[bytes]:
        event, begun = self._event, False
        text_at = {"item_id": f"msg_{self.answering.id}", "output_index": 0, "content_index": 0}

        def begin(message: _Object) -> bytes:
            empty = message | {"status": "in_progress", "content": []}
            added = event("response.output_item.added", output_index=0, item=empty)
            (part,) = message["content"]
            return added + event("response.content_part.added", **text_at, part=part)

        for kind in ("response.created", "response.in_progress"):
            yield event(kind, response=self._response("in_progress", []))
        async for piece in self.answering.arriving():
            if text := piece.get("delta", {}).get("content"):
                if not begun:
                    yield begin(self._message(""))
                begun = True
                yield event("response.output_text.delta", **text_at, delta=text, logprobs=[])
            elif not piece:
                yield COMMENT
        answer = await self.answering.task
        for index, item in enumerate(self._output()):
            if item["type"] == "message":
                (part,) = item["content"]
                if not begun:
                    yield begin(item)
                if "text" in part:
                    said = some(part, "text", "logprobs")
                    yield event("response.output_text.done", **text_at, **said)
                yield event("response.content_part.done", **text_at, part=part)
            else:
                empty = item | {"status": "in_progress", "arguments": ""}
                yield event("response.output_item.added", output_index=index, item=empty)
                place = {"item_id": item["id"], "output_index": index}
                kind = "response.function_call_arguments"
                yield event(f"{kind}.delta", **place, delta=item["arguments"])
                yield event(f"{kind}.done", **place, **some(item, "name", "arguments"))
            yield event("response.output_item.done", output_index=index, item=item)
        response = self.whole(answer)
        yield event(f"response.{response['status']}", response=response)

    def _failed(self, error: ApiError) -> bytes:
        said = {name: error.said[name] for name in ("code", "message", "param")}
        return self._event("error", **said)

    def _event(self, kind: str, **data: Any) -> bytes:
        numbered = {"type": kind, "sequence_number": self._number, **data}
        self._number += 1
        return f"event: {kind}\n".encode() + _event(numbered)

    def _response(self, status: str, output: list[_Object]) -> _Object:
        answering = self.answering
        own = {"id": f"resp_{answering.id}", "object": "response", "created_at": self.created}
        own |= {"model": answering.live.name, "instructions": answering.asked.instructions}
        return {**dict.fromkeys(_UNSET), **_USUAL, **own, "status": status, "output": output}

    def _output(self) -> list[_Object]:
        """Return the items of the answer: its message first, then its tool calls."""
        said = self.answering.choice["message"]
        text, refusal, calls = (said.get(name) for name in ("content", "refusal", CALLS))
        items = [self._message(text or "", refusal)] if text or refusal or not calls else []
        for number, call in enumerate(calls or ()):
            item = {"type": "function_call", "id": f"fc_{self.answering.id}_{number}"}
            item |= {"status": "completed", "call_id": call.get("id") or ""}
            items.append(item | some(call["function"], "name", "arguments"))
        return items

    def _message(self, text: str, refusal: str | None = None) -> _Object:
        """Return the message, which is a text or a refusal, as an item."""
        part: _Object = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        if refusal and not text:
            part = {"type": "refusal", "refusal": refusal}
        item = {"type": "message", "id": f"msg_{self.answering.id}", "role": "assistant"}
        return item | {"status": "completed", "content": [part]}


def shown(names: Iterable[str]) -> str:
    """Return parameter names in a form that is safe for a header or a log."""
    return ", ".join(quote(name[:LONGEST_NAME]) for name in islice(names, MOST_SHOWN))


def model_of(live: LiveVersion, created: int) -> _Object:
    """Return a served version's entry in /v1/models."""
    task, found_by = live.deployed.task, live.deployed.found_by
    entry = {"id": live.name, "object": "model", "created": created, "owned_by": "ttsgraph"}
    return entry | {"ttsgraph": {"task": task, **live.origin, "found_by": found_by}}


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
