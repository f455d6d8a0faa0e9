"""Reliability of judges: their agreement with scores given by people, reported before any judge is
used.

Agreement is Cohen's kappa on right and wrong (scores of at least 1/2 count as right). A small
number of labels proves little, so the threshold applies to the lower bound of kappa's 95 %
interval: Wilson's bound on the observed agreement, taking the agreement expected by chance as
exact. Concordance is also reported: of the pairs of answers that people scored differently, the
share that the judges rank the same way (ties count half).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.evaluation.environment import wilson
from ttsgraph.models.client import Client, Completion
from ttsgraph.tasks.base import AskingTask, Question, Task, text_field
from ttsgraph.tasks.sources import JsonlSource, load_rows

RIGHT = 0.5
"""Lowest score that counts as right."""

LEAST_PAIRS = 10
"""Minimum number of pairs of answers with different scores; with fewer, agreement can't be
measured.
"""


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """An answer with the score that people gave it, in [0, 1]."""

    question: Question
    reply: str
    score: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of judges with known scores: kappa with its lower bound, concordance over `pairs`
    pairs of answers, and mean absolute error.
    """

    answers: int
    kappa: float
    kappa_low: float
    pairs: int
    concordance: float
    error: float

    @property
    def line(self) -> str:
        """Report for people."""
        return (
            f"judges agree with {self.answers} known scores: kappa {self.kappa:.2f}, at least"
            f" {self.kappa_low:.2f} (95 %), {100 * self.concordance:.0f} % of {self.pairs} pairs"
            f" ranked alike, off by {self.error:.2f} on average"
        )


async def checked(task: Task, client: Client) -> list[str]:
    """Return a report on a kind's judges, as lines for people; empty for a kind without judges.
    Raises SettingsError if the lower bound of the judges' agreement with the known scores is below
    the threshold, and DataError if the agreement can't be measured.
    """
    if not isinstance(task, AskingTask):
        return []
    if task.options.known is None:
        return [
            "warning: the judges' agreement with people is unknown; set grading.known to a file of"
            " answers with scores"
        ]
    found = await agreement(task, known_scores(task, task.options.known), client)
    least = getattr(task.options, "agreement", 0.0)
    if found.kappa_low < least:
        raise SettingsError(
            f"grading of kind {task.name}: expected judges whose kappa with"
            f" {task.options.known} has a 95 % lower bound of at least {least:g}"
            f" (grading.agreement), found {found.kappa_low:.2f} (kappa {found.kappa:.2f} on"
            f" {found.answers} answers); add known scores, or change the rubric or the models"
        )
    return [found.line]


async def agreement(task: AskingTask, known: Sequence[LabelledAnswer], client: Client) -> Agreement:
    """Have the judges grade all known answers, and compare their scores with people's. Raises
    DataError if too few pairs of answers can be compared.
    """
    calls = (task.judge(each.question, each.reply, client) for each in known)
    plain = [score for score, _ in await asyncio.gather(*calls)]
    people = [each.score for each in known]
    gaps = [
        (people[a] - people[b], plain[a] - plain[b])
        for a, b in combinations(range(len(known)), 2)
        if people[a] != people[b]
    ]
    ranked = [0.5 if judged == 0 else float((its > 0) == (judged > 0)) for its, judged in gaps]
    if len(ranked) < LEAST_PAIRS:
        raise DataError(
            f"{task.options.known}: expected at least {LEAST_PAIRS} pairs of answers with different"
            f" scores, found {len(ranked)}; add answers"
        )
    errors = [judged - person for judged, person in zip(plain, people, strict=True)]
    return Agreement(
        len(known),
        *_kappa(people, plain, task.options.known),
        len(ranked),
        sum(ranked) / len(ranked),
        sum(map(abs, errors)) / len(errors),
    )


def _kappa(
    people: Sequence[float], judged: Sequence[float], where: Path | None
) -> tuple[float, float]:
    """Return Cohen's kappa and its 95 % lower bound. Raises DataError if people call all answers
    right, or all wrong.
    """
    count = len(people)
    right = sum(score >= RIGHT for score in people) / count
    judged_share = sum(score >= RIGHT for score in judged) / count
    if right in (0, 1):
        raise DataError(
            f"{where}: expected known scores on both sides of {RIGHT:g}, found all on one side; add"
            " answers on the other"
        )
    agreed = sum((a >= RIGHT) == (b >= RIGHT) for a, b in zip(people, judged, strict=True))
    chance = right * judged_share + (1 - right) * (1 - judged_share)
    low, _ = wilson(agreed, count)
    return (agreed / count - chance) / (1 - chance), (low - chance) / (1 - chance)


def known_scores(task: Task, path: Path) -> list[LabelledAnswer]:
    """Return a file's answers with the scores that people gave them. Raises DataError naming file,
    line and field if a row is not valid.
    """
    found = []
    for where, row in load_rows(JsonlSource(kind="jsonl", path=path), 0):
        score = row.get("score")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise DataError(
                f"{where}: expected a score from 0 to 1 in field 'score', found {score!r}"
            )
        reply = text_field(row, ("reply",), "a reply", where)
        found.append(LabelledAnswer(task.parse(row, where), reply, float(score)))
    return found


def judged_line(task: Task, calls: Sequence[Completion]) -> str:
    """Return the cost of judging as one line: the numbers of calls, new calls and tokens of the new
    calls.
    """
    made = [call for call in calls if not call.cached]
    tokens = sum(call.prompt_tokens + call.completion_tokens for call in made)
    return f"judges: {len(calls)} calls, {len(made)} of them made now, {tokens} tokens"
