"""A task and a model tried on a few questions, end to end, before they are written down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


async def try_out(
    profile: Profile,
    task: str,
    model: str,
    shots: Sequence[Question],
    questions: Sequence[Question],
) -> tuple[Feedback, list[str]]:
    """One model alone on the first few questions: what came of it, also in lines for people. Raises
    InputError when not all of them could be asked.
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
    return feedback, [*checks, *_in_words(model, asked, feedback)]


def _in_words(model: str, questions: Sequence[Question], found: Feedback) -> Iterator[str]:
    """The score and, if something was answered wrong, one example of it."""
    seconds = f"({found.latency_s:.2f} s each)"
    if binary(found.grades):
        yield (
            f"{model} answered {found.n_correct:.4g} of {found.n_scored} questions right {seconds}"
        )
    else:
        yield f"{model} scores {found.accuracy:.3f} on {found.n_scored} questions {seconds}"
    for question, result in zip(questions, found.results, strict=True):
        if result.correct is not None and result.correct < 0.5:
            said = " ".join(result.answer.split())[:80]
            yield (
                f"for example: {question.text[:60]!r} expects {question.answer[:40]!r}, and it said"
                f" {said!r}"
            )
            break
    if found.n_correct == 0:
        yield (
            "none was right: see whether the prompt's style and the kind suit the model and the"
            " questions"
        )
