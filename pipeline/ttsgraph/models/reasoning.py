"""Separation of a model's reasoning from its answer; reasoning is billed, but not passed on."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TAGS = ("think", "thinking", "thought", "reasoning", "seed:think")
"""Tags around reasoning: of DeepSeek, Qwen and GLM (think), EXAONE and Gemini (thought), Reka
(reasoning), and Seed-OSS.
"""

THOUGHT_MARKS = (
    *((f"<{tag}>", f"</{tag}>") for tag in _TAGS),
    ("[THINK]", "[/THINK]"),  # Magistral
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # OpenThinker, Sky-T1
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),  # Kimi-VL
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),  # gpt-oss
    ("<|channel|>commentary<|message|>", "<|channel|>final<|message|>"),
    ("<|start|>assistant<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("analysis", "assistantfinal"),  # gpt-oss, if a server drops its special tokens
)
"""Start and end marks of reasoning in a text; a new model may need another line."""

_ENDS_ALONE = tuple({end: None for _, end in THOUGHT_MARKS[:-1]})
"""End marks other than words: they may occur without their start mark, if it was in the prompt."""

_FIRST_LETTERS = frozenset(begin[0] for begin, _ in THOUGHT_MARKS)

_TURN_MARKS = re.compile(
    r"<\|(START_RESPONSE|END_RESPONSE|end|return|begin_of_solution|end_of_solution)\|>"
    r"|<\|start\|>assistant"
)
"""Turn marks around reasoning and answer that some servers leave in the text."""

END_MARKS = ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|return|>", "<end_of_turn>", "</s>")
"""Marks of a turn's end that some servers leave at the end of an answer."""

_KEYS = ("reasoning_content", "reasoning")
"""Names of the field that holds the reasoning, next to the content: DeepSeek, vLLM, SGLang and LM
Studio use the first; OpenRouter and Ollama use the second.
"""


def without_thoughts(text: str) -> tuple[str, str]:
    """Return the answer without leading reasoning, and the reasoning; one of the two marks around
    the reasoning may be missing.
    """
    head = text.lstrip()
    for begin, end in THOUGHT_MARKS if head[:1] in _FIRST_LETTERS else ():
        # "analysis" is also a word: without its end mark it belongs to the answer.
        if head.startswith(begin) and (end in head or begin != "analysis"):
            thought, _, answer = head.removeprefix(begin).partition(end)
            return _TURN_MARKS.sub("", answer).lstrip(), _TURN_MARKS.sub("", thought).strip()
    ends = [end for end in _ENDS_ALONE if end in text]
    if not ends:
        return text, ""
    thought, _, answer = text.partition(min(ends, key=text.find))
    return _TURN_MARKS.sub("", answer).lstrip(), thought.strip()


def without_end(text: str) -> str:
    """Return a text without the mark of a turn's end, if it ends with one."""
    if not text.endswith(END_MARKS):
        return text
    return text.removesuffix(next(mark for mark in END_MARKS if text.endswith(mark)))


def begun(text: str) -> bool:
    """Return True if an unfinished text may still turn out to be reasoning."""
    head = text.lstrip()
    return any(
        (head.startswith(begin) and end not in head) or begin.startswith(head)
        for begin, end in THOUGHT_MARKS
    )


def content_of(message: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the content of a message or delta as one text, and the reasoning next to or within it.

    Content that is neither text nor parts of text is returned unchanged.
    """
    content = message.get("content")
    reasoning = next((t for key in _KEYS if isinstance(t := message.get(key), str) and t), "")
    if isinstance(content, str):
        return content, reasoning
    parts = [*_parts(content)]
    if content != [] and not parts:
        return content, reasoning
    thoughts = "".join(text for text, is_thought in parts if is_thought)
    return "".join(text for text, is_thought in parts if not is_thought), reasoning or thoughts


def _parts(part: Any, is_thought: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the texts in a text, a part of content in Mistral's format or a list of these, each
    with True if it is reasoning; skip other kinds of parts.
    """
    if isinstance(part, str):
        yield part, is_thought
    elif isinstance(part, list):
        for each in part:
            yield from _parts(each, is_thought)
    elif isinstance(part, Mapping):
        inner = next((part[key] for key in ("thinking", "reasoning", "text") if key in part), None)
        yield from _parts(inner, is_thought or part.get("type") in ("thinking", "reasoning"))
