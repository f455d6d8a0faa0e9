"""The stochastic model behind the simulated pool: what a model of a given skill does with a question and with others' answers.

A question has a latent difficulty z, standard normal over a task's questions. Alone, a model is right with probability
logistic(skill - spread * z). A call that reads others' answers carries a load: one for each answer, and `growth` more for every
revision that the answer has been through, because what is passed on grows with it. With a probability that rises with load over
capacity the call loses the thread, and is right only by chance (`chance`). Otherwise

assistant  takes one of the answers; a wrong one is repaired with `repair` times the probability that a model of skill + insight
           solves the question alone, a right one is corrupted with `corrupt` times the probability that the model fails alone
fuser      takes one of the different answers, with odds of (number of its supporters) ** `majority`, times `discernment` for the
           right one

Wrong answers are few per question, and one of them is a favourite: its share among them is drawn per question between the two
values of `favourite`. So errors agree with each other, and votes can fail.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from pipeline.parsing import Closed

Share = Annotated[float, Field(ge=0.0, le=1.0)]
_NORMAL = NormalDist()


class TaskTraits(Closed):
    """How a task's questions behave, for every model alike; the names are explained at the top of this module."""

    skill: dict[str, float]
    spread: NonNegativeFloat
    favourite: tuple[Share, Share]
    repair: Share
    insight: float
    corrupt: Share
    majority: NonNegativeFloat
    discernment: PositiveFloat
    growth: NonNegativeFloat
    steepness: PositiveFloat
    chance: Share


class Simulation(Closed):
    """A profile's `simulation` section: traits per task, and per model the load at which it loses the thread with 1 - 1/e."""

    capacity: dict[str, PositiveFloat] = Field(default_factory=dict)
    tasks: dict[str, TaskTraits] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chances:
    """What one model does with one question: probabilities of being right alone, of repairing, and of corrupting."""

    alone: float
    repair: float
    corrupt: float


def difficulty(name: str) -> tuple[float, float]:
    """A question's latent difficulty z and its position, in [0, 1), between the two values of `favourite`."""
    a, b = uniforms(name, 2)
    return _NORMAL.inv_cdf(a), b


def chances(traits: TaskTraits, skill: float, z: float) -> Chances:
    """Probabilities of a model of this skill on a question of difficulty z."""
    alone = _logistic(skill - traits.spread * z)
    repair = traits.repair * _logistic(skill + traits.insight - traits.spread * z)
    return Chances(alone, repair, traits.corrupt * (1 - alone))


def lost(traits: TaskTraits, capacity: float, load: float) -> float:
    """Probability of losing the thread under a load."""
    return -math.expm1(-((load / capacity) ** traits.steepness))


def uniforms(text: str, count: int) -> list[float]:
    """`count` numbers in (0, 1), at most 16, that depend on the text alone."""
    digest = hashlib.blake2b(text.encode(), digest_size=4 * count).digest()
    return [(int.from_bytes(digest[4 * k : 4 * k + 4], "little") + 0.5) / 2**32 for k in range(count)]


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))
