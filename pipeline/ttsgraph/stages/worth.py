"""Worth of each node in a found graph: its prompt, its share of the cost, the accuracy of the graph
without the node (leave-one-out), its inputs and answers on the test questions, and the accuracy
that the graph is predicted to lose without it.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ttsgraph.base.errors import DataError
from ttsgraph.evaluation.archive import score_columns
from ttsgraph.evaluation.compare import Difference
from ttsgraph.evaluation.environment import Feedback, NodeResult, QuestionResult
from ttsgraph.evaluation.node_answers import NO_FORM, NodeAnswers, worth
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.client import Message
from ttsgraph.searching.agent.base import Brief
from ttsgraph.searching.response import evidence
from ttsgraph.searching.response.calibration import SAMPLES
from ttsgraph.searching.response.model import ResponseModel
from ttsgraph.stages.project import Folder
from ttsgraph.stages.trials import Case
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.prompts import Prompt

PLACEHOLDER = "[what a predecessor answered]"
"""Placeholder for a predecessor's answer in the prompts that the node table shows."""
UNTRIED = Feedback(())


def without_node(
    graph: CollaborationGraph, node: int, cost: CostModel
) -> CollaborationGraph | None:
    """Return the graph without one node, or None if the node is a sink that can't be left out.
    Nodes that can no longer reach the sink, or that lose predecessors required by their role, are
    removed too; a sink that loses such predecessors becomes an assistant, as in trimming. The sink
    itself can be left out if exactly one of its predecessors has no other successor; that
    predecessor then answers.
    """
    if node != graph.sink:
        return Budget(cost).without(graph, node)
    ends = [p for p in graph.predecessors[node] if graph.successors[p] == (node,)]
    return graph.up_to(ends[0]) if len(ends) == 1 else None


def removals(graph: CollaborationGraph, cost: CostModel) -> dict[int, CollaborationGraph]:
    """Return, by node ID, the graph without the node, for each node that can be left out."""
    if graph.route is not None:  # nodes are left out of one branch at a time
        branches = list(graph.branches)
        return {
            i: topologies.routed(graph.route.router, [*branches[:k], rest, *branches[k + 1 :]])
            for k, branch in enumerate(branches)
            for i, rest in removals(branch, cost).items()
        }
    found = {node.id: without_node(graph, node.id, cost) for node in graph.nodes}
    return {i: rest for i, rest in found.items() if rest is not None}


def removal_cases(without: Mapping[int, CollaborationGraph]) -> list[Case]:
    """Return a case for each distinct graph in `without`. Leaving out any of several equivalent
    nodes gives the same graph.
    """
    different = {graph.content_hash: graph for graph in without.values()}
    return [Case(graph, {"without": graph.content_hash}) for graph in different.values()]


def node_table(
    graph: CollaborationGraph,
    cost: CostModel,
    task: Task,
    prompt: Prompt,
    example: Question,
    without: Mapping[int, CollaborationGraph],
    whole: Feedback,
    feedbacks: Mapping[str, Feedback],
) -> pd.DataFrame:
    """Return one row per node of the found graph (columns of schemas.Nodes). `whole` is the found
    graph's own feedback, and `feedbacks` maps the content hash of each graph without a node to its
    feedback on the same questions. The scores in a row belong to the graph without the node; they
    are empty if that graph was not tried. If removing any of several nodes gives the same graph,
    only the first of these nodes has calls and tokens.
    """
    units = {i: graph.asked[i] * each for i, each in cost.node_costs(graph).items()}
    total = math.fsum(units.values())
    charged = set[str]()
    rows = []
    for node in graph.nodes:
        rest = without.get(node.id)
        digest = rest.content_hash if rest is not None else ""
        feedback = feedbacks.get(digest, UNTRIED)
        if digest in charged:
            feedback = Feedback(feedback.results)
        charged.add(digest)
        role = get_role(node.role)
        messages: Sequence[Message] = ()
        if role.speak is not None:
            sent = cost.pool[node.model].prompt(prompt)
            read = [PLACEHOLDER] * len(graph.reads[node.id])
            messages = role.speak(task, sent, example, read)
        row = {
            "node": node.id,
            "role": node.role,
            "model": node.model if role.calls_model else "",
            "is_sink": node.id == graph.sink,
            "budget_units": units[node.id],
            "cost_share": units[node.id] / total if total else 0.0,
            "prompt": json.dumps([{"role": m.role, "content": m.content} for m in messages]),
            "nodes_left": 0 if rest is None else len(rest.nodes),
            "whole_accuracy": whole.accuracy if digest in feedbacks else math.nan,
        }
        rows.append(row | score_columns(feedback))
    return pd.DataFrame(rows)


