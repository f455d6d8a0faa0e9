import asyncio
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from pipeline.agent.base import Brief, Scored, Trial, family_size_trials, legal_counts
from pipeline.agent.edits import EdgeEdit, Edits
from pipeline.agent.heuristic import HeuristicAgent
from pipeline.archive import COLUMNS, Archive, read_journal
from pipeline.budget import CostModel, Lengths
from pipeline.environment import Environment, Feedback, QuestionResult
from pipeline.errors import RunStopped, SettingsError, TTSGraphError
from pipeline.graph import CollaborationGraph, Node
from pipeline.models.client import Sampling, Usage
from pipeline.models.spec import ModelPool, ModelSpec, Price
from pipeline.prompts import Prompt
from pipeline.schemas import Candidates, Trajectory, check
from pipeline.search import SEARCHERS, Problem, make_searcher
from pipeline.search.driver import Driver
from pipeline.settings import AgentSettings, SearchSettings
from pipeline.tasks import get_task
from pipeline.tasks.base import Question
from pipeline.topologies import single
from tests.fakes import ArithmeticClient
from tests.oracles import PAPER_POOL

COST = CostModel(PAPER_POOL, Lengths(202, 275))
BRIEF = Brief("math", COST, 40.0, dict.fromkeys(PAPER_POOL, 0.3), ("assistant", "fuser", "voter"), 24)
START = {"gemma-3-1b": 3, "llama-3.2-1b": 3, "llama-3.2-3b": 2}


def problem(seed: int = 0, **agent: bool) -> Problem:
    return Problem(BRIEF, SearchSettings(), AgentSettings(**agent), START, seed)


def feedback(accuracy: float, n: int = 20) -> Feedback:
    right = round(accuracy * n)
    return Feedback(tuple(QuestionResult(str(k), k < right, "7", 1.0) for k in range(n)), Usage(), 1.0)


def more_is_better(graph: CollaborationGraph) -> float:
    return min(0.9, 0.1 * len(graph.nodes))


def loop(searcher, score=more_is_better, rounds: int = 6) -> list[str]:
    seen = []
    for _ in range(rounds):
        graphs = searcher.ask(4)
        seen += [graph.to_json() for graph in graphs]
        searcher.tell([(graph, feedback(score(graph))) for graph in graphs])
    return [*seen, searcher.result().to_json()]


@pytest.mark.parametrize("method", sorted(SEARCHERS))
class TestEverySearcher:
    """What every method promises. A new one is covered by being registered."""

    def test_proposals_and_result_are_within_budget_with_known_roles_and_models(self, method):
        for text in loop(make_searcher(method, problem())):
            graph = CollaborationGraph.from_json(text)
            assert COST.graph_cost(graph) <= BRIEF.budget
            assert {node.role for node in graph.nodes} <= set(BRIEF.roles)
            assert {node.model for node in graph.nodes} <= set(PAPER_POOL)

    def test_asks_for_as_many_as_wanted(self, method):
        assert [len(make_searcher(method, problem()).ask(n)) for n in (1, 3, 8)] == [1, 3, 8]

    def test_ask_and_tell_alternate(self, method):
        searcher = make_searcher(method, problem())
        with pytest.raises(TTSGraphError, match=r"expected ask\(\) before tell\(\)"):
            searcher.tell([])
        searcher.ask(2)
        with pytest.raises(TTSGraphError, match=r"expected tell\(\) before the next ask\(\)"):
            searcher.ask(2)
        stranger = CollaborationGraph((Node(99, "assistant", "gemma-3-1b"),))
        with pytest.raises(TTSGraphError, match="told of a graph that was not asked"):
            searcher.tell([(stranger, feedback(0.5))])

    def test_lost_candidates_do_not_stop_it(self, method):
        searcher = make_searcher(method, problem())
        first = searcher.ask(4)
        searcher.tell([(first[0], feedback(0.5))])
        searcher.ask(4)
        searcher.tell([])
        assert searcher.result()

    def test_a_constant_objective_is_no_trouble(self, method):
        assert loop(make_searcher(method, problem()), lambda graph: 0.5)

    def test_same_seed_same_graphs_in_a_fresh_process(self, method):
        program = (
            "import json, sys\nfrom tests.test_search import loop, problem\nfrom pipeline.search import make_searcher\n"
            f"json.dump(loop(make_searcher({method!r}, problem(seed=5))), sys.stdout)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "77"}
        )
        assert json.loads(done.stdout) == loop(make_searcher(method, problem(seed=5)))
        assert loop(make_searcher(method, problem(seed=6))) != loop(make_searcher(method, problem(seed=5)))

    def test_a_snapshot_is_plain_data(self, method):
        searcher = make_searcher(method, problem())
        loop(searcher, rounds=2)
        json.dumps(searcher.snapshot())


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(SettingsError, match="unknown method 'magic'; known methods: agent_reinforce, random"):
        make_searcher("magic", problem())


