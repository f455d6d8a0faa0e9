"""Progress of a run: events, and the state that they add up to. The environment and the search
publish events without knowing who listens; a view keeps a RunState and shows it. Nothing here reads
a clock, because the view measures the elapsed time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

from ttsgraph.models.client import Usage

NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class QuestionDone:
    """Event: a question, or another unit of work, is done, whether answered or lost."""

    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class IterationStart:
    """Event: a search begins iteration `number` of at most `most`, with at most `left` questions
    still to answer, including the questions of this iteration.
    """

    number: int
    most: int
    left: int


@dataclass(frozen=True, slots=True)
class BestScore:
    """The best score so far: accuracy with its interval, and a label for what reached it."""

    accuracy: float
    low: float
    high: float
    what: str


class Expense(NamedTuple):
    """Real expense of a search, over all its starts: dollars, tokens (of prompts and answers) and
    seconds.
    """

    dollars: float = 0.0
    tokens: int = 0
    wall_s: float = 0.0

    def __add__(self, other: Expense) -> Expense:  # type: ignore[override]
        return Expense(*map(operator.add, self, other))

    def __sub__(self, other: Expense) -> Expense:
        return Expense(*map(operator.sub, self, other))


Event = QuestionDone | IterationStart | BestScore | Expense | str
"""Report of a run; a text is the outcome of a stage."""

Publish = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Ignore an event."""


Shown = Callable[[int], AbstractContextManager[Publish]]
"""Function that returns, given a number of questions, a context that shows their progress."""


def unseen(total: int) -> AbstractContextManager[Publish]:
    """Return a context that shows no progress."""
    return nullcontext(ignore)


@dataclass(frozen=True, slots=True)
class RunState:
    """State of a stage. `total` and `left` count questions (or other units of work); they are upper
    bounds, because a search may end early.
    """

    label: str
    total: int
    left: int
    iteration: IterationStart | None = None
    best: BestScore | None = None
    usage: Usage = NO_USAGE
    spent: Expense | None = None
    outcome: str = ""

    def after(self, event: Event) -> RunState:
        """Return the state after this event."""
        match event:
            case QuestionDone(usage):
                left = max(0, self.left - 1)
                return replace(self, left=left, usage=self.usage + usage)
            case IterationStart():
                return replace(self, iteration=event, left=event.left)
            case BestScore():
                return replace(self, best=event)
            case Expense():
                return replace(self, spent=event)
            case str():
                return replace(self, outcome=event)
