"""Stub servers' habits: what they refuse, and in which words, and where they think."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.support.stub_server import Answer


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


def words_of(body: Mapping[str, Any]) -> str:
    """All that a request says, for tests of what reached the model."""
    return re.sub(r"\s+", " ", " ".join(message["content"] for message in body["messages"]))
