"""A graph in words: what it does, in which order, and what a question costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ttsgraph.base.wording import counted
from ttsgraph.graphs.budget import CostModel
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import Outline, get_role, read_by
from ttsgraph.graphs.stopping import PASSED
from ttsgraph.pool.spec import ModelPool
from ttsgraph.settings.profile import Profile
from ttsgraph.settings.stages import BudgetSettings

if TYPE_CHECKING:  # slow to import
    import pandas as pd

UNIT_NAMES = {"flops": "units", "dollars": "dollars", "runtime": "seconds"}
SIGNS: dict[Outline, str] = {"rounded": "▢", "hexagon": "⬡", "slanted": "◇"}
MOST_NAMED = 6
"""Nodes that are named one by one; more are named from the first to the last."""


def explain(graph: CollaborationGraph, profile: Profile, task: str) -> list[str]:
    """The graph in lines of plain words, for one task. Raises SettingsError for a model that is not
    in the profile's pool.
    """
    calls = [node for node in graph.nodes if get_role(node.role).calls_model]
    pool = profile.model_pool()
    models = ", ".join(
        f"{count} of {pool[model].words}"
        for model, count in sorted(Counter([n.model for n in calls]).items())
    )
    each = "in all branches" if graph.route else "a question"
    return [
        (
            f"{counted(len(graph.nodes), 'node')}, {counted(len(calls), 'model call')} {each}"
            f" ({models}); width {graph.width}, depth {graph.depth}; graph {graph.content_hash}"
        ),
        *ways(graph, pool),
        *_costs(graph, profile, task),
    ]


def ways(graph: CollaborationGraph, pool: ModelPool) -> Iterator[str]:
    """What happens step by step; of a route, in each of its branches."""
    if graph.route is None:
        yield from (f"step {step}: {what}" for step, what in steps(graph, pool))
        yield f"the final answer is that of node {graph.sink}, the {graph.node(graph.sink).role}"
        return
    router = graph.route.router
    learnt = router.data.get("learnt")
    known = f", learnt on {counted(learnt['questions'], 'question')}" if learnt else ""
    yield (
        f"node {graph.sink} (router, no model call) sends each question to one of"
        f" {router.branches} branches, by {'its text' if learnt else 'its ' + router.data['field']}"
        f"{known}"
    )
    for k, branch in enumerate(graph.branches):
        signs = ", ".join(map(repr, router.signs(k)))
        scored = ""
        if learnt:
            alone = learnt["alone"][k]
            scored = f"; alone it has {100 * alone:.1f} % of all questions right"
        yield (
            f"branch {k + 1} gets {100 * router.shares[k]:.0f} % of the questions: "
            f"{in_brief(branch, pool)}{f'; signs of it: {signs}' if signs else ''}{scored}"
        )
        if len(branch.nodes) > 1:
            yield from (f"step {step}: {what}" for step, what in steps(branch, pool))
    if learnt:
        yield (
            f"on questions that the router was not learnt on, in cross-validation, the route has"
            f" {100 * learnt['score']:.1f} % right, {100 * learnt['gain']:.1f} points (standard"
            f" error {100 * learnt['error']:.1f}) more than branch 1 alone, prices taken off"
        )


def steps(graph: CollaborationGraph, pool: ModelPool) -> Iterator[tuple[int, str]]:
    """For each set of nodes that do the same at the same time: the number of the step, and what
    they do.
    """
    for step, level in enumerate(graph.levels, 1):
        alike: dict[tuple[object, ...], list[int]] = {}
        for i in level:
            node = graph.node(i)
            key = (node.role, node.model, repr(node.settings), graph.predecessors[i])
            alike.setdefault(key, []).append(i)
        for ids in alike.values():
            yield step, _doing(graph, ids, pool)


def worth_of(graph: CollaborationGraph, nodes: pd.DataFrame) -> list[str]:
    """What each node was worth on the test questions, in lines of plain words, nodes alike in one;
    `nodes` has the columns of schemas.Nodes.
    """
    rows = {int(row["node"]): row for row in nodes.to_dict("records") if row["n_answers"]}
    sources = [i for i in graph.order if not graph.predecessors[i] and i in rows]
    lines = []
    by_model: dict[str, list[int]] = {}
    for i in sources:
        by_model.setdefault(str(rows[i]["model"]), []).append(i)
    for ids in by_model.values():
        own = sum(rows[i]["own_accuracy"] for i in ids) / len(ids)
        loss = sum(rows[i]["predicted_loss"] for i in ids) / len(ids)
        each = " each" if len(ids) > 1 else ""
        lines.append(
            f"{_named(ids)} {'are' if each else 'is'} right on {_percent(own)} of the questions"
            f"{each}{_without(ids, rows[ids[0]], loss)}"
        )
    for i in graph.order:
        row = rows.get(i)
        if row is None or i in sources:
            continue
        own = _percent(row["own_accuracy"])
        read = _percent(row["read_accuracy"])
        repaired = f"it repaired {row['repaired']} of {row['repairable']} questions"
        spoilt = f"spoilt {row['spoilt']} of {row['spoilable']}"
        lines.append(
            f"node {i} makes {own} right of {read} in what it reads: {repaired} where all of that"
            f" was wrong, and {spoilt} where all was right"
            f"{_without([i], row, row['predicted_loss'])}"
        )
    return lines


def _without(ids: Sequence[int], row: Mapping[Any, Any], loss: float) -> str:
    """What is predicted without one of these nodes; nothing where that is not known."""
    if math.isnan(loss):
        return ""
    without = "it" if len(ids) == 1 else "one of them"
    change = "lower" if loss >= 0 else "higher"
    spread = 100 * row["predicted_spread"]
    return (
        f"; without {without} the graph is predicted to score {abs(100 * loss):.1f} points {change}"
        f" (standard deviation {spread:.1f})"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _doing(graph: CollaborationGraph, ids: Sequence[int], pool: ModelPool) -> str:
    node = graph.node(ids[0])
    read = graph.reads[ids[0]]
    role = get_role(node.role)
    who = _named(ids) + (
        f" ({node.role}, {pool[node.model].words})"
        if role.calls_model
        else f" ({node.role}, no model call)"
    )
    each = "each " if len(ids) > 1 else ""
    if not read:
        return f"{who} {each}answer{'' if len(ids) > 1 else 's'} the question alone"
    top = f", at most {node.top_k} of them" if node.top_k else ""
    does = role.does or "its own way of answering"
    if node.waves:
        top += f", in waves of {', then '.join(map(str, node.waves))}"
        does += f", and stops {node.stop.words}"
    if not node.gate:
        return f"{who} {each}read{'' if len(ids) > 1 else 's'} {_named(read)}{top}: {does}"
    watched = graph.stages[node.id][0]
    where = f"only where {_named(watched)} disagree by more than {node.gate.over:g}"
    return (
        f"{who} {where} reads {_named(read)}{top}: {does}; elsewhere it takes their most frequent"
        " answer, without a call"
    )


def _costs(graph: CollaborationGraph, profile: Profile, task: str) -> Iterator[str]:
    budget = profile.budget
    dollars = profile.cost_model(task, "dollars")
    flops = None if dollars.pool.unknown else profile.cost_model(task, "flops")
    prompt = written = 0.0
    calls = [node for node in graph.nodes if get_role(node.role).calls_model]
    for node in calls:
        degree = len(graph.reads[node.id])
        reads = read_by(node, degree)
        lengths = dollars.lengths[node.model].reading(node.role)
        asked = graph.asked[node.id]
        prompt += asked * (lengths.prompt_tokens + reads * lengths.per_answer)
        written += asked * (lengths.generated_tokens + reads * lengths.more_tokens)
    units = profile.cost_model(task).graph_cost(graph)
    paid = f"${dollars.graph_cost(graph):.3g}, {prompt:,.0f} tokens read and {written:,.0f} written"
    if flops is None:  # of a closed model nobody knows them
        yield f"a question of {task} costs about {paid}"
    else:
        work = f"{flops.graph_cost(graph):.3g}"
        yield (
            f"a question of {task} costs about {flops.graph_cost(graph) * flops.unit:.3g} FLOPs,"
            f" {paid}; that is the work of {work} call{'' if work == '1' else 's'} of the cheapest"
            " model"
        )
    state = "within" if units <= budget.limit else "OVER"
    if graph.route is not None:
        most = max(profile.cost_model(task).graph_cost(branch) for branch in graph.branches)
        state = "within" if most <= budget.limit or budget.limits == "mean" else "OVER"
        yield (
            f"that is the mean over the questions that the router was learnt on: {units:.3g}"
            f" {UNIT_NAMES[budget.metric]}, {most:.3g} in the dearest branch; {state} the budget of"
            f" {budget.limit:g}"
        )
    elif graph.adaptive or budget.limits == "mean":
        yield from _worst_and_mean(units, budget)
    else:
        yield f"{state} the budget: {units:.3g} of {budget.limit:g} {UNIT_NAMES[budget.metric]}"
    yield f"where the money goes: {_shares(graph, dollars)}"
    if flops is not None:
        yield f"where the work goes: {_shares(graph, flops)}"


def _worst_and_mean(units: float, budget: BudgetSettings) -> Iterator[str]:
    """What the budget limits, of a graph whose questions may take less than the worst of them."""
    unit = UNIT_NAMES[budget.metric]
    yield (
        f"that is the worst case: at most {units:.3g} {unit} a question, and less where a vote"
        " stops or a gate stays closed"
    )
    if budget.limits == "mean":
        yield f"the budget limits what a question costs on average: {budget.limit:g} {unit}"
    else:
        state = "within" if units <= budget.limit else "OVER"
        yield (
            f"{state} the budget, which limits the worst case: {units:.3g} of {budget.limit:g}"
            f" {unit}"
        )


def _shares(graph: CollaborationGraph, cost: CostModel) -> str:
    """Each model's share of a cost, the largest first, and the dearest node."""
    costs = {
        node.id: graph.asked[node.id] * cost.node_cost(node, len(graph.reads[node.id]))
        for node in graph.nodes
    }
    whole = math.fsum(costs.values())
    if whole == 0:
        return "nothing is paid"
    models: dict[str, float] = {}
    for node in graph.nodes:
        if costs[node.id]:
            models[node.model] = models.get(node.model, 0.0) + costs[node.id]
    ranked = sorted(models.items(), key=lambda item: -item[1])
    dearest = max(costs, key=lambda i: costs[i])
    shares = ", ".join(
        f"{100 * part / whole:.0f} % {cost.pool[model].words}" for model, part in ranked
    )
    return f"{shares}; the dearest node is {dearest}, {100 * costs[dearest] / whole:.0f} %"


