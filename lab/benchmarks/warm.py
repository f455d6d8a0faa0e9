"""What a warm re-search saves when a model joins the pool, on the simulated pool: calls and test
scores against a cold search.

Each seed searches without the newcomer, then with it twice: from nothing, and warm from the first
search. Prints JSON.

    python -m lab.benchmarks.warm --newcomer llama-3.1-8b --seeds 20
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lab.study.ledger import Ledger
from lab.study.plan import Cell, StudyQuestions, StudySettings
from lab.study.run import Laboratory
from ttsgraph.deployment.promotion import decide
from ttsgraph.deployment.provenance import TestResult, test_result
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.objective import Objective
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.methods import Problem, searcher_class
from ttsgraph.searching.methods.summary import Found
from ttsgraph.searching.methods.warm import LastSearch, WarmReinforce, history_of
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.stages.steps import loop
from ttsgraph.stages.trials import evaluate_cases, single_cases


@dataclass(frozen=True, slots=True)
class Searched:
    """A search's outcome: what was found, its archive, what it cost, and its test."""

    found: Found
    archive: Archive
    ledger: Ledger
    test: TestResult
    singles: dict[str, float]


class Comparison:
    """One task and newcomer: the pools before and after, and one simulated laboratory for each."""

    def __init__(self, study: StudySettings, profile: Profile, task: str, newcomer: str) -> None:
        self.study = study
        self.task = task
        self.newcomer = newcomer
        self.after = profile
        self.before = profile.model_copy(
            update={"pool": {k: v for k, v in profile.pool.items() if k != newcomer}}
        )
        self.labs = {id(p): Laboratory(study, p, task) for p in (self.before, self.after)}

    async def cold(self, profile: Profile, seed: int) -> Searched:
        """The init stages and the whole loop."""
        lab, questions, brief = self._setting(profile, seed)
        cell = Cell(self.task, "agent_reinforce", profile.budget.metric, profile.budget.limit, seed)
        start = await lab.start(cell, profile.agent, brief, questions)
        brief = replace(brief, single_scores=start.singles)
        ledger = start.ledger.copy()
        searcher = searcher_class("agent_reinforce")(
            Problem(brief, self.study.search, profile.agent, start.counts, seed)
        )
        archive = Archive(None)
        environment = lab.environment(ledger)
        found, _ = await loop(searcher, self.study.search, environment, questions, archive)
        return Searched(
            found, archive, ledger, await self._test(lab, found, questions), start.singles
        )

    async def warm(self, last: Searched, seed: int) -> tuple[Searched, int]:
        """From the last search, with its calls cached; returns the calls that were made anew
        too.
        """
        profile = self.after
        lab, questions, brief = self._setting(profile, seed)
        ledger = last.ledger.copy()
        cases = [
            case for case in single_cases(brief.cost.pool) if case.columns["model"] == self.newcomer
        ]
        table = await evaluate_cases(cases, lab.environment(ledger), brief.cost, questions["train"])
        singles = {**last.singles, self.newcomer: float(table["accuracy"].iloc[0])}
        warm = LastSearch(
            last.found.graph, None, history_of(last.archive.table(), brief), (self.newcomer,)
        )
        searcher = WarmReinforce(
            Problem(
                replace(brief, single_scores=singles), self.study.search, profile.agent, {}, seed
            ),
            warm,
        )
        archive = Archive(None)
        settings, environment = searcher.stop_rule(profile.research), lab.environment(ledger)
        found, _ = await loop(searcher, settings, environment, questions, archive)
        return (
            Searched(found, archive, ledger, await self._test(lab, found, questions), singles),
            ledger.calls - last.ledger.calls,
        )

    def _setting(
        self, profile: Profile, seed: int
    ) -> tuple[Laboratory, dict[str, list[Any]], Brief]:
        lab = self.labs[id(profile)]
        budget = profile.budget_on(self.task)
        brief = Brief(self.task, budget, {}, profile.roles, profile.objective)
        return lab, lab.questions(seed), brief

    async def _test(
        self, lab: Laboratory, found: Found, questions: dict[str, list[Any]]
    ) -> TestResult:
        return test_result(
            await lab.environment(Ledger()).evaluate(found.graph, questions["test"]),
            questions["test"],
        )

    async def seed(self, seed: int) -> dict[str, Any]:
        """One seed's figures."""
        first = await self.cold(self.before, seed)
        cold = await self.cold(self.after, seed)
        warm, made = await self.warm(first, seed)
        decision = decide(warm.test, first.test, self.after.deploy.confidence)
        return {
            "seed": seed,
            "before": first.test.accuracy,
            "cold": cold.test.accuracy,
            "warm": warm.test.accuracy,
            "cold_calls": cold.ledger.calls,
            "warm_calls": made,
            "stopped_by": warm.found.stopped_by,
            "uses_newcomer": self.newcomer in warm.found.graph.model_counts(),
            "promoted": decision.promote,
        }


def profile_study(profile: Profile) -> StudySettings:
    """The profile's own sizes in the form that a laboratory reads."""
    questions = {}
    for name, task in profile.tasks.items():
        sizes = task.splits
        pool = sizes.train + sizes.val + sizes.test
        questions[name] = StudyQuestions(
            pool=pool, train=sizes.train, val=sizes.val, test=sizes.test, pilot=1
        )
    return StudySettings(
        profile="simulated",
        questions=questions,
        search=profile.search,
        init=profile.init,
        contest=profile.init.contest,
        budgets={},
        joint=Objective(),
    )


def compare(task: str, newcomer: str, seeds: int) -> dict[str, Any]:
    """Means over seeds, and each seed's figures."""
    profile = load_profile("simulated")
    comparison = Comparison(profile_study(profile), profile, task, newcomer)
    rows = [asyncio.run(comparison.seed(seed)) for seed in range(seeds)]
    means = {key: float(np.mean([row[key] for row in rows])) for key in ("before", "cold", "warm")}
    return {
        "simulated": True,
        "task": task,
        "newcomer": newcomer,
        "seeds": seeds,
        "calls_warm_over_cold": (
            sum(row["warm_calls"] for row in rows) / sum(row["cold_calls"] for row in rows)
        ),
        "points_warm_minus_cold": 100 * (means["warm"] - means["cold"]),
        "promoted": sum(row["promoted"] for row in rows),
        **means,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", default="math")
    parser.add_argument("--newcomer", default="llama-3.1-8b")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    print(json.dumps(compare(arguments.task, arguments.newcomer, arguments.seeds), indent=1))


if __name__ == "__main__":
    main()
