"""Whether any text has a grade, and how long the slowest takes: replies of models, changed at
random, over every kind that grades by itself. Programs are only found in a reply, not run, and
formulas not compared: both happen in processes that have limits of their own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from lab.benchmarks.measured import Ratio
from ttsgraph.tasks import get_task
from ttsgraph.tasks.humaneval import HumanEvalTask, _program
from ttsgraph.tasks.math import MathTask

COUNT = 200_000
LIMIT_MS = 50.0
LONGEST = 60_000
ROWS: dict[str, dict[str, Any]] = {
    "math": {"question": "What is the root of 2?", "answer": "\\sqrt{2}"},
    "mmlu": {"question": "What is blue?", "choices": ["grass", "snow", "the sky"], "answer": 2},
    "choice": {"question": "What is blue?", "choices": ["grass", "the sky"], "answer": 1},
    "number": {"question": "How many days?", "answer": "1,200"},
    "exact": {"question": "Who wrote it?", "answer": "The Brothers Grimm"},
    "similarity": {"question": "When is it paid?", "answer": "Within five days."},
    "regex": {"question": "What is the order's number?", "answer": "AB-12"},
    "json": {"question": "Who, and how old?", "answer": {"name": "Ann", "age": 30}},
    "humaneval": {
        "task_id": "Sum/0",
        "prompt": 'from typing import List\n\n\ndef add_all(xs: List) -> int:\n    """Sum."""\n',
        "entry_point": "add_all",
        "canonical_solution": "    return sum(xs)\n",
        "test": "def check(candidate):\n    assert candidate([1, 2, 3]) == 6\n",
    },
}
REPLIES = (
    "Let's think step by step. First, $2 + 2 = 4$. Thus the answer is $\\boxed{\\frac{1}{4}}$.",
    "The correct answer is **(C) the sky**, because A and B are wrong.",
    "<think>Maybe A? No.</think>\n\nAnswer: B) the sky",
    "### Final Answer\n\n\\[ x = 3\\sqrt{2} \\]\n\nLet me know if you need more.",
    '```json\n{"name": "Ann", "age": 30, "tags": ["a", null, 1.5e3]}\n```',
    "Sure!\n```python\ndef add_all(xs):\n    total = 0\n    for x in xs:\n        total += x\n"
    "    return total\n```\nIt adds them.",
    "class Solution:\n    def addAll(self, xs: list[int]) -> int:\n        return sum(xs)\n",
    "The order's number is AB-12, paid within five days by card: $1,200.50 (12.5 %).",
    "A: grass\nB: snow\nC: the sky\nD: coal\n\nI'd go with C.",
    "答案是 C。 La réponse est (C). Die Antwort lautet: C.",
)
PIECES = (
    *("The answer is ", "answer: ", "#### ", "A ", "(A) ", "B. ", "so A ", "not ", "A, ", "**"),
    *("\\boxed{", "\\text{", "\\frac{", "$", "(", ")", "{", "}", "[", "]", "[1,", '{"a":', '"'),
    *(
        "<think>",
        "</think>",
        "\n",
        "\r",
        "```\n",
        "```python\n",
        "~~~",
        "> ",
        "def f(x):\n",
        "    ",
    ),
    *(
        "1",
        "1,",
        "1/",
        "9^",
        "-",
        ". ",
        " ",
        "\t",
        "\u200b",
        "x=",
        ".1",
        "\\",
        "\0",
        "\ud800",
        "% ",
    ),
    *("lambda: ", "'''", '"""', "#", "@", ":=", "\U0001f600", "\u0416", "e9", "1:2", "∞", "\\n"),
)


def texts(count: int, seed: int = 0) -> Iterator[str]:
    """So many texts, the same ones for a seed."""
    chance = random.Random(seed)
    for _ in range(count):
        text = chance.choice(REPLIES)
        for _ in range(chance.randint(1, 6)):
            text = _mutated(text, chance)
        yield text[:LONGEST]


def _mutated(text: str, chance: random.Random) -> str:
    at = chance.randint(0, len(text))
    end = min(len(text), at + chance.randint(0, 40))
    changes: tuple[Callable[[], str], ...] = (
        lambda: text[:at] + text[end:],
        lambda: text[:at] + chance.choice(PIECES) + text[at:],
        lambda: text[:at] + chance.choice(PIECES) * chance.choice((2, 9, 99)) + text[at:],
        lambda: text[:at] + text[at:end] * chance.choice((2, 9, 99)) + text[end:],
        lambda: text + "\n" + chance.choice(REPLIES),
        lambda: text[:at] + chr(chance.choice((chance.randint(0, 255), chance.randint(0, 0xFFFF)))),
        lambda: text[end:] + text[:at],
        lambda: text[:at] + text[at:].swapcase(),
        lambda: text[:at] + chance.choice(PIECES) * 9_999 + text[at:],
    )
    weights = (4, 6, 3, 2, 2, 2, 2, 1, 0.05)
    return chance.choices(changes, weights)[0]()


def graded(kind: str, question: Any, text: str) -> None:
    """Grade a text as far as that is done in this process. Raises what the grader raises, and
    TypeError for what is no grade.
    """
    task = get_task(kind)
    form = task.extract(text)
    if not (form is None or isinstance(form, str)):
        raise TypeError(f"{kind}: expected an answer as a text or none, found {form!r}")
    if isinstance(task, MathTask):
        task.at_once(question, form)
    elif isinstance(task, HumanEvalTask):
        _program(question, text, question.meta["test"])
    elif not 0 <= task.grade(question, text) <= 1:
        raise TypeError(f"{kind}: expected a grade from 0 to 1")


def measure() -> list[Ratio]:
    """Graders that failed on any text, and the slowest grade in ms of processor time."""
    return measured(COUNT)


def measured(count: int) -> list[Ratio]:
    """The same over so many texts."""
    questions = {kind: get_task(kind).parse(row, kind) for kind, row in ROWS.items()}
    failed: list[str] = []
    slow = dict.fromkeys(ROWS, (0.0, ""))
    each = count // len(ROWS)
    for number, kind in enumerate(ROWS):
        for text in texts(each, number):
            took = _took(kind, questions[kind], text, failed)
            for _ in range(2 if took > LIMIT_MS else 0):  # something else may have had the machine
                took = min(took, _took(kind, questions[kind], text, failed))
            slow[kind] = max(slow[kind], (took, text[:80]))
    slowest = max(slow, key=lambda kind: slow[kind])
    details = {kind: round(took, 1) for kind, (took, _) in slow.items()} | {
        "texts": each * len(ROWS),
        "the slowest": f"{slowest}: {slow[slowest][1]!r}",
        "failures": "; ".join(dict.fromkeys(failed)) or "none",
    }
    return [
        Ratio("graders that fail on a changed reply", len(failed), "at most", 0, details),
        Ratio("ms of the slowest grade", round(slow[slowest][0], 1), "at most", LIMIT_MS, details),
    ]


def _took(kind: str, question: Any, text: str, failed: list[str]) -> float:
    start = time.thread_time()
    try:
        graded(kind, question, text)
    except Exception as error:
        failed.append(f"{kind}: {type(error).__name__}: {error} on {text[:60]!r}")
    return 1000 * (time.thread_time() - start)
