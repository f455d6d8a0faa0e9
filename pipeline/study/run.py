"""One search of the study, from its questions to its test score; everything in one process and in memory."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pipeline.agent import make_agent
from pipeline.agent.base import Brief, Counts, family_size_trials
from pipeline.archive import Archive
from pipeline.environment import Environment
from pipeline.grading import Grader
from pipeline.models.simulated import SimulatedClient
from pipeline.search import Problem, searcher_class
from pipeline.search.driver import Driver
from pipeline.search.terms import plain_terms
from pipeline.settings import AgentSettings, Profile
from pipeline.stage_settings import RacingSettings
from pipeline.study.ledger import Ledger, LedgerClient
from pipeline.study.plan import Cell, StudySettings
from pipeline.tasks import get_task
from pipeline.tasks.base import Question
from pipeline.tasks.sources import load_questions
from pipeline.tasks.synthetic import named_in
from pipeline.trials import evaluate_cases, evaluate_trials, single_cases, start_trial, trial_cases, trials_of

Grades = dict[str, list[bool]]
"""Question id -> the grade of each reply that the simulated pool can give to it."""


@dataclass(frozen=True, slots=True)
class Start:
    """What the init stages came to: single-model accuracies, the multiset, and the ledger of their trials."""

    singles: dict[str, float]
    counts: Counts
    ledger: Ledger


class Laboratory:
    """One task of the study: its simulated client, questions, grader and the starts found so far."""

    def __init__(self, settings: StudySettings, profile: Profile, task: str, grades: Grades | None = None) -> None:
        self.settings, self.profile, self.task = settings, profile, task
        self.sizes, self.section = settings.questions[task], profile.task(task)
        kind = get_task(self.section.kind)
        self.pool = load_questions(kind, self.section.source, seed=0)[: self.sizes.pool]
        self.prompt = self.section.prompt.prompt(kind, ())
        self.grader = Grader(kind)
        for question in self.pool if grades is not None else []:
            for reply, right in zip(replies_to(question), (grades or {})[question.id], strict=True):
                self.grader.remember(question, reply, right)
        lengths = {section.kind: section.lengths.value() for section in profile.tasks.values()}
        self.client = SimulatedClient(profile.simulation, profile.model_pool(), lengths)
        self._starts: dict[str, Start] = {}

    def questions(self, seed: int) -> dict[str, list[Question]]:
        """Train and val of a seed, disjoint, and the test questions, which are the same for every seed."""
        sizes = self.sizes
        others, test = self.pool[: -sizes.test], self.pool[-sizes.test :]
        order = np.random.default_rng([seed, 2]).permutation(len(others)).tolist()
        drawn = [others[k] for k in order[: sizes.train + sizes.val]]
        return {"train": drawn[: sizes.train], "val": drawn[sizes.train :], "test": test}

    def environment(self, ledger: Ledger) -> Environment:
        """An environment that notes calls in the ledger."""
        pool, sampling = self.profile.model_pool(), self.section.sampling.sampling()
        return Environment(self.prompt, sampling, pool, LedgerClient(self.client, ledger), grader=self.grader)

    async def start(self, cell: Cell, agent: AgentSettings, brief: Brief, train: list[Question]) -> Start:
        """The init stages (section 5.2) for these agent settings and this budget, run once."""
        init, racing = self.settings.init, self.settings.search.racing
        key = json.dumps(
            [
                cell.seed,
                cell.metric,
                cell.budget,
                brief.objective.model_dump(),
                agent.insight_1,
                list(brief.roles),
                racing.model_dump(),
            ]
        )
        if key in self._starts:
            return self._starts[key]
        ledger, rng = Ledger(), np.random.default_rng([cell.seed, 1])
        environment, questions = self.environment(ledger), train[: init.questions]
        profile = await evaluate_cases(single_cases(brief.cost.pool), environment, brief.cost, train)
        singles = dict(zip(profile["model"], profile["accuracy"], strict=True))
        brief = replace_scores(brief, singles)
        chooser = make_agent(agent, rng)
        cases = trial_cases(family_size_trials(brief), brief, init.topologies, rng)
        tried = await evaluate_trials(cases, environment, brief, questions, RacingSettings())
        preference = chooser.select_family_size(brief, trials_of(tried, brief.objective))
        multisets = chooser.select_instances(brief, preference, init.candidates)
        cases = trial_cases(multisets, brief, init.topologies, rng)
        table = await evaluate_trials(cases, environment, brief, questions, racing)
        self._starts[key] = Start(singles, start_trial(table, brief).counts, ledger)
        return self._starts[key]


def replace_scores(brief: Brief, singles: dict[str, float]) -> Brief:
    """The brief with these single-model accuracies."""
    return Brief(brief.task, brief.cost, brief.budget, singles, brief.roles, brief.max_nodes, brief.objective)


async def run_cell(laboratory: Laboratory, cell: Cell, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    """Search, then test: a flat row of figures, the found graph, the validation curve, and the terms.

    `parameters` are a method's own, for tuning. Costs are those of calls made for the search: init stages (for methods that start
    from them), training batches and validation, not the test.
    """
    began = time.process_time()
    profile, settings = laboratory.profile, laboratory.settings
    agent = profile.agent.model_copy(update={cell.without: False} if cell.without else {})
    roles = profile.roles if agent.roles else ("assistant",)
    cost, questions = profile.cost_model(cell.task, cell.metric), laboratory.questions(cell.seed)
    cost.require_feasible(cell.budget)
    brief = Brief(cell.task, cost, cell.budget, {}, roles, profile.budget.max_nodes, cell.objective)
    method, ledger, counts = searcher_class(cell.method), Ledger(), {}
    if method.uses_start:
        start = await laboratory.start(cell, agent, brief, questions["train"])
        brief, counts, ledger = replace_scores(brief, start.singles), dict(start.counts), start.ledger.copy()
    init_calls = ledger.calls
    searcher = method(Problem(brief, settings.search, agent, counts, cell.seed), **(parameters or {}))
    archive = Archive(None)
    driver = Driver(cost, settings.search, archive)
    found = await driver.run(searcher, laboratory.environment(ledger), questions["train"], questions["val"])
    test = await laboratory.environment(Ledger()).evaluate(found.graph, questions["test"])
    table = archive.table()
    return {
        "task": cell.task,
        "method": cell.method,
        "without": cell.without,
        "metric": cell.metric,
        "budget": cell.budget,
        "joint": cell.objective.joint,
        "seed": cell.seed,
        "score": test.accuracy,
        "latency_s": test.latency_s,
        "val_score": found.val_accuracy,
        "calls": ledger.calls,
        "naive_calls": int(table["calls"].sum()),
        "tokens": ledger.tokens,
        "seconds": ledger.seconds,
        "init_calls": init_calls,
        "candidates": int((table["split"] == "train").sum()),
        "iterations": int(found.trajectory["iteration"].max()),
        "found_iteration": found.iteration,
        "budget_units": cost.graph_cost(found.graph),
        "nodes": len(found.graph.nodes),
        "width": found.graph.width,
        "depth": found.graph.depth,
        "start": json.dumps(counts),
        "graph": found.graph.to_json(),
        "curve": found.trajectory["best_val_value"].tolist(),
        "front": _front_points(table),
        "terms": plain_terms(found.terms),
        "cpu_s": time.process_time() - began,
    }


def _front_points(table: pd.DataFrame) -> list[list[float]]:
    rows = table[(table["split"] == "val") & (table["status"] == "ok")]
    return rows[["accuracy", "latency_s"]].drop_duplicates().to_numpy().tolist()


async def grade_replies(settings: StudySettings, profile: Profile, task: str) -> Grades:
    """The grade of every reply that the simulated pool can give to a task's questions, by the real grader."""
    laboratory = Laboratory(settings, profile, task)

    async def graded(question: Question) -> list[bool]:
        return [bool(await laboratory.grader.grade(question, reply)) for reply in replies_to(question)]

    rows = await asyncio.gather(*(graded(question) for question in laboratory.pool))
    return {question.id: row for question, row in zip(laboratory.pool, rows, strict=True)}


def replies_to(question: Question) -> tuple[str, ...]:
    """What the simulated pool can reply to a synthetic question."""
    problem = named_in(question.text)
    assert problem is not None, question.text
    return problem.replies
