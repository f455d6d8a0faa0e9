"""What stop rules save, on recorded draws of a real model and in the calibrated simulated worlds:
calls against those of the whole vote, and points lost.

    python -m lab.benchmarks.stopping    # prints the tables of docs/stopping.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from lab.benchmarks.draws import DRAWS, MEMBER, recorded
from lab.pools.arrays import ArrayWorld
from lab.recorded_draws import RecordedDraws
from ttsgraph.base.arrays import IntArray
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.settle import needs
from ttsgraph.graphs.stopping import LOSSLESS, Stop
from ttsgraph.settings.profile import load_profile

ORDERS = 64
"""Orders of recorded draws that are looked at."""

QUESTIONS = 1500
SEED = 77
VOTES = (5, 9, 15, 40)
MODELS = ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "gemma-1.1-7b")
BETA = Stop("beta", 0.95)
LENIENT = {
    "Beta 0.9, one by one": (Stop("beta", 0.9), (1,)),
    "Beta 0.8, one by one": (Stop("beta", 0.8), (1,)),
}
"""Rules for few votes, where 0.95 takes four that agree."""


def worlds() -> dict[str, ArrayWorld]:
    """The calibrated tasks, and a world whose draws of one model are alike."""
    profile = load_profile("simulated")
    traits = dict(profile.simulation.tasks)
    traits["alike-draws"] = traits["math"].model_copy(update={"alike": 0.8})
    return {
        name: ArrayWorld(found, profile.model_pool(), QUESTIONS, SEED)
        for name, found in traits.items()
    }


def rules(count: int) -> dict[str, tuple[Stop, tuple[int, ...]]]:
    """Name -> stop and waves, for a vote of so many."""
    return {
        "lossless, one by one": (LOSSLESS, (count // 2 + 1, 1)),
        "lossless, waves of a majority, then 2": (LOSSLESS, (count // 2 + 1, 2)),
        "Beta 0.95, one by one": (BETA, (1,)),
        "Beta 0.95, waves of 4, then 2": (BETA, (4, 2)),
    }


def vote(
    model: str, count: int, stop: Stop = LOSSLESS, waves: tuple[int, ...] = ()
) -> CollaborationGraph:
    graph = topologies.parallel([model] * count, model, "voter")
    sink = replace(graph.node(graph.sink), stop=stop, waves=waves)
    return CollaborationGraph((*graph.nodes[:-1], sink), graph.edges)


def outcome(world: ArrayWorld, graph: CollaborationGraph) -> tuple[float, float]:
    """Mean calls of a question, and accuracy."""
    calls = needs(graph, {i: said.replies for i, said in world.nodes(graph).items()}).count()
    return float(calls.mean()), world.accuracy(graph)


def rows() -> Iterator[tuple[str, int, str, str, float, float]]:
    """Task, votes, model, rule, share of the calls, and points lost against the whole vote."""
    for task, world in worlds().items():
        for count in VOTES:
            for model in MODELS:
                whole = world.accuracy(vote(model, count))
                for name, (stop, waves) in rules(count).items():
                    calls, accuracy = outcome(world, vote(model, count, stop, waves))
                    yield task, count, model, name, calls / count, 100 * (whole - accuracy)


def on_recorded(
    known: Mapping[str, IntArray],
) -> Iterator[tuple[str, int, str, float, float]]:
    """Kind of question, votes, rule, share of the calls and points lost, on recorded draws of a
    real model, over many orders of them.
    """
    for kind, classes in known.items():
        draws = RecordedDraws({MEMBER: classes}, np.random.default_rng(SEED), ORDERS)
        for count in (5, DRAWS):
            whole = float((draws.classes(vote(MEMBER, count))[count] == 0).mean())
            for name, (stop, waves) in (rules(count) | LENIENT).items():
                graph = vote(MEMBER, count, stop, waves)
                said = draws.classes(graph)
                share = float(needs(graph, said).count().mean()) / count
                yield kind, count, name, share, 100 * (whole - float((said[count] == 0).mean()))


def recorded_table(rows: Iterable[tuple[str, int, str, float, float]]) -> str:
    """What stops save on recorded draws, as Markdown."""
    found = {(kind, count, name): tuple(rest) for kind, count, name, *rest in rows}
    columns = list(dict.fromkeys((kind, count) for kind, count, _ in found))
    heads = " | ".join(f"{kind}, {count} votes" for kind, count in columns)
    lines = [f"| {MEMBER} | {heads} |", "|---|" + "---|" * len(columns)]
    for name in (*rules(5), *LENIENT):
        cells = ["{:.2f}, {:+.1f}".format(*found[*column, name]) for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run() -> None:
    """Print the tables of docs/stopping.md: the mean over models, the dearest of them in
    brackets.
    """
    print(recorded_table(on_recorded(recorded())) + "\n")
    found = list(rows())
    print(f"Simulated: {QUESTIONS} questions of each calibrated task, {len(MODELS)} models.\n")
    for task in dict.fromkeys(row[0] for row in found):
        print(
            f"\n| {task} | "
            + " | ".join(f"{count} votes" for count in VOTES)
            + " |\n|---|"
            + "---|" * len(VOTES)
        )
        for name in rules(5):
            cells = []
            for count in VOTES:
                these = np.array(
                    [row[4:] for row in found if (row[0], row[1], row[3]) == (task, count, name)]
                )
                cells.append(
                    f"{these[:, 0].mean():.2f} ({these[:, 0].max():.2f}), {these[:, 1].mean():+.1f}"
                    f" ({these[:, 1].max():+.1f})"
                )
            print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    run()
