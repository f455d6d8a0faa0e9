"""Agent-REINFORCE after a contest: the paper's loop, started from several leaders and with the
contest's evidence (docs/method.md).

The contest's leaders are laid out in one distribution, with spare nodes. Its initial logits follow
the leaders' values, and models are learned as well as edges and roles. Each iteration

1. samples many graphs, and edits copies of the best graphs so far by rules; an agent that is a
   language model may propose one more graph;
2. screens all of these graphs without making calls: the response model predicts their values, and
   only calls that are not cached count as their price;
3. runs, on training questions, the few graphs that are promising enough to justify the new calls
   they need; each of the first five iterations runs at least one graph;
4. takes a step up the exact gradient of the expected screened value (equation 5); an agent that is
   a language model then reads the textual feedback and may change probabilities.

At regular intervals the best graph so far challenges the contest's winner on the validation
questions. The loop ends when its calls are used up, or earlier if no screened graph is expected to
be better.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.base.errors import BudgetError
from ttsgraph.evaluation.found_by import of_loop
from ttsgraph.graphs import topologies
from ttsgraph.graphs.distribution import Draws, GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import ASSISTANT
from ttsgraph.searching.agent.answers import Move, adjacency
from ttsgraph.searching.agent.base import in_words
from ttsgraph.searching.choose import HOPE, hopes_of, shortlist
from ttsgraph.searching.contest.contenders import Form, form_of
from ttsgraph.searching.contest.mutations import changed
from ttsgraph.searching.methods.agent_reinforce import AgentReinforce, one_hot
from ttsgraph.searching.methods.base import Problem, Results
from ttsgraph.searching.response.calibration import Candidate, latency_along, valued
from ttsgraph.searching.response.model import ResponseModel
from ttsgraph.searching.state import Proposal, State
from ttsgraph.settings.profile import LOOP_SHARE

DRAWS = 96
EDITS = 48
"""Numbers of graphs that an iteration screens: graphs drawn from the distribution, and changed
copies of the best graphs.
"""

SAMPLES = 4
RATE = 0.3
"""Number of samples of the response model's uncertainty, and Adam's learning rate."""

LEADERS = 4
SPARE = 3
KEPT = 0.85
STRAY = 1.5
OPEN = 0.1
"""Number of leaders that are laid out; number of spare nodes; probability of an edge that all
leaders have; expected number, per draw, of edges that no leader has; and share of a node's
probability that is spread evenly over all roles, and likewise over all models.
"""

SURE = 2.0
"""Number of standard errors that a difference must exceed to be taken for more than chance."""

NEAR = 0.02
"""Difference in value at which a leader's weight falls to 1/e of the best leader's weight."""

LEAST = 5
CHALLENGE_EVERY = 4
LEAD = 0.004
"""Number of initial iterations that each run at least one candidate; number of iterations from one
challenge to the next; and expected lead in value that a challenger must exceed.
"""

WATCHED = 40
NEXT = 8
"""Number of best graphs that are kept; and number of most promising graphs, the cheapest of which
is run if none is within an iteration's share of the calls.
"""


def leaders_of(standings: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the leaders: the best candidate, then the best candidates of other forms that aren't
    clearly worse, and then the next best candidates of any form.
    """
    best: dict[Form, Candidate] = {}
    for leader in standings:
        if leader.value + leader.spread >= standings[0].value:
            best.setdefault(form_of(leader.graph), leader)
    return tuple(dict.fromkeys([*best.values(), *standings]))[:LEADERS]


def reading_loses(standings: Sequence[Candidate]) -> str:
    """Return a comparison of the best candidate whose calls read answers with the best candidate
    without such calls; "" if the former isn't clearly worse.
    """
    best: dict[bool, Candidate] = {}
    for standing in sorted(standings, key=lambda standing: -standing.value):
        best.setdefault(form_of(standing.graph)[0] > 0, standing)
    if len(best) < 2:
        return ""
    lost = best[False].value - best[True].value
    if lost <= SURE * math.hypot(best[False].spread, best[True].spread):
        return ""
    shown = (
        f"{each.label}, {each.value:.3f} (+- {SURE * each.spread:.3f}, {each.n_scored} questions)"
        for each in (best[True], best[False])
    )
    return "the best with such calls is expected at {}, the best without at {}".format(*shown)