def _named(ids: Sequence[int]) -> str:
    """ "node 4", "nodes 0, 1 and 2", "7 nodes (0 to 9)"."""
    if len(ids) == 1:
        return f"node {ids[0]}"
    if len(ids) > MOST_NAMED:
        return f"{len(ids)} nodes ({ids[0]} to {ids[-1]})"
    return f"nodes {', '.join(map(str, ids[:-1]))} and {ids[-1]}"


SPELLED = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]


def in_brief(graph: CollaborationGraph, pool: ModelPool) -> str:
    """The graph in a few words: "five calls of a and one of b that decides", "three calls of a and
    their majority".
    """
    if graph.route is not None:
        ways = [
            f"{in_brief(branch, pool)} for {100 * share:.0f} % of the questions"
            for branch, share in zip(graph.branches, graph.route.router.shares, strict=True)
        ]
        return f"a router: {', '.join(ways)}"
    sink = graph.node(graph.sink)
    before = [
        node for node in graph.nodes if node.id != sink.id and get_role(node.role).calls_model
    ]
    if not before:
        return f"one call of {pool[sink.model].words}"
    ranked = sorted(Counter([node.model for node in before]).items(), key=lambda item: -item[1])
    parts = [
        f"{_spelled(count)}{' of' if k else _calls(count)} {pool[model].words}"
        for k, (model, count) in enumerate(ranked)
    ]
    if sink.stop == PASSED:
        return f"up to {', '.join(parts)}, one after another until one passes the check"
    alone = {node.model for node in before} == {sink.model}
    last = "one more" if alone else f"one of {pool[sink.model].words}"
    if not get_role(sink.role).calls_model:
        role = get_role(sink.role)
        whose = "a" if not role.ends else "the" if role.checks else "their"
        ending = f"{whose} {role.ending('')}"
    elif graph.depth == len(graph.nodes):  # a chain: each node reads the one before
        ending = f"{last} that has the last word"
    else:
        ending = f"{last} that decides"
    steps = f", in {_spelled(graph.depth)} steps" if graph.depth > 2 else ""
    return f"{', '.join(parts)} and {ending}{steps}"


