"""How providers say that a filter or a policy of theirs refuses a prompt, or the answer to it:
data, to which a line adds a provider.
"""

from __future__ import annotations

import re
from typing import Any

STATUSES = (400, 403, 406, 422, 451)
"""With which prompts are refused; others are about keys, names, load or servers."""

NAMES = frozenset(
    {
        *("contentfilter", "contentfiltered", "responsibleaipolicyviolation"),  # Azure
        *("contentpolicyviolation", "contentpolicyviolationerror", "moderationblocked"),  # OpenAI
        "refusal",  # Anthropic
        *(
            "safety",
            "recitation",
            "blocklist",
            "prohibitedcontent",
            "spii",
            "imagesafety",
        ),  # Gemini
        "guardrailintervened",  # Bedrock
        "datainspectionfailed",  # DashScope
        *(
            "sensitive",
            "sensitivecontentdetected",
            "inputtextsensitivecontentdetected",
        ),  # Zhipu, Ark
        "errortoxic",  # Cohere
    }
)
"""Codes, types and reasons to finish, by their letters and digits in lower case."""

WORDS = re.compile(
    "|".join(
        (
            r"content (management|filter(ing)?) polic",  # Azure, Anthropic
            r"result of our safety system|violating our usage polic",  # OpenAI
            r"ContentPolicyViolationError",  # LiteLLM
            r"input was flagged",  # OpenRouter
            r"content violates usage guidelines",  # xAI
            r"content exists risk",  # DeepSeek
            r"may contain inappropriate content",  # DashScope
            r"considered high risk",  # Moonshot
            r"\u4e0d\u5b89\u5168\u6216\u654f\u611f\u5185\u5bb9",  # Zhipu: unsafe or sensitive
        )
    ),
    re.IGNORECASE,
)
"""What messages say, of providers whose codes don't tell."""

_NAMED = (
    *("code", "type", "status", "reason", "finish_reason", "native_finish_reason"),
    *("blockReason", "block_reason"),
)
_SAID = ("message", "detail", "error", "msg")
_DEEPEST = 6


def is_name(told: Any) -> bool:
    """Whether a code or a reason to finish is one of a refusal; also one of several, after a
    colon.
    """
    parts = told.split(":") if isinstance(told, str) and len(told) <= 80 else ()
    return any(re.sub(r"[^a-z0-9]", "", part.lower()) in NAMES for part in parts)


def refusal_in(told: Any, depth: int = 0) -> str:
    """The code or the words by which an error, as JSON or as text, says that a prompt is refused;
    "" of another one.
    """
    if isinstance(told, str):
        return told if WORDS.search(told) else ""
    if depth == _DEEPEST or not isinstance(told, dict | list):
        return ""
    parts = [("", each) for each in told[:20]] if isinstance(told, list) else list(told.items())
    for key, value in parts:
        if key in _NAMED and isinstance(value, str):
            found = value if is_name(value) else ""
        elif key in _SAID or isinstance(value, dict | list):
            found = refusal_in(value, depth + 1)
        else:
            found = ""
        if found:
            return found
    return ""
