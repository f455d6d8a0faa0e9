"""Purpose of each node of a found graph: its prompt, its share of the cost, and the accuracy
without it (leave-one-out).
"""

import json
import math
from collections.abc import Mapping, Sequence

import pandas as pd

from ttsgraph.evaluation.archive import score_columns
from ttsgraph.evaluation.environment import Feedback
from ttsgraph.graphs import topologies
from ttsgraph.graphs.budget import Budget, CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.client import Message
from ttsgraph.stages.trials import Case
from ttsgraph.tasks.base import Question, Task
from ttsgraph.tasks.prompts import Prompt

PLACEHOLDER = "[what a predecessor answered]"
"""Placeholder for answers in the prompt that a table shows."""
UNTRIED = Feedback(())


def without_node(
    graph: CollaborationGraph, node: int, cost: CostModel
) -> CollaborationGraph | None:
    """Graph without one node and without the nodes that can't reach the sink then, or None if that
    isn't a graph. Nodes that lose predecessors required by their role are removed too, and such a
    sink becomes an assistant, as in trimming. The sink itself can be left out if a single
    predecessor remains to answer.
    """
    if node != graph.sink:
        return Budget(cost).without(graph, node)
    ends = [p for p in graph.predecessors[node] if graph.successors[p] == (node,)]
    return graph.up_to(ends[0]) if len(ends) == 1 else None


def removals(graph: CollaborationGraph, cost: CostModel) -> dict[int, CollaborationGraph]:
    """Node id -> the graph without it, for the nodes that can be left out."""
    if graph.route is not None:  # leave nodes out of one branch at a time
        branches = list(graph.branches)
        return {
            i: topologies.routed(graph.route.router, [*branches[:k], rest, *branches[k + 1 :]])
            for k, branch in enumerate(branches)
            for i, rest in removals(branch, cost).items()
        }
    found = {node.id: without_node(graph, node.id, cost) for node in graph.nodes}
    return {i: rest for i, rest in found.items() if rest is not None}


def removal_cases(without: Mapping[int, CollaborationGraph]) -> list[Case]:
    """Distinct graphs among the removals: equivalent nodes leave the same graph."""
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
    """One row per node of the found graph (columns of schemas.Nodes). `feedbacks` belong to the
    removals, by content hash, on the questions of `whole`, the graph's own. Scores are the graph's
    without the node, empty if not tried; calls and tokens are listed at the first of the nodes that
    leave the same graph.
    """
    units = {
        node.id: graph.asked[node.id] * cost.node_cost(node, len(graph.reads[node.id]))
        for node in graph.nodes
    }
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