class TestAgentReinforce:
    def test_model_assignment_stays_fixed(self):
        searcher = make_searcher("agent_reinforce", problem())
        available = dict(START)
        for text in loop(searcher):
            counts = CollaborationGraph.from_json(text).model_counts()
            assert all(count <= available[model] for model, count in counts.items())

    def test_without_roles_every_node_is_an_assistant(self):
        for text in loop(make_searcher("agent_reinforce", problem(roles=False))):
            assert {node.role for node in CollaborationGraph.from_json(text).nodes} == {"assistant"}

    @pytest.mark.parametrize("switch", ["insight_2", "insight_3"])
    def test_insights_change_the_search(self, switch):
        full = loop(make_searcher("agent_reinforce", problem()), rounds=12)
        assert loop(make_searcher("agent_reinforce", problem(**{switch: False})), rounds=12) != full

    def test_it_learns_that_a_vote_at_the_sink_pays(self):
        def votes(graph: CollaborationGraph) -> float:
            return 0.8 if graph.node(graph.sink).role == "voter" else 0.2

        searcher = make_searcher("agent_reinforce", problem())
        loop(searcher, votes, rounds=12)
        distribution = searcher.distribution
        assert distribution.role_preferences()[-1, distribution.roles.index("voter")] > 0.6

    def test_nodes_that_never_fit_leave_the_distribution(self):
        # Dense graphs of twelve 3B nodes are far over a budget of 40, so the earliest are trimmed from every sample.
        start = Problem(BRIEF, SearchSettings(), AgentSettings(), {"llama-3.2-3b": 12}, 0)
        searcher = make_searcher("agent_reinforce", start)
        searcher.distribution.set_edge_probabilities(np.full((12, 12), 0.95))
        graphs = searcher.ask(6)
        assert searcher.distribution.n < 12
        assert {node.id for graph in graphs for node in graph.nodes} <= set(searcher.distribution.ids)

    def test_it_learns_edges_that_pay(self):
        searcher = make_searcher("agent_reinforce", problem())
        before = searcher.distribution.edge_probabilities()[0, -1]
        loop(searcher, lambda graph: 0.9 if (0, graph.sink) in graph.edges else 0.1, rounds=12)
        assert searcher.distribution.edge_probabilities()[0, -1] > max(0.8, before)


