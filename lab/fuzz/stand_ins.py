"""Stand-ins for models in small searches, and questions that they can answer."""

import json
import random
import re
from dataclasses import dataclass
from typing import Any

from ttsgraph.base.errors import CallFailed, ContextOverflow, PromptRefused
from ttsgraph.models.client import Client, Completion, Request

KINDS = ("exact", "math", "number", "choice", "similarity", "regex", "json")
WORDS = ("ash", "birch", "cedar", "elm", "fir", "larch", "maple", "oak", "pine", "rowan")


@dataclass(frozen=True)
class Habits:
    """Habits of a stand-in: the shares of its answers that are right and that are blank; the shares
    of its calls that fail, that its provider refuses, and whose prompts are too long; and whether
    all its wrong answers to a question are the same.
    """

    right: float
    blank: float = 0.0
    fails: float = 0.0
    refuses: float = 0.0
    overflows: float = 0.0
    agrees: bool = False


class StandIns(Client):
    """Client that answers questions of one kind according to each model's habits; equal requests
    get equal answers.
    """

    def __init__(self, kind: str, habits: dict[str, Habits]) -> None:
        self.kind = kind
        self.habits = habits

    def begin(self, request: Request) -> Completion:
        """Complete a request according to the model's habits. Raises CallFailed, PromptRefused or
        ContextOverflow at the rates that they set.
        """
        habits = self.habits.get(request.model, Habits(0.8))
        draw = random.Random(request.key())
        if draw.random() < habits.fails:
            raise CallFailed(f"{request.model}: the server went away")
        if draw.random() < habits.refuses:
            raise PromptRefused(f"{request.model}: it triggers a content policy")
        if draw.random() < habits.overflows:
            raise ContextOverflow(f"{request.model}: the prompt is too long")
        text = request.messages[-1].content
        number = int((re.findall(r"#(\d+)", text) or ["0"])[-1])
        right = draw.random() < habits.right
        wrong = 1 if habits.agrees else draw.randrange(1, 5)
        said = f"Answer: {answer_of(self.kind, number if right else number + wrong)}"
        blank = draw.random() < habits.blank
        taken = len(text) // 4, draw.randrange(1, 40)
        return Completion("" if blank else said, *taken, draw.random())


def answer_of(kind: str, number: int) -> str:
    """Return the right answer to the question with this number."""
    if kind == "choice":
        return "ABCD"[number % 4]
    if kind == "json":
        return json.dumps({"value": number % 7})
    if kind in ("math", "number"):
        return str(number % 7)
    first, second = WORDS[number % 10], WORDS[number * 7 % 10]
    return f"{first} {second}" if kind == "similarity" else first


def rows_of(kind: str, count: int) -> list[dict[str, Any]]:
    """Return `count` rows with questions of this kind."""
    rows = []
    for number in range(count):
        row: dict[str, Any] = {"question": f"What is #{number}?", "answer": answer_of(kind, number)}
        if kind == "choice":
            row["choices"] = ["north", "east", "south", "west"]
        if kind == "json":
            row["answer"] = json.loads(row["answer"])
        rows.append(row)
    return rows
