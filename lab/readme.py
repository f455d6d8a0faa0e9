"""Write the generated blocks of README.md and of docs/, so that no figure is typed by hand.

make readme                       the last report's answer and pictures, then all blocks
python -m lab.readme --recorded   the blocks, from records in the tree
"""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from lab.benchmarks.browser import OpenedPage, browser, chromium
from lab.pools.report import PARTS, page_lines, worth_lines
from ttsgraph.base.errors import InputError
from ttsgraph.base.files import write_text
from ttsgraph.settings.profile import load_params
from ttsgraph_flows.answers import answers_file
from ttsgraph_flows.ending import command

README = Path("README.md")
RESULTS = Path("docs/results.md")
HOW = Path("docs/how-it-works.md")
PICTURE = Path("docs/found-graph.svg")
OVERVIEW = Path("docs/score-and-cost.svg")
SCREEN = Path("docs/report.png")
ANSWERS = Path("docs/answers.json")
"""Record of the default profile's answer; the pages take the answer's figures from it."""
CODER = Path("published/coder")
CODER_OVERVIEW = Path("docs/score-and-cost-coder.svg")
HELD_OUT = Path("lab/pools/rows/held-out.csv")
GSM8K = Path("lab/pools/rows/gsm8k.csv")
IN_BRIEF, SHOWN = 2, 5
"""Numbers of hand-built graphs shown in the README and on the results page; the records contain all
of them.
"""

ARMS = {
    "found": "**found by ttsgraph**",
    "put up": "selected by the gate",
    "single": "best single call, chosen on training questions",
    "self_consistency": "majority vote within the budget",
    "best_of_n": "best of n with a check, n within the budget",
    "router": "router of single calls",
    "fixed_topology": "best plain graph of the pilot",
}
"""Display names of a study's arms; any other arm already has a readable name in the table."""


def recommended(told: Mapping[str, Any], overview: Path) -> list[str]:
    """Return a report's picture and recommendations as Markdown."""
    first = told["tasks"][0]["task"]
    alt = f"{first}: score and cost of the selected graph and of its baselines"
    lines = [f"![{alt}]({overview.name})", ""]
    if told["simulated"]:
        lines += ["Simulated: no language model answered.", ""]
    return [*lines, *(f"**{task['task']}**: {task['sentence']}" for task in told["tasks"])]


def answer(told: Mapping[str, Any], overview: Path) -> list[str]:
    """Return a report's picture, recommendations and tables as Markdown."""
    lines = recommended(told, overview)
    lines += [
        "",
        f"![{told['tasks'][0]['task']}: the graph of this recommendation, drawn]({PICTURE.name})",
    ]
    for task in told["tasks"]:
        lines += [""]
        lines += ["| " + " | ".join(task["heads"]) + " |", "|" + "---|" * len(task["heads"])]
        lines += ["| " + " | ".join(cells) + " |" for cells in task["rows"]]
    return lines


def study(table: pd.DataFrame) -> list[str]:
    """Return a study's arms as a Markdown table, the most accurate first."""
    lines = ["| graph | correct | 95 % interval | cost | p |", "|---|---|---|---|---|"]
    for row in _rows(table).values():
        interval = f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
        name, cost = ARMS.get(row["arm"], row["arm"]), f"{row['units']:.1f}"
        p = "" if row["arm"] == "found" else _p(row["found: p"])
        lines.append(f"| {name} | {_share(row)} | {interval} | {cost} | {p} |")
    return lines


def best_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the arms that the results page shows: those in ARMS, the best hand-built graphs, and
    the best greedy call.
    """
    by_hand = table[~table["arm"].isin(list(ARMS))]
    greedy = by_hand[by_hand["arm"].str.startswith("greedy")].head(1)
    return table[table["arm"].isin([*ARMS, *by_hand["arm"].head(SHOWN), *greedy["arm"]])]


def in_brief(humaneval: pd.DataFrame, words: pd.DataFrame) -> list[str]:
    """Return the README's results for the coding models, compared with the strongest hand-built
    graph.
    """
    arms, words_arms = _rows(humaneval), _rows(words)
    by_hand = humaneval[humaneval["arm"].str.contains(" x ")]
    shown = by_hand[by_hand["arm"].str.endswith("until one passes")].head(IN_BRIEF)
    greedy = humaneval[humaneval["arm"].str.startswith("greedy")].head(1)
    others = [*shown["arm"], *greedy["arm"], "self_consistency"]
    best, found = arms[by_hand["arm"].iloc[0]], arms["found"]
    ahead = best["found: more, points"]
    words_found, words_single = words_arms["found"], words_arms["single"]
    budget = yaml.safe_load(Path("profiles/coder.yaml").read_text(encoding="utf-8"))["budget"]
    return [
        f"Qwen2.5-Coder-Instruct 0.5B and 1.5B on HumanEval: {found['seeds']:.0f} searches, each"
        f" on its own split, scored on the {found['questions']:.0f} problems",
        "that at least one of them held out. Cost is in calls of the 0.5B model per problem; the"
        f" budget was {budget['limit']} on average.",
        "`p` compares with the found graphs (paired sign-flip test, uncorrected).",
        "",
        *study(humaneval[humaneval["arm"].isin(["found", *others])]),
        "",
        f"The strongest graph built by hand is *{best['arm']}*:",
        f"the found ones score {abs(ahead):.1f} points {'more' if ahead > 0 else 'less'} (p"
        f" {_p(best['found: p'], '= ')}) at {100 * found['units'] / best['units']:.0f} % of its"
        " cost. Its number of calls was chosen after a search had found such a graph.",
        f"On {words_found['questions']:.0f} math word problems the found graphs score"
        f" {_share(words_found)} at a cost of {words_found['units']:.1f}, the best single call"
        f" {_share(words_single)} at {words_single['units']:.1f}",
        f"(p {_p(words_single['found: p'], '= ')}).",
    ]


def _rows(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return a study's rows by arm."""
    rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    return {row["arm"]: row for row in rows}


