"""What the rival methods promise beyond the contract that every searcher passes (tests/test_search.py)."""

import json
import subprocess
import sys

import numpy as np
import pytest

from pipeline.agent.base import Brief, legal_counts
from pipeline.agent.heuristic import HeuristicAgent
from pipeline.distribution import GraphDistribution
from pipeline.search import Problem, make_searcher
from pipeline.search.gptswarm import Adam, GPTSwarm
from pipeline.search.textgrad import maximal_counts
from pipeline.search.uniform import decoded, uniform_start
from pipeline.settings import AgentSettings, SearchSettings
from tests.test_search import BRIEF, COST, feedback, problem


def rounds(searcher, score, count: int) -> None:
    for _ in range(count):
        searcher.tell([(graph, feedback(score(graph), 100)) for graph in searcher.ask(4)])


def big_sink(graph) -> float:
    return 0.9 if graph.node(graph.sink).model == "llama-3.2-3b" else 0.1


class TestUniformStart:
    @pytest.mark.parametrize("budget", [18.0, 42.0, 80.0])
    def test_its_median_draw_costs_about_the_budget_at_most(self, budget):
        brief = Brief("math", COST, budget, {}, ("assistant", "fuser"), 80)
        d = uniform_start(brief, np.random.default_rng(0), 1.05, 0.5, fill=1.0)
        costs = [COST.graph_cost(graph) for graph in d.sample_graphs(400, COST, np.inf)]
        assert np.median(costs) <= 1.3 * budget
        assert np.ptp(d.psi) == np.ptp(d.pi) == np.ptp(d.theta) == 0.0

    def test_a_larger_budget_gets_more_nodes(self):
        sizes = [
            uniform_start(Brief("math", COST, budget, {}, ("assistant",), 80), np.random.default_rng(0), 1.05, 0.5, 1.0).n
            for budget in (18.0, 80.0, 400.0)
        ]
        assert sizes[0] < sizes[1] < sizes[2]


class TestGPTSwarm:
    def test_adams_first_steps_are_the_learning_rate_in_the_gradients_direction(self):
        adam = Adam(0.1, (3,))
        step = adam.step(np.array([5.0, -0.001, 0.0]))
        assert step == pytest.approx([0.1, -0.1, 0.0], abs=1e-5)
        assert adam.step(np.array([5.0, -0.001, 0.0])) == pytest.approx([0.1, -0.1, 0.0], abs=1e-5)

    def test_it_learns_the_sinks_model(self):
        searcher = make_searcher("gptswarm", problem())
        before = searcher.distribution.model_probabilities()[-1]
        rounds(searcher, big_sink, 60)
        after = searcher.distribution.model_probabilities()[-1]
        wanted = searcher.distribution.models.index("llama-3.2-3b")
        assert before[wanted] == pytest.approx(1 / 6)
        assert after.argmax() == wanted
        assert after[wanted] > 0.5

    def test_a_constant_utility_moves_nothing_under_the_baseline(self):
        searcher = GPTSwarm(problem())
        before = json.dumps(searcher.distribution.to_dict())
        rounds(searcher, lambda graph: 0.5, 3)
        assert json.dumps(searcher.distribution.to_dict()) == before

    def test_its_result_fits_also_where_the_likeliest_sink_does_not(self):
        brief = Brief("math", COST, 4.5, {}, ("assistant", "fuser"), 80)
        searcher = make_searcher("gptswarm", Problem(brief, SearchSettings(), AgentSettings(), {}, 0))
        rounds(searcher, lambda graph: 0.5, 2)
        searcher.distribution.psi[-1, searcher.distribution.models.index("llama-3.1-8b")] = 5.0
        assert COST.graph_cost(searcher.result()) <= 4.5


class TestMaaO:
    def test_gradient_and_agent_take_turns(self):
        searcher = make_searcher("maao", problem())
        reasons = []
        for _ in range(4):
            rounds(searcher, big_sink, 1)
            reasons.append(searcher.snapshot()["reason"])
        assert [reason == "gradient step" for reason in reasons] == [True, False, True, False]

    @pytest.mark.parametrize("method", ["maao", "textgrad"])
    def test_its_agent_lacks_the_insights(self, method):
        agent = make_searcher(method, problem()).agent
        assert isinstance(agent, HeuristicAgent)
        assert (agent.insight_1, agent.insight_2, agent.insight_3) == (False, False, False)


class TestTextGrad:
    @pytest.mark.parametrize("budget", [1.0, 18.0, 42.0, 80.0])
    def test_it_starts_from_a_mixture_that_has_no_room_for_any_model(self, budget):
        brief = Brief("math", COST, budget, {}, ("assistant", "fuser"), 80)
        counts = maximal_counts(brief)
        assert legal_counts(counts, brief)
        assert not any(legal_counts({**counts, model: counts.get(model, 0) + 1}, brief) for model in COST.pool)

    def test_with_room_for_all_every_model_is_in_it(self):
        assert set(maximal_counts(Brief("math", COST, 80.0, {}, ("assistant",), 80))) == set(COST.pool)

    def test_it_ignores_the_start_that_the_init_stages_chose(self):
        assert make_searcher("textgrad", problem()).distribution.n == sum(maximal_counts(BRIEF).values())


class TestBayesian:
    def test_its_result_decodes_the_point_whose_graphs_did_best_on_average(self):
        searcher = make_searcher("bayesian", problem())
        means = []

        def remember(graph) -> float:
            means.append(big_sink(graph))
            return means[-1]

        rounds(searcher, remember, 8)
        best = max((a + b) / 2 for a, b in zip(means[::2], means[1::2], strict=True))
        shown = searcher.snapshot()
        assert shown["mean"] == pytest.approx(best)
        assert searcher.result() == decoded(GraphDistribution.from_dict(shown["distribution"], searcher.rng), searcher.problem)

    def test_without_its_library_there_is_one_line_that_says_what_to_install(self):
        program = (
            "import sys\nsys.modules['bayes_opt'] = None\nfrom tests.test_search import problem\n"
            "from pipeline.errors import SettingsError\nfrom pipeline.search import make_searcher\n"
            "try:\n    make_searcher('bayesian', problem())\nexcept SettingsError as error:\n    print(error)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout == "method bayesian needs bayesian-optimization: pip install 'ttsgraph[bayesian]'\n"
