"""Pools as tables: the probability of each reply per model and question.

Nothing here has the form that the response model assumes: questions come in topics and clusters,
errors overlap or don't, replies may be unreadable, keys may be wrong, and a call follows a rule for
the replies that it reads. All of it is simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import beta

from lab.pools.arrays import ArrayWorld, NodeReplies
from ttsgraph.base.arrays import FloatArray, IntArray
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.settle import leading, needs
from ttsgraph.pool.spec import Lengths, ModelPool, ModelSpec, Price
from ttsgraph.tasks.base import Question

WRONG = 5
"""Number of wrong replies to a question; the right one is 0, an unreadable one -1."""

LENGTHS = Lengths(100, 100)
"""Tokens of a question and of an answer, which are added to the prompt of a call that reads it."""

FILLER = ["the", "a", "of", "in", "what", "is", "how", "many", "which", "would", "one", "find"]
TOPICS = ["law", "chess", "bread", "stars", "rivers", "metal", "verbs", "birds"]


@dataclass(frozen=True, slots=True)
class Member:
    """A model: its dollars per million tokens, its mean accuracy, the variation of its answers to a
    question (small: always the same), the share of unreadable replies, and the share of its wrong
    replies that it leaves out (`honest`).

    A `greedy` model always gives a question the same reply. `reads` replaces the pool's `check` and
    `follow` for this model.
    """

    price: float = 1.0
    accuracy: float = 0.6
    firmness: float = 1.0
    blank: float = 0.0
    cluster: str = ""
    greedy: bool = False
    honest: float = 0.0
    reads: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Recipe of a table. `common` is the correlation of difficulty over all models, `shared` within
    a cluster of models, which share wrong replies too. `skills` are accuracies of each model (rows)
    in each of equally frequent topics, in place of the members'.

    A call that reads takes a right reply among them with probability `check`, else the most
    frequent with `follow`, else gives its own. `noise` is the share of wrong keys, `favoured` of
    questions whose wrong replies are all the same. Texts of most questions name their topic of
    `spoken` topics, and if `long` is set, texts of the later half of the topics are long.
    `rambling` is the spread of the logarithm of answers' lengths, hard questions' being longer.
    Later questions are harder by `drift` standard deviations, and more often on the first topics.
    """

    description: str
    members: Mapping[str, Member]
    common: float = 0.3
    shared: float = 0.8
    noise: float = 0.0
    favoured: float = 0.2
    check: float = 0.1
    follow: float = 0.6
    skills: Sequence[Sequence[float]] = ()
    spoken: int = 0
    long: bool = False
    rambling: float = 0.0
    drift: float = 0.0

    @property
    def greedy(self) -> frozenset[str]:
        """Members that give a question the same reply each time."""
        return frozenset(name for name, member in self.members.items() if member.greedy)

    def models(self) -> ModelPool:
        """Members with their prices."""
        return ModelPool(
            tuple(
                ModelSpec(name, name, None, None, None, None, Price(member.price, member.price))
                for name, member in self.members.items()
            )
        )


@dataclass(frozen=True, slots=True)
class Sheet:
    """Questions: texts, (M, Q, 2 + WRONG) probabilities of replies, the unreadable one first, then
    the right one; (Q,) the key's reply and tokens of the prompt, and (M, Q) tokens of answers.
    """

    texts: Sequence[str]
    shares: FloatArray
    key: IntArray
    prompt: FloatArray
    written: FloatArray


