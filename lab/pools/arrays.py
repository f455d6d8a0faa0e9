"""The simulated pool as arrays over all questions: replies have the same distribution as in
`ttsgraph/pool/simulated.py`, but are drawn separately.

A study of many worlds runs a hundred thousand graphs; with arrays, a graph of 20 calls on 2,000
questions takes milliseconds. tests/lab/test_arrays.py compares the two distributions.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from ttsgraph.base.arrays import BoolArray, FloatArray, IntArray
from ttsgraph.evaluation.environment import Evaluator, Feedback, Job, NodeResult, QuestionResult
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs.budget import critical_path
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.settle import RUNS, GraphDemand, needs, settle
from ttsgraph.graphs.stopping import run_times
from ttsgraph.models.client import Usage
from ttsgraph.pool.simulated import TaskTraits
from ttsgraph.pool.spec import Lengths, ModelPool
from ttsgraph.searching.response.evidence import call_signatures
from ttsgraph.tasks.base import Question

REPLIES = 4
"""Number of replies to a synthetic question: first the right one, then the favourite wrong one,
then the other wrong ones.
"""


@dataclass(frozen=True, slots=True)
class NodeReplies:
    """Answers of one node: for each question, the index of the reply and the reply's number of
    revisions.
    """

    replies: IntArray
    revisions: FloatArray


class ArrayWorld:
    """World of `count` questions, drawn with `seed`, and the answers of the pool's models to them.

    A node's answers depend only on the node's call signature and the seed, so graphs share the
    calls that they would share through a cache. `kept` is the maximum number of nodes whose answers
    are cached.
    """

    def __init__(
        self, traits: TaskTraits, pool: ModelPool, count: int, seed: int, kept: int = 3000
    ) -> None:
        self._setup(pool, count, seed, kept)
        self.traits = traits
        rng = np.random.default_rng([seed, 0])
        z = rng.standard_normal(count)
        low, high = traits.favourite
        self._favourite = low + (high - low) * rng.random(count)
        self.right = np.zeros(count, dtype=np.intp)
        self._alone: dict[str, FloatArray] = {}
        self._repair: dict[str, FloatArray] = {}
        for name in pool:
            skill = traits.skill[name]
            self._alone[name] = expit(skill - traits.spread * z)
            self._repair[name] = traits.repair * expit(skill + traits.insight - traits.spread * z)

    def _setup(
        self,
        pool: ModelPool,
        count: int,
        seed: int,
        kept: int,
        greedy: frozenset[str] = frozenset(),
    ) -> None:
        self.pool = pool
        self.count = count
        self.seed = seed
        self.kept = kept
        self.greedy = greedy
        self.right = np.zeros(count, dtype=np.intp)
        self._said: OrderedDict[int, NodeReplies] = OrderedDict()

    def run(self, graph: CollaborationGraph) -> BoolArray:
        """Return for each question whether the graph answers it correctly."""
        return np.asarray(self.nodes(graph)[graph.sink].replies == self.right)

    def accuracy(self, graph: CollaborationGraph) -> float:
        """Return the share of all questions that the graph answers correctly."""
        return float(self.run(graph).mean())

    def nodes(self, graph: CollaborationGraph) -> dict[int, NodeReplies]:
        """Return the answers of each node to all questions."""
        found: dict[int, NodeReplies] = {}
        for i, signature in call_signatures(graph, self.greedy).items():
            answers = self._said.get(signature)
            if answers is None:
                answers = self._said[signature] = self._say(graph, i, found, signature)
                if len(self._said) > self.kept:
                    self._said.popitem(last=False)
            found[i] = answers
        return found

    def _say(
        self, graph: CollaborationGraph, i: int, found: Mapping[int, NodeReplies], signature: int
    ) -> NodeReplies:
        """Return the answers of a node: a predecessor's reply verbatim where the node votes or its
        gate stays closed, and the node's own reply otherwise.
        """
        node = graph.node(i)
        before = graph.predecessors[i]
        speaks = get_role(node.role).calls_model
        own = self._speak(node, [found[p] for p in graph.reads[i]], signature) if speaks else None
        if own is not None and not node.adaptive:
            return own
        taken = settle(graph, i, {p: found[p].replies for p in before}).taken
        columns = np.arange(self.count)
        replies = np.stack([found[p].replies for p in before])[taken, columns]
        revisions = np.stack([found[p].revisions for p in before])[taken, columns]
        if own is None:
            return NodeReplies(replies, revisions)
        runs = taken == RUNS
        return NodeReplies(
            np.where(runs, own.replies, replies), np.where(runs, own.revisions, revisions)
        )

    def _speak(self, node: Node, inputs: Sequence[NodeReplies], signature: int) -> NodeReplies:
        draws = np.random.default_rng([self.seed, 1, signature]).random((4, self.count))
        if not inputs:
            return NodeReplies(self._answer(node.model, draws), np.zeros(self.count))
        return self._react(node, inputs, draws)

    def _answer(self, model: str, draws: FloatArray) -> IntArray:
        return np.where(draws[0] < self._alone[model], 0, self._wrong(draws[3]))

    def _react(self, node: Node, inputs: Sequence[NodeReplies], draws: FloatArray) -> NodeReplies:
        traits = self.traits
        model = node.model
        replies = np.stack([said.replies for said in inputs])
        revisions = np.stack([said.revisions for said in inputs])
        most = revisions.max(axis=0)
        fuse = node.role == "fuser"
        revision = 1 + (np.round(traits.carry * most) if fuse else most)
        share = (len(inputs) + traits.growth * revisions.sum(axis=0)) / traits.capacity[model]
        lost = -np.expm1(-(share**traits.steepness))
        by_chance = np.where(draws[1] < traits.chance, 0, self._wrong(draws[3]))
        if fuse:
            taken = self._chosen(
                replies, traits.discernment * np.exp(-traits.blur * share), draws[1]
            )
            reply = np.where(draws[2] < traits.mend * self._repair[model], 0, taken)
        else:
            taken = replies[(draws[1] * len(inputs)).astype(np.intp), np.arange(self.count)]
            spoilt = np.where(
                draws[2] < traits.corrupt * (1 - self._alone[model]), self._wrong(draws[3]), 0
            )
            repaired = np.where(draws[2] < self._repair[model], 0, taken)
            reply = np.where(taken == 0, spoilt, repaired)
        return NodeReplies(np.where(draws[0] < lost, by_chance, reply), revision)

    def _chosen(self, replies: IntArray, discernment: FloatArray, draws: FloatArray) -> IntArray:
        """Return the replies that a fuser takes. The odds of a reply grow with the number of inputs
        that support it, and the odds of the right reply are multiplied by `discernment`.
        """
        supporters = np.stack([(replies == k).sum(axis=0) for k in range(REPLIES)]).astype(float)
        odds = np.where(supporters > 0, supporters**self.traits.majority, 0.0)
        odds[0] *= discernment
        cumulative = odds.cumsum(axis=0)
        return np.minimum((draws * cumulative[-1] >= cumulative).sum(axis=0), REPLIES - 1)

    def _wrong(self, draws: FloatArray) -> IntArray:
        """Return the wrong replies that these draws select: the favourite with the question's
        probability for it, and each other one with an equal part of the rest.
        """
        others = REPLIES - 2
        rest = (draws - self._favourite) / (1 - self._favourite) * others
        return np.where(
            draws < self._favourite, 1, 2 + np.clip(rest, 0, others - 1).astype(np.intp)
        )


class ArrayEnvironment(Evaluator):
    """Evaluator over an ArrayWorld. It counts each call once, like a call cache."""

    def __init__(self, world: ArrayWorld, questions: Sequence[Question], lengths: Lengths) -> None:
        self.world = world
        self.questions = questions
        self.lengths = lengths
        self._places = {question.id: place for place, question in enumerate(questions)}
        self._made: dict[int, BoolArray] = {}
        self.calls = 0

    def failed(self, feedback: Feedback) -> bool:
        """Return False, because no call fails in an ArrayWorld."""
        return False

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        """Return the feedback on each job's graph and questions."""
        return [self._evaluate(graph, questions) for graph, questions in jobs]

    def _evaluate(self, graph: CollaborationGraph, questions: Sequence[Question]) -> Feedback:
        if graph.route is None:
            return self._evaluate_branch(graph, questions)
        found: dict[str, QuestionResult] = {}
        usage = Usage()
        for k, branch in enumerate(graph.branches):
            there = [question for question in questions if graph.branch_of(question) == k]
            feedback = self._evaluate_branch(branch, there)
            usage += feedback.usage
            for result in feedback.results:
                nodes = {**result.nodes, graph.sink: result.nodes[branch.sink]}
                found[result.question_id] = replace(result, nodes=nodes)
        return Feedback(tuple(found[question.id] for question in questions), usage, 0.0)

    def _evaluate_branch(
        self, graph: CollaborationGraph, questions: Sequence[Question]
    ) -> Feedback:
        places = np.array([self._places[question.id] for question in questions], dtype=np.intp)
        right = self.world.right[places]
        columns = {i: said.replies[places] for i, said in self.world.nodes(graph).items()}
        demand = needs(graph, columns) if graph.adaptive else None
        usage, seconds = self._pay(graph, places, demand)
        latency = np.full(len(places), critical_path(graph, seconds))
        if demand is not None:
            weights = demand.weights(seconds)
            latency = run_times(graph, demand.stages, weights)
        correct = {i: (replies == right).tolist() for i, replies in columns.items()}
        forms = {
            i: ["" if reply < 0 else str(reply) for reply in replies.tolist()]
            for i, replies in columns.items()
        }
        results = tuple(
            QuestionResult(
                question.id,
                correct[graph.sink][k],
                latency_s=float(latency[k]),
                nodes={
                    i: NodeResult(correct[i][k], forms[i][k])
                    for i in columns
                    if demand is None or demand.stages[i][k]
                },
            )
            for k, question in enumerate(questions)
        )
        return Feedback(results, usage, 0.0)

    def _pay(
        self, graph: CollaborationGraph, places: IntArray, wanted: GraphDemand | None
    ) -> tuple[Usage, Mapping[int, float]]:
        """Return the usage of the calls that these questions need, and the seconds that one call of
        each node takes. Repeated calls are free.
        """
        usage = Usage()
        seconds = {node.id: 0.0 for node in graph.nodes}
        for i, signature in call_signatures(graph, self.world.greedy).items():
            node = graph.node(i)
            if not get_role(node.role).calls_model:
                continue
            spec = self.world.pool[node.model]
            prompt = (
                self.lengths.prompt_tokens + len(graph.reads[i]) * self.lengths.generated_tokens
            )
            written = self.lengths.generated_tokens
            per_prompt_token, per_written_token = spec.speed or (0.0, 0.0)
            seconds[i] = prompt * per_prompt_token + written * per_written_token
            made = self._made.setdefault(signature, np.zeros(len(self.questions), dtype=bool))
            asked = places if wanted is None else places[wanted.calls[i]]
            new = int((~made[asked]).sum())
            made[asked] = True
            self.calls += new
            price = spec.price.dollars(prompt, written)
            n = len(asked)
            usage += Usage(
                round(n * prompt), round(n * written), n * price, new * price, n, n - new
            )
        return usage, seconds
