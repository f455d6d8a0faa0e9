"""Answers of providers by the tables of providers.yaml."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.stub_server import Answer
from ttsgraph.endpoints.replies import ReplyReader, ValueReader
from ttsgraph.models.client import Completion, Request, Sampling

PROVIDERS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("providers.yaml").read_text())
USAGE = {"prompt_tokens": 9, "completion_tokens": 5}


def answer_of(
    message: Mapping[str, Any] | None = None,
    finish: str | None = "stop",
    usage: Mapping[str, Any] | None = USAGE,
    status: int = 200,
    error: Mapping[str, Any] | None = None,
    body: Any = None,
    stream: Iterable[Mapping[str, Any]] | None = None,
    text: str | None = None,
    change: Iterable[tuple[str, str]] = (),
    before: str = "",
    after: str = "",
    **expected: Any,
) -> Answer:
    """A message (42, if none is given), error, body, stream of deltas or text, with changes."""
    whole = {"role": "assistant"} | dict({"content": "42"} if message is None else message)
    if stream is not None:
        chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in stream]
        chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]
        chunks += [{"choices": [], "usage": usage}]
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    elif text is None:
        choice = {"index": 0, "finish_reason": finish, "message": whole}
        said = {"choices": [choice], "usage": usage} if body is None else body
        text = json.dumps({"error": error} if error is not None else said)
    for old, new in change:
        assert old in text, (old, text)
        text = text.replace(old, new)
    is_stream = stream is not None and not change
    return status, {"Content-Type": "text/event-stream"} if is_stream else {}, before + text + after


def error(status: int, message: str | None = None, **more: Any) -> Answer:
    return answer_of(status=status, error={"message": message} | more)


def table(name: str) -> dict[str, Answer]:
    """The answers of a table."""
    return {name: answer_of(**entry) for name, entry in PROVIDERS[name].items()}


def values_of(*pieces: bytes) -> list[Any]:
    """The values of a response body that arrives in these pieces."""
    found: list[Any] = []
    reader = ValueReader(found.append)
    for piece in pieces:
        reader.add(piece)
        if reader.done:
            break
    reader.end()
    return found


def read_reply(body: bytes) -> Completion:
    """A response body as the client reads it."""
    reader = ReplyReader(Request("m", "r", (), Sampling(max_tokens=64)))
    for value in values_of(body):
        reader.add(value)
    return reader.completion(0.1)