def _spelled(count: int) -> str:
    return SPELLED[count] if count < len(SPELLED) else str(count)


def _calls(count: int) -> str:
    return " call of" if count == 1 else " calls of"


def drawn(graph: CollaborationGraph, pool: ModelPool) -> list[str]:
    """The graph in characters: levels from left to right, nodes that do the same as one; else its
    steps in words.

    In characters only where each level reads all of the level before it, and nothing else, whatever
    is answered.
    """
    if graph.route is not None:
        return list(ways(graph, pool))
    if graph.adaptive or not _layered(graph):
        return [f"step {step}: {what}" for step, what in steps(graph, pool)]
    lines = _joined("question", [_labels(graph, ids, pool) for ids in graph.levels])
    return [line.rstrip() for line in lines]


def _layered(graph: CollaborationGraph) -> bool:
    before: tuple[int, ...] = ()
    for level in graph.levels:
        if any(set(graph.predecessors[i]) != set(before) for i in level):
            return False
        before = level
    return True


def _labels(graph: CollaborationGraph, ids: Sequence[int], pool: ModelPool) -> list[str]:
    """What stands in a level: each kind of node once, with how many there are."""
    kinds: dict[str, int] = {}
    for i in ids:
        node = graph.node(i)
        role = get_role(node.role)
        what = pool[node.model].words if role.calls_model else node.role
        label = f"{SIGNS[role.outline]} {what}"
        kinds[label] = kinds.get(label, 0) + 1
    return [f"{count} × {label}" if count > 1 else label for label, count in kinds.items()]


def _joined(start: str, columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns of labels side by side, joined by lines."""
    height = max(len(labels) for labels in columns)
    lines = [start + " "] + [" " * (len(start) + 1)] * (height - 1)
    for labels in columns:
        widest = max(map(len, labels))
        last = len(labels) - 1
        for k in range(height):
            if k > last:
                lines[k] += " " * (widest + 7)
                continue
            left = ("─" if last == 0 else "┬") if k == 0 else "└" if k == last else "├"
            right = ("─" if last == 0 else "┐") if k == 0 else "┘" if k == last else "┤"
            padded = f"{labels[k]} ".ljust(widest + 1, "─")
            lines[k] += f"{'─' if k == 0 else ' '}{left}▶ {padded}─{right}"
    lines[0] += "▶ answer"
    return lines
