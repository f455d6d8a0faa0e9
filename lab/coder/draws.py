"""Draws: single answers of pool members to every question, repeated as often as draws.yaml says.

A draw has the same key as the call of a graph node without predecessors, so all votes,
best-of-n graphs and cascades can be replayed from draws.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import PositiveInt

from ttsgraph.base.parsing import ClosedModel, load
from ttsgraph.evaluation.executor import manner_of
from ttsgraph.models.client import Request
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.prompts import compose
from ttsgraph.tasks.sources import load_questions

PLAN = Path("lab/coder/draws.yaml")


class Draws(ClosedModel):
    """One line of the plan: how many answers (`replicas`) one member gives to each question of a
    task.
    """

    task: str
    member: str
    replicas: PositiveInt


class Plan(ClosedModel):
    """Content of lab/coder/draws.yaml; `seed` is the seed with which questions are loaded."""

    profile: str
    seed: int
    draws: tuple[Draws, ...]


@dataclass(frozen=True)
class Draw:
    """One call to record, with its question, member and replica."""

    question: Question
    member: str
    replica: int
    request: Request


def read_plan(path: Path = PLAN) -> tuple[Plan, Profile]:
    """Read the plan and its profile. Raises SettingsError if either is invalid."""
    plan = load(Plan, path)
    return plan, load_profile(plan.profile)


def questions_of(profile: Profile, task: str, seed: int) -> Sequence[Question]:
    """Return all questions of a task, in the source's order. Raises DataError if they can't be
    loaded.
    """
    settings = profile.task(task)
    return load_questions(settings.task, settings.source, seed)


def draws_of(profile: Profile, line: Draws, questions: Sequence[Question]) -> Iterator[Draw]:
    """Yield the calls of one line of the plan, grouped by question, so that a server with a prompt
    cache reads each prompt once.
    """
    settings = profile.task(line.task)
    task = settings.task
    sampling = settings.sampling.sampling()
    spec = profile.model_pool()[line.member]
    manner = manner_of(spec, sampling, settings.prompt.prompt(task, ()))
    ask = partial(Request, manner.model, manner.revision)
    for question in questions:
        messages = compose(task, manner.prompt, question, [], "refine")
        for replica in range(line.replicas):
            request = ask(messages, manner.sampling, replica)
            yield Draw(question, line.member, replica, request)
