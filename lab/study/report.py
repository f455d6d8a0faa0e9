"""Report of the study, in reports/study/: the tables as CSV, the plots, and a Markdown page with
both.
"""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from lab.study import figures, paper, tables
from lab.study.over_seeds import smallest_p
from lab.study.plan import StudySettings
from ttsgraph.base.files import write_text
from ttsgraph.base.wording import counted
from ttsgraph.settings.profile import Profile

SEARCH_COLUMNS: Mapping[str, tuple[str, int]] = {
    "block": ("on", 0),
    "name": ("method", 0),
    "score": ("score, %", 1),
    "paper_score": ("paper", 0),
    "calls": ("calls", 0),
    "tokens": ("tokens", 0),
    "seconds": ("search, model s", 0),
    "paper_search_s": ("paper, s", 0),
    "latency_s": ("s a query", 1),
    "paper_latency_s": ("paper", 1),
    "difference": ("points above the reference", 1),
    "p_score": ("p (score)", 4),
    "p_seconds": ("p (search)", 4),
}
ABOUT = (
    "All figures are simulated, except the paper's, which are of real models. {seeds}; means with"
    " 95 % Student intervals. Search costs cover the calls made for the search: the init stages, if"
    " a method starts from them; training batches; and validation. A call that is asked for twice"
    " is made and counted once. Model seconds add up the calls' latencies. p-values and differences"
    " are against agent_reinforce in tables 1 and 3, and against the full method in the ablations;"
    " p-values are from {test}. All searches of a task are tested on the same questions.{power}"
)
PILOT_COLUMNS: Mapping[str, tuple[str, int]] = {
    "figure": ("of", 0),
    "task": ("task", 0),
    "label": ("what", 0),
    "topology": ("topology", 0),
    "accuracy": ("accuracy, %", 1),
    "paper_accuracy": ("paper", 0),
}
HEADS = {
    "table_1": "Table 1: every method at the main budget",
    "contest": "The contest, without its parts, and what the loop adds to it",
    "table_2": "Table 2: Agent-REINFORCE as in the paper, without an insight or roles",
    "table_3": "Table 3: MATH under other budgets, and for accuracy and latency",
}
BEST = "Figure 6: the best graph found on MATH"
PILOTS = "Figures 1, 3 and 4, table 4: pilots"
PILOT_FIGURES = ("figure_1", "figure_3", "figure_4a", "figure_4b", "figure_4c", "table_4")
SCATTER = "Test score against what the search took"
PLOTS = {
    "table_1": {"table_1": SCATTER, "figure_9": "Best validation score by iteration"},
    "table_3": {"table_3": SCATTER},
}


def write_study(
    folder: Path,
    settings: StudySettings,
    profile: Profile,
    rows: pd.DataFrame,
    pilots: pd.DataFrame,
) -> Path:
    """Write the whole report; return the path of its Markdown page. Raises DataError if methods of
    one table were not searched on the same terms.
    """
    budget = profile.budget.limit
    columns = {label: (b.metric, b.limit) for label, b in settings.budgets.items()}
    found = {
        "table_1": tables.table_1(rows, budget),
        "contest": tables.contest_table(rows, budget),
        "table_2": tables.table_2(rows, budget),
        "table_3": tables.table_3(rows, columns),
    }
    pilot = tables.pilot_table(pilots)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in {**found, "pilots": pilot}.items():
        table.to_csv(folder / f"{name}_simulated.csv", index=False)
    rows.drop(columns=["terms", "curve"]).to_csv(folder / "searches_simulated.csv", index=False)
    for name in ("table_1", "table_3"):
        if len(table := found[name]):
            # Without the rivals that start from contenders, whose points would cover each other.
            table = table[~table["name"].str.endswith(tables.WITH_CONTENDERS)]
            figures.plot_methods(table, folder / f"{name}_simulated.svg")
    figures.plot_pilots(pilot, folder)
    at_budget = tables.at_budget(rows[(rows["task"] == "math") & (rows["without"] == "")], budget)
    at_budget = at_budget[~at_budget["loop"]]
    main = at_budget[at_budget["way"] == "paper"]
    best = ""
    if len(main):
        figures.plot_curves(main, settings.search.max_iterations, folder / "figure_9_simulated.svg")
        contested = at_budget[(at_budget["method"] == paper.OURS) & (at_budget["way"] == "contest")]
        best = figures.draw_best(
            contested if len(contested) else main[main["method"] == paper.OURS],
            folder / "figure_6_simulated.svg",
        )
    seeds = int(rows["seed"].nunique())
    about = ABOUT.format(
        seeds=counted(seeds, "seed"), test=tables.TEST, power=power(seeds, found["table_1"])
    )
    path = folder / "study_simulated.md"
    write_text(path, _markdown(folder, found, pilot, best, about))
    return path


def _markdown(
    folder: Path, found: Mapping[str, pd.DataFrame], pilot: pd.DataFrame, best: str, about: str
) -> str:
    parts = ["# The study, on the simulated pool", about]
    for name, head in HEADS.items():
        parts += [f"## {head}", *_plots(folder, PLOTS.get(name, {}))]
        parts.append(tables.markdown(found[name], SEARCH_COLUMNS))
    both = f"Here: {best}. The paper's {paper.BEST_GRAPH}."
    parts += [f"## {BEST}", *_plots(folder, {"figure_6": BEST}), both]
    figures_of = {name: name.replace("_", " ").capitalize() for name in PILOT_FIGURES}
    parts += [f"## {PILOTS}", *_plots(folder, figures_of), tables.markdown(pilot, PILOT_COLUMNS)]
    return "\n\n".join(parts) + "\n"


def _plots(folder: Path, alts: Mapping[str, str]) -> list[str]:
    """Return a line of Markdown for each of these plots that was written, with its alt text."""
    files = {f"{name}_simulated.svg": alt for name, alt in alts.items()}
    return [
        f"![{alt}, simulated]({file})" for file, alt in files.items() if (folder / file).exists()
    ]


def power(seeds: int, table: pd.DataFrame) -> str:
    """Return a warning if this number of seeds can't show a significant difference in table 1, or
    "" if it can.
    """
    comparisons = int(table.groupby("block")["name"].nunique().max()) - 1 if len(table) else 0
    least = smallest_p(seeds, comparisons)
    if least < 0.05 or not comparisons:
        return ""
    return (
        f" With {counted(seeds, 'seed')} nothing can be significant in table 1: no p there can be"
        f" below {least:.2g}."
    )
