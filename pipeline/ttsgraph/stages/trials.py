"""Graphs tried outside the search loop: single models, pilot sweeps, init-stage trials, and the
arms of the test comparison. Most functions list graphs to run, or process results;
`try_cases` runs the graphs.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain as chain_of
from itertools import combinations_with_replacement, islice, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ttsgraph.base.errors import BudgetError, RunStopped
from ttsgraph.base.waiting import together
from ttsgraph.base.wording import counted
from ttsgraph.evaluation.archive import graph_columns, score_columns
from ttsgraph.evaluation.environment import Evaluator, Feedback, binary, lost, stopped, total_of
from ttsgraph.evaluation.objective import Objective
from ttsgraph.evaluation.progress import BestScore, Publish, ignore
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel, calls_within
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import ASSISTANT, VOTER, checking, get_role, joining
from ttsgraph.searching.agent.base import Brief, Counts, ScoredGraph, Trial, in_words
from ttsgraph.settings.stages import PilotSettings
from ttsgraph.tasks.base import Question, Task, can_vote

SHAPE_NODES = 4
"""Number of answering nodes per graph when families or topologies are compared."""


@dataclass(frozen=True, slots=True)
class Case:
    """A graph to evaluate, with the columns that identify it in its table."""

    graph: CollaborationGraph
    columns: dict[str, str]

    def __str__(self) -> str:
        return ", ".join(self.columns.values())


class Tried(NamedTuple):
    """A case, with the feedback of its graph."""

    case: Case
    feedback: Feedback


def scored(tried: Sequence[Tried]) -> list[Tried]:
    """Return the cases that could be scored; a provider refused every question of the other cases.
    Raises RunStopped with a provider's reason if no case could be scored.
    """
    kept = [each for each in tried if each.feedback.n_scored]
    if not kept:
        count = max((len(feedback.results) for _, feedback in tried), default=0)
        why = next((feedback.error for _, feedback in tried), "nothing was asked")
        raise RunStopped(
            f"each of {count} questions was refused every time ({why}); try other models or another"
            " prompt; running the command again repeats no call"
        )
    return kept


async def try_cases(
    cases: Sequence[Case],
    environment: Evaluator,
    questions: Sequence[Question],
    publish: Publish = ignore,
) -> list[Tried]:
    """Evaluate each case; none of its questions is scored if a provider refused them all. Raises
    RunStopped if a case lost too many questions.
    """
    best = -math.inf

    async def one(case: Case) -> Tried:
        nonlocal best
        feedback = await environment.evaluate(case.graph, questions, publish)
        if feedback.accuracy > best:
            best = feedback.accuracy
            publish(BestScore(best, *feedback.interval, str(case)))
        return Tried(case, feedback)

    tried = await together(map(one, cases))
    for case, feedback in tried:
        if lost(environment, feedback):
            raise stopped(str(case), feedback)
    return tried


def cases_table(tried: Iterable[Tried], cost: CostModel) -> pd.DataFrame:
    """Return one row per case: its columns, its graph and its scores."""
    rows = []
    for case, seen in tried:
        size = graph_columns(case.graph, units_of(case.graph, seen, cost))
        rows.append({**case.columns, **size, **score_columns(seen)})
    return pd.DataFrame(rows)


def units_of(graph: CollaborationGraph, feedback: Feedback, cost: CostModel) -> float:
    """Return a graph's cost per question, in budget units. For a graph that may stop early,
    this is the part of the full cost that these questions used, measured in dollars charged or,
    without prices, in calls.
    """
    worst = cost.graph_cost(graph)
    count = len(feedback.results)
    calls = sum(get_role(node.role).calls_model for node in graph.nodes)
    if not graph.adaptive or not count or cost.metric == "runtime":
        return worst
    priced = CostModel(cost.pool, cost.lengths, "dollars").graph_cost(graph)
    share = feedback.usage.dollars / priced if priced else feedback.usage.calls / calls
    return worst * min(1.0, share / count)


def answers_table(tried: Sequence[Tried], extract: Callable[[str], str | None]) -> pd.DataFrame:
    """Return one row per case and question (columns of schemas.Answers). `extract` is the task's
    function that extracts the form of an answer.
    """
    rows: list[dict[str, Any]] = []
    for case, feedback in tried:
        for result in feedback.results:
            nodes = {i: {"correct": n.correct, "form": n.form} for i, n in result.nodes.items()}
            row = {
                "question_id": result.question_id,
                "correct": result.correct,
                "form": extract(result.answer) or "",
                "latency_s": result.latency_s,
                "error": result.error,
                "nodes": json.dumps(nodes),
            }
            rows.append(case.columns | row)
    whole = all(binary(feedback.grades) for _, feedback in tried)
    return pd.DataFrame(rows).astype({"correct": "boolean" if whole else "Float64"})


def single_cases(models: Iterable[str]) -> list[Case]:
    """Return a case for a single call of each model."""
    return [Case(topologies.single(model), {"model": model}) for model in models]


def pilot_cases(  # whole: one sweep after the other
    settings: PilotSettings,
    cost: CostModel,
    best_model: str,
    roles: Sequence[str],
    rng: np.random.Generator,
) -> list[Case]:
    """Return the sweeps behind the paper's insights: width, depth, width x depth, families, sizes
    and topologies (section 4, A.3, A.6). Width and depth use the best single model. Sinks are
    fusers, and voters too if the settings allow voters. No sweep is limited by the budget, because
    insight 2 is also about larger graphs.
    """
    sinks = joining(roles) or [ASSISTANT]
    parallel, chain, grid = topologies.parallel, topologies.chain, topologies.grid
    cases: dict[tuple[str, str, str], Case] = {}

    def add(sweep: str, label: str, graph: CollaborationGraph) -> None:
        # the same random graph may be drawn twice
        cases[sweep, label, graph.content_hash] = Case(graph, {"sweep": sweep, "label": label})

    def add_random(sweep: str, label: str, counts: Counts) -> None:
        for _ in range(settings.random_graphs):
            add(sweep, label, topologies.random_graph(counts, roles, Budget(cost), rng))

    for sink, width in product(sinks, settings.widths):
        label = f"{counted(width, 'answer')}, {sink}"
        add("width", label, parallel([best_model] * width, best_model, sink))
    for depth in settings.depths:
        add("depth", f"chain of {depth}", chain([best_model] * depth))
    for width, depth in product(settings.widths, settings.depths):
        if width * depth <= settings.max_nodes:
            add("width_x_depth", f"{width} x {depth}", grid(width, depth, best_model, sinks[-1]))

    # for each pair of families, the smallest models of both, and the middle ones of both (figure 3)
    families = cost.pool.families
    smallest = {name: models[0].name for name, models in families.items()}
    middle = {name: models[(len(models) - 1) // 2].name for name, models in families.items()}
    pairs = [combinations_with_replacement(each.values(), 2) for each in (smallest, middle)]
    for pair in dict.fromkeys(chain_of(*pairs)):
        counts = Counter(pair * 2)
        add_random("family", in_words(counts), counts)

    # one call, two calls, and as many calls as cost about one call of the most expensive model
    dearest = max(cost.single(model) for model in cost.pool)
    for model in cost.pool:
        price = cost.single(model)
        as_dear = min(settings.max_nodes, round(dearest / price)) if price else 1
        add("size", f"1 x {model}", topologies.single(model))
        for count in sorted({2, as_dear} - {0, 1}):
            add("size", f"{count} x {model}", parallel([model] * count, model, sinks[-1]))

    # the same number of answers in sequence, in parallel and in two branches, by the smallest and
    # the middle model of the best model's family, and by the best model itself (table 4)
    family = cost.pool[best_model].family
    for model in dict.fromkeys((smallest[family], middle[family], best_model)):
        add("topology", f"sequential, {model}", chain([model] * SHAPE_NODES))
        for sink in sinks:
            label = f"{sink}, {model}"
            add("topology", f"parallel, {label}", parallel([model] * SHAPE_NODES, model, sink))
            add("topology", f"hybrid, {label}", grid(2, SHAPE_NODES // 2, model, sink))
        add_random("topology", f"random, {model}", {model: SHAPE_NODES})
    return list(cases.values())


def pilot_scores(table: pd.DataFrame, objective: Objective) -> tuple[ScoredGraph, ...]:
    """Return the result of the pilot for agents: each graph that could be scored, including graphs
    over the budget. `table` has the columns of schemas.Pilots.
    """
    found = []
    for row in table[table["n_scored"] > 0].to_dict("records"):
        right, count = total_of(row["accuracy"], row["n_scored"]), row["n_scored"]
        score = objective.of(right / count, row["latency_s"]), right, count
        graph = CollaborationGraph.from_json(row["graph"])
        found.append(ScoredGraph(graph, *score, latency_s=row["latency_s"]))
    return tuple(found)


def trial_cases(
    multisets: Sequence[Counts], brief: Brief, topologies_each: int, rng: np.random.Generator
) -> list[Case]:
    """Return random topologies with random roles for each multiset (section 5.2). A multiset of a
    single instance has only one topology.
    """
    cases = []
    for counts in multisets:
        graphs = [topologies.single(next(iter(counts)))]
        if sum(counts.values()) > 1:
            graphs = [
                topologies.random_graph(counts, brief.roles, brief.budget, rng)
                for _ in range(topologies_each)
            ]
        label = json.dumps(dict(sorted(counts.items())))
        cases += [Case(graph, {"counts": label}) for graph in graphs]
    return cases


def trials_of(table: pd.DataFrame, objective: Objective) -> list[Trial]:
    """Return the trials of an init stage: one per multiset, with its value under the objective
    averaged over its topologies.
    """
    found = []
    for label, rows in table.groupby("counts", sort=False):
        values = list(map(objective.of, rows["accuracy"], rows["latency_s"]))
        counts = json.loads(str(label))
        found.append(Trial(counts, float(np.mean(values)), int(rows["n_scored"].sum())))
    return found


def start_trial(table: pd.DataFrame, brief: Brief, way: str = "joint") -> Trial:
    """Return the multiset from which the search starts: the multiset with the best mean value or,
    among multisets of the same models, the largest one that can't be distinguished from it.

    `table` has the columns of schemas.Trials. Section 5.2 takes the best multiset, and so does
    `way` "paper". But the loop can only remove nodes, so of the multisets of the same models within
    a standard error of the best, the largest leaves the loop the most room. On a tie, the better
    one is taken. Topologies share their questions, so the standard error counts each question once.
    Raises BudgetError if no multiset could be scored.
    """
    trials = [trial for trial in trials_of(table, brief.objective) if not math.isnan(trial.score)]
    if not trials:
        raise BudgetError(
            "expected at least one model multiset that fits the budget and could be scored, found"
            " none; raise budget.limit or use other models"
        )
    price = brief.cost.single
    best = max(
        trials, key=lambda t: (t.score, -sum(price(m) * count for m, count in t.counts.items()))
    )
    if way == "paper":
        return best
    error = math.sqrt(max(0.0, best.score * (1 - best.score)) / int(table["n_scored"].max()))
    close = [
        trial
        for trial in trials
        if set(trial.counts) == set(best.counts) and trial.score >= best.score - error
    ]
    return max(close, key=lambda t: (sum(t.counts.values()), t.score))


def test_cases(
    found: CollaborationGraph,
    pilot: pd.DataFrame,
    profile: pd.DataFrame,
    budget: Budget,
    kind: Task,
    router: CollaborationGraph | None = None,  # noqa: PT028 (not a test, despite its name)
) -> list[Case]:
    """Return the found graph and its rivals within the same budget: the best single model; the
    router of single calls, if there is one; if answers of the task's kind can be counted, the
    largest affordable vote of the best model whose answers vary; if one of the budget's roles
    checks answers of this kind, at most the same number of answers by that model, until one passes;
    and the pilot's best topology that fits the budget.

    `profile` and `pilot` are the tables of these stages. Raises BudgetError if no call fits the
    budget.
    """
    best = best_single(profile, budget)
    cases = [Case(found, {"arm": "found", "label": "found graph"})]

    def add(arm: str, rivals: Iterable[tuple[str, CollaborationGraph]]) -> None:
        """Add the first of these graphs that the budget admits, if there is one."""
        for label, graph in islice((each for each in rivals if budget.admits(each[1])), 1):
            cases.append(Case(graph, {"arm": arm, "label": label}))

    add("single", [(best, topologies.single(best))])
    if router is not None:
        add("router", [("router of single calls", router)])
    voter = best_single(profile, budget, repeated=True)
    price = 0.0 if budget.cost.metric == "runtime" else budget.cost.single(voter)
    most = calls_within(budget.fixed_limit, price, budget.max_nodes - 1)
    # tried with one vote fewer too, because rounding may have made `most` one too large
    sizes = range(most, 1, -1)[:2]
    if can_vote(kind):
        votes = (topologies.parallel([voter] * n, voter, VOTER) for n in sizes)
        labels = (f"majority of {n} x {voter}" for n in sizes)
        add("self_consistency", zip(labels, votes, strict=True))
    if (check := checking(budget.roles, kind)) is not None:
        tries = (topologies.until_passed([voter] * n, check) for n in sizes)
        labels = (f"up to {n} x {voter} until one passes" for n in sizes)
        add("best_of_n", zip(labels, tries, strict=True))
    ranked = pilot.sort_values(["accuracy", "budget_units"], ascending=[False, True])
    graphs = map(CollaborationGraph.from_json, ranked["graph"])
    add("fixed_topology", zip(ranked["sweep"] + ": " + ranked["label"], graphs, strict=True))
    return cases


def best_single(profile: pd.DataFrame, budget: Budget, repeated: bool = False) -> str:
    """Return the pool member with the best accuracy among those whose single call fits the budget;
    on a tie, return the cheaper one. `repeated` is true if the member will be asked several times;
    greedy variants are then excluded if another member fits.
    """
    cost = budget.cost
    rows = [row for row in profile.to_dict("records") if row["model"] in cost.pool]
    fits = [row for row in rows if cost.single(row["model"]) <= budget.fixed_limit]
    if not fits:
        budget.require_feasible()
    if repeated:
        fits = [row for row in fits if not cost.pool[row["model"]].greedy] or fits
    return str(max(fits, key=lambda row: (row["accuracy"], -cost.single(row["model"])))["model"])
