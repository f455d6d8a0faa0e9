"""Search agent that follows the paper's insights as rules. It is the default, works offline, and is
the baseline that shows what a language model adds.

insight 1  replicate the strongest family; prefer small models where a second instance gains enough
           (section 4)
insight 2  width and depth have optima: try the neighbours of the best shape so far, and stay
           if none is expected to be better
insight 3  width and depth depend on each other: also trade a level of depth for a branch of
           width, and the other way round

A shape is the (width, depth) of a whole graph: w parallel chains of d - 1 nodes that lead into a
sink; with w = 1, one chain of d nodes.

Each insight can be switched off: without insight 1 the start is random; without insight 2 there is
no target shape; and without insight 3 width and depth never change together.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.errors import BudgetError, SettingsError
from ttsgraph.base.rounding import DIGITS
from ttsgraph.graphs.distribution import GraphDistribution, theta_of
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import ASSISTANT, get_role
from ttsgraph.models.client import Chat
from ttsgraph.searching.agent import base
from ttsgraph.searching.agent.answers import Move, adjacency, logits_of
from ttsgraph.searching.agent.base import Brief, Counts, Exchange, History, Preference, Trial
from ttsgraph.settings.profile import AgentSettings

Shape = tuple[int, int]
"""Width and depth of the whole graph."""

PRIOR_QUESTIONS = 8.0
"""Weight, in questions, of the overall mean when a graph's score is averaged with it."""

MOST_INSTANCES = 12
"""Maximum number of instances of a model in a start: more instances are past the optimum (insight
2).
"""

PRIOR_GRAPHS = 2.0
"""Weight, in graphs, of the overall mean when a sink role's mean value is averaged with it."""

PULL = 0.6
ROLE_LEAD = 0.95
"""Share of the distance to the best shape's graph that edge probabilities move in a round; and
target probability of the roles in that graph.
"""

HOPE = 1.0
"""Number of standard deviations that optimism adds to a shape's expected value."""

SURFACE = ((0.0, 0.3), (0.0, 0.1), (0.0, 0.1), (-0.02, 0.03), (-0.02, 0.03), (-0.02, 0.03))
"""Prior (mean, standard deviation) of the surface's coefficients, in value per doubling of width or
depth: the level, whose mean is replaced by the mean over all candidates; the slopes in width and in
depth; the curvatures in width and in depth, expected to be negative (insight 2); and the product of
width and depth, also expected to be negative: the wider a graph, the less it gains from depth
(insight 3).
"""

OWN_NOISE = 0.03
QUESTION_NOISE = 0.35
"""Standard deviation of a graph's value around the surface; and standard deviation of one
question's outcome between graphs that are run on the same questions.
"""


