"""Result of a search, for use in Python code and notebooks: a graph that can be asked, compared and
saved. A saved one is served and exported by commands.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ttsgraph.api.given import TASK, Models, preset_case, profile_of, questions_file
from ttsgraph.api.whole import METHOD, WholeSearch, search_whole
from ttsgraph.base.extras import missing
from ttsgraph.base.files import FOUND, json_text, read_json, write_text
from ttsgraph.base.parsing import parse
from ttsgraph.base.state import STATE
from ttsgraph.base.style import in_both_themes
from ttsgraph.base.waiting import run
from ttsgraph.deployment.bundle import DeployedVersion
from ttsgraph.evaluation.progress import Expense, Publish, QuestionDone
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import Client
from ttsgraph.reporting.answer import sentence_for
from ttsgraph.reporting.figures import TableSource
from ttsgraph.settings.profile import Params, load_profile
from ttsgraph.settings.stages import LimitSettings
from ttsgraph.stages.project import questions_by_split
from ttsgraph.tasks.base import Task

COLUMNS = {
    "label": "graph",
    "accuracy": "accuracy",
    "accuracy_low": "low",
    "accuracy_high": "high",
    "budget_units": "cost",
    "p_differs": "p",
}
"""Names of the columns of a comparison, by the names of the test's columns."""

COMPARISON = "comparison.json"
SCORES = "scores.json"
"""File with a task's scores for `dvc metrics show`: the scores of the graph in use and of the
found graph.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Graphs tested on the same questions, one row each.

    A row has the graph's name, accuracy (or mean score) with its interval, cost in the budget's
    units, and the p-value of the paired test against the found graph. `used` names the graph in
    use, whose row has the accuracy expected on new questions.
    """

    rows: Sequence[Mapping[str, Any]]
    used: str
    reason: str
    sentence: str = ""
    """Recommendation of the graph, with its score, interval and cost, as in a report."""

    verdict: str = ""
    """Statement on whether the compared team is worth its cost; "" without a team."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __str__(self) -> str:
        width = max(len(str(row["graph"])) for row in self.rows)
        lines = [f"{'graph':{width}}  accuracy  interval          cost      p"]
        for row in self.rows:
            interval = f"{row['low']:.3f} to {row['high']:.3f}"
            used = "  <- in use, as expected on new questions" if row["graph"] == self.used else ""
            lines.append(
                f"{row['graph']:{width}}  {row['accuracy']:8.3f}  {interval:16} "
                f" {row['cost']:<8.4g}  {row['p']:.3g}{used}"
            )
        return "\n".join([*lines, self.reason, *([self.verdict] if self.verdict else [])])

    __repr__ = __str__


@dataclass(eq=False)
class Result:
    """Graph with everything needed to answer, the comparison of all tested graphs, and the
    spending; after a search, also the search itself and the name of its profile.
    """

    deployed: DeployedVersion
    tested: Comparison
    spent: Expense = field(default_factory=Expense)
    searched: WholeSearch | None = None
    profile: str = "search"

    @property
    def sentence(self) -> str:
        """Recommendation of the graph, with its score, interval and cost."""
        return self.tested.sentence

    @property
    def graph(self) -> CollaborationGraph:
        """Graph to use."""
        return self.deployed.graph

    def compare(self) -> Comparison:
        """Return all tested graphs, compared on the same questions."""
        return self.tested

    def ask(self, question: str) -> str:
        """Return the graph's answer to a question. Raises RunStopped if a call failed
        permanently.
        """
        return run(self.deployed.answer(question)).text or ""

    def save(self, folder: str | Path) -> Path:
        """Write bundle.json, which `ttsgraph serve` accepts, and the comparison; return the folder.

        After a search, also write the stages' tables and the page index.html, if the packages from
        the extra `page` are installed.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        self.deployed.write(place)
        write_text(place / COMPARISON, json_text(asdict(self.tested)))
        if self.searched is not None:
            try:
                self.searched.write(place, self.profile)
            except ModuleNotFoundError as error:
                missing(error)  # raises if no extra provides the module
        return place

    def _repr_svg_(self) -> str:
        """Return the graph's picture, which notebooks show."""
        from ttsgraph.reporting.pictures import graph_svg  # slow to import

        return in_both_themes(graph_svg(self.graph, self.deployed.profile.model_pool()))

    def __repr__(self) -> str:
        return f"<Result: {len(self.graph.nodes)} nodes; {self.tested.reason}>"


