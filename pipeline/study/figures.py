"""The study's plots. Each says in its title, and in its file's name, that its figures are
simulated.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ttsgraph.evaluation.objective import pareto_front
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.plots import PALETTE, draw_graph, save
from ttsgraph.study import paper
from ttsgraph.study.stats import mean_of

TITLE = "simulated pool"


def plot_methods(table: pd.DataFrame, path: Path) -> Path:
    """Table 1 and 3: score against search seconds, with intervals, one panel per block."""
    blocks = list(dict.fromkeys(table["block"]))
    figure = Figure(figsize=(3.4 * len(blocks), 3.2))
    for axes, block in zip(np.atleast_1d(figure.subplots(1, len(blocks))), blocks, strict=True):
        for k, row in enumerate(table[table["block"] == block].to_dict("records")):
            x_error = (row["seconds_high"] - row["seconds_low"]) / 2
            y_error = (row["score_high"] - row["score_low"]) / 2
            finite = np.isfinite([x_error, y_error]).all()
            errors = {"xerr": x_error, "yerr": y_error} if finite else {}
            axes.errorbar(
                row["seconds"],
                row["score"],
                fmt="o",
                color=PALETTE[k % len(PALETTE)],
                label=row["name"],
                **errors,
            )
        axes.set(
            title=f"{block} ({TITLE})",
            xlabel="search, model seconds",
            ylabel="test score, %",
            xscale="log",
        )
    figure.axes[0].legend(frameon=False, fontsize=7)
    figure.tight_layout()
    return save(figure, path)


def plot_curves(rows: pd.DataFrame, length: int, path: Path) -> Path:
    """Figure 9: the best validation score by iteration, mean and interval over seeds; a search that
    stopped keeps its score.
    """
    figure = Figure(figsize=(5.2, 3.4))
    axes = figure.subplots()
    for k, method in enumerate((paper.OURS, *paper.RIVALS)):
        curves = [_padded(curve, length) for curve in rows[rows["method"] == method]["curve"]]
        if not curves:
            continue
        means = [mean_of([100 * curve[i] for curve in curves]) for i in range(length)]
        x = range(1, length + 1)
        axes.plot(x, [m.value for m in means], color=PALETTE[k], label=method)
        if len(curves) > 1:
            axes.fill_between(
                x,
                [m.low for m in means],
                [m.high for m in means],
                color=PALETTE[k],
                alpha=0.12,
                lw=0,
            )
    axes.set(title=f"MATH ({TITLE})", xlabel="iteration", ylabel="best validation score, %")
    axes.legend(frameon=False, fontsize=7)
    return save(figure, path)


def _padded(curve: list[float], length: int) -> list[float]:
    return (curve + [curve[-1]] * length)[:length]


def plot_pilots(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Figures 1 (the data of table 4), 3, 4a, 4b and 4c."""
    paths = []
    for figure_name, rows in table.groupby("figure", sort=False):
        stem = f"{str(figure_name).replace(' ', '_')}_simulated.svg"
        paths.append(
            _heat_map(rows, folder / stem)
            if figure_name == "figure 4c"
            else _bars(str(figure_name), rows, folder / stem)
        )
    return paths


def _bars(name: str, rows: pd.DataFrame, path: Path) -> Path:
    tasks = list(dict.fromkeys(rows["task"]))
    figure = Figure(figsize=(3.6 * len(tasks), 0.9 + 0.28 * len(rows) / len(tasks)))
    for axes, task in zip(np.atleast_1d(figure.subplots(1, len(tasks))), tasks, strict=True):
        mine = rows[rows["task"] == task]
        y = list(range(len(mine)))[::-1]
        half = ((mine["accuracy_high"] - mine["accuracy_low"]) / 2).replace([np.inf], np.nan)
        axes.errorbar(
            mine["accuracy"],
            y,
            xerr=half,
            fmt="o",
            color=PALETTE[0],
            ms=4,
            capsize=2,
            label="simulated",
        )
        axes.plot(mine["paper_accuracy"].astype(float), y, "x", color=PALETTE[1], label="paper")
        labels = [f"{a} {b}".strip() for a, b in zip(mine["label"], mine["topology"], strict=True)]
        axes.set_yticks(y, labels)
        axes.set(title=f"{name}: {task} ({TITLE})", xlabel="accuracy, %")
    figure.axes[0].legend(frameon=False, fontsize=7)
    figure.tight_layout()
    return save(figure, path)


def _heat_map(rows: pd.DataFrame, path: Path) -> Path:
    sides = rows["label"].str.split(" x ", expand=True).astype(int)
    grid = rows.assign(w=sides[0], d=sides[1]).pivot_table(
        index="d", columns="w", values="accuracy"
    )
    figure = Figure(figsize=(5.2, 4.0))
    axes = figure.subplots()
    axes.imshow(grid.to_numpy(), cmap="viridis", aspect="auto")
    axes.set_xticks(range(grid.shape[1]), [str(w) for w in grid.columns])
    axes.set_yticks(range(grid.shape[0]), [str(d) for d in grid.index])
    middle = (np.nanmin(grid.to_numpy()) + np.nanmax(grid.to_numpy())) / 2
    for row in range(grid.shape[0]):
        for column in range(grid.shape[1]):
            if not np.isnan(value := grid.to_numpy()[row, column]):
                tone = "#111111" if value > middle else "#f5f5f5"
                axes.text(
                    column, row, f"{value:.0f}", ha="center", va="center", color=tone, fontsize=8
                )
    axes.set(
        xlabel="width",
        ylabel="depth of each branch",
        title=f"figure 4c: MATH, LLaMA 1B, accuracy % ({TITLE})",
    )
    return save(figure, path)


def plot_front(rows: pd.DataFrame, path: Path) -> Path:
    """Accuracy and latency of every validated graph of the accuracy and joint searches on MATH, and
    their Pareto front.
    """
    points = [(accuracy, latency) for front in rows["front"] for accuracy, latency in front]
    figure = Figure(figsize=(4.6, 3.2))
    axes = figure.subplots()
    axes.scatter(
        [latency for _, latency in points],
        [100 * a for a, _ in points],
        s=8,
        alpha=0.4,
        color=PALETTE[6],
    )
    front = [points[k] for k in pareto_front(points)]
    axes.plot(
        [latency for _, latency in front],
        [100 * a for a, _ in front],
        "o-",
        color=PALETTE[1],
        ms=4,
        label="Pareto front",
    )
    axes.set(
        title=f"MATH, agent_reinforce ({TITLE})",
        xlabel="s a question",
        ylabel="validation score, %",
    )
    axes.legend(frameon=False)
    return save(figure, path)


def draw_best(rows: pd.DataFrame, path: Path) -> str:
    """Figure 6: draw the found graph with the best test score; returns what it is in words."""
    best = rows.sort_values(["score", "budget_units"], ascending=[False, True]).iloc[0]
    graph = CollaborationGraph.from_json(str(best["graph"]))
    draw_graph(graph, path)
    models = ", ".join(f"{count} x {model}" for model, count in graph.model_counts().items())
    units = best["budget_units"]
    score = 100 * best["score"]
    return (
        f"{models}; width {graph.width}, depth {graph.depth}, {units:.1f} units, test score"
        f" {score:.1f} %"
    )
