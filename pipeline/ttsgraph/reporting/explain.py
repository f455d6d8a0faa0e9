"""Description of a graph as text: its size, what it does with a question, and what that costs."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from finalanswer.formulas import NUMERALS
from ttsgraph.base.wording import counted
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import get_role
from ttsgraph.graphs.stopping import PASSED
from ttsgraph.pool.spec import ModelPool
from ttsgraph.reporting.units import unit_of
from ttsgraph.settings.profile import Profile

MOST_NAMED = 6
"""Maximum number of nodes named one by one; larger groups are given as a range."""


def explain(graph: CollaborationGraph, profile: Profile, task: str) -> list[str]:
    """Return lines that describe a graph for one task. Raises SettingsError for a model that isn't
    in the profile's pool.
    """
    pool = profile.model_pool()
    models = sorted(node.model for node in graph.nodes if get_role(node.role).calls_model)
    calls = ", ".join(f"{count} of {pool[name].words}" for name, count in Counter(models).items())
    each = "in all branches" if graph.route else "a question"
    first = (
        f"{counted(len(graph.nodes), 'node')}, {counted(len(models), 'model call')} {each}"
        f" ({calls}); width {graph.width}, depth {graph.depth}; graph {graph.content_hash}"
    )
    return [first, *ways(graph, pool), *_costs(graph, profile, task)]


def ways(graph: CollaborationGraph, pool: ModelPool) -> Iterator[str]:
    """Yield lines that describe the steps of a graph or, if it has a route, of each branch."""
    if graph.route is None:
        yield from steps(graph, pool)
        yield f"the final answer is that of node {graph.sink}, the {graph.node(graph.sink).role}"
        return
    router = graph.route.router
    learnt = router.data.get("learnt")
    how = "its text" if router.learnt else "a hash of its text"
    known = f", learnt on {counted(learnt['questions'], 'question')}" if learnt else ""
    yield (
        f"node {graph.sink} (router, no model call) sends each question to one of"
        f" {router.branches} branches, by {how}{known}"
    )
    for k, branch in enumerate(graph.branches):
        line = f"branch {k + 1} gets {100 * router.shares[k]:.0f} % of the questions: "
        line += in_brief(branch, pool)
        if learnt:
            line += f"; alone it has {100 * learnt['alone'][k]:.1f} % of all questions right"
        yield line
        if len(branch.nodes) > 1:
            yield from steps(branch, pool)
    if learnt:
        yield (
            f"on each question as one that the router was not learnt on, the route has"
            f" {100 * learnt['score']:.1f} % right"
        )


def steps(graph: CollaborationGraph, pool: ModelPool) -> Iterator[str]:
    """Yield a line for each group of nodes that do the same in one step."""
    for step, level in enumerate(graph.levels, 1):
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for i in level:
            node = graph.node(i)
            alike[node.role, node.model, repr(node.settings), graph.predecessors[i]].append(i)
        for ids in alike.values():
            yield f"step {step}: {_doing(graph, ids, pool)}"


def _doing(graph: CollaborationGraph, ids: Sequence[int], pool: ModelPool) -> str:
    node = graph.node(ids[0])
    read = graph.reads[ids[0]]
    role = get_role(node.role)
    model = pool[node.model].words if role.calls_model else "no model call"
    who = f"{_named(ids)} ({node.role}, {model})"
    each, s = ("each ", "") if len(ids) > 1 else ("", "s")
    if not read:
        return f"{who} {each}answer{s} the question alone"
    waves = ""
    does = role.does or "its own way of answering"
    if node.waves:
        waves = f", in waves of {', then '.join(map(str, node.waves))}"
        does += f", and stops {node.stop.words}"
    if not node.gate:
        return f"{who} {each}read{s} {_named(read)}{waves}: {does}"
    watched = graph.stages[node.id][0]
    where = f"only where {_named(watched)} disagree by more than {node.gate.over:g}"
    return (
        f"{who} {where} reads {_named(read)}{waves}: {does}; elsewhere it takes their most frequent"
        " answer, without a call"
    )


def _costs(graph: CollaborationGraph, profile: Profile, task: str) -> Iterator[str]:
    """Yield the cost of a question in dollars, and in the budget's units, whether it is within the
    budget.
    """
    dollars = profile.cost_model(task, "dollars").graph_cost(graph)
    yield f"a question of {task} costs about ${dollars:.3g}"
    budget = profile.budget
    cost = profile.cost_model(task)
    most = max(cost.graph_cost(branch) for branch in graph.branches)
    known = f"{cost.graph_cost(graph):.3g} {unit_of(budget.metric).name} of {budget.limit:g}"
    if graph.route is not None:
        known += f" on average, {most:.3g} in the most expensive branch"
    elif graph.adaptive:
        known += " at most, and less where a vote stops or a gate stays closed"
    if budget.limits == "mean":
        yield f"the budget limits the mean cost of a question: {known}"
    else:
        yield f"{'within' if most <= budget.limit else 'OVER'} the budget: {known}"


def _named(ids: Sequence[int]) -> str:
    """Return names such as "node 4", "nodes 0, 1 and 2" or "7 nodes (0 to 9)"."""
    if len(ids) == 1:
        return f"node {ids[0]}"
    if len(ids) > MOST_NAMED:
        return f"{len(ids)} nodes ({ids[0]} to {ids[-1]})"
    return f"nodes {', '.join(map(str, ids[:-1]))} and {ids[-1]}"


def in_brief(graph: CollaborationGraph, pool: ModelPool) -> str:
    """Return a description of the graph in a few words, such as "five calls of a and one of b that
    decides" or "three calls of a and their majority".
    """
    if graph.route is not None:
        branches = zip(graph.branches, graph.route.router.shares, strict=True)
        each = [f"{in_brief(b, pool)} for {100 * s:.0f} % of the questions" for b, s in branches]
        return f"a router: {', '.join(each)}"
    sink = graph.node(graph.sink)
    calls = [n for n in graph.nodes if n.id != sink.id and get_role(n.role).calls_model]
    before = Counter(node.model for node in calls)
    if not before:
        return f"one call of {pool[sink.model].words}"
    ranked = before.most_common()
    parts = [f"{_spelled(count)} of {pool[model].words}" for model, count in ranked]
    parts[0] = parts[0].replace(" of ", " call of " if ranked[0][1] == 1 else " calls of ", 1)
    if sink.stop == PASSED:
        return f"up to {', '.join(parts)}, one after another until one passes the check"
    last = "one more" if before.keys() == {sink.model} else f"one of {pool[sink.model].words}"
    role = get_role(sink.role)
    if not role.calls_model:
        whose = "a" if not role.ends else "the" if role.checks else "their"
        ending = f"{whose} {role.ending('')}"
    elif graph.depth == len(graph.nodes):  # a chain: each node reads the one before
        ending = f"{last} that has the last word"
    else:
        ending = f"{last} that decides"
    taken = f", in {_spelled(graph.depth)} steps" if graph.depth > 2 else ""
    return f"{', '.join(parts)} and {ending}{taken}"


def _spelled(count: int) -> str:
    return NUMERALS[count] if count < len(NUMERALS) else str(count)
