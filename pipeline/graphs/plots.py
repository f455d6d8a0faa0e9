"""Plots of graphs and pilots with matplotlib; each function writes one SVG (or what the path's
ending says).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
import networkx as nx
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ttsgraph.base.style import SERIES
from ttsgraph.graphs.graph import CollaborationGraph

matplotlib.rcParams.update(
    {
        "svg.hashsalt": "ttsgraph",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)

PALETTE = SERIES["light"]
MARKERS = {
    "assistant": "o",
    "fuser": "s",
    "voter": "D",
    "weighted": "d",
    "verifier": "P",
    "judge": "^",
}


def save(figure: Figure, path: Path) -> Path:
    """Write a figure without a date in it, so that the same plot is the same file.

    A figure whose path says that it is simulated says so itself, because pictures travel without
    their paths.
    """
    if any("simulated" in part for part in path.parts):
        figure.text(0.99, 0.99, "simulated", ha="right", va="bottom", color="#cc3311", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, bbox_inches="tight", metadata=metadata, dpi=150)
    return path


def to_networkx(graph: CollaborationGraph) -> nx.DiGraph[int]:
    """The graph for networkx, with role, model and level as node attributes."""
    result: nx.DiGraph[int] = nx.DiGraph()
    for level, ids in enumerate(graph.levels):
        for i in ids:
            node = graph.node(i)
            result.add_node(i, role=node.role, model=node.model, level=level)
    result.add_edges_from(graph.edges)
    return result


def draw_graph(graph: CollaborationGraph, path: Path) -> Path:
    """Levels from left to right; colour is the model, shape the role, the sink has a thick rim, and
    what is asked for only where a gate opens or a vote goes on stands at a dashed arrow.
    """
    return save(_figure(graph), path)


def svg_of(graph: CollaborationGraph) -> str:
    """The same picture as SVG, for a page or a notebook."""
    text = io.StringIO()
    _figure(graph).savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _figure(graph: CollaborationGraph) -> Figure:
    drawn = to_networkx(graph)
    figure = Figure(figsize=(1.8 + 1.5 * graph.depth, 1.4 + 0.6 * graph.width))
    axes = figure.subplots()
    positions = nx.multipartite_layout(drawn, subset_key="level")
    models = sorted({node.model for node in graph.nodes})
    colours = {model: PALETTE[k % len(PALETTE)] for k, model in enumerate(models)}
    for role in sorted({node.role for node in graph.nodes}):
        ids = [node.id for node in graph.nodes if node.role == role]
        nx.draw_networkx_nodes(
            drawn,
            positions,
            nodelist=ids,
            node_shape=MARKERS.get(role, "h"),
            node_color=[colours[graph.node(i).model] for i in ids],
            edgecolors="black",
            linewidths=[2.5 if i == graph.sink else 0.6 for i in ids],
            node_size=520,
            ax=axes,
        )
    for style, edges in (
        ("solid", set(graph.edges) - set(graph.late_edges)),
        ("dashed", set(graph.late_edges)),
    ):
        nx.draw_networkx_edges(
            drawn,
            positions,
            sorted(edges),
            style=style,
            ax=axes,
            node_size=520,
            edge_color="#555555",
        )
    nx.draw_networkx_labels(drawn, positions, ax=axes, font_size=8, font_color="white")
    roles = [
        Line2D([], [], marker=MARKERS.get(r, "h"), color="w", markeredgecolor="black", label=r)
        for r in _roles(graph)
    ]
    names = [
        Line2D([], [], marker="o", color="w", markerfacecolor=colours[m], label=m) for m in models
    ]
    axes.legend(
        handles=roles + names,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.02),
        ncols=2,
        frameon=False,
    )
    axes.set_axis_off()
    axes.margins(0.15)
    return figure


def _roles(graph: CollaborationGraph) -> list[str]:
    return sorted({node.role for node in graph.nodes})


def _intervals(axes: Axes, table: pd.DataFrame) -> None:
    """Horizontal points with intervals, the first label on top; hollow where a graph is over the
    budget.
    """
    labels = list(dict.fromkeys(table["label"]))
    for within, rows in table.groupby("within_budget"):
        y = [len(labels) - 1 - labels.index(label) for label in rows["label"]]
        errors = [rows["accuracy"] - rows["accuracy_low"], rows["accuracy_high"] - rows["accuracy"]]
        face = PALETTE[0] if within else "white"
        axes.errorbar(
            rows["accuracy"], y, xerr=errors, fmt="o", color=PALETTE[0], mfc=face, capsize=2, ms=4
        )
    axes.set_yticks(range(len(labels)), labels[::-1])
    axes.set(
        xlim=(0, 1),
        xlabel="accuracy" if table["within_budget"].all() else "accuracy (hollow: over the budget)",
    )


def pilot_plots(table: pd.DataFrame, folder: Path) -> list[Path]:
    """One plot per sweep: points with intervals, and a heat map for width x depth. What is over the
    budget is marked.
    """
    paths = []
    for sweep, rows in table.groupby("sweep", sort=False):
        if sweep == "width_x_depth":
            paths.append(_heat_map(rows, folder / "width_x_depth.svg"))
            continue
        figure = Figure(figsize=(4.6, 0.6 + 0.32 * rows["label"].nunique()))
        axes = figure.subplots()
        _intervals(axes, rows)
        axes.set_title(str(sweep))
        paths.append(save(figure, folder / f"{sweep!s}.svg"))
    return paths


def _heat_map(rows: pd.DataFrame, path: Path) -> Path:
    sides = rows["label"].str.split(" x ", expand=True).astype(int)
    cells = rows.assign(w=sides[0], d=sides[1])
    grid, within = (
        cells.pivot_table(index="d", columns="w", values=name)
        for name in ("accuracy", "within_budget")
    )
    figure = Figure(figsize=(1.2 + 0.8 * grid.shape[1], 1.0 + 0.6 * grid.shape[0]))
    axes = figure.subplots()
    axes.imshow(
        grid.to_numpy(),
        cmap="viridis",
        vmin=0,
        vmax=max(0.05, float(grid.max().max())),
        aspect="auto",
    )
    axes.set_xticks(range(len(grid.columns)), [str(w) for w in grid.columns])
    axes.set_yticks(range(len(grid.index)), [str(d) for d in grid.index])
    for (row, column), value in np.ndenumerate(grid.to_numpy()):
        if value == value:
            star = "" if within.to_numpy()[row, column] else "*"
            axes.text(
                column,
                row,
                f"{value:.2f}{star}",
                ha="center",
                va="center",
                color="white",
                fontsize=8,
            )
    axes.set(xlabel="width", ylabel="depth of each branch", title="width x depth")
    if not rows["within_budget"].all():
        axes.set_title("width x depth (*: over the budget)")
    return save(figure, path)
