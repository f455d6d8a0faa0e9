"""Pools as tables: per model and question, how likely each reply is.

Nothing here is of the form that the response model assumes: questions come in topics and clusters,
errors overlap or don't, replies may be unreadable, keys may be wrong, and what a call makes of
replies that it reads is a rule. All of it is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import beta

from lab.worlds.arrays import ArrayWorld, Said
from ttsgraph.base.arrays import FloatArray
from ttsgraph.graphs.graph import Node
from ttsgraph.graphs.settle import leading
from ttsgraph.pool.spec import Lengths, ModelPool, ModelSpec, Price

WRONG = 5
"""Wrong replies to a question; the right one is 0, an unreadable one -1."""

LENGTHS = Lengths(100, 100)


@dataclass(frozen=True, slots=True)
class Member:
    """A model: its price in cheap calls, its mean accuracy, how firmly it answers a question one
    way (small: always the same), and the share of its replies that can't be read.
    """

    price: float = 1.0
    accuracy: float = 0.6
    firmness: float = 1.0
    blank: float = 0.0
    cluster: str = ""
    greedy: bool = False


@dataclass(frozen=True, slots=True)
class Pool:
    """A table's recipe. `common` is the correlation of what all models find hard, `shared` that of
    a cluster's models, which have the same wrong replies too; `skills` may change accuracies by
    topic.

    A call that reads takes a right reply among them with probability `check`, else the most
    frequent with `follow`, else gives its own. `noise` is the share of wrong keys, `favoured` of
    questions whose wrong replies are all the same.
    """

    description: str
    members: Mapping[str, Member]
    common: float = 0.3
    shared: float = 0.8
    noise: float = 0.0
    favoured: float = 0.2
    check: float = 0.1
    follow: float = 0.6
    skills: Callable[[FloatArray, Sequence[str]], FloatArray] | None = None

    @property
    def greedy(self) -> frozenset[str]:
        """The members that give a question the same reply each time."""
        return frozenset(name for name, member in self.members.items() if member.greedy)

    def models(self) -> ModelPool:
        """Its members with their prices: a call costs that many dollars."""
        rate = 1e6 / (LENGTHS.prompt_tokens + LENGTHS.generated_tokens)
        return ModelPool(
            tuple(
                ModelSpec(name, name, None, None, None, None, Price(m.price * rate, m.price * rate))
                for name, m in self.members.items()
            )
        )


class TableWorld(ArrayWorld):
    """`count` questions of a pool, drawn with `seed`."""

    def __init__(self, pool: Pool, count: int, seed: int, kept: int = 3000) -> None:
        # Not the simulation's traits, which are of models that react by a formula.
        self._setup(pool.models(), count, seed, kept, pool.greedy)
        self.recipe = pool
        rng = np.random.default_rng([seed, 7])
        self.right = (rng.random(count) < pool.noise).astype(np.intp)
        self._cumulative = _shares(pool, rng, count).cumsum(axis=2)
        self._place = {name: k for k, name in enumerate(pool.members)}

    def _speak(self, node: Node, inputs: Sequence[Said], signature: int) -> Said:
        place = self._place[node.model]
        greedy = node.model in self.greedy
        draws = np.random.default_rng([self.seed, 1, signature]).random((3, self.count))
        if greedy:
            draws[0] = np.random.default_rng([self.seed, 2, place]).random(self.count)
        table = self._cumulative[place]
        own = (draws[0][:, None] * table[:, -1:] >= table).sum(axis=1) - 1
        if not inputs:
            return Said(own, np.zeros(self.count))
        replies = np.stack([said.replies for said in inputs])
        first, votes = leading(replies)
        most = replies[first, np.arange(self.count)]
        said = np.where((draws[1] < self.recipe.follow) & (votes > 0), most, own)
        seen = (replies == 0).any(axis=0) & (draws[2] < self.recipe.check)
        return Said(np.where(seen, 0, said), np.zeros(self.count))


def _shares(pool: Pool, rng: np.random.Generator, count: int) -> FloatArray:
    """(M, Q, 2 + WRONG) how likely each reply is, the unreadable one first, then the right one."""
    members = list(pool.members.values())
    names = list(pool.members)
    topics = rng.random(count)
    mean = np.array([m.accuracy for m in members])[:, None] * np.ones(count)
    if pool.skills is not None:
        mean = pool.skills(topics, names)
    hard = rng.standard_normal(count)
    clusters = {m.cluster: rng.standard_normal(count) for m in members if m.cluster}
    favoured = rng.random(count) < pool.favoured
    forms = {key: _forms(rng, favoured) for key in clusters}
    found = np.zeros((len(members), count, 2 + WRONG))
    for k, member in enumerate(members):
        own = rng.standard_normal(count)
        mine = _forms(rng, favoured)
        if member.cluster:
            own = np.sqrt(pool.shared) * clusters[member.cluster] + np.sqrt(1 - pool.shared) * own
            mine = forms[member.cluster]
        z = np.sqrt(pool.common) * hard + np.sqrt(1 - pool.common) * own
        right = beta.ppf(
            np.clip(ndtr(z), 1e-9, 1 - 1e-9),
            member.firmness * mean[k] + 1e-3,
            member.firmness * (1 - mean[k]) + 1e-3,
        )
        found[k, :, 1] = right
        found[k, :, 2:] = (1 - right)[:, None] * mine
        found[k] *= 1 - member.blank
        found[k, :, 0] = member.blank
    return found


def _forms(rng: np.random.Generator, favoured: np.ndarray) -> FloatArray:
    """(Q, WRONG) shares of the wrong replies: spread, or where a question favours one, that."""
    spread = rng.dirichlet(np.full(WRONG, 0.7), len(favoured))
    spread[favoured] = np.eye(WRONG)[0]
    return spread


def _specialists(topics: FloatArray, names: Sequence[str]) -> FloatArray:
    """Each model is good at one topic, the last one fair at all."""
    count = len(names) - 1
    topic = np.minimum((topics * count).astype(int), count - 1)
    return np.array(
        [*(np.where(topic == k, 0.95, 0.35) for k in range(count)), np.full(len(topics), 0.6)]
    )


def _sure(topics: FloatArray, names: Sequence[str]) -> FloatArray:
    """The first model is right of most questions and lost on the others, the last one good at
    all.
    """
    lost = topics < 0.3
    good = np.full(len(topics), 0.955)
    return np.array([np.where(lost, 0.1, 0.995), np.where(lost, 0.1, 0.6), good][: len(names)])


def _equal(count: int) -> dict[str, Member]:
    return {f"m{k}": Member(accuracy=0.6, firmness=0.8) for k in range(count)}


def _mixed(count: int) -> dict[str, Member]:
    """Prices from 1 to 10, accuracies that go with them loosely, six clusters."""
    rng = np.random.default_rng(5)
    found = {}
    for k in range(count):
        price = float(round(10 ** rng.uniform(0, 1), 1))
        accuracy = float(np.clip(0.4 + 0.12 * np.log2(price) + rng.normal(0, 0.07), 0.25, 0.9))
        found[f"m{k}"] = Member(
            price, accuracy, float(rng.uniform(0.4, 3)), 0.1 * (k % 4 == 0), f"c{k % 6}"
        )
    found["m0"] = Member(1.0, 0.45, 1.0)
    return found


POOLS: dict[str, Pool] = {
    "equals": Pool("eight equal models with errors of their own", _equal(8), common=0.2),
    "equals-ten": Pool(
        "ten equal models, two of them greedy",
        _equal(8) | {f"g{k}": Member(1.0, 0.62, 0.8, greedy=True) for k in range(2)},
        common=0.4,
    ),
    "overlap": Pool(
        "three clusters of models that err together",
        {f"{c}{k}": Member(1.0, 0.55 + 0.03 * k, 0.8, cluster=c) for c in "abc" for k in range(3)},
        common=0.2,
        shared=0.9,
    ),
    "noisy-keys": Pool(
        "one key in eight is wrong",
        {
            "small": Member(1, 0.55),
            "middle": Member(2, 0.7),
            "large": Member(6, 0.85),
            "other": Member(2, 0.62, 2.0),
        },
        noise=0.125,
    ),
    "topics": Pool(
        "one specialist a topic",
        {f"s{k}": Member(1.0, firmness=1.5) for k in range(4)} | {"all": Member(2.0)},
        skills=_specialists,
    ),
    "thirty": Pool("thirty mixed models", _mixed(30)),
    "blanks": Pool(
        "the best models' replies are often unreadable",
        {
            "a": Member(1, 0.75, 1.0, 0.4),
            "b": Member(1, 0.7, 1.0, 0.3),
            "c": Member(1, 0.5, 1.0),
            "d": Member(3, 0.72, 1.0, 0.1),
        },
    ),
    "blanks-all": Pool(
        "half of all replies are unreadable",
        {f"m{k}": Member(1, 0.6 + 0.04 * k, 0.6, 0.5) for k in range(4)},
        common=0.6,
    ),
    "dear-sure": Pool(
        "a cheap model that is sure where it is right, and a dear one",
        {
            "cheap": Member(1, firmness=6.0),
            "other": Member(1, firmness=2.0),
            "dear": Member(10, firmness=0.02),
        },
        common=0.0,
        favoured=0.0,
        skills=_sure,
    ),
    "one-strong": Pool(
        "one strong model among weak ones of its price",
        {"strong": Member(1, 0.8, 2.0)} | {f"w{k}": Member(1, 0.4, 1.0) for k in range(5)},
    ),
    "favourites": Pool(
        "on half of the questions all errors are the same",
        {
            "a": Member(1, 0.5, 1.0),
            "b": Member(1, 0.55, 1.0),
            "c": Member(4, 0.65, 1.0),
            "d": Member(4, 0.66, 3.0),
        },
        favoured=0.5,
        common=0.5,
    ),
    "readers": Pool(
        "who reads a right answer mostly sees that it is right",
        {"a": Member(1, 0.4, 3.0), "b": Member(1, 0.45, 3.0), "c": Member(5, 0.6, 2.0)},
        check=0.8,
        follow=0.5,
    ),
    "firm": Pool(
        "models that nearly always repeat themselves",
        {
            "a": Member(1, 0.6, 0.1),
            "b": Member(1, 0.58, 0.1),
            "c": Member(2, 0.66, 0.1),
            "d": Member(2, 0.55, 2.0),
        },
    ),
    "dear-and-many": Pool(
        "one dear model, nine cheap ones of different worth",
        {"dear": Member(8, 0.82, 1.0)}
        | {f"c{k}": Member(1, 0.4 + 0.025 * k, 1.0) for k in range(9)},
        common=0.25,
    ),
}
"""Constants of the search are chosen on CHOSEN_ON alone."""

CHOSEN_ON = ("equals", "overlap", "blanks", "dear-sure", "favourites", "thirty", "noisy-keys")
