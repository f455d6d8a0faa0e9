"""Simulated pool: an in-process client that draws its answers from probability distributions.

The client reads only the messages, as a server would: the synthetic question and the predecessors'
answers. An answer depends only on the request's content key, so nothing has to be stored. Token
counts follow from the task's average lengths, latencies from the model's speed. A variant has its
model's skill and capacity, unless others are given under its name.

A question has a latent difficulty z, standard normal over a task's questions. A single call is
right with probability logistic(skill - spread * z). The answers that a call reads make up its
load: 1 for each answer, and `growth` more for each revision of an answer. With a probability that
rises with load / capacity, the call loses the thread; it is then right only with probability
`chance`. An assistant's answer has one revision more than the most revised of its inputs; a fuser's
has one more than the share `carry` of that number. A call that keeps the thread answers according
to its role:

assistant  takes one of the answers. The probability that it repairs a wrong one is `repair` times
           the probability that a single call of skill + insight is right; the probability that it
           corrupts a right one is `corrupt` times the probability that a single call fails
fuser      takes one of the different answers. The odds of an answer are (number of its supporters)
           ** `majority`, for the right one times `discernment` * exp(-blur * load / capacity). The
           probability that it repairs a wrong one is `mend` times an assistant's

One of the few wrong answers to a question is the favourite, whose share of the wrong answers lies
between the two values of `favourite`. This makes wrong answers agree, so votes can fail.
"""

import hashlib
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Literal, NamedTuple

import yaml
from pydantic import Field, NonNegativeFloat, PositiveFloat, TypeAdapter

from ttsgraph.base.errors import DataError, SettingsError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.models.client import Client, Completion, Request, cut_at_stop
from ttsgraph.pool.engine import Probability
from ttsgraph.pool.spec import Lengths, ModelPool, ModelSpec
from ttsgraph.tasks.prompts import REQUESTS
from ttsgraph.tasks.synthetic import SyntheticProblem, named_in

_REVISIONS = re.compile(r"\(revision (\d+)\)$")
_RIGHT = 0


class TaskTraits(ClosedModel):
    """Traits of a task's questions, and of each model on them, in this module's terms. A variant
    has its model's traits unless its own name is listed.
    """

    skill: dict[str, float]
    """log-odds of being right on a question of average difficulty, by model"""
    capacity: dict[str, PositiveFloat]
    """load at which a model loses the thread with probability 1 - 1/e, by model"""
    spread: NonNegativeFloat
    """spread of difficulty over questions"""
    favourite: tuple[Probability, Probability]
    """range of the most frequent wrong answer's share of the wrong answers"""
    repair: Probability
    """factor in the probability that an assistant repairs a wrong answer"""
    insight: float
    """skill added by reading an answer, for repairs"""
    corrupt: Probability
    """factor in the probability that a right answer is corrupted"""
    majority: NonNegativeFloat
    """weight of the number of supporters in a fuser's choice"""
    discernment: PositiveFloat
    """odds with which a fuser recognises the right answer"""
    mend: Probability
    """a fuser's probability of repairing a wrong answer, as a share of an assistant's"""
    blur: NonNegativeFloat
    """decrease in discernment with load"""
    growth: NonNegativeFloat
    """load that each earlier revision of an answer adds"""
    carry: NonNegativeFloat
    """share of its inputs' revisions that a fuser's answer keeps"""
    steepness: PositiveFloat
    """steepness with which the probability of losing the thread rises around the capacity"""
    chance: Probability
    """probability of being right once the thread is lost"""


@cache
def worlds() -> dict[str, dict[str, TaskTraits]]:
    """Return the calibrated worlds by name: the traits of each kind of task."""
    data = yaml.safe_load(Path(__file__).with_name("worlds.yaml").read_text())
    return TypeAdapter(dict[str, dict[str, TaskTraits]]).validate_python(data)


