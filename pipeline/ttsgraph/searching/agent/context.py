"""Tables for an agent about the pool, the distribution and the search so far, within a number of
tokens.

Each table is a list of entries, the most informative first, with a share of the tokens; unused
tokens go to the next table. Entries that don't fit are left out and summed up in one line. The
order is: the best graphs (of the pilot those within the budget), edges sampled in the last round
and then the most likely ones, the sink and the nodes with the most learned roles, and roles and
edges by the absolute difference of repaired and broken questions.
"""

from __future__ import annotations

import heapq
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import numpy as np

from ttsgraph.base.arrays import FloatArray
from ttsgraph.graphs.distribution import GraphDistribution
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.client import estimate_tokens
from ttsgraph.searching.agent.base import (
    Brief,
    Example,
    History,
    ScoredGraph,
    Tally,
    Trial,
    in_words,
)

BEST_SHOWN = 3
READ_SHOWN = 4
QUOTED = 120
"""Characters shown of a question or an answer."""

_MARKUP = re.compile(r"[`<>{}#]")


def fit(
    entries: Sequence[str], room: int, rest: str | Callable[[int], str] = "", separator: str = "\n"
) -> str:
    """First entries that fit into `room` tokens, and a line with the number of the others: with
    `rest` after it, or the text of `rest(kept)`.
    """

    def left_out(kept: int) -> str:
        return f"({len(entries) - kept} more{rest})" if isinstance(rest, str) else rest(kept)

    sizes = [estimate_tokens(entry + separator) for entry in entries]
    if sum(sizes) <= room:
        return separator.join(entries)
    left = room - estimate_tokens(left_out(len(entries)) + separator)
    kept = 0
    while kept < len(entries) and sizes[kept] <= left:
        left -= sizes[kept]
        kept += 1
    return separator.join([*entries[:kept], left_out(kept)])


def pool_table(brief: Brief, models: Sequence[str], room: int) -> str:
    """Facts about models: family, size, accuracy of a single call, its price in budget units."""
    lines = []
    for model in models:
        spec = brief.cost.pool[model]
        score = brief.single_scores.get(model, math.nan)
        alone = "not scored" if math.isnan(score) else f"{score:.3f}"
        size = [] if spec.total is None else [f"{spec.total / 1e9:.3g}B parameters"]
        facts = [f"family {spec.family}", *size, *([spec.variant.words] if spec.variant else [])]
        lines.append(
            f"{model}: {', '.join(facts)}, accuracy alone {alone}, {brief.cost.single(model):.4g} a"
            " call"
        )
    return fit(lines, room, " models")


def trial_table(trials: Sequence[Trial], room: int) -> str:
    """Tried model multisets, best first."""
    ranked = sorted(trials, key=lambda t: -1.0 if math.isnan(t.score) else t.score, reverse=True)
    lines = []
    for trial in ranked:
        score = "not scored" if math.isnan(trial.score) else f"{trial.score:.3f}"
        lines.append(f"{in_words(trial.counts)}: {score} ({trial.n_scored} answers)")
    return fit(lines, room, ", none better") if lines else "(none)"


def pilot_table(brief: Brief, room: int) -> str:
    """Scores of the pilot's graphs; "" without a pilot."""
    if not brief.pilot:
        return ""
    costs = [brief.cost.graph_cost(scored.graph) for scored in brief.pilot]
    ranked = sorted(
        zip(brief.pilot, costs, strict=True),
        key=lambda pair: (pair[1] > brief.budget.limit, _rank(pair[0])),
    )
    lines = []
    for scored, cost in ranked:
        graph = scored.graph
        models = in_words(dict(sorted(graph.model_counts().items())))
        beyond = ", over the budget" if cost > brief.budget.limit else ""
        shape = f"width {graph.width}, depth {graph.depth}, last a {graph.node(graph.sink).role}"
        lines.append(f"{models}, {shape}: {_score(scored, brief)}, cost {cost:.4g}{beyond}")
    return fit(lines, room, ", worse or over the budget")


