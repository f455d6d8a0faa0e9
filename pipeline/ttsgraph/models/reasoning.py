"""What a model thinks before it answers: apart from the answer, paid for, and handed on to
nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPEN = "<think>"
CLOSE = "</think>"
_KEYS = ("reasoning_content", "reasoning")
"""Where servers put it beside the content: DeepSeek, vLLM, SGLang and LM Studio; OpenRouter, Ollama
and newer vLLM.
"""


def parted(message: Mapping[str, Any]) -> tuple[Any, str]:
    """A message's content without the reasoning, and the reasoning. Content that is no text comes
    back as it is.
    """
    content = message.get("content")
    told = beside(message)
    if isinstance(content, list):  # parts, as Mistral's reasoning models answer
        content, thought = _joined(content)
        told = told or thought
    if not isinstance(content, str):
        return content, told
    text, within = without_thoughts(content)
    return text, "\n".join(part for part in (told, within) if part)


def beside(message: Mapping[str, Any]) -> str:
    """The reasoning that stands beside a message's content, or beside a piece of it."""
    return next((text for key in _KEYS if isinstance(text := message.get(key), str) and text), "")


def without_thoughts(text: str) -> tuple[str, str]:
    """A text without what stands in <think> tags at its head, and that. An end without a beginning
    ends it too: with some chat templates the beginning is part of the prompt. What is begun and
    never ended is all reasoning.
    """
    head = text.lstrip()
    if head.startswith(OPEN):
        thought, _, answer = head.removeprefix(OPEN).partition(CLOSE)
        return answer.lstrip(), thought.strip()
    thought, end, answer = text.partition(CLOSE)
    return (answer.lstrip(), thought.strip()) if end else (text, "")


def _joined(parts: list[Any]) -> tuple[Any, str]:
    """The texts of a content in parts, and its thoughts; the parts as they are where one is no
    text.
    """
    texts = []
    thoughts = []
    for part in parts:
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, Mapping) and part.get("type") == "thinking":
            said = part.get("thinking")
            thoughts.append(_joined(said)[0] if isinstance(said, list) else said)
        else:
            return parts, ""
    return "".join(texts), "".join(thought for thought in thoughts if isinstance(thought, str))


def finer_usage(
    usage: Any, prompt: int, completion: int, text: str, reasoning: str
) -> tuple[int, int, int]:
    """Completion tokens, how many prompt tokens the endpoint had in its cache, and how many of the
    completion's are reasoning.

    Where reasoning came and its tokens are not told, they are taken to be its share of the letters.
    """
    usage = usage if isinstance(usage, Mapping) else {}
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens") or _count(
        usage, "prompt_cache_hit_tokens"
    )
    thought = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
    if thought and _count(usage, "total_tokens") == prompt + completion + thought:
        completion += thought  # xAI counts them apart
    if not thought and reasoning:
        thought = round(completion * len(reasoning) / (len(reasoning) + len(text)))
    return completion, min(cached, prompt), min(thought, completion)


def _count(counts: Any, name: str) -> int:
    number = counts.get(name) if isinstance(counts, Mapping) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


class Thoughts:
    """A text that comes in pieces, without what stands in <think> tags at its head."""

    def __init__(self) -> None:
        self.reasoning = ""
        self._held = ""
        self._state = "before"

    def add(self, piece: str) -> str:
        """Add a piece; returns what of the answer can be shown now."""
        if self._state == "answer":
            return piece
        self._held += piece
        if self._state == "before":
            head = self._held.lstrip()
            if len(head) < len(OPEN) and OPEN.startswith(head):
                return ""
            if not head.startswith(OPEN):
                return self._answer(self._held)
            self._state = "within"
            self._held = head.removeprefix(OPEN)
        if self._state == "within":
            thought, end, answer = self._held.partition(CLOSE)
            if not end:
                return ""
            self.reasoning = thought.strip()
            self._state = "after"
            self._held = answer
        answer = self._held.lstrip()
        return self._answer(answer) if answer else ""

    def rest(self) -> str:
        """Nothing more comes: what was held back, unless it is reasoning without an end."""
        if self._state == "within":
            self.reasoning = self._held.strip()
        return self._answer(self._held) if self._state == "before" else ""

    def _answer(self, text: str) -> str:
        self._state = "answer"
        self._held = ""
        return text
