"""Tables that stages exchange, as pandera models, and the functions that write and read them. A
table is checked when it is written and when it is read. One error reports all problems, with the
file, the column, the check and the first offending rows.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pandera.errors
import pandera.pandas as pa
from pandera.typing import Series

from ttsgraph.base.bookkeeping import BOOKKEEPING, beside
from ttsgraph.base.errors import DataError, GraphError
from ttsgraph.base.files import CHECKSUM, makes, write_bytes
from ttsgraph.evaluation.environment import CONFIDENCE, mean_interval, total_of, wilson
from ttsgraph.evaluation.found_by import PATTERN
from ttsgraph.graphs.graph import CollaborationGraph

ROWS_SHOWN = 3
CLOSE = 1e-9
"""Rounding error that rules tolerate."""


def rule(name: str, expression: str) -> Any:
    """Return a check of a table. `expression` (for `DataFrame.eval`) must be true for each row, or
    for the whole table.
    """

    def holds(_: Any, table: pd.DataFrame) -> Any:
        return table.eval(expression, engine="python")

    return pa.dataframe_check(error=name)(holds)


class Table(pa.DataFrameModel):
    """Table with exactly these columns, in this order."""

    class Config:
        strict = True

    @pa.check("^(meta|counts|prompt|nodes|reading_by_role)$", regex=True, error="valid_json")
    def _json(self, column: Series[str]) -> pd.Series[bool]:
        return column.map(_is_json)

    @pa.check(".*", regex=True, error="finite")
    def _finite(self, column: Series[Any]) -> pd.Series[bool]:
        return ~column.isin([np.inf, -np.inf])


class Scores(Table):
    """Columns of every table with graded answers. Accuracy is NaN if no question could be
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
        "accuracy_and_latency_if_and_only_if_questions_were_scored",
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

    @pa.dataframe_check(error="interval_no_wider_than_the_questions_allow")
    def _width(self, table: pd.DataFrame) -> pd.Series[bool]:
        widest = [_widest(*row) for row in zip(table["accuracy"], table["n_scored"], strict=True)]
        return (table["accuracy_high"] - table["accuracy_low"]) <= np.array(widest, float) + CLOSE


class Questions(Table):
    """Questions of the sample stage, with their split; `meta` is JSON for the grader."""

    split: Series[str] = pa.Field(isin=["shots", "train", "val", "test"])
    id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    text: Series[str] = pa.Field(unique=True, str_matches=r"\s*\S")
    answer: Series[str] = pa.Field(str_length={"min_value": 1})
    meta: Series[str]

    _not_empty = rule("not_empty", "id.size > 0")


class Profiles(Scores):
    """One row per model of the pool: its facts, and its scores as a single call on the training
    questions.
    """

    model: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
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
    """A graph, its cost and its scores."""

    graph: Series[str]
    graph_hash: Series[str] = pa.Field(str_length={"min_value": 1})
    n_nodes: Series[int] = pa.Field(ge=1)
    width: Series[int] = pa.Field(ge=1)
    depth: Series[int] = pa.Field(ge=1)
    budget_units: Series[float] = pa.Field(ge=0)

    @pa.check("graph", name="dag_with_one_sink")
    def _graph(self, graph: Series[str]) -> pd.Series[bool]:
        return graph.map(lambda text: _graph_of(text) is not None)

    # Only right answers count: a prompt too long for every context is scored without a call.
    _calls = rule("a_call_for_each_right_answer", "calls >= accuracy.fillna(0) * n_scored - 0.5")

    @pa.dataframe_check(error="hash_and_size_match_the_graph")
    def _of_graph(self, table: pd.DataFrame) -> pd.Series[bool]:
        names = ("graph_hash", "n_nodes", "width", "depth")
        found = []
        for text, *given in table[["graph", *names]].itertuples(index=False):
            graph = _graph_of(text)
            sizes = graph and [graph.content_hash, len(graph.nodes), graph.width, graph.depth]
            found.append(graph is None or given == sizes)
        return pd.Series(found, table.index, dtype=bool)


