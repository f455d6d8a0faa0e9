"""Answers of /v1/responses, whole or as server-sent events: a message, or calls of functions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ttsgraph.models.actions import CALLS
from ttsgraph.models.client import Usage
from ttsgraph.service.answering import ALIVE, Piece
from ttsgraph.service.errors import ApiError, of_status
from ttsgraph.service.responses import COMMENT, Reply, finite
from ttsgraph.service.run import Served

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


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
            plain = {"type": kind, "sequence_number": number, **data}
            number += 1
            said = json.dumps(finite(plain), separators=(",", ":"), allow_nan=False)
            return f"event: {kind}\ndata: {said}\n\n".encode()

        begun = {"response": self._response(items, None)}
        yield event("response.created", begun)
        yield event("response.in_progress", begun)
        try:
            async for piece in pieces:
                if piece == ALIVE:
                    yield COMMENT
                    continue
                delta = {"content": piece} if isinstance(piece, str) else piece["delta"]
                logprobs = None if isinstance(piece, str) else piece["logprobs"]
                for kind, data in items.add(delta, logprobs):
                    yield event(kind, data)
            answer = await self.answering.task
        except Exception as error:  # a stream that has begun has no other place to say so
            told = (error if isinstance(error, ApiError) else of_status(500)).body()["error"]
            yield event("error", {name: told[name] for name in ("code", "message", "param")})
            return
        for kind, data in items.close():
            yield event(kind, data)
        response = self._response(items, answer)
        yield event(f"response.{response['status']}", {"response": response})

    def _response(self, items: _Items, answer: Served | None) -> dict[str, Any]:
        deployed = self.answering.live.deployed
        standard = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
        text = {"text": {"format": {"type": "text"}}, "metadata": {}, "instructions": None}
        frame = {
            "id": f"resp_{self.trace_id}",
            "object": "response",
            "created_at": self.created,
            "model": self.answering.live.name,
            "system_fingerprint": f"{deployed.version}-{deployed.graph.content_hash[:12]}",
            "error": None,
            "incomplete_details": None,
            "status": "in_progress",
            "output": [dict(item) for item in items.done],
            "usage": None,
            "store": False,
        }
        response = frame | standard | text | dict(self.answering.asked.echo or {})
        if answer is None:
            return response
        choices = self.answering.choices
        reason = choices[0]["finish_reason"] if choices else self.answering.finish_reason(answer)
        cut = _INCOMPLETE.get(reason)
        response |= {"status": "incomplete" if cut else "completed"}
        response |= {"incomplete_details": {"reason": cut}} if cut else {}
        return response | {"usage": _usage(answer.usage), "ttsgraph": self._origin(answer)}


def _usage(usage: Usage) -> dict[str, Any]:
    """Tokens of all calls of the graph."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


Events = list[tuple[str, dict[str, Any]]]


@dataclass
class _Items:
    """The items of a response as they grow, each of which says what begins, grows and ends.

    One is open at a time: a message, or a call of a function.
    """

    trace_id: str
    done: list[dict[str, Any]] = field(default_factory=list)
    _open: dict[str, Any] | None = None
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
        found = [] if self.done or self._open else self._begin_message("output_text")
        return found + self._end()

    def _where(self, **more: Any) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self.done), **more}

    def _begin(self, item: dict[str, Any]) -> Events:
        found = self._end()
        self._open = item | {"id": f"{item['id']}_{self.trace_id}_{len(self.done)}"}
        added = {"output_index": len(self.done), "item": dict(self._open)}
        return [*found, ("response.output_item.added", added)]

    def _begin_message(self, kind: str) -> Events:
        message = {"id": "msg", "type": "message", "role": "assistant", "status": "in_progress"}
        found = self._begin(message | {"content": []})
        return found + self._begin_part(kind)

    def _begin_part(self, kind: str) -> Events:
        assert self._open is not None
        part: dict[str, Any] = {"type": kind, "refusal": ""}
        if kind == "output_text":
            part = {"type": kind, "text": "", "annotations": [], "logprobs": []}
        place = self._where(content_index=len(self._open["content"]))
        self._open["content"] = [*self._open["content"], part]
        return [("response.content_part.added", place | {"part": dict(part)})]

    def _said(self, kind: str, text: str, logprobs: list[Any]) -> Events:
        found: Events = []
        if self._open is None or self._open["type"] != "message":
            found += self._begin_message(kind)
        assert self._open is not None
        if self._open["content"][-1]["type"] != kind:
            found += self._end_part() + self._begin_part(kind)
        part = self._open["content"][-1]
        name = "text" if kind == "output_text" else "refusal"
        part[name] += text
        told = {"logprobs": logprobs} if name == "text" else {}
        if told:
            part["logprobs"] = part["logprobs"] + logprobs
        place = self._where(content_index=len(self._open["content"]) - 1)
        return [*found, (f"response.{kind}.delta", place | {"delta": text} | told)]

    def _called(self, index: Any, call: Mapping[str, Any]) -> Events:
        found: Events = []
        function = call.get("function") or {}
        if self._open is None or self._open["type"] != "function_call" or self._call != index:
            item = {"id": "fc", "type": "function_call", "status": "in_progress"}
            item |= {"call_id": call.get("id") or "", "name": function.get("name") or ""}
            found += self._begin(item | {"arguments": ""})
            self._call = index
        assert self._open is not None
        if not (arguments := function.get("arguments")):
            return found
        self._open["arguments"] += arguments
        delta = self._where(delta=arguments)
        return [*found, ("response.function_call_arguments.delta", delta)]

    def _end_part(self) -> Events:
        assert self._open is not None
        part = self._open["content"][-1]
        name = "text" if part["type"] == "output_text" else "refusal"
        place = self._where(content_index=len(self._open["content"]) - 1)
        told = {"logprobs": part["logprobs"]} if name == "text" else {}
        return [
            (f"response.{part['type']}.done", place | {name: part[name]} | told),
            ("response.content_part.done", place | {"part": dict(part)}),
        ]

    def _end(self) -> Events:
        if self._open is None:
            return []
        if self._open["type"] == "message":
            found = self._end_part()
        else:
            done = self._where(arguments=self._open["arguments"], name=self._open["name"])
            found = [("response.function_call_arguments.done", done)]
        item = self._open | {"status": "completed"}
        found.append(("response.output_item.done", {"output_index": len(self.done), "item": item}))
        self.done.append(item)
        self._open = None
        return found
