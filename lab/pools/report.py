"""Statistics of searches: a summary of their rows, and the differences between two files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lab.pools.rivals import PLAIN
from lab.pools.run import KEY
from lab.pools.worlds import RECORD
from ttsgraph.base.errors import InputError

FAR = 2.0
"""Number of points; a result further than this below the best plain form counts as far below it."""

OVER = 1.03
"""Multiple of the budget above which a cost counts as over the budget."""


def read(paths: Iterable[Path]) -> pd.DataFrame:
    """Return the rows of these files. Raises InputError if there are none."""
    table = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
    if not len(table):
        raise InputError("expected rows of searches, found none; run `python -m lab.pools run`")
    return table


def with_shortfalls(table: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with additional columns, such as the points below the best plain form and
    below the best known result: the best on the same questions, in these rows and in `others`.
    """
    every = pd.concat([table, others])
    every["judged"] = _judged(every)
    known = every[["accuracy", "found", "plain_accuracy", "reading"]].max(axis=1)
    best = known.groupby([every[name] for name in ("world", "budget", "judged")]).max()
    keys = pd.MultiIndex.from_arrays([table["world"], table["budget"], _judged(table)])
    best_known = best.reindex(keys).to_numpy()
    right = table["accuracy"]
    return table.assign(
        below_plain=100 * (table["plain_accuracy"] - right),
        below_known=100 * (best_known - right),
        far=100.0 * (table["plain_accuracy"] - right > FAR / 100),
        over=100.0 * (table["cost"] > OVER),
        covered=100.0 * right.between(table["low"], table["high"]),
    )


def _judged(table: pd.DataFrame) -> pd.Series:
    """Return for each search an identifier of the questions on which it is judged. All searches in
    a world share them, except in the record, where a search is judged on the questions that it
    doesn't know.
    """
    left = table["questions"].astype(str) + " " + table["seed"].astype(str)
    return left.where(table["world"] == RECORD, "fresh")


def error_of(values: pd.Series, worlds: pd.Series) -> float:
    """Return the standard error of the mean of values that are correlated within a world."""
    off = values - values.mean()
    by_world = off.groupby(worlds).sum()
    sums = by_world if len(by_world) > 1 else off
    return float(np.sqrt(sums.var(ddof=1) * len(sums)) / len(off))


def summary(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return means over rows with shortfalls, grouped by these columns: points below the best
    results, with standard errors in `..._se`; shares in percent; costs; calls; and core seconds.
    """

    lines: list[dict[str, Any]] = []
    for keys, rows in table.groupby(list(by), sort=False):
        line = dict(zip(by, keys, strict=True)) | {"searches": len(rows)}
        for name in ("below_plain", "below_known"):
            line |= {name: rows[name].mean(), f"{name}_se": error_of(rows[name], rows["world"])}
        shares = ("far", "cost", "over", "covered", "calls", "core_s")
        lines.append(line | {name: rows[name].mean() for name in shares})
    return pd.DataFrame(lines).set_index(list(by)).round(2)


def kinds(table: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy, in percent, of the selected graphs and of the best plain form of each
    kind, per world and budget.
    """
    names = ["accuracy", *PLAIN, "reading", "oracle"]
    return (100 * table.groupby(["world", "budget"], sort=False)[names].mean()).round(1)


def compared(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Return the mean paired differences, second table minus first, with standard errors.

    Accuracies are compared in points, shares of results far below the best plain form in percent,
    costs as multiples of the budget, and calls and core seconds relative to the first table. Raises
    InputError if the tables have no searches of the same cells.
    """
    pairs = first.merge(second, on=KEY, suffixes=("", "_2"))
    if not len(pairs):
        raise InputError("expected searches of the same cells in both files, found none")
    far, far_2 = (
        100.0 * (pairs["plain_accuracy"] - pairs[name] > FAR / 100)
        for name in ("accuracy", "accuracy_2")
    )
    differences = {
        "accuracy": 100 * (pairs["accuracy_2"] - pairs["accuracy"]),
        "found": 100 * (pairs["found_2"] - pairs["found"]),
        "far": far_2 - far,
        "cost": pairs["cost_2"] - pairs["cost"],
        "calls": pairs["calls_2"] / pairs["calls"] - 1,
        "core_s": pairs["core_s_2"] / pairs["core_s"] - 1,
    }
    lines = {
        name: (len(each), each.mean(), error_of(each, pairs["world"]))
        for name, each in differences.items()
    }
    return pd.DataFrame(lines, index=["pairs", "difference", "se"]).T.round(3)


PARTS = {
    "mixes": "graphs of several models",
    "routes": "routers and splits",
    "response_model": "the response model",
}
"""Names on the page for the parts of a contest that can be switched off."""


def worth_lines(held_out: pd.DataFrame, without: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the lines of Markdown for docs/how-it-works.md: what each part of the contest is worth
    on the held-out tables, from the rows of the same searches with the part switched off.
    """
    lines = ["| part | points that it adds | calls without it | pairs |", "|---|---|---|---|"]
    for part, rows in without.items():
        found = compared(rows, held_out).to_dict("index")
        points, calls = found["accuracy"], 1 / (1 + found["calls"]["difference"])
        worth = f"{points['difference']:.2f} (standard error {points['se']:.2f})"
        pairs = f"{100 * calls:.0f} % | {points['pairs']:.0f}"
        lines.append(f"| {PARTS[part]} (`{part}`) | {worth} | {pairs} |")
    return lines


ON_PAGE = {
    "plain_accuracy": "the best plain form of any kind",
    "accuracy": "**selected by ttsgraph**",
    "split": "split of two models by a hash",
    "router": "router of single calls",
    "single": "single call",
}
"""Names on the page for columns of rows; any other column keeps its own name."""


def page_lines(held_out: pd.DataFrame, record: pd.DataFrame) -> list[str]:
    """Return the lines of Markdown for docs/results.md: means on the held-out tables, then on
    GSM8K.
    """
    means = held_out[["plain_accuracy", "accuracy", *PLAIN]].mean()
    lines = ["| held-out tables | correct |", "|---|---|"]
    for column, mean in means.sort_values(ascending=False, kind="stable").items():
        lines.append(f"| {ON_PAGE.get(str(column), column)} | {100 * mean:.1f} % |")
    below = 100 * (held_out["plain_accuracy"] - held_out["accuracy"])
    error = error_of(below, held_out["world"])
    lines += [
        "",
        f"In {len(held_out)} searches the selected graph is on average {below.mean():.1f} points"
        f" (standard error {error:.1f}) below the best plain form in hindsight,",
        f"and more than {FAR:.0f} points below it in {100 * (below > FAR).mean():.0f} % of them."
        f" Commits: {', '.join(sorted({*held_out['commit'], *record['commit']}))}.",
        *(
            f"With {count} known questions these are {each.mean():.1f} points and"
            f" {100 * (each > FAR).mean():.0f} %."
            for count, each in below.groupby(held_out["questions"])
        ),
        f"The highest cost on new questions is {held_out['cost'].max():.2f} of the budget.",
        "",
        "| GSM8K: known questions | budget, of a call of the large model | selected | its cost, of"
        " the budget | split | router |",
        "|---|---|---|---|---|---|",
    ]
    for (known, budget), rows in record.groupby(["questions", "budget"]):
        correct, split, router = (
            f"{100 * rows[column].mean():.1f} %" for column in ("accuracy", "split", "router")
        )
        cells = [
            str(known),
            str(budget).replace("%", " %"),
            correct,
            f"{rows['cost'].mean():.2f}",
            split,
            router,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
