"""Width and depth of graphs of small real models, replayed from recorded calls without any model.

    python -m lab.coder.sweeps

This command checks the calls and writes the table, the figures and the generated part of
docs/paper.md. With `--url MODEL=URL` of a running endpoint, it first makes the calls of each record
whose last file is missing. The calls in `published/coder/sweeps/` are a model's answers to
questions, to its own answers and to a smaller model's answers. Each graph in `sweeps.yaml` is run
on every question in its record, and graded here.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field, PositiveInt

from codecheck.sandbox import SandboxLimits
from lab.coder.draws import Draws, draws_of
from lab.coder.record import caching_client
from lab.readme import with_block
from lab.vega import Spec, by_name, quantity
from ttsgraph.base.ending import say
from ttsgraph.base.errors import DataError, PromptRefused
from ttsgraph.base.files import md5, write_text
from ttsgraph.base.parsing import ClosedModel, load
from ttsgraph.base.state import STATE
from ttsgraph.evaluation.compare import outcomes_of, paired
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import FUSER
from ttsgraph.models.cache import CachedClient
from ttsgraph.models.client import Completion, Request
from ttsgraph.models.recording import (
    Call,
    Calls,
    NotRecorded,
    ReplayClient,
    read_calls,
    write_calls,
)
from ttsgraph.reporting.charts import Chart, chart_svg
from ttsgraph.reporting.pictures import write_picture
from ttsgraph.runtime.workers import environment_for
from ttsgraph.settings.profile import Profile, load_profile
from ttsgraph.tasks.base import Question
from ttsgraph.tasks.humaneval import HumanEvalTask
from ttsgraph.tasks.sources import load_questions
from ttsgraph_flows.ending import command
from ttsgraph_flows.verify import digest_of

PLAN = Path("lab/coder/sweeps.yaml")
TABLE = Path("published/coder/sweeps/table.csv")
PAGE = Path("docs/paper.md")
FIGURES = {"width": Path("docs/real-width.svg"), "depth": Path("docs/real-depth.svg")}
BY = "lab.coder.sweeps"
GREEDY = "one call at temperature 0"
ONE = "one call"
SIGNIFICANT = 0.05
CPU_S = 2
"""Core seconds that a program may take. With the default of 5 the table is the same, but programs
that don't end take most of the time.
"""
CONCURRENCY = 48
"""Maximum number of parallel calls to an endpoint."""


class Record(ClosedModel):
    """Files of recorded calls, and the graphs of one model that can be replayed from them.

    `questions` limits the record to the first questions. `drafts` maps the name of another model to
    the widths at which this model fuses its answers.
    """

    calls: tuple[Path, ...]
    task: str
    model: str
    size: PositiveInt | None = None
    questions: PositiveInt | None = None
    sinks: dict[str, tuple[int, ...]]
    depths: tuple[int, ...] = ()
    grids: tuple[tuple[int, int], ...] = ()
    drafts: dict[str, tuple[int, ...]] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name for tables: the task and the size of the model."""
        first = f" (first {self.questions})" if self.questions else ""
        return f"{self.task}, {_size(self.model)}{first}"

    def graphs(self) -> Iterator[tuple[str, str, int, CollaborationGraph]]:
        """Yield each graph with its sweep, its label, and its number of calls that answer or
        refine.
        """
        model = self.model
        yield "one", ONE, 1, topologies.single(model)
        yield "one", GREEDY, 1, topologies.single(f"{model}:t0")
        for sink, widths in self.sinks.items():
            for width in widths:
                yield "width", sink, width, topologies.parallel([model] * width, model, sink)
        for depth in self.depths:
            yield "depth", "chain", depth, topologies.chain([model] * depth)
        for width, depth in self.grids:
            graph = topologies.grid(width, depth, model)
            yield "grid", f"{width} chains of {depth}, fused", width * depth, graph
        for other, widths in self.drafts.items():
            for width in widths:
                graph = topologies.parallel([other] * width, model, FUSER)
                yield "width", f"fuser of {_size(other)} answers", width, graph


def _size(model: str) -> str:
    return model.rpartition("-")[2].upper()


class Sweeps(ClosedModel):
    """Content of lab/coder/sweeps.yaml; `seed` is the seed with which questions are loaded."""

    profile: str
    seed: int
    records: tuple[Record, ...]


