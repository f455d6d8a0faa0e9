"""A task and a model tried on a few questions, end to end, before they are written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ttsgraph.base.errors import InputError
from ttsgraph.evaluation.environment import Environment, Feedback, binary
from ttsgraph.evaluation.judging import checked
from ttsgraph.graphs import topologies
from ttsgraph.runtime.clients import open_client
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks import get_grader
from ttsgraph.tasks.base import Question

QUESTIONS = 5
"""On which a new task or model is tried."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of the trial: the model, the questions, and their answers and grades."""

    model: str
    questions: tuple[Question, ...]
    feedback: Feedback
    checks: tuple[str, ...] = ()
    """What was found out about those who grade."""

    def lines(self) -> list[str]:
        """For people: the score and, if something was answered wrong, one example of it."""
        found = self.feedback
        shown = [
            f"{self.model} answered {found.n_correct:.4g} of {found.n_scored} questions right"
            f" ({found.latency_s:.2f} s each)"
        ]
        if not binary(found.grades):
            shown = [
                f"{self.model} scores {found.accuracy:.3f} on {found.n_scored} questions"
                f" ({found.latency_s:.2f} s each)"
            ]
        for question, result in zip(self.questions, found.results, strict=True):
            if result.correct is not None and result.correct < 0.5:
                said = " ".join(result.answer.split())[:80]
                shown.append(
                    f"for example: {question.text[:60]!r} expects {question.answer[:40]!r}, and it"
                    f" said {said!r}"
                )
                break
        if found.n_correct == 0:
            shown.append(
                "none was right: see whether the prompt's style and the kind suit the model and the"
                " questions"
            )
        return [*self.checks, *shown]


async def try_out(
    profile: Profile,
    task: str,
    model: str,
    shots: Sequence[Question],
    questions: Sequence[Question],
) -> Tried:
    """One model alone on the first few questions. Raises InputError when not all of them could be
    asked.
    """
    settings = profile.task(task)
    grader = get_grader(settings.kind, profile.sandbox.accept_weaker, settings.grading)
    prompt = settings.prompt.prompt(grader, shots)
    asked = tuple(questions[:QUESTIONS])
    alone = profile.model_copy(update={"pool": {model: profile.pool[model]}})
    async with open_client(alone) as client:
        checks = await checked(grader, client)
        environment = Environment(
            grader, prompt, settings.sampling.sampling(), profile.model_pool(), client
        )
        feedback = await environment.evaluate(topologies.single(model), asked)
    if feedback.n_unscored:
        raise InputError(
            f"expected {len(asked)} answers of {model}, but {feedback.n_unscored} calls failed"
            f" ({feedback.error}); nothing was written, see that the endpoint works and start again"
        )
    return Tried(model, asked, feedback, tuple(checks))
