"""One search of the study, from its questions to its test score, in one process and in memory."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from lab.baselines import baselines
from lab.study.ledger import Ledger, LedgerClient
from lab.study.paper import OURS
from lab.study.plan import ABLATIONS, CONTEST_ABLATIONS, Cell, StudySettings
from ttsgraph.evaluation.environment import Environment, Feedback, Grader
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.pool.simulated import SimulatedClient
from ttsgraph.searching.agent.base import Brief, Counts, family_size_trials
from ttsgraph.searching.agent.heuristic import make_agent
from ttsgraph.searching.contest.contenders import Contenders
from ttsgraph.searching.loop import Bench, find, run
from ttsgraph.searching.methods import Problem, searcher_class
from ttsgraph.searching.methods.forms import Forms
from ttsgraph.searching.response.calibration import Candidate
from ttsgraph.searching.state import ContestResult
from ttsgraph.settings.profile import AgentSettings, Profile, contest_share, loop_calls
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.stages.project import StepModels, brief_of, scores_of
from ttsgraph.stages.steps import contest_of
from ttsgraph.stages.trials import single_cases, start_trial, trial_cases, trials_of
from ttsgraph.tasks import get_task
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.sources import load_questions
from ttsgraph.tasks.synthetic import named_in

Grades = dict[str, list[bool]]
"""Grade of each possible reply of the simulated pool, by question id."""


@dataclass(frozen=True, slots=True)
class Start:
    """Result of the init stages: the accuracies of single models, the multiset of models, the
    ledger of the stages' calls and, after a contest, its contenders and result.
    """

    singles: Mapping[str, float]
    counts: Counts
    ledger: Ledger
    contenders: tuple[Candidate, ...] = ()
    learnt: ContestResult | None = None


class Laboratory:
    """One task of the study, with its simulated client, its questions, its grader, and the starts
    computed so far.
    """

    def __init__(
        self, settings: StudySettings, profile: Profile, task: str, grades: Grades | None = None
    ) -> None:
        self.settings = settings
        self.profile = profile
        self.task = task
        self.sizes = settings.questions[task]
        self.section = profile.task(task)
        kind = get_task(self.section.kind)
        self.pool = load_questions(kind, self.section.source, seed=0)[: self.sizes.pool]
        self.kind = kind
        self.prompt = self.section.prompt.prompt(kind, ())
        self.grader = Grader(kind)
        for question in self.pool if grades is not None else []:
            for reply, right in zip(replies_to(question), (grades or {})[question.id], strict=True):
                self.grader.remember(question, reply, right)
        tasks = profile.tasks.values()
        lengths = {each.kind: given for each in tasks if (given := each.lengths.given)}
        self.client = SimulatedClient(profile.simulation.tasks, profile.model_pool(), lengths)
        self._starts: dict[str, Start] = {}

    def questions(self, seed: int) -> dict[str, list[Question]]:
        """Return disjoint train and val questions drawn with a seed, and the test questions, which
        are the same for every seed.
        """
        sizes = self.sizes
        others = self.pool[: -sizes.test]
        test = self.pool[-sizes.test :]
        order = np.random.default_rng([seed, 2]).permutation(len(others)).tolist()
        drawn = [others[k] for k in order[: sizes.train + sizes.val]]
        return {"train": drawn[: sizes.train], "val": drawn[sizes.train :], "test": test}

    def environment(self, ledger: Ledger) -> Environment:
        """Return an environment that records its calls in the ledger."""
        pool = self.profile.model_pool()
        sampling = self.section.sampling.sampling()
        client = LedgerClient(self.client, ledger)
        environment = Environment(self.kind, self.prompt, sampling, pool, client)
        environment.grader = self.grader  # shared, because it remembers grades
        return environment

    async def start(
        self, cell: Cell, agent: AgentSettings, brief: Brief, questions: dict[str, list[Question]]
    ) -> Start:
        """Return the result of the init stages for these settings and this budget: the contest, or
        the paper's stages (section 5.2). The result is computed once and kept.
        """
        contest = self.settings.contest
        if cell.loop:
            contest = contest_share(contest)
        if cell.without in CONTEST_ABLATIONS:
            contest = contest.model_copy(update={"without": (cell.without,)})
        chosen = contest.model_dump() if cell.way == "contest" else [agent.uses("insight_1")]
        asked = [
            cell.seed,
            cell.metric,
            cell.budget,
            brief.objective.model_dump(),
            list(brief.roles),
            cell.way,
            chosen,
        ]
        key = json.dumps(asked)
        if key not in self._starts:
            ledger = Ledger()
            environment = self.environment(ledger)
            brief = await with_singles(brief, environment, questions["train"])
            if cell.way == "contest":
                self._starts[key] = await self._contest(
                    contest, cell, brief, environment, ledger, questions
                )
            else:
                init, train = self.settings.init, questions["train"]
                rng = np.random.default_rng([cell.seed, 1])
                acting = make_agent(agent, rng)
                models, few = StepModels(environment), train[: init.questions]

                async def tried(multisets: Sequence[Counts]) -> pd.DataFrame:
                    cases = trial_cases(multisets, brief, init.topologies, rng)
                    return await models.scores(cases, brief.cost, few)

                of_families = trials_of(await tried(family_size_trials(brief)), brief.objective)
                preference = acting.select_family_size(brief, of_families)
                multisets = acting.select_instances(brief, preference, init.candidates)
                counts = start_trial(await tried(multisets), brief, "paper").counts
                self._starts[key] = Start(brief.single_scores, counts, ledger)
        return self._starts[key]

    async def _contest(
        self,
        settings: ContestSettings,
        cell: Cell,
        brief: Brief,
        environment: Environment,
        ledger: Ledger,
        questions: dict[str, list[Question]],
    ) -> Start:
        contest = contest_of(brief, questions, settings, cell.seed)
        await run(contest, Forms(), Bench(environment.with_node_grades()))
        contenders = tuple(contest.standings[: settings.kept])
        counts = contenders[0].graph.model_counts()
        return Start(brief.single_scores, counts, ledger, contenders, contest.learnt())


async def with_singles(brief: Brief, environment: Environment, train: list[Question]) -> Brief:
    """Return a copy of the brief with each model's accuracy in a single call, measured as in the
    profile stage.
    """
    cases = single_cases(brief.cost.pool)
    profile = await StepModels(environment).scores(cases, brief.cost, train)
    return replace(brief, single_scores=scores_of(profile))


async def run_cell(laboratory: Laboratory, cell: Cell) -> dict[str, Any]:
    """Search, then test; return a row with figures, the found graph, the validation curve and the
    terms of the search.

    Costs cover the calls of the search: init stages (for methods that start from them), training
    batches and validation, but not the test.
    """
    began = time.process_time()
    profile = _profile_of(laboratory.profile, cell)
    settings = laboratory.settings
    agent = profile.agent
    questions = laboratory.questions(cell.seed)
    brief = brief_of(profile, cell.task, {}, questions["train"])
    cost = brief.cost
    if cell.way == "none":
        return await _baseline(laboratory, cell, agent, brief, questions) | {
            "cpu_s": time.process_time() - began
        }
    method = searcher_class(cell.method)
    ledger = Ledger()
    start = Start({}, {}, Ledger())
    if method.uses_start or cell.way == "contest":
        start = await laboratory.start(cell, agent, brief, questions)
        brief = replace(brief, single_scores=start.singles)
        ledger = start.ledger.copy()
    init_calls = ledger.calls
    search = settings.search
    if cell.way == "paper" and cell.method == OURS:
        search = search.model_copy(update={"way": "paper"})
        agent = agent.model_copy(update={"without": (*agent.without, "evidence", "proposes")})
    problem = Problem(
        brief,
        search,
        agent,
        dict(start.counts),
        cell.seed,
        contenders=start.contenders,
        learnt=start.learnt,
        calls=_calls_left(settings, cell, start),
    )
    searcher = method.of(problem)
    environment = laboratory.environment(ledger)
    if cell.loop:
        environment = environment.with_node_grades()
    bench = Bench(environment)
    found, _ = await find(searcher, search, bench, questions["train"], questions["val"])
    test = await laboratory.environment(Ledger()).evaluate(found.graph, questions["test"])
    table = bench.archive.table()
    return _row(cell, test, ledger, found.graph, cost) | {
        "contender": found.contender,
        "val_score": found.validation.accuracy,
        "naive_calls": int(table["calls"].sum()),
        "init_calls": init_calls,
        "candidates": int((table["split"] == "train").sum()),
        "iterations": int(found.trajectory["iteration"].max()),
        "found_iteration": found.iteration,
        "start": json.dumps(start.counts),
        "curve": found.trajectory["best_val_value"].tolist(),
        "terms": found.terms,
        "cpu_s": time.process_time() - began,
    }


def _row(
    cell: Cell, test: Feedback, ledger: Ledger, graph: CollaborationGraph, cost: CostModel
) -> dict[str, Any]:
    """Return the part of a row that every cell has: the cell's settings, the test result, the calls
    of the search, and the shape of the graph.
    """
    return {
        "task": cell.task,
        "method": cell.method,
        "without": cell.without,
        "metric": cell.metric,
        "budget": cell.budget,
        "joint": cell.objective.joint,
        "way": cell.way,
        "loop": cell.loop,
        "seed": cell.seed,
        "score": test.accuracy,
        "latency_s": test.latency_s,
        "calls": ledger.calls,
        "tokens": ledger.tokens,
        "seconds": ledger.seconds,
        "budget_units": cost.graph_cost(graph),
        "nodes": len(graph.nodes),
        "width": graph.width,
        "depth": graph.depth,
        "graph": graph.to_json(),
        "curve": [],
        "terms": None,
    }


def _calls_left(settings: StudySettings, cell: Cell, start: Start) -> int:
    """Return the number of calls left for the loop after the contest, or 0 without a loop."""
    if not cell.loop or start.learnt is None:
        return 0
    return loop_calls(settings.contest, start.learnt.calls)


def _profile_of(profile: Profile, cell: Cell) -> Profile:
    """Return a copy of the profile with a cell's agent, budget and objective."""
    without = (cell.without,) if cell.without in ABLATIONS else ()
    agent = profile.agent.model_copy(update={"without": without})
    budget = profile.budget.model_copy(update={"metric": cell.metric, "limit": cell.budget})
    changes = {"agent": agent, "budget": budget, "objective": cell.objective}
    return profile.model_copy(update=changes)


