"""Inputs and answer of each node of an evaluated graph, one row per graph, question and node:
details that a graph's score hides. A node repairs a question if all its inputs are wrong and its
answer is right, and breaks it if all its inputs are right and its answer is wrong.
"""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from ttsgraph.evaluation.environment import QuestionResult
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role

NO_FORM = -1

COLUMNS = (
    *("candidate_id", "graph_hash", "question_id", "node", "model", "role", "is_sink"),
    *("in_degree", "inputs_right", "inputs_agreeing", "correct", "answer"),
    *("prompt_tokens", "completion_tokens", "seconds"),
)
"""Columns of the table. `model` is empty for a node that makes no call. `in_degree`
counts the inputs that had an answer, `inputs_right` sums the grades of these inputs, and
`inputs_agreeing` counts the inputs with the most frequent answer, and is 0 if no input has a form.
`answer` identifies an answer within its question; it is NO_FORM if the task extracts none.
`seconds` is the latency of the node's call.
"""


class NodeAnswers:
    """Append-only table of node answers. A graph's answers to a question are added only once,
    because repeating the question gives the same answers.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[object, ...]] = []
        self._known: dict[str, set[str]] = {}
        self._answers: dict[str, dict[str, int]] = {}

    def add(
        self, candidate_id: int, graph: CollaborationGraph, results: Sequence[QuestionResult]
    ) -> None:
        """Add the answers of a graph's nodes. Unscored questions are skipped."""
        seen = self._known.setdefault(graph.to_json(), set())
        digest = graph.content_hash
        nodes = [
            (node, node.model if get_role(node.role).calls_model else "", node.id == graph.sink)
            for node in map(graph.node, graph.order)
        ]
        for result in results:
            if result.correct is None or not result.nodes or result.question_id in seen:
                continue
            seen.add(result.question_id)
            numbers = self._answers.setdefault(result.question_id, {})
            for node, model, is_sink in nodes:
                if (answer := result.nodes.get(node.id)) is None:
                    continue
                heard = graph.heard(node.id, result.nodes)
                of = candidate_id, digest, result.question_id, node.id, model, node.role, is_sink
                votes = Counter(each.form for each in heard if each.form)
                right = float(sum(each.correct for each in heard))
                read = len(heard), right, max(votes.values(), default=0)
                form = numbers.setdefault(answer.form, len(numbers)) if answer.form else NO_FORM
                took = answer.prompt_tokens, answer.completion_tokens, answer.latency_s
                self._rows.append((*of, *read, float(answer.correct), form, *took))

    def table(self) -> pd.DataFrame:
        """Return all rows, in the order in which they were added."""
        return pd.DataFrame(self._rows, columns=[*COLUMNS])


CHANGES = ["repairable", "repaired", "spoilable", "spoilt"]


def worth(table: pd.DataFrame) -> pd.DataFrame:
    """Return, for each node of one graph (index), the number of questions that it answered; the
    mean grade of its inputs and of its answers; and how many questions it could have repaired or
    broken, and how many it did (columns of schemas.Nodes). A node without inputs read NaN.
    """
    before = table["inputs_right"] / table["in_degree"].where(table["in_degree"] > 0)
    right = (table["correct"] > 0.5).astype(float)
    frame = table[["node"]].assign(
        before=before.astype(float),
        after=table["correct"].astype(float),
        repairable=(before == 0).astype(int),
        repaired=right.where(before == 0, 0.0),
        spoilable=(before == 1).astype(int),
        spoilt=(1 - right).where(before == 1, 0.0),
    )
    groups = frame.groupby("node")
    found = groups[CHANGES].sum().astype(int)
    found[["read_accuracy", "own_accuracy"]] = groups[["before", "after"]].mean()
    found["n_answers"] = groups.size()
    return found
