"""Tables that stages exchange, as pandera schemas, and the functions that write and read them. A
table is checked when it is written and when it is read. One error reports all problems, with the
file, the column, the check and the first offending rows.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pandera.errors
from pandera.pandas import Check, Column, DataFrameSchema

from ttsgraph.base.errors import DataError, GraphError
from ttsgraph.base.files import CHECKSUM, makes, write_bytes
from ttsgraph.evaluation.environment import CONFIDENCE, mean_interval, total_of, wilson
from ttsgraph.evaluation.found_by import PATTERN
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.stages.bookkeeping import BOOKKEEPING, beside

ROWS_SHOWN = 3
CLOSE = 1e-9
"""Rounding error that rules tolerate."""

Rule = str | Callable[[pd.DataFrame], Any]
"""Condition on each row of a table, or on the whole table: an expression for `DataFrame.eval`, or a
function.
"""


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


def _narrow(table: pd.DataFrame) -> pd.Series[bool]:
    widest = [_widest(*row) for row in zip(table["accuracy"], table["n_scored"], strict=True)]
    return (table["accuracy_high"] - table["accuracy_low"]) <= np.array(widest, float) + CLOSE


def _of_graph(table: pd.DataFrame) -> pd.Series[bool]:
    found = []
    for text, *given in table[["graph", "graph_hash", "n_nodes", "width", "depth"]].to_numpy():
        graph = _graph_of(text)
        sizes = graph and [graph.content_hash, len(graph.nodes), graph.width, graph.depth]
        found.append(graph is None or given == sizes)
    return pd.Series(found, table.index, dtype=bool)


def _equally_many(table: pd.DataFrame) -> pd.Series[bool]:
    counts = table.groupby(["arm", "label"])["question_id"].transform("size")
    return counts == counts.max()


def of(dtype: Any, names: str, *checks: Check, **options: Any) -> dict[str, Column]:
    """Return columns of one kind, by name. No column may be infinite."""
    finite = Check(lambda column: ~column.isin([np.inf, -np.inf]), error="finite")
    return {name: Column(dtype, [*checks, finite], **options) for name in names.split()}


NOT_EMPTY = Check.str_length(min_value=1)
FROM_0 = Check.ge(0)
FROM_0_TO_1 = FROM_0, Check.le(1)
JSON = Check(lambda column: column.map(_is_json), error="valid_json")
DAG = Check(lambda column: column.map(_graph_of).notna(), error="dag_with_one_sink")

COLUMNS = {
    **of(bool, "is_sink within_budget"),
    **of(str, "error family form label method model result_hash"),
    **of(str, "graph_hash question_id role", NOT_EMPTY),
    **of(str, "id", NOT_EMPTY, unique=True),
    **of(str, "text", Check.str_matches(r"\s*\S"), unique=True),
    **of(str, "graph", DAG),
    **of(str, "counts meta nodes prompt reading_by_role", JSON),
    **of(str, "found_by", Check.str_matches(PATTERN)),
    **of(int, "calls candidate_id completion_tokens found_only in_degree", FROM_0),
    **of(int, "inputs_agreeing n_answers n_scored n_unscored node nodes_left", FROM_0),
    **of(int, "prompt_tokens repairable repaired rival_only source spoilable", FROM_0),
    **of(int, "spoilt target", FROM_0),
    **of(int, "depth iteration n_nodes width", Check.ge(1)),
    **of(pd.Int64Dtype, "hidden layers", Check.gt(0), nullable=True, coerce=True),
    **of(float, "budget_units dollars inputs_right price_completion price_prompt", FROM_0),
    **of(float, "latency_s mean_completion_tokens mean_more_tokens", FROM_0, nullable=True),
    **of(float, "mean_prompt_tokens mean_read_tokens", FROM_0, nullable=True),
    **of(float, "predicted_spread val_latency_s", FROM_0, nullable=True),
    **of(float, "total", Check.gt(0), nullable=True),
    **of(float, "accuracy_high accuracy_low correct cost_share p_differs", *FROM_0_TO_1),
    **of(float, "probability val_high val_low", *FROM_0_TO_1),
    **of(float, "accuracy best_val_value own_accuracy", *FROM_0_TO_1, nullable=True),
    **of(float, "read_accuracy train_best train_mean", *FROM_0_TO_1, nullable=True),
    **of(float, "val_accuracy val_value whole_accuracy", *FROM_0_TO_1, nullable=True),
    **of(float, "predicted_loss", Check.ge(-1), Check.le(1), nullable=True),
}
"""Columns by name. A column that differs between tables is declared with its table instead."""


def table_of(
    names: str, rules: Mapping[str, Rule], own: dict[str, Column] | None = None, unique: str = ""
) -> DataFrameSchema:
    """Return the schema of a table with exactly these columns, in this order. `own` has the columns
    that are declared differently for this table. The columns in `unique` together identify a row.
    """

    def holds(rule: Rule) -> Callable[[pd.DataFrame], Any]:
        if not isinstance(rule, str):
            return rule
        return lambda table: table.eval(rule, engine="python")

    columns = {name: (COLUMNS | (own or {}))[name] for name in names.split()}
    checks = [Check(holds(rule), error=name) for name, rule in rules.items()]
    return DataFrameSchema(columns, checks=checks, unique=unique.split() or None, strict=True)


SCORES = (
    "accuracy accuracy_low accuracy_high n_scored n_unscored latency_s prompt_tokens"
    " completion_tokens dollars calls "
)
"""Columns of every table with graded answers. Accuracy is NaN if no question could be scored."""

SCORED: dict[str, Rule] = {
    "accuracy_and_latency_if_and_only_if_questions_were_scored": (
        "accuracy.notna() == (n_scored > 0) == latency_s.notna()"
    ),
    "no_tokens_or_dollars_without_calls": "calls > 0 or prompt_tokens + dollars == 0",
    "no_dollars_without_tokens": "dollars == 0 or prompt_tokens + completion_tokens > 0",
    "accuracy_within_its_interval": (
        f"accuracy_low - {CLOSE} <= accuracy <= accuracy_high + {CLOSE}"
        " or (accuracy.isna() and accuracy_low == 0 and accuracy_high == 1)"
    ),
    "interval_no_wider_than_the_questions_allow": _narrow,
}

GRAPH = SCORES + "graph graph_hash n_nodes width depth budget_units "
"""Columns of a graph, its cost and its scores."""

OF_GRAPH: dict[str, Rule] = SCORED | {
    # Only right answers count: a prompt too long for every context is scored without a call.
    "a_call_for_each_right_answer": "calls >= accuracy.fillna(0) * n_scored - 0.5",
    "hash_and_size_match_the_graph": _of_graph,
}

Questions = table_of(
    "split id text answer meta",
    {"not_empty": "id.size > 0"},
    of(str, "split", Check.isin(["shots", "train", "val", "test"])) | of(str, "answer", NOT_EMPTY),
)
"""Questions of the sample stage, with their split; `meta` is JSON for the grader."""

Profiles = table_of(
    SCORES + "model family total layers hidden price_prompt price_completion budget_units"
    " mean_prompt_tokens mean_completion_tokens mean_read_tokens mean_more_tokens reading_by_role",
    SCORED | {"not_empty": "model.size > 0"},
    of(str, "model", NOT_EMPTY, unique=True),
)
"""One row per model of the pool: its facts, and its scores as a single call on the training
questions.
"""

Pilots = table_of(
    GRAPH + "sweep label within_budget",
    OF_GRAPH,
    of(str, "sweep", Check.isin(["width", "depth", "width_x_depth", "family", "size", "topology"])),
    unique="sweep label graph_hash",
)
"""One row per graph of a pilot sweep. A graph that is not `within_budget` only shows how the task
scales; no search may select it.
"""

Trials = table_of(GRAPH + "counts", OF_GRAPH)
"""One row per topology tried in an init stage; `counts` is the model multiset as JSON."""

Candidates = table_of(
    GRAPH + "candidate_id method iteration split status error found_by",
    OF_GRAPH
    | {
        "not_empty": "candidate_id.size > 0",
        "one_method": "method == method.shift().fillna(method)",
        "numbered_from_0": "candidate_id == index",
        "starts_at_1": "index > 0 or iteration == 1",
        "never_decreases": "not (iteration.diff() < 0)",
        "error_if_and_only_if_questions_are_unscored": "(error != '') == (n_unscored > 0)",
        "failed_only_if_questions_are_unscored": "status != 'failed' or n_unscored > 0",
        "scored_unless_failed": "status == 'failed' or n_scored > 0",
    },
    of(str, "split", Check.isin(["train", "val"]))
    | of(str, "status", Check.isin(["ok", "failed"])),
)
"""The archive of a search: one row per evaluation of a candidate."""

Evidence = table_of(
    "candidate_id graph_hash question_id node model role is_sink in_degree inputs_right"
    " inputs_agreeing correct answer prompt_tokens completion_tokens",
    {
        "no_more_right_inputs_than_inputs": "inputs_right <= in_degree",
        "no_more_agreeing_inputs_than_inputs": "inputs_agreeing <= in_degree",
    },
    of(int, "answer", Check.ge(-1)),
    unique="candidate_id question_id node",
)
"""Input and answer of each node of an evaluated graph: one row per graph, question and node
(columns in ttsgraph/evaluation/node_answers.py). `candidate_id` is a row number in the accompanying
table, archive.parquet or init_instances.parquet.
"""

Trajectory = table_of(
    "iteration train_mean train_best val_accuracy val_low val_high val_latency_s val_value"
    " best_val_value result_hash budget_units width depth n_nodes",
    {
        "1_2_3_and_so_on": "iteration == index + 1",
        "low_not_above_high": "val_low <= val_high",
        "accuracy_within_its_interval": "not (val_accuracy < val_low or val_accuracy > val_high)",
        "the_best_is_no_less_than_the_mean": f"not (train_best < train_mean - {CLOSE})",
        "the_best_never_falls": f"not (best_val_value < best_val_value.cummax() - {CLOSE})",
    },
)
"""One row per iteration of a search."""

Edges = table_of(
    "iteration source target probability",
    {"to_another_node": "source != target"},
    unique="iteration source target",
)
"""Distribution that a search learned: the probability of each possible edge after each
iteration.
"""

Nodes = table_of(
    SCORES + "node role model is_sink budget_units cost_share prompt nodes_left whole_accuracy"
    " n_answers read_accuracy own_accuracy repairable repaired spoilable spoilt predicted_loss"
    " predicted_spread",
    SCORED
    | {
        "one_sink": "is_sink.sum() == 1",
        "shares_sum_to_at_most_1": f"cost_share.sum() <= 1 + {CLOSE}",
        "fewer_nodes_left": "nodes_left < node.size",
        "no_more_repaired_than_repairable": "repaired <= repairable",
        "no_more_spoilt_than_spoilable": "spoilt <= spoilable",
        "no_more_changes_than_answers": "repairable + spoilable <= n_answers",
    },
    unique="node",
)
"""Nodes of the found graph, with their prompts and costs. The scores in a node's row belong to the
graph without the node (ttsgraph/stages/final.py).