class Adam:
    """Gradient ascent with Adam (Kingma and Ba, 2015) on one table of parameters."""

    slow = 0.9
    fast = 0.999

    def __init__(self, rate: float, shape: tuple[int, ...]) -> None:
        self.rate = rate
        self.steps = 0
        self.first, self.second = np.zeros((2, *shape))

    def step(self, gradient: FloatArray) -> FloatArray:
        """Return the change to the parameters for this gradient."""
        self.steps += 1
        self.first = self.slow * self.first + (1 - self.slow) * gradient
        self.second = self.fast * self.second + (1 - self.fast) * gradient**2
        mean = self.first / (1 - self.slow**self.steps)
        spread = self.second / (1 - self.fast**self.steps)
        return np.asarray(self.rate * mean / (np.sqrt(spread) + 1e-8))


class JointReinforce(AgentReinforce):
    """Loop of `agent_reinforce` after a contest; it needs the contest's results (`Problem.learnt`)
    and contenders.
    """

    # the prior favours neither the challenger nor the winner: the paired validation decides
    expected_gain = (0.0, 0.03)

    def __init__(self, problem: Problem) -> None:
        assert problem.learnt is not None, "expected the results of a contest"
        self.learnt = problem.learnt
        self.leaders = leaders_of(self.learnt.leaders)
        super().__init__(problem)
        self.agent.move = Move(reason="start: the contest's leaders laid out")
        self.incumbent = self._result = problem.contenders[0].graph
        tables = self.distribution.theta, self.distribution.pi, self.distribution.psi
        self.optimizers = [Adam(RATE, table.shape) for table in tables]
        self.spent = 0
        self._best = [leader.graph for leader in self.learnt.leaders[:WATCHED]]
        self._edited: set[str] = set()
        self._ran: set[str] = set()
        self._out = False

    def _start(self) -> GraphDistribution:
        """Return a distribution from which every leader is a likely draw, a better one more likely.
        A leader's nodes are laid out in order on the last nodes, its sink on the very last; spare
        nodes come first.
        """
        leaders, roles, models = self.leaders, self.roles, self.models
        values = np.array([leader.value for leader in leaders])
        weights = np.exp((values - values.max()) / NEAR)
        weights /= weights.sum()
        largest = max(len(leader.graph.nodes) for leader in leaders)
        n = min(self.problem.brief.budget.max_nodes, largest + SPARE)
        edges = np.zeros((n, n))
        pi = np.full((n, len(roles)), OPEN / len(roles))
        psi = np.full((n, len(models)), OPEN / len(models))
        for leader, weight in zip(leaders, weights.tolist(), strict=True):
            graph, lead = leader.graph, (1 - OPEN) * weight
            nodes = [graph.node(i) for i in graph.order]
            spare = n - len(nodes)
            edges[spare:, spare:] += weight * adjacency(graph, graph.order)
            for model, count in graph.model_counts().items():
                psi[:spare, models.index(model)] += lead * count / len(graph.nodes)
            psi[spare:] += lead * one_hot([node.model for node in nodes], models)
            pi += lead * one_hot([ASSISTANT] * spare + [node.role for node in nodes], roles)
        stray = min(0.1, STRAY / max(1, n * (n - 1) // 2))
        return self._around(stray + (KEPT - stray) * edges, np.log(pi), np.log(psi))

    def given(self, state: State) -> Collection[CollaborationGraph]:
        """Return the graphs that may run at any cost, including all contenders of the contest."""
        return {*super().given(state), *(leader.graph for leader in self.learnt.leaders)}

    @property
    def finished(self) -> bool:
        """True if the calls are spent or if, after the first iterations, no graph is worth running
        or no challenger was found.
        """
        done = self.agent.iteration >= LEAST
        return self.problem.calls <= 0 or (done and (self._out or self._result == self.incumbent))

    def ask(self, state: State) -> Sequence[Proposal]:
        """Return the graphs to run next; the state has the contest's evidence and the loop's."""
        self.state = state
        return super().ask(state)

    def _refit(self) -> ResponseModel:
        """Return the response model fitted to all evidence; its random numbers depend only on the
        seed and the iteration, not on how often it is fitted.
        """
        rng = np.random.default_rng([self.problem.seed, 3, self.agent.iteration])
        return self.state.response(SAMPLES, rng)

    def _valued(
        self, graphs: Iterable[CollaborationGraph], model: ResponseModel
    ) -> dict[CollaborationGraph, Candidate]:
        """Return the values of graphs under the objective."""
        seconds = partial(latency_along, alone=self.learnt.latencies)
        objective = self.problem.brief.objective
        return {g: valued(g, model, self.state.evidence, objective, seconds) for g in graphs}

    def _price(self, graph: CollaborationGraph) -> int:
        """Return the number of new calls that running a graph on the batch makes."""
        return self.state.evidence.new_calls(graph, self.state.batch)

    def propose(self, count: int) -> list[CollaborationGraph]:
        """Return the drawn and edited graphs that are worth running: at least one, and at most
        `count`.
        """
        brief = self.problem.brief
        screened = sorted(self._screen().values(), key=lambda c: -c.value - HOPE * c.spread)
        known = [each for each in screened[:WATCHED] if brief.budget.admits(each.graph)]
        run = self.state.evidence, self.state.batch
        new = [each for each in known if each.graph.content_hash not in self._ran]
        hopes = hopes_of(new, *run)
        left = LOOP_SHARE * (self.learnt.calls + self.problem.calls) - self.spent
        allowed = left / max(1, LEAST - self.agent.iteration)
        picked = self.proposals
        room = count - len(picked)
        more = shortlist(hopes, *run, room, allowed - sum(map(self._price, picked)))
        picked += [graph for graph in more if graph not in picked][:room]
        if self.agent.iteration < LEAST and not any(map(self._price, picked)):
            # run at least one new candidate
            fresh = [graph for graph in hopes if self._price(graph)][:NEXT]
            picked = sorted(fresh, key=self._price)[:1] + picked
        self._out = not picked
        if not picked:  # an iteration has to run a graph: choose the one with the fewest new calls
            call = topologies.single(min(brief.affordable, key=brief.cost.single))
            picked = [min([*hopes, call], key=lambda g: self._price(g) if g in hopes else 0)]
        self.spent += sum(map(self._price, picked))
        self._ran |= {graph.content_hash for graph in picked}
        return picked[:count]

    def _screen(self) -> dict[CollaborationGraph, Candidate]:
        """Return draws, edits, proposals and the best graphs so far, with their values. Store the
        draws for the gradient, and update the list of the best graphs.
        """
        model = self._refit()
        drawn, draws = self._draws()
        edits = self._edits()
        proposals = self.proposals
        hashes = {graph.content_hash for graph in self._best}
        seen = self._valued(dict.fromkeys([*self._best, *drawn, *proposals]), model)
        new = [g for g in dict.fromkeys(edits) if g not in seen and g.content_hash not in hashes]
        seen |= self._valued(new, model)
        self._drawn = draws, np.array([seen[graph].value for graph in drawn])
        self._edited |= {graph.content_hash for graph in [*new, *proposals]}
        self._best = sorted(seen, key=lambda g: -seen[g].value)[:WATCHED]
        if self.incumbent not in self._best:
            self._best[-1] = self.incumbent
        return seen

    def _draws(self) -> tuple[list[CollaborationGraph], Draws]:
        """Return the drawn graphs within the budget, trimmed if necessary, and the raw draws that
        they were made from.
        """
        budget = self.problem.brief.budget
        raw = self.distribution.sample(DRAWS)
        graphs: dict[int, CollaborationGraph] = {}
        for k, draw in enumerate(zip(raw.edges, raw.roles, raw.models, strict=True)):
            with suppress(BudgetError):
                graph = budget.pruned(*self.distribution.wiring(*draw))
                if budget.admits(graph):
                    graphs[k] = graph
        kept = list(graphs)
        return [*graphs.values()], Draws(raw.edges[kept], raw.roles[kept], raw.models[kept])

    def _edits(self) -> list[CollaborationGraph]:
        """Return copies of the best graphs so far with random changes of models, roles, edges or
        nodes.
        """
        brief, last = self.problem.brief, len(self._best) - 1
        ranks = (min(int(self.rng.exponential(2.0)), last) for _ in range(EDITS))
        copies = (changed(self._best[rank], brief, self.rng) for rank in ranks)
        return [graph for graph in copies if graph is not None]

    def learn(self, results: Results) -> None:
        """Learn from the candidates' feedback, take a gradient step, ask the agent if it is a
        language model, and challenge the contest's winner at regular intervals.
        """
        brief = self.problem.brief
        self.agent.report(results, brief)
        self._climb()
        model = self._refit()
        values = {g: known.value for g, known in self._valued(self._best, model).items()}
        self._best.sort(key=lambda g: -values[g])
        leads = {graph: value - values[self.incumbent] for graph, value in values.items()}
        lead = leads[self._best[0]]
        why = f"the best that was screened is expected to be {lead:+.3f} from the contest's winner"
        self.agent.move = Move(reason=why)
        if self.problem.agent.kind == "llm":
            notes, reading = self._notes(values, model), reading_loses(self.learnt.leaders)
            self.agent.act(self.distribution, replace(brief, notes=notes, reading=reading))
        if self.agent.iteration % CHALLENGE_EVERY == 0:
            self._challenge(leads)

    def _challenge(self, leads: Mapping[CollaborationGraph, float]) -> None:
        """Make the graph with the largest lead the result, if its lead is large enough and its
        validation is affordable; otherwise try the next graph.
        """
        for graph in sorted(leads, key=lambda g: -leads[g]):
            price = self.state.evidence.new_calls(graph, self.state.val_places)
            paid = price <= self.problem.calls - self.spent
            if paid and leads[graph] > LEAD and graph != self._result:
                self.spent += price
                self._result = graph
                return

    def _climb(self) -> None:
        """Take one step up the gradient of the expected screened value, estimated from
        all draws.
        """
        draws, values = self._drawn
        if not len(values):
            return
        weights = (values - values.mean()) / max(float(values.std()), 1e-6)
        d = self.distribution
        tables = zip((d.theta, d.pi, d.psi), d.gradients(draws), strict=True)
        for (table, gradient), optimizer in zip(tables, self.optimizers, strict=True):
            table += optimizer.step(np.tensordot(weights, gradient, axes=1) / len(weights))

    def _notes(
        self, values: Mapping[CollaborationGraph, float], model: ResponseModel
    ) -> tuple[str, ...]:
        """Return notes for a language model in addition to the loop's feedback: the best graphs,
        each with its expected value and with its difference from the contest's winner on the same
        questions.
        """
        labels = {leader.graph: leader.label for leader in self.learnt.leaders}
        lines = []
        for graph in self._best[:12]:
            by = model.difference(graph, self.incumbent)
            models = in_words(graph.model_counts())
            what = labels.get(graph, f"{models}, width {graph.width}, depth {graph.depth}")
            lines.append(
                f"{what}: expected {values[graph]:.3f}, {by.mean:+.3f} (+- {by.spread:.3f}) from"
                f" the contest's winner, cost {self.problem.brief.cost.graph_cost(graph):.4g}"
            )
        return tuple(lines)

    def origin(self, graph: CollaborationGraph, iteration: int) -> str:
        """Return the origin to record for a graph: an edit, or a draw of this iteration."""
        return of_loop(iteration, graph.content_hash in self._edited)

    def initial(self) -> CollaborationGraph | None:
        """Return None: the contest's winner is already among the contenders."""
        return None

    def result(self) -> CollaborationGraph:
        """Return the last challenger, or the contest's winner before the first challenge."""
        return self._result
