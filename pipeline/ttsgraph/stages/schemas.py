"""Every table that crosses a stage, as pandera models, and the one way to read and write them. A
table is checked when it is written and again when it is read, all problems at once; the error names
the file, the column, the check and the first offending rows.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.base.bookkeeping import BOOKKEEPING, beside
from ttsgraph.base.errors import DataError, GraphError
from ttsgraph.base.extras import as_if_missing
from ttsgraph.base.files import CHECKSUM, makes, naming
from ttsgraph.evaluation.environment import CONFIDENCE, mean_interval, total_of, wilson
from ttsgraph.evaluation.found_by import PATTERN
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph

# Half a second of core time in every stage: pandera also takes Dask's tables, and makes tables up.
with as_if_missing("dask", "hypothesis"):
    import pandera.errors
    import pandera.pandas as pa
    import pandera.strategies.base_strategies
    import pandera.typing.dask
    from pandera.typing import Series

ROWS_SHOWN = 3
CLOSE = 1e-9
"""Rounding that no rule refuses, as a share."""


def rule(name: str, expression: str) -> Any:
    """A check of a table: what `DataFrame.eval` finds true, of each row or of all."""

    def holds(_: Any, table: pd.DataFrame) -> Any:
        return table.eval(expression, engine="python")

    return pa.dataframe_check(error=name)(holds)


class Table(pa.DataFrameModel):
    """Columns in order, no others."""

    class Config:
        strict = True
        ordered = True
        coerce = False

    @pa.check("^(meta|counts|prompt|nodes)$", regex=True, name="valid_json")
    def _json(self, column: Series[str]) -> pd.Series[bool]:
        return column.map(_is_json)

    @pa.dataframe_check(error="finite")
    def _finite(self, table: pd.DataFrame) -> pd.Series[bool]:
        return ~table.select_dtypes("number").isin([np.inf, -np.inf]).any(axis=1)


class Scores(Table):
    """The columns of anything that was answered and graded. Accuracy is NaN when nothing could be
    scored.
    """

    accuracy: Series[float] = pa.Field(ge=0, le=1, nullable=True)
    accuracy_low: Series[float] = pa.Field(ge=0, le=1)
    accuracy_high: Series[float] = pa.Field(ge=0, le=1)
    n_scored: Series[int] = pa.Field(ge=0)
    n_unscored: Series[int] = pa.Field(ge=0)
    latency_s: Series[float] = pa.Field(ge=0, nullable=True)
    prompt_tokens: Series[int] = pa.Field(ge=0)
    completion_tokens: Series[int] = pa.Field(ge=0)
    dollars: Series[float] = pa.Field(ge=0)
    calls: Series[int] = pa.Field(ge=0)

    _scored = rule(
        "an_accuracy_and_a_latency_where_and_only_where_questions_were_scored",
        "accuracy.notna() == (n_scored > 0) == latency_s.notna()",
    )
    _asked = rule("no_tokens_or_dollars_without_calls", "calls > 0 or prompt_tokens + dollars == 0")
    _paid = rule(
        "no_dollars_without_tokens", "dollars == 0 or prompt_tokens + completion_tokens > 0"
    )

    _interval = rule(
        "accuracy_within_its_interval",
        f"accuracy_low - {CLOSE} <= accuracy <= accuracy_high + {CLOSE}"
        " or (accuracy.isna() and accuracy_low == 0 and accuracy_high == 1)",
    )

    @pa.dataframe_check(error="no_wider_interval_than_of_so_many_questions")
    def _width(self, table: pd.DataFrame) -> pd.Series[bool]:
        widest = [_widest(*row) for row in zip(table["accuracy"], table["n_scored"], strict=True)]
        return (table["accuracy_high"] - table["accuracy_low"]) <= np.array(widest, float) + CLOSE


class Questions(Table):
    """The sample stage's questions, with their split; `meta` is JSON for the grader."""

    split: Series[str] = pa.Field(isin=["shots", "train", "val", "test"])
    id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    text: Series[str] = pa.Field(unique=True, str_matches=r"\s*\S")
    answer: Series[str] = pa.Field(str_length={"min_value": 1})
    meta: Series[str]


