"""A pool whose models call tools, answer in JSON, and give several choices with log probabilities.

What it answers follows from what it is asked alone, so that the same request has the same answer
wherever it comes from. It answers whole or in pieces.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


class Weather(BaseModel):
    """What `acts` says in JSON."""

    city: str
    degrees: int


STOCK = {"type": "function", "function": {"name": "get_stock", "parameters": {"type": "object"}}}


def calling(*calls: tuple[str, Any]) -> dict[str, Any]:
    """An assistant's message with these calls of tools; arguments are a text, or JSON's values."""
    made = []
    for name, given in calls:
        arguments = given if isinstance(given, str) else json.dumps(given)
        number = hashlib.sha256(f"{name}{arguments}".encode()).hexdigest()[:8]
        function = {"name": name, "arguments": arguments}
        made.append({"id": f"call_{number}", "type": "function", "function": function})
    return {"role": "assistant", "content": None, "tool_calls": made}


def saying(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def acts(body: dict[str, Any]) -> dict[str, Any]:
    """Calls the weather of every city of the question; with the results, says them; else JSON."""
    last = body["messages"][-1]
    question = next(m["content"] for m in body["messages"][::-1] if m["role"] == "user")
    cities = re.findall(r"\b(Paris|Oslo|Lima)\b", question.partition("\n")[0])
    results = [m["content"] for m in body["messages"] if m["role"] == "tool"]
    if body.get("tools") and body.get("tool_choice") != "none" and cities and not results:
        return calling(*(("get_weather", {"city": city}) for city in cities))
    if body.get("response_format"):
        return saying(json.dumps({"city": cities[0] if cities else "", "degrees": 21}, indent=1))
    if results:
        return saying(f"It is {' and '.join(results)}.")
    return saying(f"Advice on {str(last['content']).splitlines()[0]}")


class ActingPool:
    """Its models `small` and `large`; `reply(body)` gives a message, or a response."""

    def __init__(self) -> None:
        routes = [
            Route("/v1/models", self._models),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
        ]
        self.app = Starlette(routes=routes)
        self.url = ""
        self.reset()

    def reset(self) -> None:
        """As new."""
        self.reply: Callable[[dict[str, Any]], dict[str, Any] | Response] = acts
        self.bodies: list[dict[str, Any]] = []

    def release(self) -> None:
        """Nothing is held here."""

    async def _models(self, request: Request) -> Response:
        models = [{"id": name, "object": "model", "created": 0} for name in ("small", "large")]
        return JSONResponse({"object": "list", "data": models})

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        message = self.reply(body)
        if isinstance(message, Response):
            return message
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        choices = [_choice(k, message, body) for k in range(body.get("n") or 1)]
        frame = {"id": "stub", "created": 0, "model": body["model"]}
        if not body.get("stream"):
            whole = {"object": "chat.completion", "choices": choices, "usage": usage}
            return JSONResponse(frame | whole)
        events = _events(choices, frame | {"object": "chat.completion.chunk"}, usage)
        return StreamingResponse(iter(events), media_type="text/event-stream")


def _choice(index: int, message: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    if index and message["content"]:
        message = message | {"content": f"{message['content']} ({index})"}
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    logprobs = None
    if body.get("logprobs"):
        words = (message["content"] or "").split(" ")
        logprobs = {"content": [_logprob(word) for word in words], "refusal": None}
    told = {"finish_reason": reason, "logprobs": logprobs}
    return {"index": index, "message": message | {"refusal": None}, **told}


def _logprob(word: str) -> dict[str, Any]:
    return {"token": word, "logprob": -0.5, "bytes": None, "top_logprobs": []}


def _events(
    choices: list[dict[str, Any]], frame: dict[str, Any], usage: dict[str, int]
) -> Iterator[str]:
    def event(index: int, delta: dict[str, Any], **more: Any) -> str:
        choice = {"index": index, "delta": delta, "finish_reason": None, "logprobs": None} | more
        return f"data: {json.dumps(frame | {'choices': [choice]})}\n\n"

    for choice in choices:
        message = choice["message"]
        yield event(choice["index"], {"role": "assistant", "content": None})
        words = re.findall(r"\S+\s*", message["content"] or "")
        for word in words:
            told = {"content": [_logprob(word.strip())], "refusal": None}
            more = {"logprobs": told} if choice["logprobs"] else {}
            yield event(choice["index"], {"content": word}, **more)
        for number, call in enumerate(message.get("tool_calls") or ()):
            head = call | {"index": number, "function": call["function"] | {"arguments": ""}}
            yield event(choice["index"], {"tool_calls": [head]})
            arguments = call["function"]["arguments"]
            for start in range(0, len(arguments), 5):
                piece = {"index": number, "function": {"arguments": arguments[start : start + 5]}}
                yield event(choice["index"], {"tool_calls": [piece]})
        yield event(choice["index"], {}, finish_reason=choice["finish_reason"])
    yield f"data: {json.dumps(frame | {'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"
