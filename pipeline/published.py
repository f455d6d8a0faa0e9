"""The paper's pilot experiments as graphs, each beside the accuracy that the paper reports (insights 1 to 3, table 4).

Where the paper is silent, this says what is assumed: n instances in a row refine one another (insight 1); a mix is eight
instances, the best width and depth of insight 2 (table 4); a random hybrid joins each pair of nodes, in a fixed order, with
such a probability that a node reads HYBRID_IN_DEGREE others on average; several it reads as a fuser, one as an assistant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline import topologies
from pipeline.graph import CollaborationGraph, Node

SMALL, MIDDLE, LARGE = "llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b"
MIDDLE_GEMMA = "gemma-1.1-2b"
MIXES = {"1b mix": (SMALL, 8), "3b mix": (MIDDLE, 8), "8b x 1": (LARGE, 1)}
HYBRID_IN_DEGREE = 1.5
HYBRIDS = 10
WIDTHS = DEPTHS = (1, 2, 4, 8, 12, 16, 24)
GRID_NODES = 24
GRID_WIDTHS = (1, 2, 3, 4, 6, 8)

TABLE_4 = {
    "math": {"1b mix": (37, 41, 44), "3b mix": (58, 56, 59), "8b x 1": (49, 49, 49)},
    "mmlu": {"1b mix": (35, 43, 30), "3b mix": (49, 51, 41), "8b x 1": (64, 64, 64)},
}
"""Accuracy in percent: sequential, parallel, hybrid."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One cell of a pilot figure: the graphs whose mean accuracy it shows, and the paper's accuracy in percent, if it gives one."""

    figure: str
    task: str
    label: str
    graphs: tuple[CollaborationGraph, ...]
    published: float | None = None


def pilot_setups() -> list[Setup]:
    """Every cell of the paper's pilot figures."""
    return [*_families(), *_instances(), *_widths(), *_depths(), *_grid(), *_table_4()]


def random_hybrid(model: str, size: int, rng: np.random.Generator) -> CollaborationGraph:
    """A random DAG over `size` instances of a model, all of which reach the last; roles follow from in-degrees."""
    joined = np.triu(rng.random((size, size)) < 2 * HYBRID_IN_DEGREE / (size - 1), 1)
    for i in np.flatnonzero(~joined[:-1].any(axis=1)):
        joined[i, rng.integers(i + 1, size)] = True
    nodes = tuple(Node(i, "fuser" if joined[:, i].sum() > 1 else "assistant", model) for i in range(size))
    return CollaborationGraph(nodes, tuple((int(i), int(j)) for i, j in np.argwhere(joined)))


def _families() -> list[Setup]:
    """Insight 1, figure 3 (a, b): two instances of about 3B parameters, of one family or of both."""
    pairs = {
        "llama x 2": [(MIDDLE, MIDDLE)],
        "llama + gemma": [(MIDDLE, MIDDLE_GEMMA), (MIDDLE_GEMMA, MIDDLE)],
        "gemma x 2": [(MIDDLE_GEMMA, MIDDLE_GEMMA)],
    }
    return [
        Setup("families", task, label, tuple(topologies.chain(pair) for pair in chains))
        for task in ("math", "mmlu")
        for label, chains in pairs.items()
    ]


def _instances() -> list[Setup]:
    """Insight 1, figure 3 (c, d): more instances of the 3B model against one of the 8B model."""
    known = {"math": {1: 39, 2: 46}, "mmlu": {1: 41, 2: 45}}
    setups = [
        Setup("instances", task, f"3b x {n}", (topologies.chain([MIDDLE] * n),), known[task].get(n))
        for task in known
        for n in (1, 2, 3)
    ]
    return setups + [
        Setup("instances", task, "8b x 1", (topologies.single(LARGE),), score) for task, score in (("math", 49), ("mmlu", 64))
    ]


def _widths() -> list[Setup]:
    """Insight 2, figure 4 (a): answers side by side and a fuser, all of the 1B model."""
    return [
        Setup("width", task, str(width), (topologies.parallel([SMALL] * width, SMALL),))
        for task in ("math", "mmlu", "humaneval")
        for width in WIDTHS
    ]


def _depths() -> list[Setup]:
    """Insight 2, figure 4 (b): the 1B model refining its own answer."""
    return [
        Setup("depth", task, str(depth), (topologies.chain([SMALL] * depth),))
        for task in ("math", "mmlu", "humaneval")
        for depth in DEPTHS
    ]


def _grid() -> list[Setup]:
    """Insight 3, figure 4 (c): width x depth, at most 24 refining nodes of the 1B model."""
    known = {(1, 8): 38, (3, 4): 47}
    return [
        Setup("width x depth", "math", f"{width} x {depth}", (topologies.grid(width, depth, SMALL),), known.get((width, depth)))
        for width in GRID_WIDTHS
        for depth in range(1, GRID_NODES // width + 1)
    ]


def _table_4() -> list[Setup]:
    """Table 4, figure 1: sequential, parallel and hybrid graphs of one model size."""
    setups = []
    for task, rows in TABLE_4.items():
        for mix, scores in rows.items():
            model, size = MIXES[mix]
            for shape, score in zip(("sequential", "parallel", "hybrid"), scores, strict=True):
                setups.append(Setup("table 4", task, f"{mix}, {shape}", _shapes(model, size)[shape], score))
    return setups


def _shapes(model: str, size: int) -> dict[str, tuple[CollaborationGraph, ...]]:
    if size == 1:
        return dict.fromkeys(("sequential", "parallel", "hybrid"), (topologies.single(model),))
    rng = np.random.default_rng(size)
    return {
        "sequential": (topologies.chain([model] * size),),
        "parallel": (topologies.parallel([model] * (size - 1), model),),
        "hybrid": tuple(random_hybrid(model, size, rng) for _ in range(HYBRIDS)),
    }
