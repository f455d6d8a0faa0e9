"""MMLU's development questions out of the worked examples that lm-eval ships
(tasks/mmlu/flan_cot_fewshot/_cot_prompts.json).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ttsgraph.base.errors import DataError

_ITEM = re.compile(r"^Q: (.*?)\nA: (.*?)(?=\n+Q: |\Z)", re.DOTALL | re.MULTILINE)
_CHOICE = re.compile(r"\s*\(([A-E])\)\s")
_ANSWER = re.compile(r"answer is:? *\(?([A-E])\b", re.IGNORECASE)


def flan_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Rows {id, question, choices, answer, subject}, each with where it stands. Raises DataError,
    also for an item it can't read.

    The file maps a subject to a text of items "Q: question, (A) ... (B) ..., A: reasoning. The
    answer is (X)."
    """
    try:
        subjects = json.loads(path.read_text(encoding="utf-8"))
        items = {subject: _ITEM.findall(text) for subject, text in subjects.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path}: expected lm-eval's worked examples as JSON, but {error}"
        ) from None
    return [
        (where, _row(subject, number, question, reasoning, where))
        for subject, found in items.items()
        for number, (question, reasoning) in enumerate(found)
        for where in [f"{path.name}:{subject}/{number}"]
    ]


def _row(subject: str, number: int, text: str, reasoning: str, where: str) -> dict[str, Any]:
    question, *rest = _CHOICE.split(text)
    letters = rest[::2]
    choices = [choice.strip() for choice in rest[1::2]]
    answers = _ANSWER.findall(reasoning)
    if letters != list("ABCDE")[: len(letters)] or len(letters) < 4 or not answers:
        raise DataError(
            f"{where}: expected choices (A) to (D) and 'The answer is (X)', found {text[-60:]!r}"
        )
    return {
        "id": f"{subject}/{number}",
        "question": question.strip(),
        "choices": choices,
        "answer": answers[-1].upper(),
        "subject": subject,
    }
