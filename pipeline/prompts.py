"""How a question, worked examples and predecessors' answers become chat messages.

Everything that many calls share comes first (instruction, worked examples), then the question, then the predecessors' answers in
a stable order, so that a server's prefix cache can reuse the longest possible start.

few_shot  one user message that a model continues after "A:"; for base and very small models
chat      an instruction and the question; for instruction-tuned models
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.models.client import Message
from pipeline.tasks.base import Question, Task

Style = Literal["few_shot", "chat"]
Purpose = Literal["refine", "fuse"]

LABELS: dict[Purpose, str] = {"refine": "Draft", "fuse": "Candidates"}
"""What few-shot prompts call the predecessors' answers."""

REQUESTS: dict[Purpose, str] = {
    "refine": "Check the work above for mistakes, then write your own improved and complete solution.",
    "fuse": "These solutions may disagree. Judge which reasoning holds, then write one complete final solution.",
}
"""What chat prompts ask for once the predecessors' answers are shown."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A task's way of speaking to models: instruction, style and worked examples (few_shot only)."""

    task: Task
    instruction: str
    style: Style = "chat"
    shots: tuple[Question, ...] = ()


def compose(prompt: Prompt, question: Question, answers: Sequence[str], purpose: Purpose) -> tuple[Message, ...]:
    """The messages for one node: the question alone, or with the predecessors' answers and what to do with them."""
    if prompt.style == "few_shot":
        return (Message("user", _few_shot(prompt, question, answers, purpose)),)
    return _chat(prompt, question, answers, purpose)


def _chat(prompt: Prompt, question: Question, answers: Sequence[str], purpose: Purpose) -> tuple[Message, ...]:
    parts = [prompt.task.render(question)]
    if answers:
        parts += [f"Solution {number}:\n{answer.strip()}" for number, answer in enumerate(answers, 1)]
        parts.append(REQUESTS[purpose])
    return (Message("system", prompt.instruction), Message("user", "\n\n".join(parts)))


def _few_shot(prompt: Prompt, question: Question, answers: Sequence[str], purpose: Purpose) -> str:
    blocks = [prompt.instruction] if prompt.instruction else []
    for number, shot in enumerate(prompt.shots):
        candidates = _example_candidates(prompt.shots, number, len(answers))
        blocks.append(_block(prompt.task, shot, candidates, purpose) + f" {shot.answer}")
    blocks.append(_block(prompt.task, question, [_short(prompt.task, answer) for answer in answers], purpose))
    return "\n\n".join(blocks)


def _block(task: Task, question: Question, candidates: Sequence[str], purpose: Purpose) -> str:
    lines = [f"Q: {task.render(question)}"]
    if candidates:
        lines.append(f"{LABELS[purpose]}: {', '.join(candidates)}")
    return "\n".join([*lines, "A:"])


def _short(task: Task, answer: str) -> str:
    """An answer as few-shot prompts show it: its extracted form, else its text on one line."""
    return task.extract(answer) or " ".join(answer.split()) or "none"


def _example_candidates(shots: Sequence[Question], number: int, count: int) -> list[str]:
    """`count` candidate answers for a worked example: mostly right, every third example's first one wrong, so that copying is
    not always right. Wrong ones are other examples' answers."""
    right = shots[number].answer
    wrong = [shot.answer for shot in shots if shot.answer != right] or [right]
    return [wrong[(number + k) % len(wrong)] if (number + k) % 3 == 0 else right for k in range(count)]
