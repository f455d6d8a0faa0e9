"""What one search leaves beside its champion: the graphs that no other beats in score for no more
cost, and three of them as the rungs low, medium and high.

Candidates of the search were scored on validation questions, baselines and the found graph on test
questions. What links the two is the found graph, which both have: a graph's score is how far it is
ahead of the found graph on the questions that it was asked itself. The best of many looks better
than it is, so a rung's score is for choosing among rungs, not a test of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from ttsgraph.base.errors import DataError
from ttsgraph.evaluation.objective import pareto_front
from ttsgraph.graphs.graph import CollaborationGraph

Effort = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Rung:
    """A graph on the front: its cost in budget units, and how far its score is ahead of the found
    graph's, on this split.
    """

    graph: CollaborationGraph
    units: float
    ahead: float
    split: str

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        told = {"units": self.units, "ahead": self.ahead, "split": self.split}
        return {"graph": self.graph.to_dict()} | told


def front_of(candidates: pd.DataFrame, tested: pd.DataFrame) -> tuple[Rung, ...]:
    """The front of cost and score, cheapest first, from a search's archive and its test table
    (schemas.Candidates and Evaluations). Empty where the found graph has no score on either.
    """
    found = tested[tested["arm"] == "found"]
    if found.empty:
        return ()
    mine = found.iloc[0]
    validated = candidates[(candidates["split"] == "val") & (candidates["status"] == "ok")]
    validated = validated.drop_duplicates("graph_hash", keep="last")
    its = validated[validated["graph_hash"] == mine["graph_hash"]]["accuracy"]
    points = _points(tested, float(mine["accuracy"]), "test")
    if not its.empty:
        points += _points(validated, float(its.iloc[0]), "val")
    # A graph that was tested counts as it was tested.
    first = list({rung.graph.content_hash: rung for rung in reversed(points)}.values())
    return tuple(first[k] for k in pareto_front([(rung.ahead, rung.units) for rung in first]))


def _points(table: pd.DataFrame, found: float, split: str) -> list[Rung]:
    """The graphs of a table that were scored, and how far each is ahead of the found graph."""
    return [
        Rung(
            CollaborationGraph.from_json(row["graph"]),
            float(row["budget_units"]),
            float(row["accuracy"] - found),
            split,
        )
        for row in table.to_dict("records")
        if not math.isnan(row["accuracy"] - found)
    ]


def rungs_of(front: Sequence[Rung]) -> dict[Effort, Rung]:
    """The cheapest graph of a front, the best, and the one between them whose cost is nearest to
    their geometric mean; without one between them the best. Empty for a front of fewer than two.
    """
    if len(front) < 2:
        return {}
    low, *between, high = front
    middle = (low.units * high.units) ** 0.5
    medium = min(between, key=lambda rung: abs(rung.units - middle), default=high)
    return {"low": low, "medium": medium, "high": high}


def ladder_text(front: Sequence[Rung]) -> str:
    """A front as JSON."""
    return json.dumps([rung.to_dict() for rung in front], indent=1) + "\n"


def read_ladder(text: str, where: str) -> tuple[Rung, ...]:
    """The inverse of `ladder_text`. Raises InputError that names `where`."""
    try:
        return tuple(
            Rung(
                CollaborationGraph.from_dict(one["graph"], where),
                float(one["units"]),
                float(one["ahead"]),
                str(one["split"]),
            )
            for one in json.loads(text)
        )
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{where}: expected a list of graphs with units, ahead and split") from None
