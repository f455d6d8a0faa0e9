"""A run without calls: its stages try the graphs that they would try, with made-up grades, and what
is counted are the calls that no earlier one answers.

A call is the same as another one if it asks a model the same: in the same role, as the same draw,
after the same calls. So graphs that share a part share its calls, as they do with a call cache.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ttsgraph.agent import make_agent
from ttsgraph.agent.base import family_size_trials
from ttsgraph.evaluation.archive import Archive
from ttsgraph.evaluation.environment import Feedback, Job, QuestionResult
from ttsgraph.evaluation.progress import Publish, ignore
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import checking, get_role
from ttsgraph.methods import Problem, searcher_class
from ttsgraph.methods.driver import Driver
from ttsgraph.models.client import Usage
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.stages import RacingSettings
from ttsgraph.stages.ablation import removal_cases, removals
from ttsgraph.stages.brief import brief_of, scores_of
from ttsgraph.stages.lengths import READ_QUESTIONS
from ttsgraph.stages.trials import (
    cases_feedback,
    evaluate_cases,
    evaluate_trials,
    pilot_cases,
    single_cases,
    start_trial,
    test_cases,
    trial_cases,
    trials_of,
)
from ttsgraph.tasks.base import Question, can_vote

Kind = tuple[str, int]
"""Of calls: the model, and how many answers they read."""


class Rehearsal:
    """An evaluator that counts calls in place of making them; `calls` are those of each kind that
    would be made since they were taken last.
    """

    def __init__(self, cost: CostModel, rng: np.random.Generator) -> None:
        self._cost = cost
        self._rng = rng
        self._known: dict[int, set[str]] = {}
        self._calls: Counter[Kind] = Counter()

    def take(self) -> Counter[Kind]:
        """The calls since the last time."""
        calls = self._calls
        self._calls = Counter()
        return calls

    def failed(self, feedback: Feedback) -> bool:
        """Nothing fails."""
        return False

    async def evaluate_all(self, jobs: Sequence[Job], publish: Publish = ignore) -> list[Feedback]:
        """Feedback for each graph on its questions."""
        return [await self.evaluate(*job) for job in jobs]

    async def evaluate(
        self, graph: CollaborationGraph, questions: Sequence[Question], publish: Publish = ignore
    ) -> Feedback:
        """Count what is new of a graph on these questions. The dearer its dearest model, the more
        it has right, and with more calls a little more, but for chance.
        """
        ids = {question.id for question in questions}
        asked = list(self._asked(graph))
        for key, kind in asked:
            known = self._known.setdefault(key, set())
            self._calls[kind] += len(ids - known)
            known |= ids
        units = {name: self._cost.single(name) for name in self._cost.pool}
        best = max(units[name] for _, (name, _) in asked) / (max(units.values()) or 1.0)
        right = self._rng.random(len(questions)) < 0.3 + 0.4 * best + 0.1 * (1 - 1 / len(asked))
        results = tuple(
            QuestionResult(question.id, bool(grade), "", 1.0)
            for question, grade in zip(questions, right, strict=True)
        )
        return Feedback(results, Usage(), 0.0)

    def _asked(self, graph: CollaborationGraph) -> Iterator[tuple[int, Kind]]:
        """A key of each call of a graph, and its kind."""
        keys: dict[int, int] = {}
        draws: Counter[tuple[object, ...]] = Counter()
        for i in graph.order:
            node = graph.node(i)
            reads = graph.reads[i]
            after = tuple(keys[p] for p in reads)
            if not get_role(node.role).calls_model:
                keys[i] = hash((node.role, after))
                continue
            alike = (node.model, len(reads))
            keys[i] = hash((node.role, *alike, draws[alike], after))
            draws[alike] += 1
            yield keys[i], alike


def rehearse(profile: Profile, task: str, seed: int = 0) -> dict[str, Counter[Kind]]:
    """Calls of each kind by stage, for one task and one method; with a contest, of the stages
    before it. Raises BudgetError where the budget holds no call.
    """
    agent = profile.agent.model_copy(update={"kind": "heuristic"})
    return asyncio.run(_rehearse(profile.model_copy(update={"agent": agent}), task, seed))


async def _rehearse(profile: Profile, task: str, seed: int) -> dict[str, Counter[Kind]]:
    rng = np.random.default_rng(seed)
    splits = profile.task(task).splits
    brief = brief_of(profile, task, {}, [])
    cost = brief.cost
    stage = Rehearsal(cost, rng)
    train, val, test = (
        [Question(f"{split}{k}", "", "") for k in range(getattr(splits, split))]
        for split in ("train", "val", "test")
    )
    found: dict[str, Counter[Kind]] = {}
    singles = single_cases(cost.pool)
    alone = await evaluate_cases(singles, stage, cost, train)
    found["profile"] = stage.take() + reading_calls(profile, task)
    brief = replace(brief, single_scores=scores_of(alone))
    best = max(brief.single_scores, key=cost.single)
    cases = pilot_cases(profile.pilot, cost, best, profile.roles, rng)
    piloted = await evaluate_cases(cases, stage, cost, train[: profile.pilot.questions])
    found["pilot"] = stage.take()
    if profile.init.contest.enabled:
        return found
    init = profile.init
    chooser = make_agent(profile.agent, rng)
    cases = trial_cases(family_size_trials(brief), brief, init.topologies, rng)
    some = train[: init.questions]
    tried = await evaluate_trials(cases, stage, brief, some, RacingSettings())
    found["init_family"] = stage.take()
    preference = chooser.select_family_size(brief, trials_of(tried, brief.objective))
    multisets = chooser.select_instances(brief, preference, init.candidates)
    cases = trial_cases(multisets, brief, init.topologies, rng)
    tried = await evaluate_trials(cases, stage, brief, some, profile.search.racing)
    found["init_instances"] = stage.take()
    counts = start_trial(tried, brief, profile.search.way).counts
    problem = Problem(brief, profile.search, profile.agent, counts, seed)
    searcher = searcher_class("agent_reinforce").of(problem)
    driver = Driver(cost, profile.search, Archive(None))
    graph = (await driver.run(searcher, stage, train, val)).graph
    found["search"] = stage.take()
    kind = profile.task(task).task
    check = checking(profile.roles, kind)
    cases = test_cases(graph, piloted, alone, brief.budget, can_vote(kind), check=check)
    await cases_feedback(cases, stage, test)
    removed = removal_cases(removals(graph, cost)) if profile.evaluate.ablation else []
    await cases_feedback(removed, stage, test[: profile.evaluate.ablation])
    found["evaluate"] = stage.take()
    return found


def reading_calls(profile: Profile, task: str) -> Counter[Kind]:
    """Calls with which the profile stage measures what an answer that is read adds: of each member
    a second call of a chain, and a fuser's with the second draw that it reads.
    """
    if profile.engine.kind == "simulated":
        return Counter()
    count = min(READ_QUESTIONS, profile.task(task).splits.train)
    kinds: list[Kind] = []
    for name in profile.model_pool():
        kinds += [(name, 1), *([(name, 0), (name, 2)] if "fuser" in profile.roles else [])]
    return Counter(dict.fromkeys(kinds, count))
