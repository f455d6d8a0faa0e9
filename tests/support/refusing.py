"""Providers that refuse prompts, in their own forms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from tests.support.stub_server import Answer, Misbehave

FILTERED = "The response was filtered due to the prompt triggering our content management policy"


def error(status: int, message: str | None = None, **more: Any) -> Answer:
    return status, {}, json.dumps({"error": {"message": message} | more})


def ended(reason: str, text: str | None = None, **more: Any) -> Answer:
    message = {"role": "assistant", "content": text} | more
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    choice = {"index": 0, "finish_reason": reason, "message": message}
    return 200, {}, json.dumps({"choices": [choice], "usage": usage})


INNER = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}}
REFUSALS: dict[str, tuple[Answer, str]] = {
    "Azure": (
        error(400, message=FILTERED, param="prompt", code="content_filter", innererror=INNER),
        FILTERED,
    ),
    "OpenAI": (
        error(400, message="It was rejected.", type="x", code="content_policy_violation"),
        "It was rejected.",
    ),
    "Anthropic": (
        error(400, type="invalid_request_error", message="Blocked by content filtering policy"),
        "Blocked by",
    ),
    "LiteLLM": (
        error(400, message="litellm.ContentPolicyViolationError: no", type=None, code="400"),
        "ContentPolicyViolationError",
    ),
    "xAI": (
        (403, {}, json.dumps({"code": "denied", "error": "Content violates usage guidelines."})),
        "Content violates",
    ),
    "DeepSeek": (error(400, message="Content Exists Risk", code="invalid_request_error"), "Risk"),
    "DashScope": (error(400, message="Not so.", code="data_inspection_failed"), "Not so."),
    "OpenRouter": (error(200, code=403, message="Your input was flagged for x"), "flagged for x"),
    "a reason to finish": (ended("content_filter"), "content_filter"),
    "the same within an answer": (ended("content_filter", "half"), "content_filter"),
    "Gemini": (ended("SAFETY"), "safety"),
    "Gemini with both": (ended("content_filter: PROHIBITED_CONTENT"), "prohibited_content"),
    "Gemini without choices": (
        (200, {}, json.dumps({"choices": [], "promptFeedback": {"blockReason": "BLOCKLIST"}})),
        "BLOCKLIST",
    ),
    "a refusal in place of a text": (ended("stop", refusal="I can't do that."), "I can't do that."),
}  # fmt: skip
"""By provider: the answer, and a part of the words in which it says why."""


def refusing(
    refused: Callable[[str], bool], models: Collection[str], asked: list[str]
) -> Misbehave:
    """Refuses prompts to these models, which are added to `asked`."""

    def misbehave(count: int, body: dict[str, Any]) -> Answer | None:
        text = "\n".join(message["content"] for message in body["messages"])
        if body["model"] not in models or not refused(text):
            return None
        asked.append(json.dumps(body, sort_keys=True))
        return REFUSALS["Azure"][0]

    return misbehave


def number_in(text: str) -> int:
    """The first number of the question."""
    return int(re.findall(r"(\d+) \+ \d+", text)[-1])