class Simulation(ClosedModel):
    """World that the simulated engine answers in; it has figures, fitted to records, of the models
    of the profile that uses it.
    """

    world: Literal["paper", "coder"] | None = None
    """paper: the six models of arXiv 2511.00086; coder: two weak models"""
    skill: dict[str, float] = Field(default_factory=dict)
    """log-odds of being right on a question of average difficulty, by model or variant, where they
    differ from the world's
    """

    @property
    def tasks(self) -> dict[str, TaskTraits]:
        """Traits of the questions of each kind of task; empty without a world."""
        return {
            kind: traits.model_copy(update={"skill": traits.skill | self.skill})
            for kind, traits in (worlds()[self.world] if self.world else {}).items()
        }


def uniforms(text: str, count: int) -> list[float]:
    """Return `count` numbers (at most 16) in (0, 1) that are determined by `text`."""
    digest = hashlib.blake2b(text.encode(), digest_size=4 * count).digest()
    return [(number + 0.5) / 2**32 for number in struct.unpack(f"<{count}I", digest)]


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


class _Model(NamedTuple):
    """Traits of a model, or of a variant, on one task."""

    skill: float
    capacity: float
    speed: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _SimulatedQuestion:
    """Synthetic question with its latent traits."""

    problem: SyntheticProblem
    kind: str
    traits: TaskTraits
    z: float
    """difficulty, standard normal over a task's questions"""
    favourite: float
    """the most frequent wrong answer's share of the wrong answers"""


class SimulatedClient(Client):
    """Client that simulates a pool's models on synthetic questions, with the traits and average
    lengths of each task kind. Raises SettingsError if a model lacks a skill, a capacity or a speed.
    """

    def __init__(
        self, tasks: Mapping[str, TaskTraits], pool: ModelPool, lengths: Mapping[str, Lengths]
    ) -> None:
        self._tasks = tasks
        self._lengths = lengths
        self._pool = pool
        self._models = {
            (kind, name): _model(tasks, kind, spec)
            for kind in lengths
            for name, spec in pool.items()
        }
        self._asked: dict[str, _SimulatedQuestion] = {}

    def begin(self, request: Request) -> Completion:
        """Return an answer immediately. Raises DataError for a question that is not synthetic."""
        content = request.messages[-1].content
        blocks = content.split("\n\n")
        question = self._asked.get(blocks[0]) or self._recognise(blocks[0])
        model = self._models[question.kind, self._member(request)]
        draw = uniforms(request.key(), 5)
        drafts = [_read(question, block) for block in blocks[2:-1]]
        reply, revision = _reply(question, model, drafts, blocks[-1] == REQUESTS["fuse"], draw)
        said = f"{question.problem.replies[reply]}\n(revision {revision})"
        text = cut_at_stop(said, request.sampling.stop)
        lengths = self._lengths[question.kind]
        length = lengths.generated_tokens
        prompt_tokens = lengths.prompt_tokens + len(drafts) * length
        written_tokens = min((0.7 + 0.6 * draw[4]) * length, request.sampling.max_tokens)
        per_prompt_token, per_written_token = model.speed
        latency = prompt_tokens * per_prompt_token + written_tokens * per_written_token
        return Completion(text, round(prompt_tokens), round(written_tokens), latency)

    def _member(self, request: Request) -> str:
        """Return the pool member with these request settings: the matching variant with the most
        changes, or else the model.
        """
        first = request.messages[0]
        instruction = first.content if first.role == "system" else ""
        fitting = [
            (len(spec.variant.changes), spec.name)
            for spec in self._pool.values()
            if spec.variant
            and spec.model == request.model
            and spec.variant.instruction in (None, instruction)
            and spec.sampling(request.sampling) == request.sampling
        ]
        return max(fitting)[1] if fitting else request.model

    def _recognise(self, text: str) -> _SimulatedQuestion:
        problem = named_in(text)
        if problem is None or (kind := problem.name.partition("-")[0]) not in self._lengths:
            raise DataError(
                "the simulated pool: expected a synthetic question of its profile, found"
                f" {text[:60]!r}"
            )
        traits = self._tasks[kind]
        hard, position = uniforms(problem.name, 2)
        low, high = traits.favourite
        favourite = low + (high - low) * position
        z = NormalDist().inv_cdf(hard)
        question = _SimulatedQuestion(problem, kind, traits, z, favourite)
        self._asked[text] = question
        return question


