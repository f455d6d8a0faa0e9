"""Pools as tables, which hold the probability of each reply by model and question.

The tables don't follow the assumptions of the response model: questions have topics, models form
clusters, errors may overlap, replies may be unreadable, keys may be wrong, and a call handles the
replies that it reads by a simple rule. All tables are simulated.
"""

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
"""Number of wrong replies to a question. These are numbered from 1; the right reply is 0, and an
unreadable one is -1.
"""

LENGTHS = Lengths(100, 100)
"""Token counts of a question and of an answer; each answer that a call reads adds the latter count
to its prompt.
"""

FILLER = ["the", "a", "of", "in", "what", "is", "how", "many", "which", "would", "one", "find"]
TOPICS = ["law", "chess", "bread", "stars", "rivers", "metal", "verbs", "birds"]


@dataclass(frozen=True, slots=True)
class Member:
    """Model in a pool: its price in dollars per million tokens, its mean accuracy, and how much its
    answers to a question vary (`firmness`: if small, the answer is nearly always the same).

    `blank` is the share of replies that are unreadable, and `honest` the share of wrong replies
    that become unreadable. A `greedy` model always gives a question the same reply. `reads`
    replaces the pool's `check` and `follow` for this model.
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
    """Recipe of a table. `common` is the correlation of difficulty over all models, and `shared`
    the correlation within a cluster, whose models also have the same wrong replies. `skills`
    replaces the members' accuracies with an accuracy for each member (rows) on each topic
    (columns); topics are equally frequent.

    A call that reads replies takes a right one among them with probability `check`; otherwise it
    takes the most frequent one with probability `follow`, or else gives its own reply. `noise` is
    the share of wrong keys, and `favoured` the share of questions whose wrong replies are all the
    same. `spoken` is the number of topics that texts can name; most texts name the topic of their
    question. If `long` is set, questions on the second half of the topics have long texts.
    `rambling` is the standard deviation of the logarithm of answer lengths; answers to hard
    questions are longer. Later questions are harder by `drift` standard deviations, and are more
    often about the first topics.
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
        """Members that always give a question the same reply."""
        return frozenset(name for name, member in self.members.items() if member.greedy)

    def models(self) -> ModelPool:
        """Return the members as a model pool, with their prices."""
        return ModelPool(
            tuple(
                ModelSpec(name, name, None, None, None, None, Price(member.price, member.price))
                for name, member in self.members.items()
            )
        )


@dataclass(frozen=True, slots=True)
class Sheet:
    """Questions of a table: their `texts`; `shares`, the probability of each reply by model,
    question and reply (first the unreadable one, then the right one, then the WRONG wrong ones); by
    question, `key`, the reply that is graded as right, and `prompt`, the prompt's token count; and,
    by model and question, `written`, the answer's token count.
    """

    texts: Sequence[str]
    shares: FloatArray
    key: IntArray
    prompt: FloatArray
    written: FloatArray


class Table(ArrayWorld):
    """Answers of a pool's models to the questions of a sheet, drawn with `seed`."""

    def __init__(self, pool: Pool, sheet: Sheet, seed: int, kept: int = 600) -> None:
        # ArrayWorld's constructor is not called: it needs the simulation's traits, which a table
        # doesn't have.
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
        """Return the replies of a model to the questions `at` these places, given three draws for
        each question and, in `inputs`, the replies that the model reads.
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
        """Return for each question the cost, in dollars, of a model's call that reads `reads`
        answers.
        """
        tokens = self.sheet.prompt + reads * LENGTHS.generated_tokens
        written = self.sheet.written[self.place[model]]
        return np.asarray((tokens + written) * self.recipe.members[model].price / 1e6)

    def measured(self, graph: CollaborationGraph) -> tuple[FloatArray, FloatArray]:
        """Return for each question 1 if a graph answers it correctly, else 0, and the graph's cost
        in dollars.
        """
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
    """Return a table of `count` questions of a pool, drawn with `seed`; if `later` is set, they are
    the later questions, to which the pool's drift applies.
    """
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
    """Return texts of random words; if the pool's texts name topics, about a tenth name none."""
    texts = []
    for k, topic in enumerate(topics.tolist()):
        words = [*rng.choice(FILLER, 80 if pool.long and topic >= 0.5 else 8)]
        if pool.spoken and rng.random() < 0.9:
            subject = TOPICS[int(topic * pool.spoken)]
            words += [subject, f"{subject}x{'abcd'[int(rng.integers(4))]}"]
        texts.append(f"Case {k:05}: {' '.join(rng.permutation(words))}")
    return texts


def _shares(
    pool: Pool, rng: np.random.Generator, topics: FloatArray, hard: FloatArray
) -> FloatArray:
    """Return the probability of each reply by model, question and reply: first the unreadable one,
    then the right one, then the wrong ones.
    """
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
    """Return the share of each wrong reply among the wrong replies, by question. Shares are drawn
    at random, or the first wrong reply gets everything if the question is favoured.
    """
    spread = rng.dirichlet(np.full(WRONG, 0.7), len(favoured))
    spread[favoured] = np.eye(WRONG)[0]
    return spread
