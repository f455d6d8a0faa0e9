"""Tables of the study: means with their 95 % intervals over seeds, next to the paper's figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from lab.study import paper
from lab.study.over_seeds import Mean, mean_of, paired_p
from ttsgraph.stages.records import require_equal_terms

COSTS = ("calls", "tokens", "seconds")
AS_PAPER = "agent_reinforce as in the paper"
WITH_CONTENDERS = "with contenders"
TEST = (
    "two-sided Wilcoxon signed-rank tests over seeds, ties split, Holm-corrected over the"
    " comparisons of one block"
)
Rows = pd.DataFrame


def searches_table(
    groups: Mapping[str, Rows], paper_row: Callable[[str, str], Sequence[float] | None]
) -> Rows:
    """Return a row per block and name: score, search cost and latency with intervals, the paper's
    figures, and p-values against the block's reference.

    `groups` maps a block to its searches; their column `name` identifies the row. The reference is
    the row `full` if there is one, else `agent_reinforce`. p-values come from paired tests over
    seeds against the reference, for the score and for the search seconds.
    """
    lines = []
    for block, table in groups.items():
        names = list(dict.fromkeys(table["name"]))
        reference = "full" if "full" in names else paper.OURS
        against = {
            column: _p_values(table, names, reference, column) for column in ("score", "seconds")
        }
        for name in names:
            mine = table[table["name"] == name]
            published = paper_row(block, name)
            line: dict[str, Any] = {"block": block, "name": name, "seeds": len(mine)}
            line |= _cells("score", mean_of([100 * score for score in mine["score"]]))
            line["paper_score"] = published[0] if published else None
            for column in COSTS:
                line |= _cells(column, mean_of(list(mine[column])))
            line["paper_search_s"] = published[1] if published else None
            line |= _cells("latency_s", mean_of(list(mine["latency_s"])))
            line["paper_latency_s"] = published[2] if published and len(published) > 2 else None
            line |= _cells("difference", _difference(table, reference, name))
            line["p_score"] = against["score"].get(name)
            line["p_seconds"] = against["seconds"].get(name)
            lines.append(line)
    return pd.DataFrame(lines)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return p-values adjusted by Holm's step-down correction, by name."""
    adjusted = {}
    worst = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = worst
    return adjusted


def _difference(table: Rows, reference: str, name: str) -> Mean:
    """Return the mean difference in points of score between a row and the reference, over the seeds
    that both have.
    """
    values = table.pivot_table(index="seed", columns="name", values="score")
    if reference not in values or name == reference:
        return mean_of([])
    return mean_of((100 * (values[name] - values[reference])).dropna().tolist())


def _cells(name: str, mean: Mean) -> dict[str, float]:
    return {name: mean.value, f"{name}_low": mean.low, f"{name}_high": mean.high}


def _p_values(table: Rows, names: Sequence[str], reference: str, column: str) -> dict[str, float]:
    """Return the Holm-corrected p-value of each other row against the reference, over the seeds
    that both have.
    """
    values = table.pivot_table(index="seed", columns="name", values=column)
    found = {}
    for name in names:
        if name != reference and reference in values:
            pairs = values[[reference, name]].dropna()
            found[name] = paired_p(pairs[reference].tolist(), pairs[name].tolist())
    return holm(found)


def named(rows: Rows) -> Rows:
    """Return the rows with an additional column `name`: the method and its start, `joint`, or the
    baseline.
    """

    def name(method: str, way: str, joint: bool) -> str:
        if joint:
            return "joint"
        if way == "none":
            return method
        if method == paper.OURS:
            return method if way == "contest" else AS_PAPER
        return f"{method} {WITH_CONTENDERS}" if way == "contest" else method

    return rows.assign(
        name=[
            name(*values) for values in zip(rows["method"], rows["way"], rows["joint"], strict=True)
        ]
    )


def _blocks(rows: Rows) -> dict[str, Rows]:
    return {str(task): table for task, table in rows.groupby("task", sort=False)}


def _require_equal_terms(table: Rows) -> None:
    """Raise DataError if two methods with the same start and seed were not searched on the same
    terms.
    """
    for _, same in table[table["way"] != "none"].groupby(["seed", "way"]):
        require_equal_terms(dict(zip(same["name"], same["terms"], strict=True)))


def at_budget(rows: Rows, budget: float) -> Rows:
    """Return the rows of searches for accuracy without latency, under this budget in units."""
    return rows[~rows["joint"] & (rows["metric"] == "flops") & (rows["budget"] == budget)]