class Profiles(Scores):
    """One row per model of the pool: facts, and what it does alone on training questions."""

    model: Series[str] = pa.Field(unique=True)
    _not_empty = rule("not_empty", "model.size > 0")
    family: Series[str]
    total: Series[float] = pa.Field(gt=0, nullable=True)
    layers: Series[pd.Int64Dtype] = pa.Field(gt=0, nullable=True, coerce=True)
    hidden: Series[pd.Int64Dtype] = pa.Field(gt=0, nullable=True, coerce=True)
    price_prompt: Series[float] = pa.Field(ge=0)
    price_completion: Series[float] = pa.Field(ge=0)
    budget_units: Series[float] = pa.Field(ge=0)
    mean_prompt_tokens: Series[float] = pa.Field(ge=0, nullable=True)
    mean_completion_tokens: Series[float] = pa.Field(ge=0, nullable=True)
    mean_read_tokens: Series[float] = pa.Field(ge=0, nullable=True)
    mean_more_tokens: Series[float] = pa.Field(ge=0, nullable=True)
    reading_by_role: Series[str]


class GraphScores(Scores):
    """A graph, what it costs, and its scores."""

    graph: Series[str]
    graph_hash: Series[str] = pa.Field(str_length={"min_value": 1})
    n_nodes: Series[int] = pa.Field(ge=1)
    width: Series[int] = pa.Field(ge=1)
    depth: Series[int] = pa.Field(ge=1)
    budget_units: Series[float] = pa.Field(ge=0)

    @pa.check("graph", name="dag_with_one_sink")
    def _graph(self, graph: Series[str]) -> pd.Series[bool]:
        return graph.map(lambda text: _graph_of(text) is not None)

    # Not for each question: one whose prompt no context holds is scored without a call.
    _calls = rule("a_call_for_each_right_answer", "calls >= accuracy.fillna(0) * n_scored - 0.5")

    @pa.dataframe_check(error="hash_and_size_of_the_graph")
    def _of_graph(self, table: pd.DataFrame) -> pd.Series[bool]:
        names = ("graph_hash", "n_nodes", "width", "depth")
        found = []
        for text, *given in table[["graph", *names]].itertuples(index=False):
            graph = _graph_of(text)
            sizes = graph and [graph.content_hash, len(graph.nodes), graph.width, graph.depth]
            found.append(graph is None or given == sizes)
        return pd.Series(found, table.index, dtype=bool)


class Pilots(GraphScores):
    """One row per graph of a pilot sweep. One that is not `within_budget` shows how the task
    scales; no search may find it.
    """

    sweep: Series[str] = pa.Field(
        isin=["width", "depth", "width_x_depth", "family", "size", "topology"]
    )
    label: Series[str]
    within_budget: Series[bool]

    class Config:
        unique = ("sweep", "label", "graph_hash")


class Trials(GraphScores):
    """One row per topology tried in an init stage; `counts` is the model multiset as JSON."""

    counts: Series[str]


class Candidates(GraphScores):
    """The archive of a search: one row per evaluation of a candidate."""

    candidate_id: Series[int] = pa.Field(ge=0, unique=True)
    method: Series[str]
    iteration: Series[int] = pa.Field(ge=1)
    split: Series[str] = pa.Field(isin=["train", "val"])
    status: Series[str] = pa.Field(isin=["ok", "failed"])
    error: Series[str]
    found_by: Series[str] = pa.Field(str_matches=PATTERN)

    _not_empty = rule("not_empty", "candidate_id.size > 0")
    _method = rule("one_method", "method == method.shift().fillna(method)")
    _numbers = rule("numbers_from_0_on", "candidate_id == index")
    _iterations = rule("from_1_on_never_back", "iteration.diff().fillna(iteration - 1) >= 0")
    _errors = rule(
        "an_error_where_and_only_where_questions_are_unscored", "(error != '') == (n_unscored > 0)"
    )
    _ended = rule(
        "failed_where_questions_are_unscored_else_scored",
        "(status == 'failed' and n_unscored > 0) or (status != 'failed' and n_scored > 0)",
    )


class Evidence(Table):
    """What each node of an evaluated graph read and answered: one row per graph, question and node
    (ttsgraph/evaluation/node_answers.py says what the columns are). `candidate_id` is the row of
    the table beside it: of archive.parquet, or of init_instances.parquet.
    """

    candidate_id: Series[int] = pa.Field(ge=0)
    graph_hash: Series[str] = pa.Field(str_length={"min_value": 1})
    question_id: Series[str] = pa.Field(str_length={"min_value": 1})
    node: Series[int] = pa.Field(ge=0)
    model: Series[str]
    role: Series[str] = pa.Field(str_length={"min_value": 1})
    is_sink: Series[bool]
    in_degree: Series[int] = pa.Field(ge=0)
    inputs_right: Series[float] = pa.Field(ge=0)
    inputs_agreeing: Series[int] = pa.Field(ge=0)
    correct: Series[float] = pa.Field(ge=0, le=1)
    answer: Series[int] = pa.Field(ge=-1)
    prompt_tokens: Series[int] = pa.Field(ge=0)
    completion_tokens: Series[int] = pa.Field(ge=0)

    class Config:
        unique = ("candidate_id", "question_id", "node")

    _inputs = rule(
        "no_more_inputs_right_or_agreeing_than_there_are",
        "inputs_right <= in_degree and inputs_agreeing <= in_degree",
    )