class Pilots(GraphScores):
    """One row per graph of a pilot sweep. A graph that is not `within_budget` only shows how the
    task scales; no search may select it.
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
    _numbers = rule("numbered_from_0", "candidate_id == index")
    _iterations = rule(
        "starts_at_1_and_never_decreases",
        "(index > 0 or iteration == 1) and not (iteration.diff() < 0)",
    )
    _errors = rule(
        "error_if_and_only_if_questions_are_unscored", "(error != '') == (n_unscored > 0)"
    )
    _ended = rule(
        "failed_if_questions_are_unscored_else_scored",
        "(status == 'failed' and n_unscored > 0) or (status != 'failed' and n_scored > 0)",
    )


class Evidence(Table):
    """Input and answer of each node of an evaluated graph: one row per graph, question and node
    (columns in ttsgraph/evaluation/node_answers.py). `candidate_id` is a row number in the
    accompanying table, archive.parquet or init_instances.parquet.
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
        "no_more_right_or_agreeing_inputs_than_inputs",
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
    """Distribution that a search learned: the probability of each possible edge after each
    iteration.
    """

    iteration: Series[int] = pa.Field(ge=1)
    source: Series[int] = pa.Field(ge=0)
    target: Series[int] = pa.Field(ge=0)
    probability: Series[float] = pa.Field(ge=0, le=1)

    class Config:
        unique = ("iteration", "source", "target")

    _other = rule("to_another_node", "source != target")


class Nodes(Scores):
    """Nodes of the found graph, with their prompts and costs. The scores in a node's row belong
    to the graph without the node (ttsgraph/stages/worth.py).

    On the test questions that a node answered (`n_answers`), `read_accuracy` is the share of right
    answers among its inputs, and `own_accuracy` the share among its own answers. On `repairable`
    questions all inputs were wrong, and on `repaired` of them the node's answer was right; on
    `spoilable` questions all inputs were right, and on `spoilt` of them the node's answer was
    wrong. `predicted_loss` is the accuracy that the graph is predicted to lose without the node,
    and `predicted_spread` the standard deviation of this loss; both are empty if unknown.
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
    _shares = rule("shares_sum_to_at_most_1", f"cost_share.sum() <= 1 + {CLOSE}")
    _left = rule("fewer_nodes_left", "nodes_left < node.size")
    _changes = rule(
        "no_more_repaired_or_spoilt_than_possible",
        "repaired <= repairable and spoilt <= spoilable and repairable + spoilable <= n_answers",
    )


ARMS = [
    *("found", "single", "router", "self_consistency", "best_of_n", "fixed_topology"),
    "team",
]
"""Kinds of graphs compared on test questions: the found graph, baselines without a search, and an
existing team.
"""


class Evaluations(GraphScores):
    """Test scores of the found graph and of its rivals within the same budget. `found_only` counts
    the questions that only the found graph answered correctly, or on which it scored higher;
    `rival_only` counts the same for the row's graph. `p_differs` is from a two-sided exact McNemar
    test, or from its sign-flip counterpart for scores.
    """

    arm: Series[str] = pa.Field(isin=ARMS)
    label: Series[str]
    found_only: Series[int] = pa.Field(ge=0)
    rival_only: Series[int] = pa.Field(ge=0)
    p_differs: Series[float] = pa.Field(ge=0, le=1)

    class Config:
        unique = ("arm", "label")

    _not_empty = rule("not_empty", "arm.size > 0")
    _first = rule("the_found_graph_first_and_once", "(arm == 'found') == (index == 0)")
    _alike = rule(
        "same_number_of_questions_for_all", "n_scored + n_unscored == (n_scored + n_unscored).max()"
    )
    _only = rule(
        "no_more_differences_than_questions", "found_only + rival_only <= n_scored + n_unscored"
    )
    _equal = rule("p_is_1_if_no_question_differs", "found_only + rival_only > 0 or p_differs == 1")
    _itself = rule("found_graph_equals_itself", "arm != 'found' or found_only + rival_only == 0")


class Answers(Table):
    """Answers of each tested graph: one row per graph and question. `correct` is missing if
    infrastructure failed; `error` then has the reason. Otherwise, `error` is empty, or says that a
    prompt was too long for its model, so its node had no answer. `nodes` is JSON with the extracted
    form of each node's answer (`form`) and its grade (`correct`), by node ID. If grades are scores,
    `correct` is a number from 0 to 1.
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

    _not_empty = rule("not_empty", "arm.size > 0")
    _errors = rule("an_answer_or_an_error", "correct.notna() or error != ''")

    @pa.dataframe_check(error="same_number_of_questions_for_all_graphs")
    def _whole(self, table: pd.DataFrame) -> pd.Series[bool]:
        counts = table.groupby(["arm", "label"])["question_id"].transform("size")
        return counts == counts.max()


