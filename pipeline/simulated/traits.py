"""The stochastic model behind the simulated pool: what a model of a given skill does with a
question and with others' answers.

A question has a latent difficulty z, standard normal over a task's questions. Alone, a model is
right with probability logistic(skill - spread * z). A call that reads others' answers carries a
load: one for each answer, and `growth` more for every revision that the answer has been through,
because what is passed on grows with it. With a probability that rises with load over capacity the
call loses the thread, and is right only by chance (`chance`). An assistant's answer has been
through one revision more than any that it read; a fuser writes its answer anew, and `carry` is the
share of those revisions that stays in it. Otherwise

assistant  takes one of the answers; a wrong one is repaired with `repair` times the probability
           that a model of skill + insight solves the question alone, a right one is corrupted with
           `corrupt` times the probability that the model fails alone
fuser      takes one of the different answers, with odds of (number of its supporters) **
           `majority`, for the right one times `discernment`, which falls with the load as exp(-blur
           * load / capacity); a wrong one it repairs as an assistant does, with `mend` times the
           probability

Wrong answers are few per question, and one of them is a favourite: its share among them is drawn
per question between the two values of `favourite`. So errors agree with each other, and votes can
fail.

Three traits are 0 in the calibrated tasks and make other worlds (`worlds/`): `own` is the share of
a question's difficulty that is a family's own, so that families complement each other; `alike` the
probability that a draw repeats what the model always says to a question, so that draws of one model
err alike; `noise` the share of questions whose key is wrong: the favourite counts as right.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from ttsgraph.base.parsing import Closed

Share = Annotated[float, Field(ge=0.0, le=1.0)]
_NORMAL = NormalDist()


class TaskTraits(Closed):
    """How a task's questions behave, and each model on them; the names are explained at the top of
    this module.

    A model whose load is its capacity loses the thread with probability 1 - 1/e. A variant may
    stand beside its model under its own name; where it does not, it is as its model.
    """

    skill: dict[str, float]
    capacity: dict[str, PositiveFloat]
    spread: NonNegativeFloat
    favourite: tuple[Share, Share]
    repair: Share
    insight: float
    corrupt: Share
    majority: NonNegativeFloat
    discernment: PositiveFloat
    mend: Share
    blur: NonNegativeFloat
    growth: NonNegativeFloat
    carry: NonNegativeFloat
    steepness: PositiveFloat
    chance: Share
    own: Share = 0.0
    alike: Share = 0.0
    noise: Share = 0.0


class Simulation(Closed):
    """A profile's `simulation` section: traits per task."""

    tasks: dict[str, TaskTraits] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chances:
    """What one model does with one question: probabilities of being right alone, of repairing, and
    of corrupting.
    """

    alone: float
    repair: float
    corrupt: float


def difficulty(name: str) -> tuple[float, float]:
    """A question's latent difficulty z and its position, in [0, 1), between the two values of
    `favourite`.
    """
    a, b = uniforms(name, 2)
    return _NORMAL.inv_cdf(a), b


def family_difficulty(traits: TaskTraits, name: str, family: str, z: float) -> float:
    """The difficulty of a question for models of a family: `own` of its variance is the family's
    alone.
    """
    if not traits.own:
        return z
    own = _NORMAL.inv_cdf(uniforms(f"{name} {family}", 1)[0])
    return math.sqrt(1 - traits.own) * z + math.sqrt(traits.own) * own


def miskeyed(traits: TaskTraits, name: str) -> bool:
    """Whether the question's key is wrong, so that the favourite wrong answer counts as right."""
    return bool(traits.noise) and uniforms(f"{name} key", 1)[0] < traits.noise


def chances(traits: TaskTraits, skill: float, z: float) -> Chances:
    """Probabilities of a model of this skill on a question of difficulty z."""
    alone = _logistic(skill - traits.spread * z)
    repair = traits.repair * _logistic(skill + traits.insight - traits.spread * z)
    return Chances(alone, repair, traits.corrupt * (1 - alone))


@dataclass(frozen=True, slots=True)
class Strain:
    """What a load does to a model: the probability of losing the thread, and a fuser's odds factor
    for the right answer.
    """

    lost: float
    discernment: float


def strain(traits: TaskTraits, capacity: float, load: float) -> Strain:
    """The strain of a load on a model of this capacity."""
    share = load / capacity
    return Strain(
        -math.expm1(-(share**traits.steepness)), traits.discernment * math.exp(-traits.blur * share)
    )


def uniforms(text: str, count: int) -> list[float]:
    """`count` numbers in (0, 1), at most 16, that depend on the text alone."""
    digest = hashlib.blake2b(text.encode(), digest_size=4 * count).digest()
    return [(number + 0.5) / 2**32 for number in struct.unpack(f"<{count}I", digest)]


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))
