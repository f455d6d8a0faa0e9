"""reports/study/: the tables as CSV and Markdown, the plots, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.files import write_text
from pipeline.settings import Profile
from pipeline.study import figures, paper, stats, tables
from pipeline.study.plan import StudySettings

SEARCH_COLUMNS: Mapping[str, tuple[str, int]] = {
    "block": ("", 0),
    "name": ("method", 0),
    "score": ("score, %", 1),
    "paper_score": ("paper", 0),
    "calls": ("calls", 0),
    "tokens": ("tokens", 0),
    "seconds": ("search, model s", 0),
    "paper_search_s": ("paper, s", 0),
    "latency_s": ("s a query", 1),
    "paper_latency_s": ("paper", 1),
    "p_score": ("p (score)", 4),
    "p_seconds": ("p (search)", 4),
}
ABOUT = (
    "All figures are simulated. {seeds} seeds; means with 95 % Student intervals; the paper's figures beside them are of "
    "real models. Search costs are those of calls that were made for the search: init stages where a method starts from them, "
    "training batches and validation; a call that is asked for twice is made once. Model seconds add up the calls' latencies. "
    "p-values are of {test}: in tables 1 and 3 against agent_reinforce, in table 2 against the full method. All searches of a task "
    "are tested on the same questions."
)
PILOT_COLUMNS: Mapping[str, tuple[str, int]] = {
    "figure": ("", 0),
    "task": ("task", 0),
    "label": ("what", 0),
    "topology": ("topology", 0),
    "accuracy": ("accuracy, %", 1),
    "paper_accuracy": ("paper", 0),
}


def write_study(folder: Path, settings: StudySettings, profile: Profile, rows: pd.DataFrame, pilots: pd.DataFrame) -> Path:
    """Write everything; returns the Markdown report's path. Raises DataError when methods were not on the same terms."""
    budget = profile.budget.limit
    columns = {label: (b.metric, b.limit) for label, b in settings.budgets.items()}
    found = {
        "table_1": tables.table_1(rows, budget),
        "table_2": tables.table_2(rows, budget),
        "table_3": tables.table_3(rows, columns),
    }
    pilot = tables.pilot_table(pilots)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in {**found, "pilots": pilot}.items():
        table.to_csv(folder / f"{name}_simulated.csv", index=False)
    rows.drop(columns=["terms", "curve", "front"]).to_csv(folder / "searches_simulated.csv", index=False)
    for name in ("table_1", "table_3"):
        if len(found[name]):
            figures.plot_methods(found[name], folder / f"{name}_simulated.svg")
    figures.plot_pilots(pilot, folder)
    math = rows[(rows["task"] == "math") & (rows["without"] == "")]
    main = math[(math["metric"] == "flops") & (math["budget"] == budget) & ~math["joint"]]
    best = ""
    if len(main):
        figures.plot_curves(main, settings.search.max_iterations, folder / "figure_9_simulated.svg")
        best = figures.draw_best(main[main["method"] == paper.OURS], folder / "figure_6_simulated.svg")
        figures.plot_front(math[math["method"] == paper.OURS], folder / "pareto_front_simulated.svg")
    path = folder / "study_simulated.md"
    write_text(path, _page(found, pilot, best, rows))
    return path


def _page(found: Mapping[str, pd.DataFrame], pilot: pd.DataFrame, best: str, rows: pd.DataFrame) -> str:
    heads = {
        "table_1": "Table 1: every method at the main budget",
        "table_2": "Table 2: Agent-REINFORCE without an insight or roles",
        "table_3": "Table 3: MATH under other budgets, and for accuracy and latency",
    }
    parts = [
        "# The study, on the simulated pool",
        ABOUT.format(seeds=rows["seed"].nunique(), test=stats.TEST),
        "## What holds",
        "\n".join(f"- {line}" for line in [*ranking(found["table_1"]), *ablation(found["table_2"])]),
    ]
    for name, head in heads.items():
        parts += [f"## {head}", tables.markdown(found[name], SEARCH_COLUMNS)]
    parts += ["## Figure 6: the best graph found on MATH", f"Here: {best}. The paper's {paper.BEST_GRAPH}."]
    parts += ["## Figures 1, 3 and 4, table 4: pilots", tables.markdown(pilot, PILOT_COLUMNS)]
    return "\n\n".join(parts) + "\n"


def ranking(table: pd.DataFrame) -> list[str]:
    """Per task: whether agent_reinforce has the best score, against whom that is significant, and whom it costs less than."""
    lines = []
    for block, group in table.groupby("block", sort=False):
        by_name: dict[str, Any] = {row["name"]: row for row in group.to_dict("records")}
        ours = by_name[paper.OURS]
        rivals = {name: row for name, row in by_name.items() if name != paper.OURS}
        clear = [name for name, row in rivals.items() if ours["score"] > row["score"] and row["p_score"] < 0.05]
        unclear = [name for name in rivals if name not in clear]
        place = 1 + sum(row["score"] > ours["score"] for row in rivals.values())
        cheaper = [name for name, row in rivals.items() if ours["seconds"] < row["seconds"]]
        lines.append(
            f"{block}: agent_reinforce is number {place} of {len(by_name)} by test score ({ours['score']:.1f} %), better with "
            f"p < 0.05 than {', '.join(clear) or 'none'}; not so against {', '.join(unclear) or 'none'}. "
            f"Its search takes fewer model seconds than that of {', '.join(cheaper) or 'none'}."
        )
    return lines


def ablation(table: pd.DataFrame) -> list[str]:
    """Per task and switch: what removing it does to score and search effort, and whether that is significant."""
    lines = []
    for block, group in table.groupby("block", sort=False) if len(table) else []:
        by_name: dict[str, Any] = {row["name"]: row for row in group.to_dict("records")}
        full = by_name["full"]
        for name, row in by_name.items():
            if name == "full":
                continue
            score, effort = row["score"] - full["score"], row["seconds"] / full["seconds"] - 1
            lines.append(
                f"{block} without {name}: score {score:+.1f} points ({_clear(row['p_score'])}), "
                f"search {100 * effort:+.0f} % ({_clear(row['p_seconds'])})"
            )
    return lines


def _clear(p: float) -> str:
    return f"p = {p:.3f}" if p < 0.05 else f"not significant, p = {p:.2f}"