class PartialReplay(ReplayClient):
    """Client that refuses calls that aren't recorded, so that their questions stay unscored.

    `asked` maps the key of each requested call to the call's prompt and whether the call is
    recorded.
    """

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls)
        self.asked: dict[str, tuple[str, bool]] = {}

    def begin(self, request: Request) -> Completion:
        """Return the recorded completion. Raises PromptRefused if the call is not recorded."""
        key = request.key()
        self.asked[key] = request.messages[-1].content, key in self._calls
        try:
            return super().begin(request)
        except NotRecorded as error:
            raise PromptRefused(str(error)) from None


def recorded_questions(record: Record, profile: Profile, seed: int, calls: Calls) -> list[Question]:
    """Return the record's questions that have a recorded single call, in the source's order."""
    settings = profile.task(record.task)
    source = settings.source
    if record.size is not None:
        source = source.model_copy(update={"size": record.size})
    line = Draws(task=record.task, member=record.model, replicas=1)
    draws = draws_of(profile, line, load_questions(settings.task, source, seed))
    found = [draw.question for draw in draws if draw.request.key() in calls]
    return found[: record.questions]


def checked_calls(paths: Sequence[Path]) -> Calls:
    """Return the calls in these files. Raises DataError at the first file that differs from the
    published one.
    """
    calls: dict[str, Call] = {}
    for path in paths:
        expected = digest_of(path).read_text(encoding="utf-8").split()[0]
        if (found := md5(path)) != expected:
            raise DataError(f"{path}: expected MD5 {expected}, found {found}; restore the file")
        calls |= read_calls(path)
    return calls


def rows_of(record: Record, profile: Profile, seed: int) -> Iterator[dict[str, Any]]:
    """Run every graph of a record on the record's questions; yield a table row per graph."""
    calls = checked_calls(record.calls)
    questions = recorded_questions(record, profile, seed, calls)
    environment = environment_for(profile, record.task, PartialReplay(calls), ())
    if isinstance(environment.task, HumanEvalTask):
        limited = replace(environment.task, limits=SandboxLimits(cpu_s=CPU_S))
        environment = replace(environment, task=limited)
    cost = profile.cost_model(record.task)
    shown = list(record.graphs())
    jobs = [(graph, questions) for *_, graph in shown]
    feedbacks = asyncio.run(environment.evaluate_all(jobs))
    for (sweep, label, size, graph), feedback in zip(shown, feedbacks, strict=True):
        low, high = feedback.interval
        pairs = paired(outcomes_of(feedback), outcomes_of(feedbacks[0]))
        yield {
            "record": record.name,
            "sweep": sweep,
            "label": label,
            "calls": size,
            "accuracy": feedback.accuracy,
            "low": low,
            "high": high,
            "questions": feedback.n_scored,
            "more": pairs.first_only,
            "fewer": pairs.second_only,
            "p": pairs.p_value(),
            "units": cost.graph_cost(graph) / cost.single(record.model),
        }


def table_of(plan: Sweeps) -> pd.DataFrame:
    """Return a row per record and graph; each is compared with one call on the same questions."""
    profile = load_profile(plan.profile)
    return pd.DataFrame(
        [row for record in plan.records for row in rows_of(record, profile, plan.seed)]
    )


def chart_of(table: pd.DataFrame, sweep: str) -> Chart:
    """Return a chart of accuracy over width or depth, with a line and intervals for each role and a
    panel for each record.
    """
    swept = table[table["sweep"] == sweep]
    names = list(dict.fromkeys(swept["label"]))
    title = f"Accuracy over {sweep}, Qwen2.5-Coder-Instruct, recorded calls"
    spec: Spec = {
        "padding": 4,
        "columns": 2,
        "concat": [
            _panel(table[table["record"] == name], rows, names, f"{sweep} (calls)")
            for name, rows in swept.groupby("record", sort=False)
        ],
    }
    return Chart(f"real-{sweep}", title, title, spec)


def _panel(of_record: pd.DataFrame, rows: pd.DataFrame, names: Sequence[str], across: str) -> Spec:
    alone = of_record[of_record["label"] == ONE].iloc[0]
    starts = [alone.to_dict() | {"label": label} for label in dict.fromkeys(rows["label"])]
    values = [
        {"calls": row["calls"], "label": row["label"]}
        | {bound: 100 * row[bound] for bound in ("accuracy", "low", "high")}
        for row in (*starts, *rows.to_dict("records"))
    ]
    several = len(names) > 1
    x = {"field": "calls", "type": "ordinal", "title": across, "axis": {"labelAngle": 0}}
    y = quantity("accuracy", "correct (%)", scale={"zero": False})
    look: Spec = {
        "color": {
            "field": "label",
            "type": "nominal",
            "legend": {"title": None} if several else None,
            "scale": by_name(list(names))["color"],
        }
    }
    if several:
        look["xOffset"] = {"field": "label"}
    spans = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}} | look
    return {
        "title": {"text": f"{alone['record']}, {alone['questions']} questions", "anchor": "middle"},
        "width": 280,
        "height": 180,
        "data": {"values": values},
        "layer": [
            {"mark": {"type": "rule", "opacity": 0.5}, "encoding": spans},
            {"mark": {"type": "line", "point": True}, "encoding": {"x": x, "y": y} | look},
        ],
    }


