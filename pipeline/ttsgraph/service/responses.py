"""Answers in the shape that OpenAI's clients read, whole or as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any
from urllib.parse import quote

from ttsgraph.base.files import finite, json_text
from ttsgraph.models.actions import CALLS
from ttsgraph.service.answering import ALIVE, Answering
from ttsgraph.service.deployments import Live
from ttsgraph.service.errors import ApiError
from ttsgraph.service.run import Served

DONE = b"data: [DONE]\n\n"
MOST_SHOWN = 40
LONGEST_NAME = 60
"""Parameters that are named, and characters of a name."""

COMMENT = b": working\n\n"
"""Of server-sent events: clients read over it, and proxies see that the stream is alive."""


@dataclass(frozen=True)
class Reply:
    """How one request is answered: under which trace id, since when (Unix seconds), by what."""

    trace_id: str
    created: int
    answering: Answering

    def headers(self) -> dict[str, str]:
        """Where the answer comes from, and which of the client's parameters have no effect."""
        deployed = self.answering.live.deployed
        found = {
            "x-ttsgraph-graph-hash": deployed.graph.content_hash,
            "x-ttsgraph-model-version": deployed.version,
            "x-ttsgraph-trace-id": self.trace_id,
        }
        ignored = shown(self.answering.ignored)
        return found | ({"x-ttsgraph-ignored": ignored} if ignored else {})

    def whole(self, answer: Served) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        more = {"usage": self._usage(answer), "ttsgraph": self._origin(answer)}
        return finite(self._body("chat.completion", self.answering.choices, more))

    async def events(self) -> AsyncIterator[bytes]:
        """The answer's events; one that fails ends with an error in place of the finish."""
        usage: dict[str, Any] = {"usage": None} if self.answering.asked.include_usage else {}
        try:
            if not self.answering.formed:
                yield self._chunk(usage, delta={"role": "assistant", "content": ""})
            async for piece in self.answering.pieces():
                if piece == ALIVE:
                    yield COMMENT
                else:
                    yield self._chunk(usage, **piece)
            answer = await self.answering.task
        except Exception as error:  # a stream that has begun has no other place to say so
            yield _event((error if isinstance(error, ApiError) else ApiError(500)).body())
            return
        for choice in self.answering.choices:
            named = {name: choice[name] for name in ("index", "finish_reason")}
            last = choice is self.answering.choices[-1]
            yield self._chunk(usage | ({"ttsgraph": self._origin(answer)} if last else {}), **named)
        if usage:
            usage["usage"] = self._usage(answer)
            yield _event(self._body("chat.completion.chunk", [], usage))
        yield DONE

    def _chunk(self, more: dict[str, Any], **grown: Any) -> bytes:
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None} | grown
        return _event(self._body("chat.completion.chunk", [choice], more))

    def _body(self, kind: str, choices: Sequence[Any], more: dict[str, Any]) -> dict[str, Any]:
        own = {"id": f"chatcmpl-{self.trace_id}", "object": kind, "created": self.created}
        return own | self._made_by | {"choices": choices} | more

    @cached_property
    def _made_by(self) -> dict[str, Any]:
        deployed = self.answering.live.deployed
        return {
            "model": self.answering.live.name,
            "system_fingerprint": f"{deployed.version}-{deployed.graph.content_hash[:12]}",
        }

    def _usage(self, answer: Served) -> dict[str, int]:
        read = answer.usage.prompt_tokens
        written = answer.usage.completion_tokens
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    def _origin(self, answer: Served) -> dict[str, Any]:
        """What the answer comes from, and what it did without, if anything."""
        deployed = self.answering.live.deployed
        graph = deployed.graph
        origin = {
            "graph_hash": graph.content_hash,
            "model_version": deployed.version,
            "trace_id": self.trace_id,
            "calls": answer.usage.calls,
            "begun": answer.begun,
            "billed": answer.billed,
            "dollars": answer.usage.dollars,
            "ignored": list(self.answering.ignored),
            "degraded": answer.degraded,
        }
        if graph.route is not None:
            origin["branch"] = graph.route.taken(answer.stages)

        def node(i: int, **more: Any) -> dict[str, Any]:
            return {"node": i, "model": graph.node(i).model, **more}

        without = {
            "left_out": list(answer.left_out),
            "cancelled": list(answer.cancelled),
            "lost": [node(i) for i in answer.lost],
            "fallbacks": [node(i, answered_by=list(graph.reads[i])) for i in answer.fallbacks],
            "deadline_passed": answer.late,
            "trace": self.answering.trace(answer) if self.answering.asked.trace else [],
        }
        return origin | {name: value for name, value in without.items() if value}


_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


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
        response = {
            "id": f"resp_{self.trace_id}",
            "object": "response",
            "created_at": self.created,
            **self._made_by,
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
        if answer is None:
            return response
        response["status"] = "completed"
        if cut := _INCOMPLETE.get(self.answering.choices[0]["finish_reason"]):
            response |= {"status": "incomplete", "incomplete_details": {"reason": cut}}
        used = answer.usage  # of all calls of the graph
        response["usage"] = {
            "input_tokens": used.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": used.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used.prompt_tokens + used.completion_tokens,
        }
        return response | {"ttsgraph": self._origin(answer)}


Events = list[tuple[str, dict[str, Any]]]

_CALL = "function_call"
_WORDS = {"output_text": "text", "refusal": "refusal", _CALL: "arguments"}
"""Kind of a message's part, or of a call -> where its words are."""


@dataclass
class _Items:
    """The items of a response as they grow, one open at a time: a message of one part, or a call of
    a function, known by its kind and its place among the calls.
    """

    trace_id: str
    done: list[dict[str, Any]] = field(default_factory=list)
    _item: dict[str, Any] = field(default_factory=dict)
    _part: dict[str, Any] = field(default_factory=dict)  # the item's part, or the call itself
    _known_by: tuple[str, Any] | None = None  # None: none is open

    def add(self, delta: Mapping[str, Any], logprobs: Any) -> Events:
        """Take in what a choice grows by."""
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
        """Nothing more comes; what said nothing is an empty message."""
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
        told = {name: part[name] for name in (*_WORDS.values(), "name", "logprobs") if name in part}
        found = [self._event("done", **told)]
        if self._item is not part:
            found.append(("response.content_part.done", self._at(part=part)))
        item = self._item | {"status": "completed"}
        found.append(("response.output_item.done", {"output_index": len(self.done), "item": item}))
        self.done.append(item)
        self._known_by = None
        return found


def shown(names: Iterable[str]) -> str:
    """Parameters' names as a header or a log may hold them, whatever a client sent."""
    return ", ".join(quote(name[:LONGEST_NAME]) for name in islice(names, MOST_SHOWN))


def model_of(live: Live, created: int) -> dict[str, Any]:
    """An entry of /v1/models."""
    deployed = live.deployed
    origin: dict[str, Any] = {
        "task": deployed.task,
        "model_version": deployed.version,
        "graph_hash": deployed.graph.content_hash,
    }
    if deployed.found_by:
        origin["found_by"] = deployed.found_by
    entry = {"id": live.name, "object": "model", "created": created, "owned_by": "ttsgraph"}
    return entry | {"ttsgraph": origin}


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {dumped(data)}\n\n".encode()


def dumped(data: dict[str, Any]) -> str:
    """An event's data as JSON."""
    return json_text(data, indent=None, separators=(",", ":"))