def search(
    models: Models,
    questions: Any,
    grade: str | Task | None = None,
    budget: str | float | Mapping[str, Any] | None = None,
    *,
    team: Any = None,
    grading: Mapping[str, Any] | None = None,
    base_url: str | None = None,
    price: Any = None,
    api_key_env: str | None = None,
    method: str = METHOD,
    seed: int = 0,
    progress: bool = True,
    state: str | Path = STATE,
    client: Client | None = None,
    **sections: Any,
) -> Result:
    """Find the graph that answers best within a budget per question, and test it; also works inside
    a running event loop.

    `models` are names, with `base_url` and `price` for all, or one mapping for each model with the
    keys of an entry in a profile's pool. `questions` are a JSONL, CSV or parquet file, rows or a
    DataFrame. `grade` is a kind of task or a Task. `budget` is "$0.002", "3 s" or "12 units" (the
    default), or has the keys of a profile's budget.

    A `team` (a preset's keys, its file, or a graph) is tested too: the budget is then the team's
    cost per question, in the budget's unit (dollars by default), and `compare().verdict` tells
    whether the team is worth it. `sections` replace sections of the profile (`init=`, `limits=`,
    `task=`). Calls are cached below `state`; a `client` replaces the endpoints.

    Raises InputError with a one-line remedy if an input is invalid, and RunStopped if calls fail
    permanently or a limit is reached.
    """
    budget = budget or ("12 units" if team is None else "$1")
    place = Path(state)
    given = {"base_url": base_url, "price": price, "api_key_env": api_key_env}
    shared = {key: value for key, value in given.items() if value is not None}
    file = questions_file(questions, place)
    profile = profile_of(models, file, grade, budget, grading, shared, sections, place)
    splits = questions_by_split(profile, TASK, seed)
    case = None if team is None else preset_case(team, profile)
    say = print if progress else lambda line: None
    with shown_progress(progress) as publish:
        work = search_whole(profile, TASK, splits, seed, method, place, publish, say, case, client)
        return result_of(run(work))


def load(folder: str | Path) -> Result:
    """Load a result written by `Result.save`. Raises InputError if a file can't be read; the
    message names the file.
    """
    place = Path(folder)
    comparison = Comparison(**read_json(place / COMPARISON, "search"))
    return Result(DeployedVersion.read(place / "bundle.json"), comparison)


def result_of(searched: WholeSearch, profile: str = "search") -> Result:
    """Return the result of a whole search; `profile` is the name of its profile."""
    table = searched.tested.table.copy()
    choice, deployed = searched.choice, searched.deployed
    # The score of the chosen graph on the questions that selected it is biased upwards.
    scores = ["accuracy", "accuracy_low", "accuracy_high"]
    row = table.iloc[choice.place]
    off = choice.expected - float(row["accuracy"])
    if math.isfinite(off):
        # The shift is rounded to whole questions, so the number of right answers stays whole.
        questions = int(row["n_scored"])
        off = round(off * questions) / questions
        table.loc[row.name, scores] = (row[scores].astype(float) + off).clip(0.0, 1.0)
    rows: list[Any] = table[list(COLUMNS)].rename(columns=COLUMNS).to_dict("records")
    tested = TableSource("test", table)
    alone = TableSource("profile", searched.project.folder.table("profile"))
    known = deployed.profile.model_pool(), alone, deployed.profile.budget.limit
    said = sentence_for(tested, tested.rows[choice.place], *known).striptags()
    used = rows[choice.place]["graph"]
    comparison = Comparison(rows, used, choice.reason, said, searched.verdict)
    return Result(deployed, comparison, searched.spent, searched, profile)


def project_search(
    params: Params,
    task: str,
    say: Callable[[str], None],
    method: str | None = None,
    limit: float | None = None,
    team: Path | None = None,
) -> tuple[Result, Path]:
    """Search a task of the project and save the result below results/. With a `team`, test it too,
    and search for at most its cost.

    `limit` is the maximum, in dollars, that the project may spend over all its runs. Raises
    InputError and RunStopped like `search_whole`.
    """
    profile = load_profile(params.profile)
    if limit is not None:
        settings = profile.limits.model_dump() | {"dollars": limit}
        limits = parse(LimitSettings, settings, "--limit")
        profile = profile.model_copy(update={"limits": limits})
    case = None if team is None else preset_case(team, profile)
    splits = questions_by_split(profile, task, params.seed)
    method = method or params.methods[0]
    known = profile, task, splits, params.seed, method
    with shown_progress(True) as publish:
        work = search_whole(*known, publish=publish, say=say, team=case)
        result = result_of(run(work), params.profile)
    folder = Path("results") / params.profile / task
    if team is not None:
        return result, result.save(folder / "compare" / team.stem)
    tested = result.tested
    used = next(row for row in tested if row["graph"] == tested.used)
    scores = {"seed": params.seed, "accuracy": used["accuracy"], "cost": used["cost"]}
    scores |= {f"found_{name}": tested.rows[0][name] for name in ("accuracy", "cost")}
    write_text(folder / SCORES, json_text(scores))
    return result, result.save(folder / FOUND)


@contextmanager
def shown_progress(wanted: bool) -> Iterator[Publish]:
    """While a search runs, show how many questions are answered, also in a notebook; show nothing
    if not `wanted`, or if there is no terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    counted = TextColumn("{task.completed:.0f} questions answered")
    columns = (TextColumn("search"), BarColumn(), counted, TimeElapsedColumn())
    console = Console(stderr=True)
    hidden = not wanted or not (console.is_terminal or console.is_jupyter)
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("search", total=None)
        yield lambda event: bar.advance(task) if isinstance(event, QuestionDone) else None