class Table(ArrayWorld):
    """Answers of a pool's models to the questions of a sheet, drawn with `seed`."""

    def __init__(self, pool: Pool, sheet: Sheet, seed: int, kept: int = 600) -> None:
        # without the simulation's traits, which belong to models that react by a formula
        self._setup(pool.models(), len(sheet.texts), seed, kept, pool.greedy)
        self.recipe = pool
        self.sheet = sheet
        self.right = sheet.key
        self.place = {name: k for k, name in enumerate(pool.members)}
        self._cumulative = sheet.shares.cumsum(axis=2)
        self._fixed = np.random.default_rng([seed, 2]).random((len(self.place), self.count))

    def reply(
        self,
        model: str,
        draws: FloatArray,
        inputs: Sequence[IntArray],
        at: slice | IntArray = slice(None),
    ) -> IntArray:
        """Replies of a model to questions, given (3, Q) draws and the replies (Q,) that
        it reads.
        """
        place = self.place[model]
        first = self._fixed[place, at] if model in self.greedy else draws[0]
        table = self._cumulative[place, at]
        own = (first[:, None] * table[:, -1:] >= table).sum(axis=1) - 1
        if not inputs:
            return own
        member = self.recipe.members[model]
        check, follow = member.reads or (self.recipe.check, self.recipe.follow)
        replies = np.stack(inputs)
        most, votes = leading(replies)
        taken = replies[most, np.arange(len(own))]
        said = np.where((draws[1] < follow) & (votes > 0), taken, own)
        seen = (replies == 0).any(axis=0) & (draws[2] < check)
        return np.where(seen, 0, said)

    def _speak(self, node: Node, inputs: Sequence[NodeReplies], signature: int) -> NodeReplies:
        draws = np.random.default_rng([self.seed, 1, signature]).random((3, self.count))
        replies = self.reply(node.model, draws, [said.replies for said in inputs])
        return NodeReplies(replies, np.zeros(self.count))

    def dollars(self, model: str, reads: int = 0) -> FloatArray:
        """(Q,) cost of a call that reads `reads` answers."""
        tokens = self.sheet.prompt + reads * LENGTHS.generated_tokens
        written = self.sheet.written[self.place[model]]
        return np.asarray((tokens + written) * self.recipe.members[model].price / 1e6)

    def measured(self, graph: CollaborationGraph) -> tuple[FloatArray, FloatArray]:
        """(Q,) True for right answers, and (Q,) cost in dollars."""
        right = np.zeros(self.count)
        dollars = np.zeros(self.count)
        taken = np.zeros(self.count, dtype=np.intp)
        if graph.route is not None:
            questions = (Question(str(k), text, "") for k, text in enumerate(self.sheet.texts))
            taken = np.array([graph.branch_of(question) for question in questions])
        for k, branch in enumerate(graph.branches):
            nodes = {i: said.replies for i, said in self.nodes(branch).items()}
            cost = sum(
                made * self.dollars(branch.node(i).model, len(branch.reads[i]))
                for i, made in needs(branch, nodes).calls.items()
            )
            right = np.where(taken == k, nodes[branch.sink] == self.right, right)
            dollars = np.where(taken == k, cost, dollars)
        return right, dollars


def table_of(pool: Pool, count: int, seed: int, later: bool = False, kept: int = 600) -> Table:
    """`count` questions of a pool, drawn with `seed`; with `later` after its drift."""
    rng = np.random.default_rng([seed, 7])
    members = pool.members.values()
    key = (rng.random(count) < pool.noise).astype(np.intp)
    drift = pool.drift * later
    topics = rng.random(count) ** (1 + drift)
    hard = rng.standard_normal(count)
    shares = _shares(pool, rng, topics, hard - drift)
    spread = rng.standard_normal((len(members), count)) - hard
    written = LENGTHS.generated_tokens * np.exp(pool.rambling * spread / np.sqrt(2))
    prompt = np.full(count, float(LENGTHS.prompt_tokens))
    return Table(pool, Sheet(_texts(pool, rng, topics), shares, key, prompt, written), seed, kept)


def _texts(pool: Pool, rng: np.random.Generator, topics: FloatArray) -> list[str]:
    """Texts of random words, one in ten of which doesn't name its topic."""
    texts = []
    for k, topic in enumerate(topics.tolist()):
        words = [*rng.choice(FILLER, 80 if pool.long and topic >= 0.5 else 8)]
        if pool.spoken and rng.random() < 0.9:
            subject = TOPICS[int(topic * pool.spoken)]
            words += [subject, f"{subject}x{'abcd'[int(rng.integers(4))]}"]
        texts.append(f"Case {k}: {' '.join(rng.permutation(words))}")
    return texts


def _shares(
    pool: Pool, rng: np.random.Generator, topics: FloatArray, hard: FloatArray
) -> FloatArray:
    """(M, Q, 2 + WRONG) probability of each reply, the unreadable one first, then the right one."""
    count = len(topics)
    members = list(pool.members.values())
    mean = np.array([m.accuracy for m in members])[:, None] * np.ones(count)
    if pool.skills:
        skills = np.array(pool.skills)
        mean = skills[:, (topics * skills.shape[1]).astype(int)]
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
        found[k, :, 2:] = ((1 - member.honest) * (1 - right))[:, None] * mine
        found[k] *= 1 - member.blank
        found[k, :, 0] = 1 - found[k, :, 1:].sum(axis=1)
    return found


def _forms(rng: np.random.Generator, favoured: np.ndarray) -> FloatArray:
    """(Q, WRONG) shares of the wrong replies: spread evenly, or on the favourite of a question that
    has one.
    """
    spread = rng.dirichlet(np.full(WRONG, 0.7), len(favoured))
    spread[favoured] = np.eye(WRONG)[0]
    return spread
