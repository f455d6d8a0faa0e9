"""How far judges can be trusted: their agreement with scores that people gave, reported before any
judge is used.

Agreement is concordance: of pairs of answers that people scored differently, the share that the
judges rank the same way (ties count half), so that chance is 1/2 whatever scale either uses. Two
biases are looked for: of position (the reference shown before the answer, then after it), and of
length (whether the judges' error goes with how long an answer is).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.models.client import Client, Completion
from ttsgraph.tasks.base import AskingTask, Question, Task
from ttsgraph.tasks.rows import text_field
from ttsgraph.tasks.sources import JsonlSource, load_rows

LEAST_PAIRS = 10
"""Pairs of answers with different scores, below which agreement can't be told."""

ODD_SHIFT = 0.1
ODD_LENGTH = 0.5
"""Mean change of a score by position, and rank correlation of error and length, from which a bias
is called one.
"""


@dataclass(frozen=True, slots=True)
class Known:
    """An answer with the score that people gave it, in [0, 1]."""

    question: Question
    reply: str
    score: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of judges with known scores: concordance over `pairs`, mean error, mean change by position,
    correlation with length.
    """

    answers: int
    pairs: int
    concordance: float
    error: float
    shift: float
    length: float

    def lines(self) -> list[str]:
        """For people."""
        shown = [
            f"judges agree with {self.answers} known scores: {100 * self.concordance:.0f} % of"
            f" {self.pairs} pairs ranked alike (chance is 50 %), off by {self.error:.2f} on average"
        ]
        if self.shift > ODD_SHIFT:
            shown.append(
                f"warning: judges are biased by position: their scores change by {self.shift:.2f}"
                " when the answer comes first"
            )
        if abs(self.length) > ODD_LENGTH:
            likes = "long" if self.length > 0 else "short"
            shown.append(
                f"warning: judges favour {likes} answers: their error goes with length"
                f" ({self.length:+.2f})"
            )
        return shown


async def checked(task: Task, client: Client) -> list[str]:
    """What a kind's judges are worth, in lines for people; none for a kind without judges.

    Raises SettingsError when they agree with the known scores no better than chance, DataError when
    that can't be told.
    """
    if not isinstance(task, AskingTask):
        return []
    if task.options.known is None:
        return [
            "warning: how far the judges agree with people is not known; grading.known names"
            " answers with scores"
        ]
    found = await agreement(task, known_scores(task, task.options.known), client)
    if found.concordance <= 0.5:
        raise SettingsError(
            f"grading of kind {task.name}: judges worse than chance: of {found.pairs} pairs of"
            f" answers with different scores in {task.options.known} they rank"
            f" {100 * found.concordance:.0f} % alike (chance is 50 %); change rubric or models"
        )
    return found.lines()


async def agreement(task: AskingTask, known: Sequence[Known], client: Client) -> Agreement:
    """Have all known answers judged, with the reference before and after the answer, and
    compare. Raises DataError when too few can be compared.
    """

    async def scored(each: Known) -> tuple[float, float]:
        first = task.judge(each.question, each.reply, client)
        second = task.judge(each.question, each.reply, client, swapped=True)
        (plain, _), (swapped, _) = await asyncio.gather(first, second)
        return plain, swapped

    scores = await asyncio.gather(*map(scored, known))
    plain = [score for score, _ in scores]
    people = [each.score for each in known]
    alike = [
        _alike(people[a] - people[b], plain[a] - plain[b])
        for a, b in combinations(range(len(known)), 2)
    ]
    told = [each for each in alike if each is not None]
    if len(told) < LEAST_PAIRS:
        raise DataError(
            f"{task.options.known}: expected at least {LEAST_PAIRS} pairs of answers with different"
            f" scores, found {len(told)}; add some"
        )
    errors = [judged - person for judged, person in zip(plain, people, strict=True)]
    return Agreement(
        len(known),
        len(told),
        sum(told) / len(told),
        sum(map(abs, errors)) / len(errors),
        sum(abs(a - b) for a, b in scores) / len(scores),
        _correlation(errors, [len(each.reply) for each in known]),
    )


def _alike(people: float, judged: float) -> float | None:
    """1 where two answers are ranked alike, 0 where not, 1/2 where the judges see no difference;
    None where people see none.
    """
    if people == 0:
        return None
    return 0.5 if judged == 0 else float((people > 0) == (judged > 0))


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    if len(set(first)) < 2 or len(set(second)) < 2:
        return 0.0
    from scipy.stats import spearmanr  # slow to import, and needed where judges are checked alone

    found = float(spearmanr(first, second).statistic)
    return 0.0 if math.isnan(found) else found


def known_scores(task: Task, path: Path) -> list[Known]:
    """The answers of a file with the scores that people gave them. Raises DataError that names
    file, line and field.
    """
    found = []
    for where, row in load_rows(JsonlSource(kind="jsonl", path=path), 0):
        score = row.get("score")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise DataError(
                f"{where}: expected a score from 0 to 1 in field 'score', found {score!r}"
            )
        found.append(
            Known(
                task.parse(row, where), text_field(row, ("reply",), "a reply", where), float(score)
            )
        )
    return found


def judged_line(task: Task, calls: Sequence[Completion]) -> str:
    """What judging took: calls, and those that were made anew, with their tokens."""
    made = [call for call in calls if not call.cached]
    tokens = sum(call.prompt_tokens + call.completion_tokens for call in made)
    return f"judges: {len(calls)} calls, {len(made)} of them made now, {tokens} tokens"
