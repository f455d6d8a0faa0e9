"""The pilot figures (1, 3 and 4) and table 4: fixed graphs on questions drawn for each seed.

The paper leaves some details open. The study assumes that several instances refine one another's
answers in sequence (figure 3); that a mix has eight instances, because eight is the best width and
depth in figure 4 (table 4); and that a random hybrid joins each pair of nodes, in a fixed order,
with the probability at which a node reads HYBRID_IN_DEGREE other nodes on average (table 4). A node
that reads several others is a fuser; any other node is an assistant.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.study.ledger import Ledger
from lab.study.run import Laboratory
from ttsgraph.graphs import topologies
from ttsgraph.graphs.graph import CollaborationGraph, Node

L1 = "llama-3.2-1b"
L3 = "llama-3.2-3b"
L8 = "llama-3.1-8b"
G1 = "gemma-3-1b"
G2 = "gemma-1.1-2b"
WIDTHS = DEPTHS = (1, 2, 4, 8, 16)
SIDES = (1, 2, 3, 4, 6, 8, 12, 24)
MOST = 24
"""Maximum product of width and depth of the graphs in figure 4c."""

MIX = 8
"""Number of nodes of a mix in table 4."""

HYBRID_IN_DEGREE = 1.5


@dataclass(frozen=True, slots=True)
class Pilot:
    """Fixed graph with the key of its accuracy: figure, entry and, for table 4, topology."""

    figure: str
    label: str
    graph: CollaborationGraph
    topology: str = ""


def pilots(task: str, seed: int) -> list[Pilot]:
    """Return all pilot graphs of a task; the random hybrids of table 4 are drawn with the seed."""
    found = [
        Pilot("figure 3", f"1 x {model}", topologies.single(model))
        for model in (L1, L3, L8, G1, G2)
    ]
    found += [
        Pilot("figure 3", f"2 x {model}", topologies.chain([model] * 2))
        for model in (L1, L3, G1, G2)
    ]
    found += [
        Pilot("figure 3", f"{L3} + {G2}", topologies.chain(pair)) for pair in ((L3, G2), (G2, L3))
    ]
    found.append(Pilot("figure 3", f"3 x {L3}", topologies.chain([L3] * 3)))
    found += [Pilot("figure 4a", str(width), _fan(width)) for width in WIDTHS]
    found += [Pilot("figure 4b", str(depth), topologies.chain([L1] * depth)) for depth in DEPTHS]
    if task == "math":
        shapes = [(w, d) for w in SIDES for d in SIDES if w * d <= MOST]
        found += [Pilot("figure 4c", f"{w} x {d}", topologies.grid(w, d, L1)) for w, d in shapes]
    if task != "humaneval":
        rng = np.random.default_rng([seed, 3])
        for name, model in (("1B mix", L1), ("3B mix", L3)):
            found += [
                Pilot("table 4", name, _random(kind, model, rng), kind)
                for kind in ("sequential", "parallel", "hybrid")
            ]
        found += [
            Pilot("table 4", "8B x 1", topologies.single(L8), kind)
            for kind in ("sequential", "parallel", "hybrid")
        ]
    return found


def _fan(width: int) -> CollaborationGraph:
    return topologies.single(L1) if width == 1 else topologies.parallel([L1] * width, L1)


def _random(kind: str, model: str, rng: np.random.Generator) -> CollaborationGraph:
    """Return a graph of one kind: a chain, parallel answers into a fuser, or a random hybrid."""
    if kind == "sequential":
        return topologies.chain([model] * MIX)
    if kind == "parallel":
        return topologies.parallel([model] * (MIX - 1), model)
    joined = np.triu(rng.random((MIX, MIX)) < 2 * HYBRID_IN_DEGREE / (MIX - 1), 1)
    for i in np.flatnonzero(
        ~joined[:-1].any(axis=1)
    ):  # every node but the last needs a reader: choose a random later node
        joined[i, rng.integers(i + 1, MIX)] = True
    nodes = tuple(
        Node(i, "fuser" if joined[:, i].sum() > 1 else "assistant", model) for i in range(MIX)
    )
    return CollaborationGraph(nodes, tuple((int(i), int(j)) for i, j in np.argwhere(joined)))


async def run_pilots(laboratory: Laboratory, seed: int) -> list[dict[str, Any]]:
    """Return the accuracy and latency of each pilot graph on questions drawn with the seed."""
    count = min(laboratory.sizes.pilot, len(laboratory.pool))
    order = np.random.default_rng([seed, 4]).permutation(len(laboratory.pool))[:count].tolist()
    questions = [laboratory.pool[k] for k in order]
    rows = []
    for pilot in pilots(laboratory.task, seed):
        feedback = await laboratory.environment(Ledger()).evaluate(pilot.graph, questions)
        rows.append(
            {
                "task": laboratory.task,
                "seed": seed,
                "figure": pilot.figure,
                "label": pilot.label,
                "topology": pilot.topology,
                "accuracy": feedback.accuracy,
                "latency_s": feedback.latency_s,
                "nodes": len(pilot.graph.nodes),
            }
        )
    return rows