def check(table: pd.DataFrame, schema: type[Table], where: str) -> pd.DataFrame:
    """Return the table with columns in the schema's order, without bookkeeping. Raises DataError
    listing every problem if the table violates the schema.
    """
    columns = list(schema.to_schema().columns)
    table = table.drop(columns=[column for column in table.columns if column in BOOKKEEPING])
    present = [column for column in columns if column in table.columns]
    ordered = table[present + [column for column in table.columns if column not in columns]]
    try:
        return schema.validate(ordered, lazy=True)
    except pandera.errors.SchemaErrors as error:
        raise DataError(f"{where}: {_explain(error)}") from None


def _explain(error: pandera.errors.SchemaErrors) -> str:
    cases = error.failure_cases
    of_table = cases["schema_context"] == "DataFrameSchema"
    # a rule on the whole table has no column
    cases = cases.assign(column=cases["column"].mask(of_table))
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
    """Check a table, and write it (.parquet or .csv) atomically; its bookkeeping columns go to a
    separate file. Raises DataError if the table violates its schema.
    """
    apart = [column for column in table.columns if column in BOOKKEEPING]
    checked = check(table, schema, str(path))
    if apart:
        write_bytes(beside(path), _content(table[apart], path))
    write_bytes(path, _content(checked, path))


def _content(table: pd.DataFrame, path: Path) -> bytes:
    if path.suffix == ".csv":
        return table.to_csv(index=False).encode()
    marked = table.copy(deep=False)
    marked.attrs = {CHECKSUM: _checksum(table)}
    return marked.to_parquet(index=False)


def read_table(schema: type[Table], path: Path, made_by: str) -> pd.DataFrame:
    """Read and check a table. Raises DataError if the table is missing or unreadable, or violates
    its schema; the message names the stage that makes the table.
    """
    try:
        return check(_read(schema, path), schema, str(path))
    except DataError as error:
        raise DataError(f"{error}; {makes(made_by, path)}") from None


def _read(schema: type[Table], path: Path) -> pd.DataFrame:
    try:
        if path.suffix == ".csv":
            # Without a type, a hash that consists of digits and one `e` would be read as a number.
            columns = schema.to_schema().columns.items()
            texts = {name: str for name, column in columns if str(column.dtype).startswith("str")}
            return pd.read_csv(path, dtype=texts)
        table = pd.read_parquet(path)
        # within the try block, because a damaged column raises only when its values are used
        as_written = table.attrs.pop(CHECKSUM, None) in (None, _checksum(table))
    except FileNotFoundError:
        raise DataError(f"{path}: expected a table, found none") from None
    except Exception as error:  # the readers raise many kinds of errors for damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: expected a table, but it can't be read: {reason}") from None
    if not as_written:
        raise DataError(f"{path}: its content differs from what was written")
    return table


def _checksum(table: pd.DataFrame) -> str:
    """Return a hash of column names and values. It is stored in a parquet file because the file's
    pages have no checksum.
    """
    found = hashlib.sha256(json.dumps([*map(str, table.columns)]).encode())
    for column in table.columns:
        found.update(pd.util.hash_pandas_object(table[column], index=False).to_numpy().tobytes())
    return found.hexdigest()[:16]


@lru_cache(maxsize=4096)
def _widest(accuracy: float, scored: int) -> float:
    """Return the greatest possible width of the confidence interval of an accuracy that is the mean
    of `scored` grades.
    """
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


@lru_cache(maxsize=4096)  # a table is checked both when written and when read
def _graph_of(text: str) -> CollaborationGraph | None:
    try:
        return CollaborationGraph.from_json(text)
    except GraphError:
        return None