On the test questions that a node answered (`n_answers`), `read_accuracy` is the share of right
answers among its inputs, and `own_accuracy` the share among its own answers. On `repairable`
questions all inputs were wrong, and on `repaired` of them the node's answer was right; on
`spoilable` questions all inputs were right, and on `spoilt` of them the node's answer was wrong.
`predicted_loss` is the accuracy that the graph is predicted to lose without the node, and
`predicted_spread` the standard deviation of this loss; both are empty if unknown.
"""

ARMS = ["found", "single", "router", "self_consistency", "best_of_n", "fixed_topology", "team"]
"""Kinds of graphs compared on test questions: the found graph, baselines without a search, and an
existing team.
"""
ARM = of(str, "arm", Check.isin(ARMS))

Evaluations = table_of(
    GRAPH + "arm label found_only rival_only p_differs",
    OF_GRAPH
    | {
        "not_empty": "arm.size > 0",
        "the_found_graph_first_and_once": "(arm == 'found') == (index == 0)",
        "same_number_of_questions": "n_scored + n_unscored == (n_scored + n_unscored).max()",
        "no_more_differences_than_questions": "found_only + rival_only <= n_scored + n_unscored",
        "p_is_1_if_no_question_differs": "found_only + rival_only > 0 or p_differs == 1",
        "found_graph_equals_itself": "arm != 'found' or found_only + rival_only == 0",
    },
    ARM,
    unique="arm label",
)
"""Test scores of the found graph and of its rivals within the same budget. `found_only` counts the
questions that only the found graph answered correctly, or on which it scored higher; `rival_only`
counts the same for the row's graph. `p_differs` is from a two-sided exact McNemar test, or from its
sign-flip counterpart for scores.
"""

Answers = table_of(
    "arm label question_id correct form latency_s error nodes",
    {
        "not_empty": "arm.size > 0",
        "an_answer_or_an_error": "correct.notna() or error != ''",
        "same_number_of_questions_for_all_graphs": _equally_many,
    },
    ARM | of(None, "correct", *FROM_0_TO_1, nullable=True),
    unique="arm label question_id",
)
"""Answers of each tested graph: one row per graph and question. `correct` is missing if
infrastructure failed; `error` then has the reason. Otherwise, `error` is empty, or says that a
prompt was too long for its model, so its node had no answer. `nodes` is JSON with the extracted
form of each node's answer (`form`) and its grade (`correct`), by node ID. If grades are scores,
`correct` is a number from 0 to 1.
"""


def check(table: pd.DataFrame, schema: DataFrameSchema, where: str) -> pd.DataFrame:
    """Return the table with columns in the schema's order, without bookkeeping. Raises DataError
    listing every problem if the table violates the schema.
    """
    table = table.drop(columns=[*BOOKKEEPING], errors="ignore")
    order = dict.fromkeys(column for column in (*schema.columns, *table) if column in table)
    try:
        return schema.validate(table[[*order]], lazy=True)
    except pandera.errors.SchemaErrors as error:
        raise DataError(f"{where}: {_explain(error)}") from None


def _explain(error: pandera.errors.SchemaErrors) -> str:
    cases = error.failure_cases
    of_table = cases["schema_context"] == "DataFrameSchema"  # such a rule has no column
    cases = cases.assign(column=cases["column"].mask(of_table))
    words = {"column_in_dataframe": "missing", "column_in_schema": "unexpected"}
    problems = []
    for (column, name), rows in cases.groupby(["column", "check"], dropna=False, sort=False):
        if name in words:
            problems.append(f"{words[name]} column {', '.join(map(repr, rows['failure_case']))}")
        elif pd.isna(column):
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


def check_archive(table: pd.DataFrame, cost: CostModel, method: str, where: str) -> None:
    """Raise DataError if a row of an archive belongs to another method, uses a model outside the
    cost model's pool, has budget units that differ from the cost model's, or records more dollars
    than its tokens can cost. The error names the first such row.
    """
    for number, row in enumerate(table.to_dict("records")):
        if problem := _unfit(row, cost, method):
            raise DataError(f"{where}: row {number}: {problem}")


def _unfit(row: Mapping[Any, Any], cost: CostModel, method: str) -> str:
    if row["method"] != method:
        return f"expected a candidate of {method}, found one of {row['method']}"
    graph = CollaborationGraph.from_json(row["graph"])
    if strangers := {node.model for node in graph.nodes} - set(cost.pool):
        return f"expected only models in the pool ({', '.join(cost.pool)}), found {min(strangers)}"
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


def write_table(table: pd.DataFrame, schema: DataFrameSchema, path: Path) -> None:
    """Check a table, and write it (.parquet or .csv) atomically; its bookkeeping columns go to a
    separate file. Raises DataError if the table violates its schema.
    """
    if table.empty:  # its columns may lack a type
        kinds = {name: getattr(each.dtype, "type", None) for name, each in schema.columns.items()}
        table = pd.DataFrame({name: pd.array([], dtype) for name, dtype in kinds.items()})
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


def read_table(schema: DataFrameSchema, path: Path, made_by: str) -> pd.DataFrame:
    """Read and check a table. Raises DataError if the table is missing or unreadable, or violates
    its schema; the message names the stage that makes the table.
    """
    try:
        return check(_read(schema, path), schema, str(path))
    except DataError as error:
        raise DataError(f"{error}; {makes(made_by, path)}") from None


def _read(schema: DataFrameSchema, path: Path) -> pd.DataFrame:
    try:
        if path.suffix == ".csv":
            # Without a type, a hash that consists of digits and one `e` would be read as a number.
            columns = schema.columns.items()
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
