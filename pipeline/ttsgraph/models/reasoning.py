"""A model's thoughts before its answer: apart from it, paid for, and handed on to nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

THOUGHT_MARKS = (
    ("<think>", "</think>"),  # DeepSeek, Qwen, GLM
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),  # EXAONE, Gemini
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("[THINK]", "[/THINK]"),  # Magistral
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),  # gpt-oss
    ("analysis", "assistantfinal"),  # gpt-oss, where a server drops its tokens
)
"""How thoughts begin and end in a text: data, to which a line adds a model."""

_ENDS_ALONE = tuple(end for _, end in THOUGHT_MARKS[:6])
"""Ends that are no words: a text may have one alone, where the prompt had the beginning."""

_ALSO_WORDS = ("analysis",)
"""Beginnings that are also a word: without their end they begin an answer."""

_TURN_MARKS = (
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|end|>",
    "<|return|>",
    "<|start|>assistant",
)
"""Marks of the turn around the two, as far as a server leaves them in."""

_KEYS = ("reasoning_content", "reasoning")
"""Next to the content: DeepSeek's, vLLM's, SGLang's, LM Studio's; OpenRouter's, Ollama's."""


def without_thoughts(text: str) -> tuple[str, str]:
    """Return a text without the thoughts at its head, and those; an end of them may be missing."""
    head = text.lstrip()
    for begin, end in THOUGHT_MARKS:
        if head.startswith(begin) and (end in head or begin not in _ALSO_WORDS):
            thought, _, answer = head.removeprefix(begin).partition(end)
            return _unmarked(answer).lstrip(), _unmarked(thought).strip()
    found = min(((text.find(end), end) for end in _ENDS_ALONE if end in text), default=None)
    if found is None:
        return text, ""
    thought, _, answer = text.partition(found[1])
    return _unmarked(answer).lstrip(), thought.strip()


def begun(text: str) -> bool:
    """Return whether a text that goes on may turn out to be thoughts so far."""
    head = text.lstrip()
    return any(
        (head.startswith(begin) and end not in head) or begin.startswith(head)
        for begin, end in THOUGHT_MARKS
    )


def content_of(message: Mapping[str, Any]) -> tuple[Any, str]:
    """Return a message's or a delta's content in one text, and the reasoning next to or within it;
    the content as it is where it is neither a text nor parts of one.
    """
    content = message.get("content")
    told = next((text for key in _KEYS if isinstance(text := message.get(key), str) and text), "")
    if not isinstance(content, list):
        return content, told
    texts: list[str] = []
    thoughts: list[str] = []
    for part in content:
        _add_part(part, texts, thoughts)
    if content and not texts and not thoughts:
        return content, told
    return "".join(texts), told or "".join(thoughts)


def _add_part(part: Any, texts: list[str], thoughts: list[str]) -> None:
    """Sort in one part of a content, as Mistral sends them; kinds that are no text are skipped."""
    if isinstance(part, str):
        texts.append(part)
    elif isinstance(part, Mapping) and part.get("type") in ("thinking", "reasoning"):
        said = part.get("thinking", part.get("reasoning", part.get("text")))
        for each in said if isinstance(said, list) else [said]:
            _add_part({"text": each} if isinstance(each, str) else each, thoughts, thoughts)
    elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
        texts.append(part["text"])


def _unmarked(text: str) -> str:
    for mark in _TURN_MARKS:
        text = text.replace(mark, "")
    return text