class TestHeuristicAgent:
    def agent(self, **switches: bool) -> HeuristicAgent:
        return HeuristicAgent(np.random.default_rng(0), **switches)

    def test_first_stage_tries_each_model_once_and_the_small_ones_twice(self):
        trials = family_size_trials(BRIEF)
        assert [c for c in trials if sum(c.values()) == 1] == [{model: 1} for model in PAPER_POOL]
        assert [c for c in trials if sum(c.values()) == 2] == [{"gemma-3-1b": 2}, {"llama-3.2-1b": 2}]

    def test_the_strongest_family_comes_first(self):
        scores = {m: 0.5 if m.startswith("llama") else 0.2 for m in PAPER_POOL}
        brief = Brief("math", COST, 40.0, scores, BRIEF.roles, 24)
        ranked = self.agent().select_family_size(brief, [Trial({"gemma-3-1b": 2}, 0.25, 20)]).models
        assert [m.startswith("llama") for m in ranked] == [True] * 3 + [False] * 3

    @pytest.mark.parametrize(("twice", "first"), [(0.55, "llama-3.2-1b"), (0.41, "llama-3.1-8b")])
    def test_small_models_are_preferred_only_where_a_second_one_gains_enough(self, twice, first):
        scores = dict.fromkeys(PAPER_POOL, 0.1) | {"llama-3.2-1b": 0.4, "llama-3.1-8b": 0.5}
        brief = Brief("math", COST, 40.0, scores, BRIEF.roles, 24)
        assert self.agent().select_family_size(brief, [Trial({"llama-3.2-1b": 2}, twice, 20)]).models[0] == first

    def test_instances_vary_the_preferred_model_within_the_budget(self):
        preference = self.agent().select_family_size(BRIEF, [])
        for counts in self.agent().select_instances(BRIEF, preference, 6):
            assert legal_counts(counts, BRIEF)
            assert preference.models[0] in counts

    def test_without_insight_1_the_start_is_random(self):
        agent = self.agent(insight_1=False)
        preference = agent.select_family_size(BRIEF, [])
        assert "insight 1 is off" in preference.reason
        starts = agent.select_instances(BRIEF, preference, 6)
        assert len({tuple(sorted(c)) for c in starts}) > 1
        assert all(legal_counts(counts, BRIEF) for counts in starts)

    def test_a_shape_is_aimed_at_once_and_can_exist(self):
        searcher = make_searcher("agent_reinforce", problem())
        lone = CollaborationGraph((Node(7, "assistant", "llama-3.2-3b"),))
        history = [Scored(lone, 19, 20, 1)]
        agent = HeuristicAgent(np.random.default_rng(0))
        reasons = [agent.update(searcher.distribution, history, BRIEF).reason for _ in range(4)]
        assert "looking at 2 x 1" not in " ".join(reasons)
        assert reasons[-1] == "width 1, depth 1 is better than its neighbours"

    def test_each_feedback_moves_an_edge_once(self):
        searcher = make_searcher("agent_reinforce", problem())
        graphs = searcher.ask(4)
        old = [Scored(graph, 20 if k == 0 else 5, 20, 1) for k, graph in enumerate(graphs)]
        newest = Scored(CollaborationGraph((Node(7, "assistant", "llama-3.2-3b"),)), 5, 20, 2)
        agent = HeuristicAgent(np.random.default_rng(0), insight_2=False)
        assert agent.update(searcher.distribution, [*old, newest], BRIEF).edge_changes == ()

    def test_insight_3_adds_trades_between_width_and_depth(self):
        searcher = make_searcher("agent_reinforce", problem())
        graphs = searcher.ask(4)
        history = [Scored(graph, 10, 20, 1) for graph in graphs]
        shapes = {False: set(), True: set()}
        for insight_3 in (False, True):
            for seed in range(40):
                agent = HeuristicAgent(np.random.default_rng(seed), insight_3=insight_3)
                proposal = agent.update(searcher.distribution, history, BRIEF).graph
                if proposal:
                    graph = CollaborationGraph.from_dict(proposal.model_dump(mode="json"))
                    shapes[insight_3].add((graph.width, graph.depth))
        assert shapes[False] < shapes[True]


LAPTOP_POOL = ModelPool(
    (
        ModelSpec("small", "a", 1e8, 1e8, 10, 500, Price(0.01, 0.01)),
        ModelSpec("large", "b", 3e8, 3e8, 20, 800, Price(0.03, 0.03)),
    )
)


def arithmetic(count: int, start: int = 0) -> list[Question]:
    return [Question(f"q{k}", f"{k} + {k % 7}", str(k + k % 7)) for k in range(start, start + count)]


