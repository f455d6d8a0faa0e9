"""Outcome of a search: the graph that it found, the terms on which it is compared with others, and
summary figures.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.base.errors import RunStopped
from ttsgraph.evaluation.compare import Difference
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.evaluation.found_by import CONTEST
from ttsgraph.evaluation.objective import pareto_front
from ttsgraph.evaluation.progress import Expense
from ttsgraph.graphs.distribution import KEPT_DECIMALS, GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.searching.agent.answers import edge_probabilities
from ttsgraph.searching.agent.base import Exchange
from ttsgraph.searching.methods.base import Searcher
from ttsgraph.searching.state import State

SPENT = (
    "made_calls",
    "distinct_over_naive_calls",
    "spent_dollars",
    "spent_tokens",
    "spent_seconds",
    "agent_seconds",
)
"""Keys of a summary whose values depend on the call cache or on the clock."""


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """Outcome of a search: the graph that was found, its iteration, the validation by which it was
    chosen, the reason why the search stopped, and the terms.

    `p_best` is the probability that no other validated graph is better (`Ranking.p_best`).
    `found_by` is the part of the search that found the graph (ttsgraph/evaluation/found_by.py).
    `contender` is the graph's label if it is a contender rather than the method's result. `own` is
    the method's best result with its validation, if there is one.
    """

    graph: CollaborationGraph
    iteration: int
    validation: Feedback
    stopped_by: str
    trajectory: pd.DataFrame
    terms: dict[str, object]
    p_best: float
    found_by: str
    contender: str = ""
    own: tuple[CollaborationGraph, Feedback] | None = None


def found_in(state: State, searcher: Searcher) -> SearchOutcome:
    """Return the outcome: the method's best result or the best contender, whichever is expected to
    be better; if the search follows the paper, the method's last result is used instead of its best
    one. Raises RunStopped if nothing could be validated.
    """
    ranking = state.ranking
    best = own = ranking.best
    if ranking.results and searcher.problem.settings.way == "paper":
        best = own = ranking.results[-1]
    if own is not None and state.origins[own[1].content_hash] == CONTEST:
        own = None
    leader = next((each for each in state.standings if each.graph in ranking.validated), None)
    presumed = Difference(*searcher.expected_gain)
    label = ""
    if leader and (own is None or not ranking.replaces(own[1], leader.graph, presumed)):
        best, label = (0, leader.graph), leader.label
    if best is None:
        raise RunStopped(f"no result could be validated ({state.error}); run again to continue")
    number, graph = best
    ended = state.stopped_by or "max_iterations", pd.DataFrame(ranking.rows), terms_of(state)
    known = ranking.p_best(graph), state.origins[graph.content_hash], label
    mine = None if own is None else (own[1], ranking.validated[own[1]])
    return SearchOutcome(graph, number, ranking.validated[graph], *ended, *known, mine)


def terms_of(state: State) -> dict[str, object]:
    """Return the terms of a search, which must be equal for methods to be compared, as plain data.

    `contenders` is a digest of the graphs that compete with the method's result, and of their
    values; `train` and `val` are digests of the question ids of the batch and of the validation
    split. The selection rule follows from `objective`. `racing` is always None; it is kept because
    old records have the key.
    """
    brief, rule = state.brief, state.rule
    values = [f"{each.graph.to_json()} {each.value!r}" for each in state.standings]
    return {
        "pool": [f"{spec.name} {spec.identity}" for spec in brief.cost.pool.values()],
        "metric": brief.cost.metric,
        "budget": brief.budget.limit,
        "max_nodes": brief.budget.max_nodes,
        "objective": brief.objective.model_dump(),
        "train": _digest(question.id for question in state.train[: rule.batch]),
        "val": _digest(question.id for question in state.val),
        "candidates": rule.candidates,
        "max_iterations": rule.max_iterations,
        "patience": rule.patience,
        "racing": None,
        "contenders": _digest(values) if values else None,
    }


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def search_summary(
    found: SearchOutcome, archive: pd.DataFrame, spent: Expense, exchanges: Sequence[Exchange] = ()
) -> dict[str, Any]:
    """Return the result and cost of a search: evaluations, calls, new calls, tokens and dollars.

    Tokens and dollars include the agent's exchanges, which are also listed separately; calls count
    only candidates. `spent` is the actual expense, with its seconds, over all starts of the search.
    """
    agent_tokens = sum(each.prompt_tokens + each.completion_tokens for each in exchanges)
    agent_dollars = sum((exchange.dollars for exchange in exchanges), 0.0)
    counted = ["calls", "cached_calls", "n_unscored", "prompt_tokens", "completion_tokens"]
    calls, cached, unscored, *tokens = archive[counted].sum().astype(int).tolist()
    return {
        "found_hash": found.graph.content_hash,
        "found_iteration": found.iteration,
        "found_by": found.found_by,
        "contender": found.contender,
        "own_graph": found.own[0].to_dict() if found.own else None,
        "own_val_accuracy": found.own[1].accuracy if found.own else None,
        "val_accuracy": found.validation.accuracy,
        "val_questions": found.validation.n_scored,
        "p_best": found.p_best,
        "val_latency_s": found.validation.latency_s,
        "front": validated_front(archive),
        "terms": found.terms,
        "stopped_by": found.stopped_by,
        "iterations": int(archive["iteration"].max()),
        "candidates": len(archive),
        "failed_candidates": int((archive["status"] == "failed").sum()),
        "unscored_questions": unscored,
        "calls": calls,
        "made_calls": calls - cached,
        "stopped_candidates": 0,  # always 0; old records have the key
        "distinct_over_naive_calls": (calls - cached) / calls if calls else 0.0,
        "tokens": sum(tokens) + agent_tokens,
        "dollars": float(archive["dollars"].sum()) + agent_dollars,
        "spent_dollars": spent.dollars,
        "spent_tokens": spent.tokens,
        "spent_seconds": spent.wall_s,
        "agent_calls": len(exchanges),
        "agent_tokens": agent_tokens,
        "agent_dollars": agent_dollars,
        "agent_seconds": sum(exchange.seconds for exchange in exchanges),
        "agent_refused": sum(len(exchange.refused) for exchange in exchanges),
    }


def validated_front(archive: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the Pareto front of accuracy and latency among the validated graphs, from fast to slow
    (A.9).
    """
    validated = archive[(archive["split"] == "val") & (archive["status"] == "ok")]
    rows = validated.drop_duplicates("graph", keep="last").to_dict("records")
    front = pareto_front([(row["accuracy"], row["latency_s"]) for row in rows])
    shown = ("graph_hash", "accuracy", "latency_s", "budget_units")
    return [{key: rows[k][key] for key in shown} for k in front]


def edge_table(entries: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the edge probabilities after each iteration, from the entries of a journal (columns of
    schemas.Edges); no rows if the method learns no distribution.
    """
    rows: list[tuple[int | float, ...]] = []
    for entry in entries:
        if entry["type"] == "iteration" and "distribution" in entry:
            made = GraphDistribution.from_dict(entry["distribution"], np.random.default_rng(0))
            edges = edge_probabilities(made).items()
            rows += [(entry["iteration"], *edge, p) for edge, p in edges]
    types = {"iteration": int, "source": int, "target": int, "probability": float}
    return pd.DataFrame(rows, columns=[*types]).astype(types).round(KEPT_DECIMALS)