def _share(row: Mapping[str, Any]) -> str:
    return f"{100 * row['accuracy']:.1f} %"


def _p(value: float, equal: str = "") -> str:
    return "< 0.001" if value < 0.001 else f"{equal}{value:.2g}"


def blocks() -> Mapping[Path, Mapping[str, Callable[[], list[str]]]]:
    """Return the generated blocks of each page: the names of the blocks, each with a function that
    makes the block's lines.
    """
    tables = {name: CODER / f"study-{name}.csv" for name in ("humaneval", "words")}

    def briefly() -> list[str]:
        return in_brief(*(pd.read_csv(table) for table in tables.values()))

    def sentences() -> list[str]:
        return [f"- {task['task']}: {task['sentence']}" for task in _loaded(ANSWERS)["tasks"]]

    def worth() -> list[str]:
        rows = {part: pd.read_csv(HELD_OUT.with_name(f"without-{part}.csv")) for part in PARTS}
        return worth_lines(pd.read_csv(HELD_OUT), rows)

    return {
        HOW: {"worth": worth},
        README: {"coder": briefly, "answer": sentences},
        RESULTS: {
            "humaneval": lambda: study(best_of(pd.read_csv(tables["humaneval"]))),
            "words": lambda: study(best_of(pd.read_csv(tables["words"]))),
            "coder": lambda: [
                *recommended(_loaded(CODER / "answers.json"), CODER_OVERVIEW),
                "",
                f"Calls recorded on {_loaded(CODER / 'manifest.json')['recorded']['when']}.",
            ],
            "answer": lambda: answer(_loaded(ANSWERS), OVERVIEW),
            "pools": lambda: page_lines(pd.read_csv(HELD_OUT), pd.read_csv(GSM8K)),
        },
    }


def _loaded(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def marks(name: str, module: str = "lab.readme") -> tuple[str, str]:
    """Return the lines that mark the start and the end of a block that a module generates."""
    return f"<!-- {name}: written by `python -m {module}` -->", f"<!-- end of {name} -->"


def with_block(text: str, name: str, lines: list[str], module: str = "lab.readme") -> str:
    """Return a page's text with these lines between a block's marks. Raises InputError if the page
    lacks the marks.
    """
    first, last = marks(name, module)
    before, begun, rest = text.partition(first)
    _, ended, after = rest.partition(last)
    if not begun or not ended:
        raise InputError(
            f"expected block {name} between the lines {first!r} and {last!r}, found no such pair of"
            " lines; add both where the block goes"
        )
    return "\n".join([f"{before}{first}", "", *lines, "", f"{last}{after}"])


def page_of(path: Path) -> str:
    """Return a page's text with its blocks made from the records in the tree."""
    text = path.read_text(encoding="utf-8")
    for name, lines in blocks()[path].items():
        text = with_block(text, name, lines())
    return text


def refresh() -> None:
    """Write all blocks from the records in the tree."""
    for path in blocks():
        write_text(path, page_of(path))


def take_report() -> None:
    """Copy the last report's answer and two of its pictures into docs/, and, if there is a browser,
    a screenshot of the report's first screen. Raises InputError if there is no report.
    """
    path = answers_file(load_params().profile)
    if not path.exists():
        raise InputError(f"{path}: expected a report, found none; run `make repro`")
    plots = path.parent / "plots" / _loaded(path)["tasks"][0]["task"]
    shutil.copyfile(plots / "graph_to_use.svg", PICTURE)
    shutil.copyfile(plots / "overview.svg", OVERVIEW)
    shutil.copyfile(path, ANSWERS)
    if (page := path.with_name("index.html")).exists() and chromium():
        with browser() as started:
            OpenedPage(started, page, color_scheme="light").ready().screenshot(path=SCREEN)


def write(recorded: bool) -> None:
    """Write the generated blocks of README.md and docs/results.md."""
    if not recorded:
        take_report()
    refresh()
    print("README.md and docs/ are written; `git diff` shows the changes", file=sys.stderr)


if __name__ == "__main__":
    command(write, recorded={"action": "store_true", "help": "don't copy the last report first"})
