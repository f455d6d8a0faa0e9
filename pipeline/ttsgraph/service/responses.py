"""Answers in the shape that OpenAI's clients read, whole or as server-sent events."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ttsgraph.service.answering import ALIVE, Answering
from ttsgraph.service.deployments import Live
from ttsgraph.service.errors import ApiError
from ttsgraph.service.run import Served

DONE = b"data: [DONE]\n\n"
COMMENT = b": working\n\n"
"""Of server-sent events: clients read over it, and proxies see that the stream is alive."""


@dataclass(frozen=True)
class Reply:
    """How one request is answered: under which trace id, since when (Unix seconds), by what."""

    trace_id: str
    created: int
    answering: Answering

    def headers(self) -> dict[str, str]:
        """Where the answer comes from."""
        deployed = self.answering.live.deployed
        return {
            "x-ttsgraph-graph-hash": deployed.graph.content_hash,
            "x-ttsgraph-model-version": deployed.version,
            "x-ttsgraph-trace-id": self.trace_id,
        }

    def whole(self, answer: Served) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        more = {
            "object": "chat.completion",
            "choices": self.answering.choices,
            "usage": self._usage(answer),
            "ttsgraph": self._origin(answer),
        }
        return finite(self._frame | more)

    async def events(self) -> AsyncIterator[bytes]:
        """The answer's events; one that fails on the way ends with an error in place of the
        finish.
        """
        usage = {"usage": None} if self.answering.asked.include_usage else {}
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
            more = {"choices": [], "usage": self._usage(answer)}
            yield _event(self._frame | {"object": "chat.completion.chunk"} | more)
        yield DONE

    def _chunk(self, more: dict[str, Any], **grown: Any) -> bytes:
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None} | grown
        frame = self._frame | {"object": "chat.completion.chunk"}
        return _event(frame | {"choices": [choice]} | more)

    @cached_property
    def _frame(self) -> dict[str, Any]:
        deployed = self.answering.live.deployed
        return {
            "id": f"chatcmpl-{self.trace_id}",
            "created": self.created,
            "model": self.answering.live.name,
            "system_fingerprint": f"{deployed.version}-{deployed.graph.content_hash[:12]}",
        }

    def _usage(self, answer: Served) -> dict[str, int]:
        """Tokens of all calls of the graph."""
        read = answer.usage.prompt_tokens
        written = answer.usage.completion_tokens
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
        }

    def _origin(self, answer: Served) -> dict[str, Any]:
        """What the answer comes from, and where it did without something: calls that were not
        needed, that failed, or that came too late.
        """
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
    budget = deployed.profile.budget
    if budget.limits == "mean":
        origin["budget"] = {"metric": budget.metric, "limit": budget.limit, "of": budget.limits}
    entry = {"id": live.name, "object": "model", "created": created, "owned_by": "ttsgraph"}
    return entry | {"ttsgraph": origin}


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {dumped(data)}\n\n".encode()


def dumped(data: dict[str, Any]) -> str:
    """An event's data as JSON."""
    return json.dumps(finite(data), separators=(",", ":"), allow_nan=False)


def finite(value: Any) -> Any:
    """Plain data with null in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list) else value