class Trajectory(Table):
    """One row per iteration of a search."""

    iteration: Series[int] = pa.Field(ge=1, unique=True)
    train_mean: Series[float] = pa.Field(ge=0, le=1, nullable=True)
    train_best: Series[float] = pa.Field(ge=0, le=1, nullable=True)
    val_accuracy: Series[float] = pa.Field(ge=0, le=1, nullable=True)
    val_low: Series[float] = pa.Field(ge=0, le=1)
    val_high: Series[float] = pa.Field(ge=0, le=1)
    val_latency_s: Series[float] = pa.Field(ge=0, nullable=True)
    val_value: Series[float] = pa.Field(ge=0, le=1, nullable=True)
    best_val_value: Series[float] = pa.Field(ge=0, le=1, nullable=True)
    result_hash: Series[str]
    budget_units: Series[float] = pa.Field(ge=0)
    width: Series[int] = pa.Field(ge=1)
    depth: Series[int] = pa.Field(ge=1)
    n_nodes: Series[int] = pa.Field(ge=1)

    _iterations = rule("1_2_3_and_so_on", "iteration == index + 1")
    _interval = rule(
        "accuracy_within_its_interval",
        "val_low <= val_high and not (val_accuracy < val_low or val_accuracy > val_high)",
    )
    _best = rule("the_best_is_no_less_than_the_mean", f"not (train_best < train_mean - {CLOSE})")
    _never_back = rule(
        "the_best_never_falls", f"not (best_val_value < best_val_value.cummax() - {CLOSE})"
    )


class Edges(Table):
    """The distribution that a search learnt: the probability of each edge that can exist, after
    each iteration.
    """

    iteration: Series[int] = pa.Field(ge=1)
    source: Series[int] = pa.Field(ge=0)
    target: Series[int] = pa.Field(ge=0)
    probability: Series[float] = pa.Field(ge=0, le=1)

    class Config:
        unique = ("iteration", "source", "target")

    _other = rule("to_another_node", "source != target")


class Nodes(Scores):
    """Nodes of the found graph: what each is asked and costs; scores are of the graph without it
    (ttsgraph/stages/ablation.py).

    On the test questions that it answered (`n_answers`) `read_accuracy` is the share of right
    answers among those that it read, `own_accuracy` among its own. It `repaired` so many of the
    `repairable` questions where all that it read was wrong, and `spoilt` so many of the `spoilable`
    where all was right. `predicted_loss` is what the graph is predicted to lose without it, with
    its standard deviation; it is empty where that is not known (ttsgraph/stages/worth.py).
    """

    node: Series[int] = pa.Field(ge=0, unique=True)
    role: Series[str]
    model: Series[str]
    is_sink: Series[bool]
    budget_units: Series[float] = pa.Field(ge=0)
    cost_share: Series[float] = pa.Field(ge=0, le=1)
    prompt: Series[str]
    nodes_left: Series[int] = pa.Field(ge=0)
    whole_accuracy: Series[float] = pa.Field(ge=0, le=1, nullable=True)
    n_answers: Series[int] = pa.Field(ge=0)
    read_accuracy: Series[float] = pa.Field(ge=0, le=1, nullable=True)
    own_accuracy: Series[float] = pa.Field(ge=0, le=1, nullable=True)
    repairable: Series[int] = pa.Field(ge=0)
    repaired: Series[int] = pa.Field(ge=0)
    spoilable: Series[int] = pa.Field(ge=0)
    spoilt: Series[int] = pa.Field(ge=0)
    predicted_loss: Series[float] = pa.Field(ge=-1, le=1, nullable=True)
    predicted_spread: Series[float] = pa.Field(ge=0, nullable=True)

    _sink = rule("one_sink", "is_sink.sum() == 1")
    _shares = rule("shares_of_one_whole", f"cost_share.sum() <= 1 + {CLOSE}")
    _left = rule("fewer_nodes_left", "nodes_left < node.size")
    _changes = rule(
        "repaired_and_spoilt_of_those_that_can_be",
        "repaired <= repairable and spoilt <= spoilable and repairable + spoilable <= n_answers",
    )