class HeuristicAgent:
    """Search agent that follows rules; it never calls the models that the search combines. Its
    subclass that asks a language model (llm.py) blocks until the model answers, so callers inside
    an event loop run agents in a thread.

    The agent owns `rng`. It remembers the feedback of all iterations, what it did last (`move`),
    and the shapes that it has targeted, so that a shape is not targeted again if its graph was
    trimmed to another shape.
    """

    def __init__(self, rng: np.random.Generator, settings: AgentSettings) -> None:
        self.rng = rng
        self.settings = settings
        self.exchanges: list[Exchange] = []
        """Exchanges with a language model; none for an agent that follows rules."""
        self.history: History = []
        self.iteration = 0
        self.move = Move()
        self._aimed: set[Shape] = set()

    @property
    def proposals(self) -> list[CollaborationGraph]:
        """Graph that the agent wants to try next, if there is one."""
        return [] if self.move.graph is None else [self.move.graph]

    def report(self, results: base.Results, brief: Brief) -> None:
        """Add the feedback of an iteration to the history."""
        self.iteration += 1
        self.history += [base.scored(g, ran, self.iteration, brief.objective) for g, ran in results]

    def act(self, distribution: GraphDistribution, brief: Brief) -> None:
        """Change a distribution in response to the history, and keep what else it did as `move`."""
        self.move = self.update(distribution, self.history, brief)

    def snapshot(self) -> dict[str, Any]:
        """Return the reason for the last change of the distribution, and the refused edits."""
        return {"reason": self.move.reason, "refused": [*self.move.refused]}

    def select_family_size(self, brief: Brief, trials: Sequence[Trial]) -> Preference:
        """Rank models for stage 1: first the strongest family, then all other models, each group in
        order of the score that a model is expected to have if the whole budget is spent on it. This
        score is the score of one call plus the gains from doubling the number of instances.

        The gain from one to two instances is assumed to repeat, halved, at each further doubling.
        Without insight 1 the order is random.
        """
        models = brief.affordable
        if not self.settings.uses("insight_1"):
            shuffled = [models[k] for k in self.rng.permutation(len(models))]
            return Preference(tuple(shuffled), "random order (insight 1 is off)")
        tried = {tuple(t.counts.items()): t.score for t in trials if not math.isnan(t.score)}
        once = {model: brief.single_scores.get(model, 0.0) for model in models}
        if brief.objective.joint:  # accuracy isn't the scale of the trials if latency counts
            once = {model: tried.get(((model, 1),), 0.0) for model in models}
        families: dict[str, list[float]] = defaultdict(list)
        for model in models:
            families[brief.cost.pool[model].family].append(once[model])
        # The strongest family comes first as a whole: replicating it beats mixing (insight 1).
        best = max(families, key=lambda family: sum(families[family]) / len(families[family]))
        promise = {}
        for model in models:
            gain = max(0.0, tried.get(((model, 2),), 0.0) - once[model])
            price, most = brief.cost.single(model), brief.budget.max_nodes
            instances = min(most, brief.budget.fixed_limit / price) if price > 0 else most
            doublings = math.log2(max(1.0, instances))
            # gain + gain/2 + gain/4 + ..., over as many doublings as the budget allows
            promise[model] = once[model] + gain * 2 * (1 - 0.5**doublings)
        ranked = sorted(models, key=lambda m: (brief.cost.pool[m].family != best, -promise[m]))
        shown = ", ".join(f"{m} {promise[m]:.3f}" for m in ranked)
        what = "value" if brief.objective.joint else "accuracy"
        why = f"family {best} first; promised {what} within the budget: {shown}"
        return Preference(tuple(ranked), why)

    def select_instances(self, brief: Brief, preference: Preference, limit: int) -> list[Counts]:
        """Return at most `limit` promising multisets within the budget, which stage 2 tries in
        random topologies: many instances of each model of the preferred family, and half that
        number of the preferred model.

        Without insight 1, return random multisets that fit the budget.
        """
        if not self.settings.uses("insight_1"):
            return self._random_counts(brief, limit)
        pool = brief.cost.pool
        first = preference.models[0]
        own = [model for model in preference.models if pool[model].family == pool[first].family]
        many = {model: min(MOST_INSTANCES, brief.most_of(model)) for model in own}
        candidates: list[Counts] = [{first: many[first]}, {first: max(1, many[first] // 2)}]
        candidates += [{model: many[model]} for model in own[1:]]
        return [counts for counts in candidates if brief.admits(counts)][:limit]

    def _random_counts(self, brief: Brief, limit: int) -> list[Counts]:
        models = list(brief.cost.pool)
        found: list[Counts] = []
        while len(found) < limit:
            counts: dict[str, int] = {}
            target = brief.budget.fixed_limit * self.rng.random()
            while True:
                model = models[int(self.rng.integers(len(models)))]
                grown = {**counts, model: counts.get(model, 0) + 1}
                # a lower bound, because the cheapest graph of these models has no edges
                least = sum(brief.cost.single(model) * count for model, count in grown.items())
                if not brief.admits(grown) or (counts and least > target):
                    break
                counts = grown
            if counts:
                found.append(counts)
        return found

    def update(self, distribution: GraphDistribution, history: History, brief: Brief) -> Move:
        """Change the distribution in response to the latest feedback: pull it towards the graph of
        the best shape. Propose a graph of the next shape to try.

        Without insight 2 there are no target shapes: edges and roles get credit for the scores of
        the graphs that contain them, and no graph is proposed.
        """
        if not self.settings.uses("insight_2"):
            return self._credit(distribution, history)
        best, target, why = self._shapes(distribution, history, brief)
        sink_role = best_sink_role(history, distribution.roles)
        centre = layout(distribution, best, sink_role, brief)
        proposal = layout(distribution, target, sink_role, brief) if target else centre
        if centre is None:
            return Move(proposal, why)
        ids, roles, before = distribution.ids, distribution.roles, distribution.edge_probabilities()
        wanted = adjacency(centre, ids)
        # move all the way if no neighbouring shape is expected to be better
        pull = PULL if target else 1.0
        distribution.theta = theta_of(before + pull * (wanted - before))
        rest = (1.0 - ROLE_LEAD) / max(1, len(roles) - 1)
        for node in centre.nodes:
            likely = [ROLE_LEAD if role == node.role else rest for role in roles]
            distribution.pi[ids.index(node.id)] = logits_of(likely)
        return Move(proposal, why)

    def _shapes(
        self, distribution: GraphDistribution, history: History, brief: Brief
    ) -> tuple[Shape, Shape | None, str]:
        """Return the best shape tried; a neighbouring shape that may be better, or None; and the
        reason.
        """
        trade = self.settings.uses("insight_3")

        def fits(shape: Shape) -> bool:
            return is_whole(shape, distribution, brief)

        if trade and not self._aimed:
            # insight 3 prefers a balanced shape to spending the budget on width or depth only
            widths = range(len(distribution.ids), 0, -1)
            even = ((width, depth) for width in widths for depth in (width + 1, width))
            start = next(filter(fits, even), (1, 1))
            self._aimed.add(start)
            return start, start, f"width and depth balanced first: {start[0]} x {start[1]}"
        seen = {shape_of(each.graph) for each in history}
        tried = sorted(filter(fits, seen)) or [(1, 1)]
        means, _ = predicted(tried, history, trade)
        best = tried[int(means.argmax())]
        value = float(means.max())
        width, depth = best
        fresh = sorted(filter(fits, neighbours(best, trade) - seen - self._aimed))
        if fresh:
            mean, spread = predicted(fresh, history, trade)
            hopes = mean + HOPE * spread
            if hopes.max() > value:
                chosen = fresh[int(hopes.argmax())]
                self._aimed.add(chosen)
                why = (
                    f"best shape so far is {width} x {depth} with {value:.3f}; looking at"
                    f" {chosen[0]} x {chosen[1]}, up to {hopes.max():.3f}"
                )
                return best, chosen, why
        why = f"width {width}, depth {depth} is better than its neighbours promise to be"
        return best, None, why

    def _credit(self, distribution: GraphDistribution, history: History) -> Move:
        """Raise the probability of each edge and role in the latest graphs if the graphs that
        contain it beat the mean so far, and lower it if they don't (rule R-3). The change depends
        on the mean score of these graphs, relative to the mean of all graphs so far, in units of
        their standard deviation.
        """
        # each value is averaged with the overall mean, so that few questions can't make it extreme
        values, questions = scores_of(history)
        mean = np.average(values, weights=questions)
        scores = (values * questions + PRIOR_QUESTIONS * mean) / (questions + PRIOR_QUESTIONS)
        average = scores.mean()
        spread = max(float(scores.std()), 1e-3)
        place = distribution.ids.index
        edges, roles = distribution.edge_probabilities(), distribution.role_preferences()
        with_edge: dict[tuple[int, int], list[float]] = defaultdict(list)
        with_role: dict[tuple[int, int], list[float]] = defaultdict(list)
        for each, score in zip(history, scores.tolist(), strict=True):
            if each.iteration == history[-1].iteration:
                for a, b in each.graph.edges:
                    with_edge[place(a), place(b)].append(score)
                for node in each.graph.nodes:
                    cell = place(node.id), distribution.roles.index(node.role)
                    with_role[cell].append(score)
        for table, members in ((edges, with_edge), (roles, with_role)):
            for cell, own in members.items():
                gain = math.tanh(float(np.mean(own) - average) / spread)
                table[cell] = _nudge(float(table[cell]), self.settings.step * gain)
        distribution.theta = theta_of(edges)
        for row in {row for row, _ in with_role}:
            distribution.pi[row] = logits_of(roles[row].tolist())
        return Move(reason="credit of edges and roles only (insight 2 is off)")


def scores_of(history: History) -> tuple[FloatArray, FloatArray]:
    """Return the value under the objective (n,) and the number of scored questions (n,) of the n
    candidates.
    """
    values = np.array([each.value for each in history])
    return values, np.array([each.n_scored for each in history], dtype=float)


def predicted(
    shapes: Sequence[Shape], history: History, trade: bool
) -> tuple[FloatArray, FloatArray]:
    """Return the predicted means (k,) and standard deviations (k,) of the values of k shapes, by a
    Bayesian linear regression of value on log2 of width and depth, on the squares of the two and,
    with `trade`, on their product.
    """

    def features(shapes: Sequence[Shape]) -> FloatArray:
        u, v = np.log2(np.array(shapes, dtype=float)).T
        columns = [np.ones_like(u), u, v, u**2, v**2]
        return np.stack([*columns, u * v] if trade else columns, axis=1)

    values, questions = scores_of(history)
    x = features([shape_of(each.graph) for each in history])
    noise = OWN_NOISE**2 + QUESTION_NOISE**2 / np.maximum(1, questions)
    mean, spread = np.array(SURFACE)[: x.shape[1]].T
    mean[0] = np.average(values, weights=1 / noise)
    covariance = np.linalg.inv(np.diag(spread**-2) + (x / noise[:, None]).T @ x)
    weights = covariance @ (mean / spread**2 + x.T @ (values / noise))
    at = features(shapes)
    spreads = np.sqrt(np.einsum("ij,jk,ik->i", at, covariance, at))
    return (at @ weights).round(DIGITS), spreads.round(DIGITS)


def best_sink_role(history: History, roles: Sequence[str]) -> str:
    """Return the role with the best mean value among sinks that read several answers. Without
    feedback on such a sink, no role is known to be better: return the first role that joins
    answers, such as a fuser.
    """
    order = sorted(roles, key=lambda role: role == ASSISTANT)
    joined = [
        (each.graph.node(each.graph.sink).role, each.value)
        for each in history
        if len(each.graph.predecessors[each.graph.sink]) > 1
    ]
    if not joined:
        return order[0]
    overall = float(np.mean([value for _, value in joined]))

    def mixed(role: str) -> float:
        own = [value for sink_role, value in joined if sink_role == role]
        return (sum(own) + PRIOR_GRAPHS * overall) / (len(own) + PRIOR_GRAPHS)

    return max(order, key=mixed)


def shape_of(graph: CollaborationGraph) -> Shape:
    """Return a graph's width and depth."""
    return graph.width, graph.depth


def neighbours(shape: Shape, trade: bool) -> set[Shape]:
    """Return the shapes whose width or depth is one more, one less, doubled or halved. With
    `trade`, also return the shapes that trade one step of width for one of depth, or the reverse.
    """
    width, depth = shape
    found = {(width + 1, depth), (width - 1, depth), (width, depth + 1), (width, depth - 1)}
    found |= {(2 * width, depth), (width // 2, depth), (width, 2 * depth), (width, depth // 2)}
    return found | ({(width + 1, depth - 1), (width - 1, depth + 1)} if trade else set())


def layout(
    distribution: GraphDistribution, shape: Shape, sink_role: str, brief: Brief
) -> CollaborationGraph | None:
    """Return a graph of parallel chains that lead into the sink. They use the last nodes before the
    sink, because growth starts at the sink (rule R-3). The graph is trimmed to the budget, so its
    shape can differ from the requested one. Return None if the sink by itself is over the budget.
    """
    width, depth = shape
    inner = distribution.ids[:-1][-width * (depth - 1) :] if depth > 1 else ()
    sink = distribution.ids[-1]
    edges = [(inner[k], inner[k + width]) for k in range(len(inner) - width)]
    edges += [(i, sink) for i in inner[-width:]]
    models = dict(zip(distribution.ids, distribution.assigned, strict=True))
    role = sink_role if width > 1 and width >= get_role(sink_role).min_in_degree else ASSISTANT
    nodes = (*(Node(i, ASSISTANT, models[i]) for i in inner), Node(sink, role, models[sink]))
    with suppress(BudgetError):
        return brief.budget.trim(CollaborationGraph(nodes, tuple(edges)))
    return None


def is_whole(shape: Shape, distribution: GraphDistribution, brief: Brief) -> bool:
    """Return True if there are enough nodes for a shape, and its graph fits the budget without
    trimming.
    """
    width, depth = shape
    if width < 1 or width * (depth - 1) >= len(distribution.ids):
        return False
    graph = layout(distribution, shape, ASSISTANT, brief)
    return graph is not None and shape_of(graph) == shape


def _nudge(p: float, move: float) -> float:
    """Return p moved towards 1 (move > 0) or towards 0 by the fraction |move| of the distance, and
    clipped to [0.02, 0.98].
    """
    moved = p + move * ((1 - p) if move > 0 else p)
    return min(0.98, max(0.02, moved))


def make_agent(
    settings: AgentSettings, rng: np.random.Generator, speak: Chat | None = None
) -> HeuristicAgent:
    """Return the agent that a profile asks for; it draws from `rng`. Raises SettingsError if the
    agent is a language model and `speak` is None.
    """
    if settings.kind == "heuristic":
        return HeuristicAgent(rng, settings)
    if speak is None:
        raise SettingsError(
            "agent.model: expected `speak`, which calls the agent's language model, found None"
        )
    from ttsgraph.searching.agent.llm import LLMAgent  # slow to import, and few searches need it

    return LLMAgent(rng, settings, speak)
