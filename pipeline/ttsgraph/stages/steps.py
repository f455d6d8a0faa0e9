"""Steps of a search: where it starts (a contest, or the paper's trials, section 5.2), the loop of
one method, and a warm search after models have joined the pool.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.base.errors import DataError
from ttsgraph.base.files import md5, write_text
from ttsgraph.evaluation.archive import Archive, Row
from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult
from ttsgraph.evaluation.node_answers import NO_FORM, NodeAnswers
from ttsgraph.evaluation.progress import Expense, Publish, ignore
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching import loop
from ttsgraph.searching.agent.base import Brief, Preference, family_size_trials
from ttsgraph.searching.agent.heuristic import make_agent
from ttsgraph.searching.methods import Searcher, searcher_class
from ttsgraph.searching.methods.base import Problem
from ttsgraph.searching.methods.forms import Forms
from ttsgraph.searching.methods.summary import SPENT, SearchOutcome, edge_table, search_summary
from ttsgraph.searching.methods.warm import WarmReinforce, graphs_in
from ttsgraph.searching.response.calibration import Candidate
from ttsgraph.searching.response.evidence import Evidence
from ttsgraph.searching.state import ContestResult, State
from ttsgraph.settings.profile import SearchSettings, loop_calls
from ttsgraph.settings.stages import ContestSettings
from ttsgraph.stages import project as before
from ttsgraph.stages import records, trials
from ttsgraph.stages.history import write_history
from ttsgraph.stages.project import Folder, Project, StepModels, ToAsk
from ttsgraph.stages.records import PreferenceRecord, SearchRecord, StartRecord
from ttsgraph.stages.trials import Case, Tried
from ttsgraph.tasks import missing_isolation
from ttsgraph.tasks.base import Question

BySplit = Mapping[str, Sequence[Question]]
"""Questions by split."""

NO_PILOT = pd.DataFrame(
    columns=["sweep", "label", "budget_units", "accuracy", "latency_s", "n_scored", "graph"]
)

SHOWN = 20
"""Number of standings that are stored in addition to the contenders of every search."""

Prepare = Callable[[StepModels], Awaitable[tuple[Searcher, SearchSettings]]]
"""Function that builds the searcher and its settings for the loop; it may ask models."""

Searched = tuple[SearchOutcome, dict[str, Any]]
Searching = Callable[..., Awaitable[Searched]]
"""Work of a search, as `searching` returns it."""


def init_family(project: Project) -> ToAsk[pd.DataFrame]:
    """Return the work of finding the preferred model families and sizes for the task, by trials or
    by a contest's probes. The work writes init_family.parquet and preference.json.
    """
    brief, init = project.brief(), project.profile.init

    async def work(asked: StepModels) -> pd.DataFrame:
        if init.contest.enabled:
            contest = await _contest(project, brief, asked, rounds=False)
            _write_preference(project, preference_of(contest))
            table = contest_table(contest)
        else:
            rng = np.random.default_rng(project.seed)
            agent = make_agent(project.profile.agent, rng, asked.speak)
            cases = trials.trial_cases(family_size_trials(brief), brief, init.topologies, rng)
            few = project.questions["train"][: init.questions]
            table = await asked.scores(cases, brief.cost, few)
            known = trials.trials_of(table, brief.objective)
            # in a thread, because an agent may wait for a language model
            chosen = await asyncio.to_thread(agent.select_family_size, brief, known)
            _write_preference(project, chosen, map(asdict, agent.exchanges))
        return project.folder.write("init_family", table)

    return work


def init_instances(project: Project, both: bool = False) -> ToAsk[pd.DataFrame]:
    """Return the work of finding how many instances of each model a search starts from, by trials
    or by a contest. A contest's best graphs are part of every search. The work writes
    init_instances.parquet, evidence.parquet and start.json; with `both`, a contest also writes the
    preference of the first step.
    """
    brief, init, folder = project.brief(), project.profile.init, project.folder
    chosen: dict[str, Any] = {}
    if not init.contest.enabled:
        chosen = records.read_data(PreferenceRecord, folder.path / "preference.json", "init_family")

    async def work(asked: StepModels) -> pd.DataFrame:
        if init.contest.enabled:
            contest = await _contest(project, brief, asked)
            if both:
                _write_preference(project, preference_of(contest))
            start = start_data(contest, init.contest.kept)
            table, evidence = contest_table(contest), contest_evidence(contest)
        else:
            rng = np.random.default_rng([project.seed, 1])
            agent = make_agent(project.profile.agent, rng, asked.speak)
            preferred = Preference(tuple(chosen["models"]), chosen["reason"])
            wanted = brief, preferred, init.candidates
            multisets = await asyncio.to_thread(agent.select_instances, *wanted)
            cases = trials.trial_cases(multisets, brief, init.topologies, rng)
            few = project.questions["train"][: init.questions]
            table = await asked.scores(cases, brief.cost, few)
            begin = trials.start_trial(table, brief, project.profile.search.way)
            # includes the exchanges of the previous stage, so that start.json has all so far
            exchanges = [*chosen["exchanges"], *map(asdict, agent.exchanges)]
            start = {"counts": begin.counts, "mean_accuracy": begin.score, "exchanges": exchanges}
            evidence = NodeAnswers().table()  # empty: trials grade only sinks
        records.write_record(StartRecord, folder.path / "start.json", start)
        folder.write("evidence", evidence)
        return folder.write("init_instances", table)

    return work


async def started(project: Project, asked: StepModels) -> None:
    """Run the steps between the profile and the loop. A contest runs only once for both init steps,
    and needs no pilot; without a contest, the agent reads the pilot's results.
    """
    if project.profile.init.contest.enabled:
        project.folder.write("pilot", NO_PILOT)
        table = await init_instances(project, both=True)(asked)
        project.folder.write("init_family", table[:0])
    else:
        for step in (before.pilot, init_family, init_instances):
            await step(project)(asked)


async def _contest(project: Project, brief: Brief, asked: StepModels, rounds: bool = True) -> State:
    """Run the contest from its beginning. If an earlier step ran the probes, their calls are in the
    call cache.
    """
    questions, settings = project.questions, project.profile.contest
    contest = contest_of(brief, questions, settings, project.seed)
    most = len(brief.cost.pool) * len(questions["train"]) + settings.calls
    with asked.shown(most) as publish:
        bench = loop.Bench(asked.environment.with_node_grades(), publish=publish)
        await loop.run(contest, Forms(rounds=rounds), bench)
    return contest


def contest_of(brief: Brief, questions: BySplit, settings: ContestSettings, seed: int) -> State:
    """Return a new contest of the init stages."""
    rng = np.random.default_rng([seed, 1])
    texts = questions.get("test", ())
    return State(brief, questions["train"], questions["val"], settings, rng, texts)


def _write_preference(
    project: Project, preference: Preference, exchanges: Iterable[Mapping[str, Any]] = ()
) -> None:
    data = asdict(preference) | {"exchanges": [*exchanges]}
    records.write_record(PreferenceRecord, project.folder.path / "preference.json", data)


def contest_table(contest: State) -> pd.DataFrame:
    """Return one row per graph that the contest ran (columns of schemas.Trials)."""
    tried = (
        Tried(Case(graph, {"counts": json.dumps(graph.model_counts())}), feedback)
        for graph, feedback in contest.feedbacks.items()
    )
    return trials.cases_table(tried, contest.brief.cost)


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
    order = dict.fromkeys((*best, *contest.brief.cost.pool))
    shown = ", ".join(
        f"{model} {standing.value:.3f} ({standing.label})" for model, standing in best.items()
    )
    return Preference(tuple(order), f"what the best graph of each is expected to score: {shown}")


def standing_data(standing: Candidate) -> dict[str, Any]:
    """Return a standing as plain data."""
    numbers = ("units", "value", "spread", "predicted", "observed", "n_scored")
    values = {name: getattr(standing, name) for name in numbers}
    return {"label": standing.label, **values, "graph": standing.graph.to_dict()}


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


def start_of(project: Project) -> StartRecord:
    """Return the record of where the project's searches start. Raises DataError if the init stages
    have not run.
    """
    return records.read_record(StartRecord, project.folder.path / "start.json", "init_instances")


def problem_in(project: Project) -> Problem:
    """Return the problem that each method solves; a contest's findings are read from the project's
    tables.
    """
    start, profile, brief = start_of(project), project.profile, project.brief()
    learnt, left = None, 0
    if start.contenders:
        alone = project.folder.table("profile")
        learnt = ContestResult(
            evidence_in(project, brief.greedy),
            start.leaders(),
            start.contest_calls or 0,
            dict(zip(alone["model"], alone["latency_s"].astype(float), strict=True)),
        )
        left = loop_calls(profile.init.contest, learnt.calls)
    texts = {question.id: question.text for question in project.questions["train"]}
    brief = replace(brief, questions=texts)
    inputs = brief, profile.search, profile.agent, start.counts, project.seed
    contenders = tuple(row.contender() for row in start.contenders)
    return Problem(*inputs, contenders=contenders, learnt=learnt, calls=left)


def evidence_in(
    project: Project, greedy: frozenset[str], searched: Folder | None = None
) -> Evidence:
    """Return the evidence about nodes on training and validation questions: from the contest or, if
    there was none, from the search in the folder `searched`. Raises DataError if a table is missing
    or damaged.
    """
    questions = [*project.questions["train"], *project.questions["val"]]
    answers = project.folder.table("evidence")
    tried = project.folder.table("init_instances")
    if answers.empty and searched is not None:
        answers = searched.table("evidence")
        tried = searched.table("archive")
    used = tried["graph"][tried.index.isin(answers["candidate_id"])]
    graphs = {int(str(k)): CollaborationGraph.from_json(text) for k, text in used.items()}
    known = Evidence(questions, greedy)
    add_evidence(known, answers, graphs)
    return known


def add_evidence(
    known: Evidence, table: pd.DataFrame, graphs: Mapping[int, CollaborationGraph]
) -> None:
    """Add the evidence from a table (columns of schemas.Evidence); `graphs` maps candidate IDs to
    graphs. Raises DataError naming the first row with an unknown node or question, if there is one.
    """
    expected = {
        (number, graph.content_hash, node.id, node.role, node.id == graph.sink)
        for number, graph in graphs.items()
        for node in graph.nodes
    }
    ids = {question.id for question in known.questions}
    answers: dict[int, dict[str, dict[int, NodeResult]]] = defaultdict(lambda: defaultdict(dict))
    rows: Iterable[Any] = table.itertuples(index=False)
    for place, row in enumerate(rows):
        node = row.candidate_id, row.graph_hash, row.node, row.role, row.is_sink
        if node not in expected or row.question_id not in ids:
            raise DataError(
                f"evidence.parquet: row {place}: expected a node in candidate {row.candidate_id}'s"
                f" graph and a known question, found node {row.node} ({row.role}) and question"
                f" {row.question_id!r}"
            )
        form = "" if row.answer == NO_FORM else str(row.answer)
        answers[row.candidate_id][row.question_id][row.node] = NodeResult(row.correct, form)
    for number, of_graph in sorted(answers.items()):
        sink = graphs[number].sink
        results = (QuestionResult(q, n[sink].correct, nodes=n) for q, n in of_graph.items())
        known.add(graphs[number], Feedback(tuple(results)))


def search(project: Project, method: str) -> Searching:
    """Return the work of searching with one method; its files are written into the method's
    subfolder of the project's folder.
    """
    problem = problem_in(project)

    async def prepare(asked: StepModels) -> tuple[Searcher, SearchSettings]:
        searcher = searcher_class(method).of(replace(problem, speak=asked.speak))
        return searcher, project.profile.search

    return searching(project, project.folder.of_search(method), prepare)


def searching(project: Project, folder: Folder, prepare: Prepare) -> Searching:
    """Return the work of a search whose files are written into `folder`. The work receives the
    models and, if wanted, a function that returns the expense so far, and the functions that
    receive the progress and each evaluation; it returns the result and the summary.
    """

    async def work(
        asked: StepModels,
        spent: Callable[[], Expense] = Expense,
        publish: Publish = ignore,
        on_record: Callable[[Row], None] = lambda row: None,
    ) -> Searched:
        folder.path.mkdir(parents=True, exist_ok=True)
        searcher, rule = await prepare(asked)
        environment = asked.environment.with_node_grades(if_free=True)
        archive = Archive()
        bench = loop.Bench(environment, archive, on_record, publish)
        known = project.questions["train"], project.questions["val"]
        found, _ = await loop.find(searcher, rule, bench, *known)
        write_history(archive.history, folder.path / "history.jsonl")
        candidates = folder.write("archive", archive.table())
        folder.write("evidence", archive.answers.table())
        folder.write("trajectory", found.trajectory)
        folder.write("edges", edge_table(archive.history))
        summary = search_summary(found, candidates, spent(), searcher.exchanges) | {
            "isolation_missing": missing_isolation(project.settings.kind),
            "trajectory_md5": md5(found.trajectory.to_csv(index=False).encode()),
            "evidence_left_out": 0,  # always 0; written because older records have this key
        }
        records.write_record(SearchRecord, folder.path / "search.json", summary, SPENT)
        write_text(folder.path / "graph.json", found.graph.to_json())
        return found, summary

    return work


Previous = tuple[CollaborationGraph, pd.DataFrame, pd.DataFrame]
"""The last search: the graph in use, the table of single models (schemas.Profiles), and the table
of candidates (schemas.Candidates).
"""


async def begun_warm(
    project: Project, last: Previous, newcomers: Sequence[str], folder: Folder, asked: StepModels
) -> WarmReinforce:
    """Return a searcher that starts from the last search, for a pool with new models. The new
    models are asked as single calls first, and the table of all single models is written into
    `folder`. Raises the same errors as `profiled`.
    """
    profile, task = project.profile, project.task
    graph, old, archive = last
    new = await before.profiled(project, profile, newcomers, asked)
    kept = old[old["model"].isin(set(profile.model_pool()) - set(newcomers))]
    alone = folder.write("profile", pd.concat([kept, new], ignore_index=True))
    known = before.with_lengths(profile, task, alone)
    scores, train = before.scores_of(alone), project.questions["train"]
    brief = before.brief_of(known, task, scores, train)
    problem = Problem(brief, profile.search, profile.agent, {}, project.seed, asked.speak)
    return WarmReinforce(problem, graph, graphs_in(archive, brief), newcomers)