ARMS = [
    *("found", "single", "router", "self_consistency", "best_of_n", "fixed_topology"),
    "team",
]
"""What is compared on test questions: what was found, what comes without a search, and a team that
somebody has already.
"""


class Evaluations(GraphScores):
    """Test scores of the found graph and of what it has to beat within the same budget.
    `found_only` and `rival_only` count the questions that only the found graph, or only this one,
    has right, or scores higher on; `p_differs` is of an exact McNemar test, two-sided, for scores
    of its like by sign flips.
    """

    arm: Series[str] = pa.Field(isin=ARMS)
    label: Series[str]
    found_only: Series[int] = pa.Field(ge=0)
    rival_only: Series[int] = pa.Field(ge=0)
    p_differs: Series[float] = pa.Field(ge=0, le=1)

    class Config:
        unique = ("arm", "label")

    _first = rule("the_found_graph_first_and_once", "(arm == 'found') == (index == 0)")
    _alike = rule("of_the_same_questions", "n_scored + n_unscored == (n_scored + n_unscored).max()")
    _only = rule(
        "no_more_differ_than_there_are", "found_only + rival_only <= n_scored + n_unscored"
    )
    _equal = rule("no_p_where_none_differs", "found_only + rival_only > 0 or p_differs == 1")
    _itself = rule("not_other_than_itself", "arm != 'found' or found_only + rival_only == 0")


class Answers(Table):
    """What each graph of the test answered to each question: one row per graph and question.
    `correct` is missing where infrastructure failed, and `error` says why; beside a grade it says
    that a prompt was too long for its model, whose node had no answer. `nodes` is JSON: by node id,
    what the task reads of that node's answer (`form`) and whether it is right (`correct`). Where
    answers have scores, these stand in place of right and wrong.
    """

    arm: Series[str] = pa.Field(isin=ARMS)
    label: Series[str]
    question_id: Series[str] = pa.Field(str_length={"min_value": 1})
    correct: Series[Any] = pa.Field(nullable=True, ge=0, le=1)
    form: Series[str]
    latency_s: Series[float] = pa.Field(ge=0, nullable=True)
    error: Series[str]
    nodes: Series[str]

    class Config:
        unique = ("arm", "label", "question_id")

    _errors = rule("an_answer_or_an_error", "correct.notna() or error != ''")

    @pa.dataframe_check(error="as_many_questions_as_the_others")
    def _whole(self, table: pd.DataFrame) -> pd.Series[bool]:
        counts = table.groupby(["arm", "label"])["question_id"].transform("size")
        return counts == counts.max()


def check(table: pd.DataFrame, schema: type[Table], where: str) -> pd.DataFrame:
    """The table in the schema's order of columns, without bookkeeping. Raises DataError that lists
    every problem, a line each.
    """
    columns = list(schema.to_schema().columns)
    table = table.drop(columns=[column for column in table.columns if column in BOOKKEEPING])
    known = [column for column in columns if column in table.columns]
    ordered = table[known + [column for column in table.columns if column not in columns]]
    try:
        return schema.validate(ordered, lazy=True)
    except pandera.errors.SchemaErrors as error:
        raise DataError(f"{where}: {_explain(error)}") from None


def check_archive(table: pd.DataFrame, cost: CostModel, method: str, where: str) -> None:
    """Raises DataError that names row and rule where an archive is not of this method, has a model
    that the pool of the cost model lacks, or budget units or dollars other than those that it
    gives.
    """
    for number, row in enumerate(table.to_dict("records")):
        if problem := _problem(row, cost, method):
            raise DataError(f"{where}: row {number}: {problem}")


def _problem(row: Mapping[Any, Any], cost: CostModel, method: str) -> str:
    if row["method"] != method:
        return f"expected candidates of {method}, found some of {row['method']}"
    graph = CollaborationGraph.from_json(row["graph"])
    if strangers := {node.model for node in graph.nodes} - set(cost.pool):
        return f"expected models among {', '.join(cost.pool)}, found {min(strangers)}"
    units = cost.graph_cost(graph)
    if abs(units - row["budget_units"]) > 1e-6 * abs(units):
        return f"expected {units:.6g} budget units, found {row['budget_units']:.6g}"
    prices = [cost.pool[model].price for model in graph.model_counts()]
    read = max(max(price.prompt, price.cached or 0.0) for price in prices)
    written = max(max(price.completion, price.reasoning or 0.0) for price in prices)
    most = (read * row["prompt_tokens"] + written * row["completion_tokens"]) / 1e6
    if row["dollars"] > most * (1 + 1e-6):
        return f"expected at most ${most:.4g} for its tokens, found ${row['dollars']:.4g}"
    return ""


