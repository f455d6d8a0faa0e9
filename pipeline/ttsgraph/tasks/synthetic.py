"""Synthetic questions for the simulated pool: any number of each kind, each generated from its own
number without files or network access. Each question contains its own name ("Synthetic problem
math-17: ..."), and has a right answer that the kind's grader accepts and a few plausible wrong
ones.
"""

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

Kind = Literal["math", "mmlu", "humaneval"]
MARK = re.compile(r"Synthetic problem (math|mmlu|humaneval)-(\d{1,9}):")


@dataclass(frozen=True, slots=True)
class SyntheticProblem:
    """A question as a source's raw row, and possible replies: the right one first, then the wrong
    ones, from most to least likely.
    """

    name: str
    row: dict[str, Any]
    replies: tuple[str, ...]


@lru_cache(maxsize=2**16)
def problem(kind: Kind, number: int) -> SyntheticProblem:
    """Return the problem of this kind and number; it is the same in every process."""
    name = f"{kind}-{number}"
    make = {"math": _math, "mmlu": _mmlu, "humaneval": _humaneval}[kind]
    return make(name, random.Random(name))


def named_in(text: str) -> SyntheticProblem | None:
    """Return the last problem that a text mentions, or None if it mentions none."""
    found: list[tuple[Kind, str]] = MARK.findall(text)
    return problem(found[-1][0], int(found[-1][1])) if found else None


def _math(name: str, rng: random.Random) -> SyntheticProblem:
    a, b, c = rng.randint(12, 98), rng.randint(12, 98), rng.randint(3, 97)
    right = a * b + c
    wrong = [a * b - c, right + 10, a * (b + c)]
    rng.shuffle(wrong)
    question = f"Synthetic problem {name}: what is {a} * {b} + {c}?"
    row = {"id": name, "question": question, "answer": str(right)}
    replies = tuple(f"The answer is \\boxed{{{value}}}." for value in (right, *wrong))
    return SyntheticProblem(name, row, replies)


def _mmlu(name: str, rng: random.Random) -> SyntheticProblem:
    a, b = rng.randint(12, 98), rng.randint(12, 98)
    values = [a + b, a + b + 10, a + b - 1, abs(a - b)]
    order = rng.sample(range(4), 4)
    letters = ["ABCD"[order.index(k)] for k in range(4)]
    row = {
        "id": name,
        "question": f"Synthetic problem {name}: what is {a} + {b}?",
        "choices": [str(values[k]) for k in order],
        "answer": letters[0],
    }
    return SyntheticProblem(name, row, tuple(f"The answer is ({letter})." for letter in letters))


def _humaneval(name: str, rng: random.Random) -> SyntheticProblem:
    a, b = rng.sample(range(2, 30), 2)
    right = [a * x + b for x in range(4)]
    head = "def solve(x: int) -> int:\n"
    bodies = [
        f"    return {a} * x + {b}",
        f"    return {a} * x - {b}",
        f"    return {a} * (x + {b})",
        f"    return {b} * x + {a}",
    ]
    row = {
        "task_id": name,
        "prompt": f'{head}    """Synthetic problem {name}: {a} times x, plus {b}."""\n',
        "canonical_solution": f"{bodies[0]}\n",
        "test": f"def check(candidate):\n    assert [candidate(x) for x in range(4)] == {right}\n",
        "entry_point": "solve",
    }
    return SyntheticProblem(name, row, tuple(f"```python\n{head}{body}\n```" for body in bodies))
