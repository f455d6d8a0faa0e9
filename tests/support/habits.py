"""Stub servers' habits: what they refuse, and in which words, and where they think."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.support.stub_server import Answer, StubServer


def openai_refusal(name: str, instead: str = "") -> Answer:
    """As OpenAI and Azure say that a model takes no such parameter."""
    use = f" Use {instead!r} instead." if instead else ""
    words = f"Unsupported parameter: '{name}' is not supported with this model.{use}"
    more = {"type": "invalid_request_error", "param": name, "code": "unsupported_parameter"}
    return 400, {}, json.dumps({"error": {"message": words} | more})


def vllm_refusal(words: str) -> Answer:
    more = {"type": "BadRequestError", "param": None, "code": 400}
    return 400, {}, json.dumps({"object": "error", "message": words} | more)


NO_SYSTEM = vllm_refusal("System role not supported")


def refusing(
    parameters: Iterable[str] = (), system: bool = False, model: str | None = None
) -> Callable[..., Answer | None]:
    """Refuses these parameters, and system messages if it is said, of one model or of all."""

    def misbehave(count: int, body: Mapping[str, Any]) -> Answer | None:
        if model is not None and body["model"] != model:
            return None
        for name in parameters:
            if name in body:
                return openai_refusal(name, "max_completion_tokens" if name == "max_tokens" else "")
        if system and any(message["role"] == "system" for message in body["messages"]):
            return NO_SYSTEM
        return None

    return misbehave


class Thinking(StubServer):
    """Thinks before it answers: inline, half, in parts, or under a key; `told` says how much."""

    def __init__(self, models: tuple[str, ...], where: str, told: bool = True) -> None:
        super().__init__(models, skill=1.0)
        self.where = where
        self.told = told

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        answer = super().completion(body, count)
        message = answer["choices"][0]["message"]
        thought = "Let me add. It is 7, no."
        if self.where == "inline":
            message["content"] = f"<think>\n{thought}\n</think>\n\n{message['content']}"
        elif self.where == "half":
            message["content"] = f"{thought}\n</think>\n\n{message['content']}"
        elif self.where == "parts":
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
            message["content"] = [thinking, {"type": "text", "text": message["content"]}]
        else:
            message[self.where] = thought
        answer["usage"] |= {"completion_tokens": 42, "prompt_tokens": 100}
        if self.told:
            answer["usage"]["completion_tokens_details"] = {"reasoning_tokens": 40}
            answer["usage"]["prompt_tokens_details"] = {"cached_tokens": 64}
        return answer


def words_of(body: Mapping[str, Any]) -> str:
    """All that a request says, for tests of what reached the model."""
    return re.sub(r"\s+", " ", " ".join(message["content"] for message in body["messages"]))