def evidence_in(
    folder: Folder,
    questions: Mapping[str, Sequence[Question]],
    greedy: frozenset[str],
    searched: Folder | None = None,
) -> evidence.Evidence:
    """Return the evidence about nodes on training and validation questions: from the contest or, if
    there was none, from the search in the folder `searched`. Raises DataError if a table is missing
    or damaged.
    """
    answers = folder.table("evidence")
    tried = folder.table("init_instances")
    if answers.empty and searched is not None:
        answers = searched.table("evidence")
        tried = searched.table("archive")
    used = tried["graph"][tried.index.isin(answers["candidate_id"])]
    graphs = {int(str(k)): CollaborationGraph.from_json(text) for k, text in used.items()}
    return known_evidence(answers, graphs, [*questions["train"], *questions["val"]], greedy)


def known_evidence(
    table: pd.DataFrame,
    graphs: Mapping[int, CollaborationGraph],
    questions: Sequence[Question],
    greedy: frozenset[str],
) -> evidence.Evidence:
    """Return the evidence from its table (columns of schemas.Evidence); `graphs` maps candidate IDs
    to graphs. Raises DataError naming the first row with an unknown node or question, if there is
    one.
    """
    expected = {
        (number, graph.content_hash, node.id, node.role, node.id == graph.sink)
        for number, graph in graphs.items()
        for node in graph.nodes
    }
    ids = {question.id for question in questions}
    result = evidence.Evidence(questions, greedy)
    answers: dict[int, dict[str, dict[int, NodeResult]]] = {}
    rows: Iterable[Any] = table.itertuples(index=False)
    for place, row in enumerate(rows):
        number, question, node = row.candidate_id, row.question_id, row.node
        known = (number, row.graph_hash, node, row.role, row.is_sink) in expected
        if not known or question not in ids:
            raise DataError(
                f"evidence.parquet: row {place}: expected a node in candidate {number}'s graph and"
                f" a known question, found node {node} ({row.role}) and question {question!r}"
            )
        form = "" if row.answer == NO_FORM else str(row.answer)
        of_graph = answers.setdefault(number, {})
        of_graph.setdefault(question, {})[node] = NodeResult(row.correct, form)
    for number in sorted(answers):
        graph = graphs[number]
        results = [
            QuestionResult(question, nodes[graph.sink].correct, nodes=nodes)
            for question, nodes in answers[number].items()
        ]
        result.add(graph, Feedback(tuple(results)))
    return result


def predicted_losses(
    graph: CollaborationGraph, brief: Brief, known: evidence.Evidence, rng: np.random.Generator
) -> dict[int, Difference]:
    """Return, by node ID, the accuracy that the graph is predicted to lose without the node, for
    each node that can be left out; empty without evidence.
    """
    if not known.graphs:
        return {}
    model = ResponseModel(known, tuple(brief.cost.pool), rng, SAMPLES)
    return {i: model.difference(graph, rest) for i, rest in removals(graph, brief.cost).items()}


def with_worth(
    nodes: pd.DataFrame,
    graph: CollaborationGraph,
    tested: Feedback,
    losses: Mapping[int, Difference],
) -> pd.DataFrame:
    """Return a graph's node table with added columns for the worth of each node. Accuracies are
    NaN for a node that no question needed.
    """
    answers = NodeAnswers()
    answers.add(0, graph, tested.results)
    values = worth(answers.table()).reindex(nodes["node"]).reset_index(drop=True)
    counts = ["answers", "repairable", "repaired", "spoilable", "spoilt"]
    values[counts] = values[counts].fillna(0).astype(int)
    unknown = Difference(math.nan, math.nan)
    predicted = [losses.get(int(node), unknown) for node in nodes["node"]]
    return nodes.assign(
        n_answers=values["answers"],
        read_accuracy=values["before"],
        own_accuracy=values["after"],
        **{name: values[name] for name in counts[1:]},
        predicted_loss=[loss.mean for loss in predicted],
        predicted_spread=[loss.spread for loss in predicted],
    )
