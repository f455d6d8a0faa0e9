"""Answers in the shape that OpenAI's clients read, whole or as server-sent events."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from ttsgraph.models.client import Usage
from ttsgraph.service.answering import ALIVE, Answering, Piece
from ttsgraph.service.deployments import Live
from ttsgraph.service.errors import ApiError, of_status
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
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": None,
            "finish_reason": self.answering.finish_reason(answer),
        }
        more = {
            "choices": self.answering.choices or [choice],
            "usage": usage_of(answer.usage),
            "ttsgraph": self._origin(answer),
        }
        return finite(self._frame("chat.completion") | more)

    async def events(self, pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
        """The answer's events; one that fails on the way ends with an error in place of the
        finish.
        """
        usage = {"usage": None} if self.answering.asked.include_usage else {}
        try:
            if not self.answering.formed:
                yield self._chunk({"role": "assistant", "content": ""}, None, usage)
            async for piece in pieces:
                if piece == ALIVE:
                    yield COMMENT
                elif isinstance(piece, str):
                    yield self._chunk({"content": piece}, None, usage)
                else:
                    yield self._chunk({}, None, usage, piece)
            answer = await self.answering.task
        except Exception as error:  # a stream that has begun has no other place to say so
            yield _event((error if isinstance(error, ApiError) else of_status(500)).body())
            return
        *others, last = self.answering.choices or [{"index": 0}]
        for choice in others:
            yield self._chunk({}, choice["finish_reason"], usage, {"index": choice["index"]})
        reason = last.get("finish_reason") or self.answering.finish_reason(answer)
        origin = usage | {"ttsgraph": self._origin(answer)}
        yield self._chunk({}, reason, origin, {"index": last["index"]})
        if usage:
            yield _event(
                self._frame("chat.completion.chunk")
                | {
                    "choices": [],
                    "usage": usage_of(answer.usage),
                }
            )
        yield DONE

    def _chunk(
        self,
        delta: dict[str, str],
        finish_reason: str | None,
        more: dict[str, Any],
        piece: dict[str, Any] | None = None,
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        choice |= piece or {}
        return _event(self._frame("chat.completion.chunk") | {"choices": [choice]} | more)

    def _frame(self, kind: str) -> dict[str, Any]:
        deployed = self.answering.live.deployed
        return {
            "id": f"chatcmpl-{self.trace_id}",
            "object": kind,
            "created": self.created,
            "model": self.answering.live.name,
            "system_fingerprint": f"{deployed.version}-{deployed.graph.content_hash[:12]}",
        }

    def _origin(self, answer: Served) -> dict[str, Any]:
        deployed = self.answering.live.deployed
        origin = {
            "graph_hash": deployed.graph.content_hash,
            "model_version": deployed.version,
            "trace_id": self.trace_id,
            "calls": answer.usage.calls,
            "begun": answer.begun,
            "billed": answer.billed,
            "dollars": answer.usage.dollars,
            "ignored": list(self.answering.ignored),
            "degraded": answer.degraded,
        }
        if (route := deployed.graph.route) is not None:
            origin["branch"] = route.taken(answer.stages)
        origin |= self._without(answer)
        return (
            origin | {"trace": self.answering.trace(answer)}
            if self.answering.asked.trace
            else origin
        )

    def _without(self, answer: Served) -> dict[str, Any]:
        """What the answer went without, where it did: calls that were not needed, that failed, or
        that came too late.
        """
        graph = self.answering.live.deployed.graph
        found: dict[str, Any] = {"left_out": list(answer.left_out)} if answer.left_out else {}
        found |= {"cancelled": list(answer.cancelled)} if answer.cancelled else {}
        found |= (
            {"lost": [{"node": i, "model": graph.node(i).model} for i in answer.lost]}
            if answer.lost
            else {}
        )
        if answer.fallbacks:
            found["fallbacks"] = [
                {"node": i, "model": graph.node(i).model, "answered_by": list(graph.reads[i])}
                for i in answer.fallbacks
            ]
        if answer.stand_ins:
            found["stand_ins"] = [
                {"node": i, "model": graph.node(i).model, "answered_by": model}
                for i, model in answer.stand_ins.items()
            ]
        found |= {"hedged": list(answer.hedged)} if answer.hedged else {}
        return found | ({"deadline_passed": True} if answer.late else {})


def usage_of(usage: Usage) -> dict[str, int]:
    """Tokens of all calls of the graph."""
    total = usage.prompt_tokens + usage.completion_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": total,
    }


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
    if deployed.profile.budget.limits == "mean":
        budget = deployed.profile.budget
        origin["budget"] = {"metric": budget.metric, "limit": budget.limit, "of": budget.limits}
    return {
        "id": live.name,
        "object": "model",
        "created": created,
        "owned_by": "ttsgraph",
        "ttsgraph": origin,
    }


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(finite(data), separators=(',', ':'), allow_nan=False)}\n\n".encode()


def finite(value: Any) -> Any:
    """Plain data with null in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list) else value