async def _baseline(
    laboratory: Laboratory,
    cell: Cell,
    agent: AgentSettings,
    brief: Brief,
    questions: dict[str, list[Question]],
) -> dict[str, Any]:
    """Return the row of a plain graph of the best single models; the cost of its search is a single
    call of each model per training question.
    """
    ledger = Ledger()
    brief = await with_singles(brief, laboratory.environment(ledger), questions["train"])
    graph = baselines(Contenders(brief))[cell.method]
    test = await laboratory.environment(Ledger()).evaluate(graph, questions["test"])
    return _row(cell, test, ledger, graph, brief.cost)


async def grade_replies(settings: StudySettings, profile: Profile, task: str) -> Grades:
    """Return the real grader's grade of every possible reply of the simulated pool to a task's
    questions.
    """
    laboratory = Laboratory(settings, profile, task)

    async def graded(question: Question) -> list[bool]:
        return [
            bool(await laboratory.grader.grade(question, reply)) for reply in replies_to(question)
        ]

    rows = await asyncio.gather(*(graded(question) for question in laboratory.pool))
    return {question.id: row for question, row in zip(laboratory.pool, rows, strict=True)}


def replies_to(question: Question) -> tuple[str, ...]:
    """Return the possible replies of the simulated pool to a synthetic question."""
    problem = named_in(question.text)
    assert problem is not None, question.text
    return problem.replies
