"""What a model thinks before it answers: apart from the answer, paid for, and handed on to
nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPEN = "<think>"
CLOSE = "</think>"
_KEYS = ("reasoning_content", "reasoning")
"""Next to the content: DeepSeek's, vLLM's, SGLang's, LM Studio's; OpenRouter's, Ollama's."""


def parted(message: Mapping[str, Any]) -> tuple[Any, str]:
    """A message's content (as it is where it is no text), and its reasoning."""
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
    """The reasoning that stands next to a message's content, or next to a piece of it."""
    return next((text for key in _KEYS if isinstance(text := message.get(key), str) and text), "")


def without_thoughts(text: str) -> tuple[str, str]:
    """A text without <think> ... </think> at its head, and that; one end of it may be missing."""
    head = text.lstrip()
    if head.startswith(OPEN):
        thought, _, answer = head.removeprefix(OPEN).partition(CLOSE)
        return answer.lstrip(), thought.strip()
    thought, end, answer = text.partition(CLOSE)
    return (answer.lstrip(), thought.strip()) if end else (text, "")


def _joined(parts: list[Any]) -> tuple[Any, str]:
    """The texts of a content in parts, and its thoughts; or the parts, where one is neither."""
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


class Thoughts:
    """A text that comes in pieces, without what stands in <think> tags at its head."""

    def __init__(self) -> None:
        self.reasoning = ""
        self._held = ""
        self._within = self._answering = False

    def add(self, piece: str) -> str:
        """Add a piece; returns what of the answer can be shown now."""
        if self._answering:
            return piece
        self._held += piece
        if not self._within:
            head = self._held.lstrip()
            if len(head) < len(OPEN) and OPEN.startswith(head):
                return ""
            if not head.startswith(OPEN):
                self._answering = True
                return self._held
            self._within = True
            self._held = head.removeprefix(OPEN)
        thought, _, answer = self._held.partition(CLOSE)
        answer = answer.lstrip()
        if answer:
            self.reasoning = thought.strip()
            self._answering = True
        return answer

    def rest(self) -> str:
        """Nothing more comes: what was held back, unless it is reasoning without an end."""
        if self._within and not self._answering:
            self.reasoning = self._held.partition(CLOSE)[0].strip()
        return "" if self._within or self._answering else self._held
