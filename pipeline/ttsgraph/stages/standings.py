"""Result of a contest as tables and plain data: written by the init stages, read back
by a search.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ttsgraph.base.files import finite
from ttsgraph.evaluation.node_answers import NodeAnswers
from ttsgraph.searching.agent.base import Preference
from ttsgraph.searching.contest.contenders import Candidate
from ttsgraph.searching.state import State
from ttsgraph.stages.trials import Case, cases_table

SHOWN = 20
"""Standings that are stored, in addition to the contenders of every search."""


def contest_table(contest: State) -> pd.DataFrame:
    """One row per graph that the contest ran (columns of schemas.Trials)."""
    cases = [
        Case(graph, {"counts": json.dumps(dict(sorted(graph.model_counts().items())))})
        for graph in contest.feedbacks
    ]
    return cases_table(cases, list(contest.feedbacks.values()), contest.brief.cost)


def contest_evidence(contest: State) -> pd.DataFrame:
    """Node answers of the graphs in `contest_table`, by row of that table (columns of
    schemas.Evidence).
    """
    answers = NodeAnswers()
    for row, (graph, feedback) in enumerate(contest.feedbacks.items()):
        answers.add(row, graph, feedback.results)
    return answers.table()


def preference_of(contest: State, standings: Sequence[Candidate]) -> Preference:
    """Models ranked by the best value of a graph that uses them most, with the reason."""
    best: dict[str, Candidate] = {}
    for standing in standings:
        counts = standing.graph.main_branch.model_counts()
        best.setdefault(max(counts, key=lambda model: counts[model]), standing)
    order = [*best, *(model for model in contest.brief.cost.pool if model not in best)]
    shown = ", ".join(
        f"{model} {standing.value:.3f} ({standing.label})" for model, standing in best.items()
    )
    return Preference(tuple(order), f"what the best graph of each is expected to score: {shown}")


def preference_data(
    preference: Preference, exchanges: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Content of preference.json."""
    return {
        "models": list(preference.models),
        "reason": preference.reason,
        "exchanges": [*map(dict, exchanges)],
    }


def standing_data(standing: Candidate) -> dict[str, Any]:
    """A standing as plain data; NaN becomes None."""
    numbers = ("units", "value", "spread", "predicted", "observed", "n_scored")
    values = {name: getattr(standing, name) for name in numbers}
    return finite({"label": standing.label, **values, "graph": standing.graph.to_dict()})


def start_data(contest: State, kept: int) -> dict[str, Any]:
    """Content of start.json after a contest: the best graph's models, the contenders that are part
    of every search, the router of single calls, and the standings.
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