def table_1(rows: Rows, budget: float) -> Rows:
    """Return table 1: every method on every task at the main budget, with and without the contest's
    contenders, and the baselines.
    """
    mine = at_budget(rows, budget)
    groups = _blocks(named(mine[(mine["without"] == "") & ~mine["loop"]]))
    for table in groups.values():
        _require_equal_terms(table)
    return searches_table(
        groups, lambda task, name: paper.TABLE_1.get(task, {}).get(_published(name))
    )


def _published(name: str) -> str:
    """Return the name of a row in the paper's tables, or "" for the contest, which isn't in the
    paper.
    """
    return {AS_PAPER: paper.OURS, paper.OURS: ""}.get(name, name)


def _ours(rows: Rows, budget: float) -> Rows:
    mine = at_budget(rows, budget)
    return mine[mine["method"] == paper.OURS]


def table_2(rows: Rows, budget: float) -> Rows:
    """Return table 2: Agent-REINFORCE as in the paper, and its ablations."""
    ours = _ours(rows, budget)
    ours = ours[ours["way"] == "paper"]
    ours = ours.assign(name=ours["without"].where(ours["without"] != "", "full"))
    groups = {task: table for task, table in _blocks(ours).items() if table["name"].nunique() > 1}
    return searches_table(groups, lambda task, name: paper.TABLE_2.get(task, {}).get(name))


def contest_table(rows: Rows, budget: float) -> Rows:
    """Return the table of the contest: the contest, its ablations, the loop after it, and
    Agent-REINFORCE as in the paper.
    """
    ours = _ours(rows, budget)
    ours = ours[(ours["way"] == "contest") | (ours["without"] == "")]

    def name(way: str, without: str, loop: bool) -> str:
        if way == "paper":
            return AS_PAPER
        parts = [
            "with the loop" if loop else "",
            f"without {without.replace('_', ' ')}" if without else "",
        ]
        return ", ".join(part for part in parts if part) or "full"

    names = [
        name(*values) for values in zip(ours["way"], ours["without"], ours["loop"], strict=True)
    ]
    groups = {
        task: table
        for task, table in _blocks(ours.assign(name=names)).items()
        if table["name"].nunique() > 1
    }
    return searches_table(groups, lambda task, name: None)


def table_3(rows: Rows, columns: Mapping[str, tuple[str, float]]) -> Rows:
    """Return table 3: results on MATH under other budgets."""
    groups = {}
    for label, (metric, budget) in columns.items():
        mine = rows[
            (rows["task"] == "math")
            & (rows["metric"] == metric)
            & (rows["budget"] == budget)
            & (rows["without"] == "")
        ]
        if len(mine):
            groups[label] = named(mine)
            _require_equal_terms(groups[label][groups[label]["name"] != "joint"])
    return searches_table(
        groups, lambda label, name: paper.TABLE_3.get(label, {}).get(_published(name))
    )


def pilot_table(pilots: Rows) -> Rows:
    """Return the table of figures 1, 3 and 4 and table 4: accuracies with intervals over seeds,
    next to the paper's accuracies.
    """
    lines = []
    for (figure, task, label, topology), group in pilots.groupby(
        ["figure", "task", "label", "topology"], sort=False
    ):
        published = paper.PILOTS.get((str(figure), str(task), str(label)))
        if figure == "table 4":
            published = paper.TABLE_4[str(task)][str(label)][str(topology)]
        line: dict[str, Any] = {
            "figure": figure,
            "task": task,
            "label": label,
            "topology": topology,
            "seeds": len(group),
        }
        line |= _cells("accuracy", mean_of([100 * value for value in group["accuracy"]]))
        lines.append(line | {"paper_accuracy": published})
    return pd.DataFrame(lines)


Columns = Mapping[str, tuple[str, int]]
"""Heading of each column and its number of decimal places."""


def markdown(table: Rows, columns: Columns) -> str:
    """Return a table as Markdown; a column that has companions `_low` and `_high` is shown with its
    interval.
    """
    lines = [[heading for heading, _ in columns.values()], ["---"] * len(columns)]
    for row in table.to_dict("records"):
        lines.append([_shown(row, name, digits) for name, (_, digits) in columns.items()])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(row: Mapping[Any, Any], name: str, digits: int) -> str:
    value = row[name]
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        return value
    text = f"{value:.{digits}f}"
    if f"{name}_low" in row:
        half = (row[f"{name}_high"] - row[f"{name}_low"]) / 2
        text += f" ± {half:.{digits}f}"
    return text
