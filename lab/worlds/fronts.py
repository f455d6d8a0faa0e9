"""Accuracy against what a question costs on average, of graphs that always ask all and of graphs
that may stop: the fronts of both in simulated worlds. Everything here is simulated.

For each limit the best of a list is looked for on some questions, first among structured graphs,
then among changed copies of the best; other questions say what it scores and costs. Both families
get equally many copies. A list of graphs that may stop holds the others too, as a search's does
under a mean budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lab.worlds.arrays import ArrayWorld
from lab.worlds.best import TRUTH_SEED
from lab.worlds.settings import FrontSettings
from ttsgraph.base.arrays import IntArray
from ttsgraph.evaluation.paired import mean_of
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.mean_cost import MeanCost
from ttsgraph.graphs.settle import needs
from ttsgraph.pool.simulated import TaskTraits
from ttsgraph.pool.spec import ModelPool
from ttsgraph.reporting.charts import accuracy_axis, chart_of, layer, quantity
from ttsgraph.reporting.pictures import chart_svg
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.contest.adaptive import adaptive_contenders, on_average
from ttsgraph.searching.contest.contenders import Contenders
from ttsgraph.searching.contest.mutations import changed

FAMILIES = ("static", "adaptive")
CLIMBERS = 8
"""Graphs that are changed, the better ones more often."""


class Front:
    """Both fronts of one world, on questions drawn with a seed."""

    def __init__(
        self, traits: TaskTraits, pool: ModelPool, brief: Brief, seed: int, settings: FrontSettings
    ) -> None:
        self.settings = settings
        self.rng = np.random.default_rng([seed, 3])
        self.world = ArrayWorld(traits, pool, settings.questions, seed)
        self.judge = ArrayWorld(traits, pool, settings.truth, TRUTH_SEED + seed)
        alone = {model: self.world.accuracy(topologies.single(model)) for model in pool}
        self.brief = replace(brief, single_scores=alone)
        self._known: dict[CollaborationGraph, float] = {}

    def rows(self) -> list[dict[str, Any]]:
        """A row per limit and family: what the graph that was chosen scores and costs on questions
        that did not choose it.
        """
        found = []
        for limit in self.settings.limits:
            budget = replace(self.brief.budget, limit=limit)
            brief = replace(self.brief, budget=budget)
            on_mean = replace(self.brief, budget=replace(budget, of="mean"))
            priced = on_average(on_mean, self._classes, self.world.count)
            static = list(Contenders(brief).graphs)
            adaptive = list(adaptive_contenders(Contenders(priced)))
            for family, graphs, terms in (
                ("static", static, brief),
                ("adaptive", [*static, *adaptive], priced),
            ):
                graph = self._climbed(graphs, terms)
                found.append({"limit": limit, "family": family, **self._judged(graph)})
        return found

    def _classes(self, graph: CollaborationGraph) -> Mapping[int, IntArray]:
        return {i: said.replies for i, said in self.world.nodes(graph).items()}

    def _accuracy(self, graph: CollaborationGraph) -> float:
        known = self._known.get(graph)
        if known is None:
            known = self._known[graph] = self.world.accuracy(graph)
        return known

    def _climbed(self, graphs: Sequence[CollaborationGraph], brief: Brief) -> CollaborationGraph:
        """The best of these graphs and of changed copies of the best."""
        tried = set(graphs)
        leading = sorted(graphs, key=lambda graph: -self._accuracy(graph))[:CLIMBERS]
        for _ in range(self.settings.steps):
            rank = min(int(self.rng.exponential(2.0)), len(leading) - 1)
            graph = changed(leading[rank], brief, self.rng)
            if graph is not None and graph not in tried:
                tried.add(graph)
                leading = sorted([*leading, graph], key=lambda graph: -self._accuracy(graph))
                leading = leading[:CLIMBERS]
        return leading[0]

    def _judged(self, graph: CollaborationGraph) -> dict[str, Any]:
        said = {i: node.replies for i, node in self.judge.nodes(graph).items()}
        expected = MeanCost(self.brief.cost, self._classes, self.world.count).expected(graph)
        return {
            "accuracy": self.judge.accuracy(graph),
            "units": mean_units(graph, said, self.brief.cost),
            "predicted_units": expected.mean,
            "worst_units": expected.worst,
            "stops": graph.adaptive,
            "graph": graph.to_json(),
        }


def mean_units(
    graph: CollaborationGraph, classes: Mapping[int, IntArray], cost: CostModel
) -> float:
    """What a question of these costs on average, in budget units."""
    units = {node.id: cost.node_cost(node, len(graph.reads[node.id])) for node in graph.nodes}
    weights = needs(graph, classes).weights(units)
    return float(np.sum(list(weights.values()), axis=0).mean())


def gains(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per limit: both families' mean accuracy and units over worlds, the gain of graphs
    that may stop in points with its interval over worlds, and in how many of them the best one
    stops.
    """
    by_world = rows.groupby(["world", "limit", "family"])[["accuracy", "units"]].mean()
    lines = []
    for limit in sorted(rows["limit"].unique()):
        both = by_world.xs(limit, level="limit").unstack("family")
        difference = 100 * (both["accuracy"]["adaptive"] - both["accuracy"]["static"])
        mean = mean_of(difference.tolist())
        chosen = rows[(rows["limit"] == limit) & (rows["family"] == "adaptive")]
        off = (chosen["predicted_units"] / chosen["units"] - 1).abs()
        lines.append(
            {
                "limit": limit,
                "static": both["accuracy"]["static"].mean(),
                "static_units": both["units"]["static"].mean(),
                "adaptive": both["accuracy"]["adaptive"].mean(),
                "adaptive_units": both["units"]["adaptive"].mean(),
                "gain": mean.value,
                "gain_low": mean.low,
                "gain_high": mean.high,
                "stops": float(chosen["stops"].mean()),
                "cost_error": float(off.mean()),
                "worlds": mean.n,
                "seeds": int(rows["seed"].nunique()),
            }
        )
    return pd.DataFrame(lines)


