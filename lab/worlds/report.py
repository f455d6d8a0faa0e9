"""reports/worlds: shortfall from the best graph known, per world, budget and method. Everything in
it is simulated, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from lab.study.correction import holm
from lab.worlds.fronts import front_picture, front_table, gains
from lab.worlds.learning import learning_table
from lab.worlds.run import OURS
from lab.worlds.settings import WorldSettings
from ttsgraph.base.files import write_text
from ttsgraph.evaluation.paired import mean_of, paired_p

FEWEST = 6
"""Seeds from which on a two-sided Wilcoxon signed-rank test can come below 0.05 at all; Holm's
correction asks for more.
"""


def shortfalls(rows: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """One row per world, budget and method: shortfall in points with its interval over seeds,
    calls, and p against ours.

    p is of a paired two-sided Wilcoxon test over seeds, Holm-corrected over the methods and
    baselines of a world and budget.
    """
    rows = rows.merge(best[["world", "budget", "best_accuracy"]], on=["world", "budget"])
    rows["shortfall"] = 100 * (rows["best_accuracy"] - rows["accuracy"])
    lines = []
    for (world, budget), cell in rows.groupby(["world", "budget"], sort=True):
        table = cell.pivot_table(index="seed", columns="method", values="shortfall")
        p = _p_values(table)
        for method, mine in cell.groupby("method", sort=False):
            mean = mean_of(list(mine["shortfall"]))
            lines.append(
                {
                    "world": world,
                    "budget": budget,
                    "method": method,
                    "kind": mine["kind"].iloc[0],
                    "shortfall": mean.value,
                    "shortfall_low": mean.low,
                    "shortfall_high": mean.high,
                    "calls": mine["calls"].mean(),
                    "profile_calls": mine["profile_calls"].mean(),
                    "seeds": len(mine),
                    "p_against_ours": p.get(str(method), math.nan),
                }
            )
    return pd.DataFrame(lines)


def _p_values(table: pd.DataFrame) -> Mapping[str, float]:
    found = {}
    for method in table.columns:
        if method != OURS and OURS in table:
            pairs = table[[OURS, method]].dropna()
            if len(pairs) >= FEWEST:
                found[str(method)] = paired_p(pairs[OURS].tolist(), pairs[method].tolist())
    return holm(found)


def write_report(
    folder: Path, table: pd.DataFrame, worlds: Mapping[str, WorldSettings], cpu_s: float
) -> Path:
    """Write shortfall.csv and index.md into the folder."""
    write_text(folder / "shortfall.csv", table.to_csv(index=False, float_format="%.4g"))
    ours = table[table["method"] == OURS]
    text = [
        "# Worlds (simulated)\n",
        (
            "No language model answered anything here: a stochastic model of six models did, in"
            " worlds whose traits differ."
        ),
        (
            "Shortfall is in points of accuracy below the best graph known of a world and budget"
            " (lab/worlds/named/best_known.csv)."
        ),
        (
            "Calls are those from the init stages on; the profile stage's stand apart in"
            " shortfall.csv."
        ),
        f"{int(table['seeds'].max())} seeds; worlds that constants were tuned on are marked *.\n",
    ]
    if table["seeds"].max() < 9:
        text.append("With fewer than nine seeds, no corrected test can be significant.\n")
    for kinds, title in (
        (("contest", "with contenders"), "With contenders"),
        (("baseline", "without contenders"), "Others"),
    ):
        text.append(f"## {title}: mean over worlds\n")
        means = (
            table[table["kind"].isin(kinds)]
            .groupby(["method", "budget"])[["shortfall", "calls"]]
            .mean()
            .round(2)
            .unstack()
        )
        text += [_markdown(pd.DataFrame(means)), ""]
    text.append("## By world, agent_reinforce\n")
    for budget, rows in ours.groupby("budget"):
        text.append(f"### Budget {budget:g}\n")
        text.append("| world | shortfall | calls | significantly better |\n|---|---|---|---|")
        for row in rows.to_dict("records"):
            rivals = table[(table["world"] == row["world"]) & (table["budget"] == budget)]
            better = rivals[
                (rivals["p_against_ours"] < 0.05) & (rivals["shortfall"] < row["shortfall"])
            ]
            half = (row["shortfall_high"] - row["shortfall_low"]) / 2
            mark = "*" if worlds[str(row["world"])].tuned_on else ""
            cells = [
                f"{row['world']}{mark}",
                f"{row['shortfall']:.1f} ± {half:.1f}",
                f"{row['calls']:.0f}",
            ]
            text.append(f"| {' | '.join([*cells, ', '.join(better['method']) or '-'])} |")
        text.append("")
    text.append(f"{cpu_s:.0f} CPU s in all searches.")
    if (folder / "fronts.md").exists():
        text.append("\n[Graphs that may stop against those that never do](fronts.md)")
    path = folder / "index.md"
    write_text(path, "\n".join(text) + "\n")
    return path


def write_fronts(folder: Path, rows: pd.DataFrame) -> Path:
    """Write fronts.csv, fronts.svg and fronts.md into the folder."""
    found = gains(rows)
    write_text(folder / "fronts.csv", rows.to_csv(index=False, float_format="%.5g"))
    write_text(folder / "fronts.svg", front_picture(found))
    text = [
        "# Graphs that may stop against those that never do (simulated)\n",
        "No language model answered anything here. Of each world the best graph within a mean cost,"
        " chosen on some questions and judged on others;",
        f"means over {int(found['worlds'].max())} worlds, {int(found['seeds'].max())} seeds each,"
        " the gain with its 95 % interval over worlds. `stop` says in how many of them the best"
        " graph that may stop does.\n",
        front_table(found),
        "\n![Both fronts](fronts.svg)",
    ]
    path = folder / "fronts.md"
    write_text(path, "\n".join(text) + "\n")
    return path


def write_learning(folder: Path, rows: pd.DataFrame) -> Path:
    """Write learning.csv and learning.md into the folder."""
    write_text(folder / "learning.csv", rows.to_csv(index=False, float_format="%.5g"))
    text = [
        "# What predictions are worth (simulated)\n",
        "No language model answered anything here. Of each world and budget the contest as it is"
        " set, with half of its calls, and without the response model: points below"
        f" the best graph known; means over {rows['world'].nunique()} worlds,"
        f" {rows['seed'].nunique()} seeds each, with the 95 % interval over worlds. Predictions are"
        " of structured graphs that the contest never ran, against their accuracy on thousands of"
        " other questions, in points:"
        " `relatively` without what all graphs of a contest are off by; `covered` says how many of"
        " those lie in the 90 % interval.\n",
        learning_table(rows),
    ]
    path = folder / "learning.md"
    write_text(path, "\n".join(text) + "\n")
    return path


def _markdown(means: pd.DataFrame) -> str:
    heads = [f"{column[0]} at {column[1]:g}" for column in means.columns.to_list()]
    lines = [["method", *heads], ["---"] * (len(heads) + 1)]
    lines += [
        [str(method), *(f"{value:.1f}" for value in row)]
        for method, row in zip(means.index, means.to_numpy(), strict=True)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