def _explain(error: pandera.errors.SchemaErrors) -> str:
    cases = error.failure_cases
    of_table = cases["schema_context"] == "DataFrameSchema"
    cases = cases.assign(column=cases["column"].mask(of_table))  # which a rule has no single one of
    problems = []
    for (column, name), rows in cases.groupby(["column", "check"], dropna=False, sort=False):
        if name in ("column_in_dataframe", "column_in_schema"):
            word = "missing" if name == "column_in_dataframe" else "unexpected"
            problems.append(f"{word} column {', '.join(map(repr, rows['failure_case']))}")
        elif rows["schema_context"].iloc[0] == "DataFrameSchema":
            numbers = sorted({int(i) for i in rows["index"].dropna()})
            where = f" in {_first([f'row {i}' for i in numbers], ', ')}" if numbers else ""
            problems.append(f"rule {name} is broken{where}")
        else:
            shown = [
                f"row {int(i)}: {value!r}" if pd.notna(i) else repr(value)
                for i, value in zip(rows["index"], rows["failure_case"], strict=True)
            ]
            problems.append(f"column {column!r} fails {name} ({_first(shown, '; ')})")
    return "; ".join(problems)


def _first(rows: Sequence[str], between: str) -> str:
    more = f" and {len(rows) - ROWS_SHOWN} more" if len(rows) > ROWS_SHOWN else ""
    return between.join(rows[:ROWS_SHOWN]) + more


def write_table(table: pd.DataFrame, schema: type[Table], path: Path) -> None:
    """Check and write a table (.parquet or .csv), whole or not at all; its bookkeeping to a file
    beside. Raises DataError.
    """
    apart = [column for column in table.columns if column in BOOKKEEPING]
    checked = check(table, schema, str(path))
    if apart:
        _write(table[apart], beside(path))
    _write(checked, path)


def _write(table: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    with naming(path):
        if path.suffix == ".csv":
            table.to_csv(unfinished, index=False)
        else:
            marked = table.copy(deep=False)
            marked.attrs = {CHECKSUM: _checksum(table)}
            marked.to_parquet(unfinished, index=False)
    os.replace(unfinished, path)


def read_table(schema: type[Table], path: Path, made_by: str) -> pd.DataFrame:
    """Read and check a table. Raises DataError when it is missing (naming the stage that makes it),
    unreadable or wrong.
    """
    try:
        return check(_read(schema, path), schema, str(path))
    except DataError as error:
        raise DataError(f"{error}; {makes(made_by, path)}") from None


def _read(schema: type[Table], path: Path) -> pd.DataFrame:
    try:
        if path.suffix == ".csv":
            # Else a reader takes a hash of digits with one e for a number.
            columns = schema.to_schema().columns.items()
            texts = {name: str for name, column in columns if str(column.dtype).startswith("str")}
            return pd.read_csv(path, dtype=texts)
        table = pd.read_parquet(path)
        # Columns are read when they are used.
        as_written = table.attrs.pop(CHECKSUM, None) in (None, _checksum(table))
    except FileNotFoundError:
        raise DataError(f"{path}: expected a table, but there is none") from None
    except Exception as error:  # readers raise a dozen kinds of damaged bytes
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: expected a table, but it can't be read: {reason}") from None
    if not as_written:
        raise DataError(f"{path}: its content is not what was written there")
    return table


def _checksum(table: pd.DataFrame) -> str:
    """A hash of names and values, which a parquet file carries: its pages have none of their
    own.
    """
    found = hashlib.sha256(json.dumps([*map(str, table.columns)]).encode())
    for column in table.columns:
        found.update(pd.util.hash_pandas_object(table[column], index=False).to_numpy().tobytes())
    return found.hexdigest()[:16]


@lru_cache(maxsize=4096)
def _widest(accuracy: float, scored: int) -> float:
    """The width of the widest interval that so many grades can have with this mean."""
    if scored == 0 or math.isnan(accuracy):
        return 1.0
    total = total_of(accuracy, scored)
    ends = []
    for end, right in enumerate((math.floor(total), math.ceil(total))):
        grades = [1.0] * right + [0.0] * (scored - right)
        ends.append([wilson(right, scored)[end], mean_interval(grades, CONFIDENCE)[end]])
    return max(ends[1]) - min(ends[0])


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (TypeError, ValueError):
        return False
    return True


@lru_cache(maxsize=4096)  # a table is checked when it is written and when it is read
def _graph_of(text: str) -> CollaborationGraph | None:
    try:
        return CollaborationGraph.from_json(text)
    except GraphError:
        return None
