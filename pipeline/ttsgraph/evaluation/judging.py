"""Reliability of judges: their agreement with scores given by people, reported before any judge is
used.

Agreement is Cohen's kappa on right and wrong (scores of at least 1/2 count as right). A small
number of labels proves little, so the threshold applies to the lower bound of kappa's 95 %
interval: Wilson's bound on the observed agreement, taking the agreement expected by chance as
exact.
"""

from collections.abc import Sequence
from pathlib import Path

from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.base.waiting import together
from ttsgraph.evaluation.environment import wilson
from ttsgraph.models.client import Client, Completion
from ttsgraph.tasks.base import AskingTask, Question, Task, text_field
from ttsgraph.tasks.files import file_rows

RIGHT = 0.5
"""Lowest score that counts as right."""


Labelled = tuple[Question, str, float]
"""A question, an answer, and the score that people gave the answer, in [0, 1]."""


async def checked(task: Task, client: Client) -> str:
    """Return a report on a kind's judges, as a line for people; "" for a kind without judges.
    Raises SettingsError if the lower bound of the judges' agreement with the known scores is below
    the threshold, and DataError if the agreement can't be measured.
    """
    if not isinstance(task, AskingTask):
        return ""
    if task.options.known is None:
        return (
            "warning: the judges' agreement with people is unknown; set grading.known to a file of"
            " answers with scores"
        )
    known = known_scores(task, task.options.known)
    kappa, low = await agreement(task, known, client)
    least = getattr(task.options, "agreement", 0.0)
    if low < least:
        raise SettingsError(
            f"grading of kind {task.name}: expected judges whose kappa with"
            f" {task.options.known} has a 95 % lower bound of at least {least:g}"
            f" (grading.agreement), found {low:.2f} (kappa {kappa:.2f} on"
            f" {len(known)} answers); add known scores, or change the rubric or the models"
        )
    agreed = f"kappa {kappa:.2f}, at least {low:.2f} (95 %)"
    return f"judges agree with {len(known)} known scores: {agreed}"


async def agreement(
    task: AskingTask, known: Sequence[Labelled], client: Client
) -> tuple[float, float]:
    """Have the judges grade all known answers; return Cohen's kappa with people's scores and its
    95 % lower bound. Raises DataError if people call all answers right, or all wrong.
    """
    people = [score >= RIGHT for _, _, score in known]
    count = len(known)
    if len({*people}) < 2:
        raise DataError(
            f"{task.options.known}: expected known scores on both sides of {RIGHT:g}, found all"
            f" {count} on one side; add answers on the other"
        )
    calls = (task.judge(question, reply, client) for question, reply, _ in known)
    judged = [score >= RIGHT for score, _ in await together(calls)]
    right, said = sum(people) / count, sum(judged) / count
    chance = right * said + (1 - right) * (1 - said)
    agreed = sum(a == b for a, b in zip(people, judged, strict=True))
    low, _ = wilson(agreed, count)
    return (agreed / count - chance) / (1 - chance), (low - chance) / (1 - chance)


def known_scores(task: Task, path: Path) -> list[Labelled]:
    """Return a file's answers with the scores that people gave them. Raises DataError naming file,
    line and field if a row is not valid.
    """
    found = []
    for where, row in file_rows(path):
        score = row.get("score")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise DataError(
                f"{where}: expected a score from 0 to 1 in field 'score', found {score!r}"
            )
        reply = text_field(row, ("reply",), "a reply", where)
        found.append((task.parse(row, where), reply, float(score)))
    return found


def judged_line(calls: Sequence[Completion]) -> str:
    """Return the cost of judging as one line: the numbers of calls, new calls and tokens of the new
    calls.
    """
    made = [call for call in calls if not call.cached]
    tokens = sum(call.prompt_tokens + call.completion_tokens for call in made)
    return f"judges: {len(calls)} calls, {len(made)} of them made now, {tokens} tokens"