class TestDriver:
    """The loop with a fake model by injection: everything but the language model is real."""

    cost = CostModel(LAPTOP_POOL, Lengths(60, 5))
    brief = Brief("math", cost, 8.0, {"small": 0.35, "large": 0.45}, ("assistant", "voter"), 12)

    def search(self, folder, client=None, method="agent_reinforce", on_record=lambda record: None, searcher=None, **settings):
        client = client or ArithmeticClient({"small": 0.35, "large": 0.45})
        wanted = SearchSettings(**({"max_iterations": 8, "patience": 4, "batch": 12} | settings))
        searcher = searcher or make_searcher(method, Problem(self.brief, wanted, AgentSettings(), {"small": 6}, 0))
        archive = Archive(folder / "journal.jsonl")
        environment = Environment(Prompt(get_task("math"), "", "few_shot"), Sampling(), LAPTOP_POOL, client)
        driver = Driver(self.cost, wanted, archive, on_record)
        return asyncio.run(driver.run(searcher, environment, arithmetic(24), arithmetic(30, 24))), archive, client

    @pytest.mark.parametrize("method", sorted(SEARCHERS))
    def test_it_finds_a_legal_graph_and_records_every_candidate(self, tmp_path, method):
        heard = []
        found, archive, _ = self.search(tmp_path, method=method, on_record=heard.append)
        assert self.cost.graph_cost(found.graph) <= 8.0
        assert heard == archive.records
        table = check(archive.table(), Candidates, "archive")
        check(found.trajectory, Trajectory, "trajectory")
        assert set(COLUMNS) == set(table.columns)
        assert (table["split"] == "train").sum() == 4 * found.trajectory["iteration"].max()
        journal = [entry for entry in read_journal(tmp_path / "journal.jsonl") if entry["type"] == "record"]
        assert len(journal) == len(table)

    def test_the_best_validated_result_wins_and_patience_ends_the_search(self, tmp_path):
        found, _, _ = self.search(tmp_path, max_iterations=30, patience=3)
        table = found.trajectory
        assert found.val_accuracy == table["best_val_accuracy"].max()
        assert found.stopped_by == "patience"
        assert table["iteration"].max() - found.iteration == 3

    def test_an_ensemble_with_a_vote_beats_one_small_model(self, tmp_path):
        found, _, _ = self.search(tmp_path, max_iterations=12, patience=12)
        alone = asyncio.run(
            Environment(
                Prompt(get_task("math"), "", "few_shot"), Sampling(), LAPTOP_POOL, ArithmeticClient({"small": 0.35})
            ).evaluate(single("small"), arithmetic(30, 24))
        )
        assert found.val_accuracy > alone.accuracy

    def test_a_candidate_with_too_many_unscored_questions_is_failed_not_scored(self, tmp_path):
        client = ArithmeticClient({"small": 0.5, "large": 0.5})
        # Every other training question (0 to 23) loses the fourth of identical calls: wide candidates fail, narrow ones don't.
        client.fails = lambda r: r.replica >= 3 and int(re.findall(r"Q: (\d+)", r.messages[0].content)[-1]) in range(0, 24, 2)
        _, archive, _ = self.search(tmp_path, client)
        table = archive.table()
        failed = table[table["status"] == "failed"]
        assert len(failed) > 0
        assert (failed["n_unscored"] > 0).all()
        assert (table[table["status"] == "ok"]["n_unscored"] <= 3).all()

    def test_a_dead_endpoint_stops_the_run_with_its_state_kept(self, tmp_path):
        client = ArithmeticClient({"small": 0.5, "large": 0.5})
        client.fails = lambda request: True
        with pytest.raises(RunStopped, match=r"iteration 1: all 4 candidates failed .*start again to continue"):
            self.search(tmp_path, client)
        assert len(read_journal(tmp_path / "journal.jsonl")) == 4

    def test_a_journal_cut_short_is_read_up_to_the_cut(self, tmp_path):
        self.search(tmp_path)
        path = tmp_path / "journal.jsonl"
        whole = read_journal(path)
        path.write_text(path.read_text()[:-40])
        assert read_journal(path) == whole[:-1]

    def test_no_update_makes_the_outcome_worse_than_the_start(self, tmp_path):
        class Spoiler(HeuristicAgent):
            def update(self, distribution, history, brief):
                """Takes away all edges: what is left is the sink alone."""
                ids = distribution.ids
                pairs = [(a, b) for k, b in enumerate(ids) for a in ids[:k]]
                return Edits(edge_changes=tuple(EdgeEdit(source=a, target=b, probability=0.0, reason="r") for a, b in pairs))

        searcher = make_searcher("agent_reinforce", Problem(self.brief, SearchSettings(), AgentSettings(), {"small": 6}, 0))
        start = searcher.initial()
        searcher.agent = Spoiler(np.random.default_rng(0))
        found, _, _ = self.search(tmp_path, searcher=searcher)
        assert (found.graph, found.iteration) == (start, 0)
        assert set(found.trajectory["n_nodes"]) == {1}
