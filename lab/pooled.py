"""Results of a task over several seeds, each with its own split of the questions: every arm's
accuracy, and paired tests over all questions.
"""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from ttsgraph.base.files import write_text
from ttsgraph.evaluation.compare import paired
from ttsgraph.evaluation.environment import interval_of

FOUND = "found"
PUT_UP = "put up"
"""Label of the arm that each seed's gate selects: the found graph, or a baseline that is as good at
a lower cost.
"""


def pooled(answers: pd.DataFrame) -> pd.DataFrame:
    """Return a row per arm, best first: the arm's accuracy with a 95 % interval, its mean units,
    and comparisons of the found and the selected graph with the arm, on the questions for which
    both have a score.

    `answers` has a row per arm, seed and question: `arm`, `seed`, `question` (an identifier that is
    the same in every seed), `correct` (None if the infrastructure failed) and `units`. A question
    tested with several seeds counts once, as its mean, in accuracies, intervals and p-values, so
    that the variation between seeds is included and no question is counted twice.
    """
    outcomes: dict[str, dict[Any, float]] = {
        str(arm): rows.groupby("question")["correct"].mean().dropna().to_dict()
        for arm, rows in answers.astype({"correct": float}).groupby("arm")
    }
    lines = []
    for arm, rows in answers.groupby("arm"):
        means = list(outcomes[str(arm)].values())
        low, high = interval_of(means)
        accuracy = sum(means) / len(means) if means else math.nan
        line = {"arm": str(arm), "accuracy": accuracy, "low": low, "high": high}
        line |= {"units": float(rows["units"].mean()), "seeds": int(rows["seed"].nunique())}
        line["questions"] = len(means)
        for name in (FOUND, PUT_UP):
            pairs = paired(outcomes[name], outcomes[str(arm)])
            # If some results are fractions, the differences are summed instead of counted.
            more = pairs.first_only - pairs.second_only
            ahead = sum(pairs.differences) if pairs.differences else more
            line[f"{name}: more, points"] = 100 * ahead / max(pairs.questions, 1)
            line[f"{name}: p"] = pairs.p_value()
        lines.append(line)
    return pd.DataFrame(lines).sort_values("accuracy", ascending=False, ignore_index=True)


def write_pooled(folder: Path, name: str, table: pd.DataFrame, simulated: bool) -> Path:
    """Write <name>.csv and <name>.md; return the path of the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))
    path = folder / f"{name}.md"
    write_text(path, _markdown(name, table, simulated))
    return path


def _markdown(name: str, table: pd.DataFrame, simulated: bool) -> str:
    lines = [
        f"# {name} over {int(table['seeds'].max())} seeds{' (simulated)' if simulated else ''}",
        "",
        "Each seed has its own split. Points say how far the found graph, and the graph that the"
        " gate put up, are ahead of the arm on the same questions. The p-values are uncorrected"
        " and come from McNemar's exact test on all these questions, or from a test by sign flips"
        " if several seeds test the same question, which then counts once, by its mean.",
        "",
        "| arm | right | interval | units | questions | found: points (p) | put up: points (p) |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table.to_dict("records"):
        interval = f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
        cells = [row["arm"], f"{100 * row['accuracy']:.1f} %", interval, f"{row['units']:.2f}"]
        cells.append(f"{row['questions']:,}")
        for which in (FOUND, PUT_UP):
            against = f"{row[f'{which}: more, points']:+.1f} ({row[f'{which}: p']:.2g})"
            cells.append("" if row["arm"] == which else against)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