def _read(asked: _SimulatedQuestion, block: str) -> tuple[int, int]:
    """Return the reply of a predecessor and its number of revisions, from the block that quotes
    it.
    """
    text = block[block.find("\n") + 1 : block.rfind("\n")]
    revisions = _REVISIONS.search(text)
    matches = (k for k, reply in enumerate(asked.problem.replies) if text.startswith(reply))
    return next(matches, 1), int(revisions[1]) if revisions else 0


def _reply(
    asked: _SimulatedQuestion,
    model: _Model,
    drafts: Sequence[tuple[int, int]],
    fuse: bool,
    draw: Sequence[float],
) -> tuple[int, int]:
    """Return a reply and its number of revisions, from the drafts that were read and four draws."""
    traits = asked.traits
    alone, repair, corrupt = _chances(asked, model)
    if not drafts:
        return (_RIGHT if draw[0] < alone else _wrong(asked, draw[3])), 0
    most = max(revision for _, revision in drafts)
    revision = 1 + (round(traits.carry * most) if fuse else most)
    load = len(drafts) + traits.growth * sum(revision for _, revision in drafts)
    strain = load / model.capacity
    if draw[0] < -math.expm1(-(strain**traits.steepness)):  # the call loses the thread
        return (_RIGHT if draw[1] < traits.chance else _wrong(asked, draw[3])), revision
    if fuse:
        replies = [reply for reply, _ in drafts]
        discernment = traits.discernment * math.exp(-traits.blur * strain)
        taken = _choose(replies, traits.majority, discernment, draw[1])
        return (_RIGHT if draw[2] < traits.mend * repair else taken), revision
    taken = drafts[int(draw[1] * len(drafts))][0]
    if taken == _RIGHT:
        return (_wrong(asked, draw[3]) if draw[2] < corrupt else _RIGHT), revision
    return (_RIGHT if draw[2] < repair else taken), revision


def _chances(asked: _SimulatedQuestion, model: _Model) -> tuple[float, float, float]:
    """Return the probabilities that a model is right on a question in a single call, repairs a
    wrong answer to it, and corrupts a right one.
    """
    traits = asked.traits
    alone = _logistic(model.skill - traits.spread * asked.z)
    repair = traits.repair * _logistic(model.skill + traits.insight - traits.spread * asked.z)
    return alone, repair, traits.corrupt * (1 - alone)


def _wrong(asked: _SimulatedQuestion, draw: float) -> int:
    """Pick a wrong reply: the favourite with its share, the others with equal probabilities."""
    if draw < asked.favourite:
        return 1
    others = len(asked.problem.replies) - 2
    return 2 + min(others - 1, int((draw - asked.favourite) / (1 - asked.favourite) * others))


def _choose(replies: Sequence[int], majority: float, discernment: float, draw: float) -> int:
    """Pick the reply that a fuser takes: the odds of a reply grow with the number of its
    supporters, and are better for the right one.
    """
    different = sorted(set(replies))
    weights = [
        replies.count(reply) ** majority * (discernment if reply == _RIGHT else 1.0)
        for reply in different
    ]
    left = draw * sum(weights)
    for reply, weight in zip(different, weights, strict=True):
        left -= weight
        if left < 0:
            return reply
    return different[-1]


def _model(tasks: Mapping[str, TaskTraits], kind: str, spec: ModelSpec) -> _Model:
    if spec.speed is None:
        raise SettingsError(
            f"pool model {spec.name!r}: expected a speed for the simulation (seconds per prompt"
            " and per generated token), found none"
        )
    try:
        traits = tasks[kind]
        own = spec.name if spec.name in traits.skill else spec.model
        full = spec.name if spec.name in traits.capacity else spec.model
        return _Model(traits.skill[own], traits.capacity[full], spec.speed)
    except KeyError as error:
        raise SettingsError(
            f"simulation: expected traits of model {spec.name!r} on {kind!r}, but there is no entry"
            f" for {error}"
        ) from None