def update_tables(
    distribution: GraphDistribution,
    history: History,
    brief: Brief,
    room: int,
    evidence: bool = True,
) -> dict[str, str]:
    """Tables of the update prompt by name, together within `room` tokens; the evidence table is
    empty if disabled or without evidence.
    """
    open_models = bool(distribution.open_models().any())
    roles = distribution.role_preferences()
    latest = sorted((history[k] for k in history.latest), key=_rank)
    last = [_candidate(scored, brief, open_models) for scored in latest]
    evidence_text = evidence_table(history, brief, room // 6) if evidence else ""
    room -= estimate_tokens(evidence_text)
    parts: list[tuple[str, float, Callable[[int], str]]] = [
        ("nodes", 0.15, lambda r: _nodes(distribution, brief, r, open_models)),
        ("last_round", 0.3, lambda r: fit(last, r, ", none better")),
        ("edges", 0.3, lambda r: _edges(distribution, history, r)),
        ("role_table", 0.1, lambda r: _probabilities(distribution, distribution.roles, roles, r)),
        ("history", 0.15, lambda r: _history(history, brief, r, open_models)),
    ]
    found = {"evidence": evidence_text}
    unused = 0
    for name, share, table in parts:
        allowed = int(share * room) + unused
        found[name] = table(allowed)
        unused = max(0, allowed - estimate_tokens(found[name]))
    return found


def evidence_table(history: History, brief: Brief, room: int) -> str:
    """Repaired and broken questions of roles and edges, with two examples; "" without
    such counts.
    """
    if not history.roles:
        return ""
    rank = sorted(history.roles.items(), key=lambda item: -item[1].answers)
    lines = [
        f"{' of '.join(filter(None, key))}: {_tally(tally)},"
        f" right {tally.after / tally.answers:.2f}"
        f" where an answer that it reads is {tally.before / tally.answers:.2f}"
        for key, tally in rank
    ]
    latest = [example for k in history.latest for example in history[k].tallies.examples]
    first = (
        next((e for e in latest if e.repaired == repaired), None) for repaired in (True, False)
    )
    examples = [_example(example, brief) for example in first if example]
    room -= sum(estimate_tokens(entry + "\n") for entry in examples)
    # the clearest differences come first
    telling = sorted(
        history.edges.items(), key=lambda item: (-abs(item[1].repaired - item[1].spoilt), item[0])
    )
    lines += [f"edge {a}->{b}: {_tally(tally)}" for (a, b), tally in telling]
    shown = fit(lines, room)
    return "\n".join([shown, *examples])


def _tally(tally: Tally) -> str:
    return (
        f"{tally.answers} answers, repaired {tally.repaired} of {tally.repairable}, spoilt"
        f" {tally.spoilt} of {tally.spoilable}"
    )


def _example(example: Example, brief: Brief) -> str:
    """A question on one line. Texts of questions and models are written as JSON strings, without
    line breaks and cut: nothing in them can look like a part of the prompt.
    """
    what = "repaired" if example.repaired else "spoilt"
    read = ", ".join(map(quoted, example.read[:READ_SHOWN]))
    more = f" and {len(example.read) - READ_SHOWN} more" if len(example.read) > READ_SHOWN else ""
    question = brief.questions.get(example.question_id, example.question_id)
    return (
        f"example, {what} by node {example.node} ({example.role}): question {quoted(question)},"
        f" read {read}{more}, answered {quoted(example.said)}"
    )


def quoted(text: str) -> str:
    """Quote a text by a user or a model as a JSON string of bounded length in ASCII, without
    backticks, braces or markup.
    """
    plain = " ".join(text.split())
    cut = plain if len(plain) <= QUOTED else f"{plain[: QUOTED - 3]}..."
    return _MARKUP.sub(lambda sign: f"\\u{ord(sign.group()):04x}", json.dumps(cut))


def _nodes(distribution: GraphDistribution, brief: Brief, room: int, open_models: bool) -> str:
    """Models of the nodes, or their model probabilities if these are open."""
    if open_models:
        table = distribution.model_probabilities()
        return _probabilities(distribution, distribution.models, table, room)
    nodes = zip(distribution.ids, distribution.assigned, strict=True)
    entries = [
        f"{_ranges([i for i, _ in run])}: {model} ({brief.cost.single(model):.4g} a call"
        " without incoming edges)"
        for model, run in groupby(nodes, key=lambda node: node[1])
    ]
    entries.reverse()
    return fit(entries, room, " groups of nodes")


def _ranges(ids: Sequence[int]) -> str:
    """Ascending numbers with runs as ranges: 0-3, 7."""
    runs: list[list[int]] = []
    for i in ids:
        if runs and i == runs[-1][-1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _edges(distribution: GraphDistribution, history: History, room: int) -> str:
    table = distribution.edge_probabilities()
    sampled = {edge for k in history.latest for edge in history[k].graph.edges}
    ids = distribution.ids
    rows, columns = np.nonzero(distribution.forward)
    known = [
        ((ids[a], ids[b]), float(table[a, b]))
        for a, b in zip(rows.tolist(), columns.tolist(), strict=True)
    ]
    ordered = sorted(known, key=lambda edge: (edge[0] not in sampled, -edge[1], edge[0]))
    entries = [f"{a}->{b} {p:.2f}" for (a, b), p in ordered]

    def rest(kept: int) -> str:
        left = [p for _, p in ordered[kept:]] or [0.0]
        return (
            f"and {len(ordered) - kept} more, {min(left):.2f} to {max(left):.2f},"
            f" {sum(left) / len(left):.2f} on average"
        )

    return fit(entries, room, rest, ", ") if entries else "(no edge is possible)"


def _probabilities(
    distribution: GraphDistribution, names: Sequence[str], table: FloatArray, room: int
) -> str:
    """Nodes with (n, names) probabilities, equal ones grouped, the sink and the most
    learned first.
    """
    order = sorted(
        range(distribution.n), key=lambda row: (row != distribution.n - 1, -float(table[row].max()))
    )
    groups: dict[str, list[int]] = defaultdict(list)
    for row in order:
        text = " ".join(
            f"{name} {p:.2f}" for name, p in zip(names, table[row].tolist(), strict=True)
        )
        groups[text].append(distribution.ids[row])
    lines = [f"{_ranges(sorted(ids))}: {text}" for text, ids in groups.items()]
    return fit(lines, room, " groups of nodes")


def _history(history: Sequence[ScoredGraph], brief: Brief, room: int, open_models: bool) -> str:
    best = heapq.nsmallest(BEST_SHOWN, history, key=_rank)
    lines = [f"best: {_candidate(scored, brief, open_models)}" for scored in best]
    shapes: dict[tuple[int, int], list[ScoredGraph]] = defaultdict(list)
    rounds: dict[int, list[ScoredGraph]] = defaultdict(list)
    for scored in history:
        shapes[scored.graph.width, scored.graph.depth].append(scored)
        rounds[scored.iteration].append(scored)
    by_mean = sorted(shapes.items(), key=lambda item: -_mean(item[1]))
    lines += [f"width {w}, depth {d}: {_summary(group)}" for (w, d), group in by_mean]
    lines += [f"round {k}: {_summary(rounds[k])}" for k in sorted(rounds, reverse=True)]
    return fit(lines, room, f" lines; {len(history)} candidates in all")


def _rank(scored: ScoredGraph) -> float:
    """Sort key for best first, under the search's objective."""
    return math.inf if math.isnan(scored.value) else -scored.value


def _mean(group: Sequence[ScoredGraph]) -> float:
    """Mean value of a question."""
    valued = [scored for scored in group if not math.isnan(scored.value)]
    count = sum(scored.n_scored for scored in valued)
    return sum(scored.value * scored.n_scored for scored in valued) / max(1, count)


def _summary(group: Sequence[ScoredGraph]) -> str:
    best = min(group, key=_rank).value
    return f"{len(group)} candidates, mean {_mean(group):.3f}, best {best:.3f}"


def _candidate(scored: ScoredGraph, brief: Brief, open_models: bool) -> str:
    graph = scored.graph
    head = f"{_score(scored, brief)}, width {graph.width}, depth {graph.depth}"
    return f"{head}, cost {brief.cost.graph_cost(graph):.4g}; {_wiring(graph, open_models)}"


def _score(scored: ScoredGraph, brief: Brief) -> str:
    right = f"{scored.n_correct:.6g} of {scored.n_scored} right"
    if not brief.joint or math.isnan(scored.latency_s):
        return right
    return f"value {scored.value:.3f} ({right}, {scored.latency_s:.3g} s a question)"


def _wiring(graph: CollaborationGraph, open_models: bool) -> str:
    edges = " ".join(f"{a}->{b}" for a, b in graph.edges) or "none"
    parts = [f"edges {edges}", *_grouped({str(node.id): node.role for node in graph.nodes})]
    if open_models:
        parts += _grouped({str(node.id): node.model for node in graph.nodes})
    return "; ".join(parts)


def _grouped(names: Mapping[str, str]) -> list[str]:
    """Names with their nodes, from node -> name."""
    groups: dict[str, list[str]] = defaultdict(list)
    for i, name in names.items():
        groups[name].append(i)
    return [f"{name} {' '.join(ids)}" for name, ids in sorted(groups.items())]
