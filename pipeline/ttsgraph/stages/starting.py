"""Steps that determine where a search starts: a contest, or the paper's trials (section 5.2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.base.files import finite
from ttsgraph.evaluation.node_answers import NodeAnswers
from ttsgraph.searching import loop
from ttsgraph.searching.agent.base import Brief, Counts, Preference, family_size_trials
from ttsgraph.searching.agent.heuristic import HeuristicAgent, make_agent
from ttsgraph.searching.contest.contenders import Candidate
from ttsgraph.searching.methods.forms import Forms
from ttsgraph.searching.state import State
from ttsgraph.settings.stages import ContestSettings, InitSettings
from ttsgraph.stages.project import Project, StepModels, ToAsk
from ttsgraph.stages.records import PreferenceRecord, StartRecord, read_data, write_record
from ttsgraph.stages.trials import (
    Case,
    cases_table,
    evaluate_cases,
    start_trial,
    trial_cases,
    trials_of,
)
from ttsgraph.tasks.base import Question

BySplit = Mapping[str, Sequence[Question]]
"""Questions by split."""

SHOWN = 20
"""Number of standings that are stored in addition to the contenders of every search."""


def init_family(project: Project) -> ToAsk[pd.DataFrame]:
    """Return the work of finding the preferred model families and sizes for the task, by trials or
    by a contest's probes. The work writes init_family.parquet and preference.json.
    """
    brief = project.brief()

    async def probed(asked: StepModels) -> pd.DataFrame:
        contest = await _contest(project, brief, asked, rounds=False)
        _write_preference(project, preference_of(contest))
        return project.folder.write("init_family", contest_table(contest))

    async def tried(asked: StepModels) -> pd.DataFrame:
        stages = PaperStages.of(project, brief, asked, np.random.default_rng(project.seed))
        table, chosen = await stages.families()
        _write_preference(project, chosen, map(asdict, stages.agent.take_exchanges()))
        return project.folder.write("init_family", table)

    return probed if project.profile.init.contest.enabled else tried


def init_instances(project: Project) -> ToAsk[pd.DataFrame]:
    """Return the work of finding how many instances of each model a search starts from, by trials
    or by a contest. A contest's best graphs are part of every search. The work writes
    init_instances.parquet, evidence.parquet and start.json.
    """
    brief = project.brief()
    if project.profile.init.contest.enabled:
        return partial(_contested, project, brief)
    chosen = read_data(PreferenceRecord, project.folder.path / "preference.json", "init_family")

    async def tried(asked: StepModels) -> pd.DataFrame:
        stages = PaperStages.of(project, brief, asked, np.random.default_rng([project.seed, 1]))
        table = await stages.instances(Preference(tuple(chosen["models"]), chosen["reason"]))
        begin = start_trial(table, brief, project.profile.search.way)
        # includes the exchanges of the previous stage, so that start.json has all exchanges so far
        exchanges = [*chosen["exchanges"], *map(asdict, stages.agent.take_exchanges())]
        started = {"counts": begin.counts, "mean_accuracy": begin.score, "exchanges": exchanges}
        write_record(StartRecord, project.folder.path / "start.json", started)
        project.folder.write("evidence", NodeAnswers().table())  # empty: trials grade only sinks
        return project.folder.write("init_instances", table)

    return tried


async def started(project: Project, asked: StepModels) -> None:
    """Run both init steps; a contest runs only once for both."""
    if not project.profile.init.contest.enabled:
        await init_family(project)(asked)
        await init_instances(project)(asked)
        return
    table = await _contested(project, project.brief(), asked, both=True)
    project.folder.write("init_family", table[:0])


async def _contested(
    project: Project, brief: Brief, asked: StepModels, both: bool = False
) -> pd.DataFrame:
    """Run the second init step with a contest; with `both`, also write the preference of the first
    step.
    """
    contest = await _contest(project, brief, asked)
    if both:
        _write_preference(project, preference_of(contest))
    kept = project.profile.init.contest.kept
    write_record(StartRecord, project.folder.path / "start.json", start_data(contest, kept))
    project.folder.write("evidence", contest_evidence(contest))
    return project.folder.write("init_instances", contest_table(contest))


async def _contest(project: Project, brief: Brief, asked: StepModels, rounds: bool = True) -> State:
    """Run the contest from its beginning. If an earlier step ran the probes, their calls are in the
    call cache.
    """
    questions, settings = project.questions, project.profile.contest
    contest = contest_of(brief, questions, settings, project.seed)
    most = len(brief.cost.pool) * len(questions["train"]) + settings.calls
    with asked.shown(most) as publish:
        bench = loop.Bench(asked.environment.with_node_grades(), publish=publish)
        await loop.run(contest, [Forms(rounds=rounds)], bench)
    return contest


def contest_of(brief: Brief, questions: BySplit, settings: ContestSettings, seed: int) -> State:
    """Return a new contest of the init stages."""
    rng = np.random.default_rng([seed, 1])
    texts = questions.get("test", ())
    return State(brief, questions["train"], questions["val"], settings, rng, texts)


@dataclass(frozen=True, slots=True)
class PaperStages:
    """The two init stages of the paper: trials of multisets of models over random topologies."""

    agent: HeuristicAgent
    brief: Brief
    init: InitSettings
    train: Sequence[Question]
    asked: StepModels
    rng: np.random.Generator

    @classmethod
    def of(
        cls, project: Project, brief: Brief, asked: StepModels, rng: np.random.Generator
    ) -> PaperStages:
        """Return the stages of a project. Their agent may be a language model."""
        agent = make_agent(project.profile.agent, rng, asked.speak)
        return cls(agent, brief, project.profile.init, project.questions["train"], asked, rng)

    async def families(self) -> tuple[pd.DataFrame, Preference]:
        """Run the first stage; return its trials (columns of schemas.Trials) and the agent's
        preference.
        """
        table = await self._tried(family_size_trials(self.brief))
        trials = trials_of(table, self.brief.objective)
        # in a thread, because an agent may wait for a language model
        return table, await asyncio.to_thread(self.agent.select_family_size, self.brief, trials)

    async def instances(self, preference: Preference) -> pd.DataFrame:
        """Run the second stage; return its trials of the multisets that the agent selects."""
        wanted = self.brief, preference, self.init.candidates
        return await self._tried(await asyncio.to_thread(self.agent.select_instances, *wanted))

    async def _tried(self, multisets: Sequence[Counts]) -> pd.DataFrame:
        cases = trial_cases(multisets, self.brief, self.init.topologies, self.rng)
        batch = self.train[: self.init.questions]
        with self.asked.shown(len(cases) * len(batch)) as publish:
            inputs = cases, self.asked.environment, self.brief.cost, batch
            return await evaluate_cases(*inputs, publish)


def _write_preference(
    project: Project, preference: Preference, exchanges: Iterable[Mapping[str, Any]] = ()
) -> None:
    models, reason = list(preference.models), preference.reason
    data = {"models": models, "reason": reason, "exchanges": [*exchanges]}
    write_record(PreferenceRecord, project.folder.path / "preference.json", data)


def contest_table(contest: State) -> pd.DataFrame:
    """Return one row per graph that the contest ran (columns of schemas.Trials)."""
    cases = [
        Case(graph, {"counts": json.dumps(dict(sorted(graph.model_counts().items())))})
        for graph in contest.feedbacks
    ]
    return cases_table(cases, list(contest.feedbacks.values()), contest.brief.cost)


def contest_evidence(contest: State) -> pd.DataFrame:
    """Return the node answers of the graphs in `contest_table` (columns of schemas.Evidence), with
    the row number in that table as `candidate_id`.
    """
    answers = NodeAnswers()
    for row, (graph, feedback) in enumerate(contest.feedbacks.items()):
        answers.add(row, graph, feedback.results)
    return answers.table()


def preference_of(contest: State) -> Preference:
    """Return the models, ranked by their best graphs, and the reason. A model's best graph is the
    graph with the highest value among those that use no other model more often.
    """
    best: dict[str, Candidate] = {}
    for standing in contest.standings:
        counts = standing.graph.main_branch.model_counts()
        best.setdefault(max(counts, key=lambda model: counts[model]), standing)
    order = [*best, *(model for model in contest.brief.cost.pool if model not in best)]
    shown = ", ".join(
        f"{model} {standing.value:.3f} ({standing.label})" for model, standing in best.items()
    )
    return Preference(tuple(order), f"what the best graph of each is expected to score: {shown}")


def standing_data(standing: Candidate) -> dict[str, Any]:
    """Return a standing as plain data, with None in place of NaN."""
    numbers = ("units", "value", "spread", "predicted", "observed", "n_scored")
    values = {name: getattr(standing, name) for name in numbers}
    return finite({"label": standing.label, **values, "graph": standing.graph.to_dict()})


def start_data(contest: State, kept: int) -> dict[str, Any]:
    """Return the content of start.json after a contest: the best graph's models, the contenders
    that are part of every search, the router of single calls, and further standings.
    """
    best = contest.standings[0]
    router = next((s for s in contest.standings if s.graph == contest.router), None)
    return {
        "counts": best.graph.main_branch.model_counts(),
        "mean_accuracy": best.value,
        "best": best.label,
        "contest_calls": contest.calls,
        "contest_graphs": len(contest.feedbacks),
        "router": None if router is None else standing_data(router),
        "contenders": [*map(standing_data, contest.standings[:kept])],
        "standings": [*map(standing_data, contest.standings[kept : kept + SHOWN])],
        "exchanges": [],
    }