def lines_of(table: pd.DataFrame) -> list[str]:
    """Return the table as Markdown: a row per record and label, a column per number of calls."""
    sizes = sorted({int(calls) for calls in table["calls"]})
    heads = ["correct, %", "questions", *map(str, sizes)]
    lines = [f"|{'|'.join(heads)}|", "|---" * len(heads) + "|"]
    for name, rows in table.groupby("record", sort=False):
        for label, of in rows.groupby("label", sort=False):
            cells = {int(row["calls"]): _cell(row) for row in of.to_dict("records")}
            shown = [f"{name}: {label}", str(of.iloc[0]["questions"])]
            shown += [cells.get(calls, "") for calls in sizes]
            lines.append(f"|{'|'.join(shown)}|")
    return lines


def _cell(row: Any) -> str:
    mark = "\\*" if row["p"] < SIGNIFICANT else ""
    return f"{100 * row['accuracy']:.0f}{mark}"


def block_of(table: pd.DataFrame) -> list[str]:
    """Return the generated part of docs/paper.md: both figures and the table."""
    return [
        f"![Accuracy over width, by the role of the sink]({FIGURES['width'].name})",
        "",
        f"![Accuracy over the depth of a chain]({FIGURES['depth'].name})",
        "",
        "Columns are the calls that answer or refine; a fuser's own call is extra. \\* differs from"
        f" one call on the same questions (p < {SIGNIFICANT}, McNemar's exact test,",
        f"uncorrected). Intervals are in the figures and in `{TABLE}`.",
        "",
        *lines_of(table),
    ]


def write(table: pd.DataFrame) -> None:
    """Write the table to its file, and from that file the figures and the page's generated part."""
    write_text(TABLE, table.to_csv(index=False, float_format="%.6g"))
    table = pd.read_csv(TABLE)
    for sweep, path in FIGURES.items():
        write_picture(chart_svg(chart_of(table, sweep), simulated=False), path)
    page = with_block(PAGE.read_text(encoding="utf-8"), "sweeps", block_of(table), BY)
    write_text(PAGE, page)


async def record(plan: Sweeps, urls: Mapping[str, str], state: Path) -> None:
    """Run the graphs of each record whose last file is missing, and write to that file the calls
    that are not in the record's other files. Raises RunStopped if the endpoint fails for too long.
    """
    profile = load_profile(plan.profile)
    for one in plan.records:
        path = one.calls[-1]
        if path.exists() or one.model not in urls:
            continue
        known = checked_calls(one.calls[:-1])
        questions = recorded_questions(one, profile, plan.seed, known)
        calls: dict[str, Call] = {}
        async with caching_client(profile, urls, state, CONCURRENCY) as (client, cache):
            for key, call in known.items():
                if isinstance(call.outcome, Completion):
                    cache.put(key, call.outcome, call.model)
            asked = CachedClient(client, cache, calls)
            environment = environment_for(profile, one.task, asked, ())
            graphs = [graph for *_, graph in one.graphs()]
            await asyncio.gather(*(environment.evaluate(graph, questions) for graph in graphs))
        made = {key: call for key, call in calls.items() if key not in known}
        say(f"{path}: {len(made)} calls")
        write_calls(made, path)
        write_text(digest_of(path), f"{md5(path)}  {path.name}\n")


def rebuild(url: list[str], state: Path) -> None:
    """Replay the graphs in sweeps.yaml from recorded calls; write the table, figures and page."""
    plan = load(Sweeps, PLAN)
    if url:
        asyncio.run(record(plan, dict(pair.split("=", 1) for pair in url), state))
    write(table_of(plan))


if __name__ == "__main__":
    command(
        rebuild,
        url={"nargs": "*", "default": [], "help": "MODEL=URL of a running endpoint"},
        state={"type": Path, "default": STATE, "help": "folder of the call cache"},
    )