def front_table(found: pd.DataFrame) -> str:
    """The gains as a Markdown table."""
    lines = [
        "| mean units, at most | static | may stop | gain, points | stop | cost off by |",
        "|---|---|---|---|---|---|",
    ]
    for row in found.to_dict("records"):
        static = f"{100 * row['static']:.1f} % at {row['static_units']:.1f}"
        moving = f"{100 * row['adaptive']:.1f} % at {row['adaptive_units']:.1f}"
        gain = f"{row['gain']:+.1f} ({row['gain_low']:+.1f} to {row['gain_high']:+.1f})"
        rest = f"{100 * row['stops']:.0f} % | {100 * row['cost_error']:.1f} %"
        lines.append(f"| {row['limit']:g} | {static} | {moving} | {gain} | {rest} |")
    return "\n".join(lines)


NAMES = {"static": "always ask all", "adaptive": "may stop"}


def front_picture(found: pd.DataFrame) -> str:
    """Both fronts as SVG: mean accuracy over worlds against mean units, on a logarithmic scale."""
    values = [
        {"graphs": NAMES[family], "units": row[f"{family}_units"], "accuracy": row[family]}
        for row in found.to_dict("records")
        for family in FAMILIES
    ]
    title = "Accuracy against mean units of graphs that always ask all and that may stop"
    units = "units a question, on average"
    at = {
        "x": quantity("units", units, scale={"type": "log", "nice": False}),
        "y": accuracy_axis("right", scale={"zero": False}),
        "color": {"field": "graphs", "type": "nominal", "title": None},
    }
    lines = [layer("line", at, point=True)]
    chart = chart_of("fronts", title, title, 260, lines, {"values": values})
    return chart_svg(chart, simulated=True)
