"""Prompt tables about the pool, the distribution and the search so far. A table is a list of
entries, the most informative first; a prompt includes as many of them as its tokens allow.
"""

import heapq
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby, product
from statistics import fmean

from ttsgraph.base.arrays import FloatArray
from ttsgraph.evaluation.environment import NodeResult, QuestionResult, short_form
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import get_role
from ttsgraph.models.client import estimate_tokens
from ttsgraph.searching.agent.answers import edge_probabilities
from ttsgraph.searching.agent.base import Brief, Edge, History, ScoredGraph, Trial, in_words

BEST_SHOWN = 3
READ_SHOWN = 4
LEAST = 0.005
"""Smallest probability that a table shows."""

PASSING = 0.5
"""Grade above which an answer counts as right."""

QUOTED = 120
"""Maximum number of characters shown of a question or an answer."""

_MARKUP = re.compile(r"[`<>{}#]")


def fitting(entries: Sequence[str], room: int) -> int:
    """Return how many of the first entries, each on its own line, fit into `room` tokens."""
    sizes = accumulate(estimate_tokens(f"{entry}\n") for entry in entries)
    return sum(size <= room for size in sizes)


def fitted(tables: Mapping[str, Sequence[str]], room: int) -> dict[str, str]:
    """Return the texts of tables that share `room` tokens: small tables are complete, and large
    tables get equal shares of the rest. A table that was cut ends in a line with the number of
    missing entries; this line is not counted in `room`.
    """
    found = {}
    ordered = sorted(tables.items(), key=lambda table: estimate_tokens("\n".join([*table[1], ""])))
    for k, (name, rows) in enumerate(ordered):
        kept = fitting(rows, room // (len(tables) - k))
        room -= sum(estimate_tokens(f"{row}\n") for row in rows[:kept])
        more = [f"({len(rows) - kept} more)"] if kept < len(rows) else []
        found[name] = "\n".join([*rows[:kept], *more])
    return found


def pool_table(brief: Brief, models: Iterable[str]) -> list[str]:
    """Return facts about models: family, size, accuracy of a single call, and the price of a call
    in budget units.
    """
    lines = []
    for model in models:
        spec = brief.cost.pool[model]
        size = [] if spec.total is None else [f"{spec.total / 1e9:.3g}B parameters"]
        facts = [f"family {spec.family}", *size, *([spec.variant.words] if spec.variant else [])]
        alone = _known(brief.single_scores.get(model, math.nan))
        price = f"{brief.cost.single(model):.4g} a call"
        lines.append(f"{model}: {', '.join(facts)}, accuracy alone {alone}, {price}")
    return lines


def trial_table(trials: Sequence[Trial]) -> list[str]:
    """Return the tried model multisets, best first."""
    ranked = sorted(trials, key=lambda trial: _rank(trial.score))
    return [f"{in_words(t.counts)}: {_known(t.score)} ({t.n_scored} answers)" for t in ranked]


def pilot_table(brief: Brief) -> list[str]:
    """Return the pilot's graphs within the budget, best first, followed by the graphs over the
    budget.
    """

    def over(scored: ScoredGraph) -> bool:
        return brief.cost.graph_cost(scored.graph) > brief.budget.limit

    lines = []
    for scored in sorted(brief.pilot, key=lambda scored: (over(scored), _rank(scored.value))):
        models = in_words(scored.graph.model_counts())
        last = scored.graph.node(scored.graph.sink).role
        beyond = ", over the budget" if over(scored) else ""
        lines.append(f"{models}, last a {last}: {_result(scored, brief)}{beyond}")
    return lines


def update_tables(
    distribution: GraphDistribution, history: History, brief: Brief, evidence: bool
) -> dict[str, list[str]]:
    """Return the tables of the update prompt by name."""
    newest = (each for each in history if each.iteration == history[-1].iteration)
    latest = sorted(newest, key=lambda scored: _rank(scored.value))
    sampled = {edge for scored in latest for edge in scored.graph.edges}
    edges = sorted(
        edge_probabilities(distribution).items(),
        key=lambda edge: (edge[0] not in sampled, -edge[1], edge[0]),
    )
    return {
        "nodes": _choices(distribution, distribution.models, distribution.model_probabilities()),
        "last_round": [_candidate(scored, brief) for scored in latest],
        "edges": [f"{a}->{b} {p:.2f}" for (a, b), p in edges],
        "role_table": _choices(distribution, distribution.roles, distribution.role_preferences()),
        "history": _summaries(history, brief),
        "evidence": _evidence(history, brief) if evidence else [],
    }


Reading = tuple[Sequence[float], float]
"""Grades of the answers that a node reads, and grade of the node's own answer."""


def _effect(readings: Sequence[Reading]) -> tuple[str, int]:
    """Return as text how many questions were repaired, of those that could be because all inputs
    were wrong, and how many were broken, of those whose inputs were all right; and the difference.
    """
    repaired = [after > PASSING for before, after in readings if max(before) <= PASSING]
    spoilt = [after <= PASSING for before, after in readings if min(before) > PASSING]
    counts = f"repaired {sum(repaired)} of {len(repaired)}, spoilt {sum(spoilt)} of {len(spoilt)}"
    return f"{len(readings)} answers, {counts}", sum(repaired) - sum(spoilt)


def _evidence(history: History, brief: Brief) -> list[str]:
    """Return lines with the numbers of questions that roles and edges repaired and broke, with the
    first example of each kind from the latest round. The role of a model is counted by model.
    """
    roles: dict[str, list[Reading]] = defaultdict(list)
    edges: dict[Edge, list[Reading]] = defaultdict(list)
    found: list[tuple[bool, str]] = []
    for known in history:
        graph, examples = known.graph, dict[bool, str]()
        for node, result in product(map(graph.node, graph.order), known.results):
            said, read = result.nodes.get(node.id), graph.heard(node.id, result.nodes)
            if result.correct is None or said is None or not read:
                continue
            for source in graph.predecessors[node.id]:
                if source in result.nodes:
                    edges[source, node.id].append(([result.nodes[source].correct], said.correct))
            grades = [each.correct for each in read]
            calls = get_role(node.role).calls_model
            name = f"{node.role} of {node.model}" if calls else node.role
            roles[name].append((grades, said.correct))
            right = said.correct > PASSING
            if {grade > PASSING for grade in grades} == {not right} and right not in examples:
                examples[right] = _example(node, result, read, said, brief)
        if known.iteration == history[-1].iteration:
            found += examples.items()
    lines = []
    for name, readings in sorted(roles.items(), key=lambda item: -len(item[1])):
        before = sum(sum(grades) / len(grades) for grades, _ in readings) / len(readings)
        after = sum(grade for _, grade in readings) / len(readings)
        where = f"right {after:.2f} where an answer that it reads is {before:.2f}"
        lines.append(f"{name}: {_effect(readings)[0]}, {where}")
    lines += dict(reversed(found)).values()
    # edges with the largest difference between repaired and broken questions come first
    telling = [(edge, *_effect(readings)) for edge, readings in edges.items()]
    telling.sort(key=lambda each: (-abs(each[2]), each[0]))
    return lines + [f"edge {a}->{b}: {effect}" for (a, b), effect, _ in telling]


def _example(
    node: Node, result: QuestionResult, read: Sequence[NodeResult], said: NodeResult, brief: Brief
) -> str:
    """Return an example on one line. Questions and models' answers are cut and written as JSON
    strings without line breaks, so that nothing in them can look like a part of the prompt.
    """
    what = "repaired" if said.correct > PASSING else "spoilt"
    shown = ", ".join(quoted(short_form(each.form)) for each in read[:READ_SHOWN])
    question = brief.questions.get(result.question_id, result.question_id)
    return (
        f"example, {what} by node {node.id} ({node.role}): question {quoted(question)},"
        f" read {len(read)} answers, {shown}, answered {quoted(short_form(said.form))}"
    )


def quoted(text: str) -> str:
    """Return a text by a user or a model as an ASCII JSON string of limited length, with backticks,
    braces and other markup escaped.
    """
    plain = " ".join(text.split())
    cut = plain if len(plain) <= QUOTED else f"{plain[: QUOTED - 3]}..."
    return _MARKUP.sub(lambda sign: f"\\u{ord(sign.group()):04x}", json.dumps(cut))


def _choices(distribution: GraphDistribution, names: Sequence[str], table: FloatArray) -> list[str]:
    """Return lines with the probabilities of roles or models at each node: first the sink, then the
    other nodes in descending order of their highest probability. `table` has one row per node and
    one column per name.
    """
    *others, sink = zip(distribution.ids, table.tolist(), strict=True)
    others.sort(key=lambda node: -max(node[1]))
    return _grouped(
        (i, " ".join(f"{name} {p:.2f}" for name, p in zip(names, row, strict=True) if p >= LEAST))
        for i, row in (sink, *others)
    )


def _grouped(texts: Iterable[tuple[int, str]]) -> list[str]:
    """Return lines of node ids and their text; nodes with the same text share a line, with their
    ids as ranges: 0-3, 7.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for i, text in texts:
        groups[text].append(i)
    return [f"{_ranges(sorted(ids))}: {text}" for text, ids in groups.items()]


def _ranges(ids: Sequence[int]) -> str:
    runs = groupby(enumerate(ids), lambda place: place[1] - place[0])
    ends = [[i for _, i in run] for _, run in runs]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in ends)


def _summaries(history: Sequence[ScoredGraph], brief: Brief) -> list[str]:
    """Return one line for each of the best candidates, then a summary line for each shape and each
    round, the highest mean first.
    """
    best = heapq.nsmallest(BEST_SHOWN, history, key=lambda scored: _rank(scored.value))
    groups: dict[str, list[float]] = defaultdict(list)
    for scored in history:
        if not math.isnan(scored.value):
            groups[_shape(scored.graph)].append(scored.value)
            groups[f"round {scored.iteration}"].append(scored.value)
    means = {name: fmean(values) for name, values in groups.items()}
    return [f"best: {_candidate(scored, brief)}" for scored in best] + [
        f"{name}: {len(groups[name])} candidates, mean {mean:.3f}, best {max(groups[name]):.3f}"
        for name, mean in sorted(means.items(), key=lambda item: -item[1])
    ]


def _candidate(scored: ScoredGraph, brief: Brief) -> str:
    edges = " ".join(f"{a}->{b}" for a, b in scored.graph.edges) or "none"
    nodes = _grouped((node.id, f"{node.role} {node.model}") for node in scored.graph.nodes)
    return "; ".join([_result(scored, brief), f"edges {edges}", *nodes])


def _result(scored: ScoredGraph, brief: Brief) -> str:
    """Return the score, shape and cost of a graph as text."""
    right = f"{scored.n_correct:.6g} of {scored.n_scored} right"
    if brief.objective.joint and not math.isnan(scored.latency_s):
        right = f"value {scored.value:.3f} ({right}, {scored.latency_s:.3g} s a question)"
    return f"{right}, {_shape(scored.graph)}, cost {brief.cost.graph_cost(scored.graph):.4g}"


def _shape(graph: CollaborationGraph) -> str:
    return f"width {graph.width}, depth {graph.depth}"


def _known(score: float) -> str:
    return "not scored" if math.isnan(score) else f"{score:.3f}"


def _rank(value: float) -> float:
    """Return a sort key that puts the best value first and unknown values last."""
    return math.inf if math.isnan(value) else -value
