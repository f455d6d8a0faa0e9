"""Where the nodes and arrows of a collaboration graph stand in its picture: levels from left to
right, the question before them.

Arrows that skip levels run in lanes between the nodes there, one for each node that they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ttsgraph.base.style import colour
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import get_role
from ttsgraph.pool.spec import ModelPool

SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Size:
    """Pixels: a node's box, the gaps between boxes, a lane, and the room for the words at both
    ends.
    """

    width: float
    height: float
    gap_x: float
    gap_y: float
    lane: float
    end: float


FULL = Size(148, 52, 64, 22, 8, 84)
SMALL = Size(34, 24, 46, 10, 4, 14)
"""Nodes without words, for a first look: shape says the role, colour the model."""

WIDTH = FULL.width
HEIGHT = FULL.height
END = FULL.end

Item = tuple[str, int]
"""What stands in a level: ("node", its id), or ("lane", the id of the node that its arrows come
from).
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A node: its place in pixels (left, top), outline by role, and colour by model; no colour
    where it calls none.

    `words` say of a variant what `model`, its name, stands for; `when` says of a gate or a vote in
    waves when it opens or stops.
    """

    id: int
    role: str
    model: str
    words: str
    x: float
    y: float
    outline: str
    colour: str
    is_sink: bool
    when: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow; `source` or `target` is -1 for the question and the answer. `later`: only if an
    earlier stage leaves it open.
    """

    source: int
    target: int
    path: str
    later: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of a graph in pixels, and the colour of each model in it."""

    width: float
    height: float
    middle: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    models: tuple[tuple[str, str], ...]
    roles: tuple[str, ...]


def draw(graph: CollaborationGraph, pool: ModelPool, size: Size = FULL) -> Drawing:
    """Lay a graph out. The pool is that of the profile, so that a model and its variants have one
    colour in all pictures.
    """
    columns = _ordered(graph)
    height = max(_height(items, size) for items in columns) + 2 * size.gap_y
    places: dict[tuple[int, Item], tuple[float, float]] = {}
    for level, items in enumerate(columns):
        x = float(size.end + size.gap_x + level * (size.width + size.gap_x))
        y = (height - _height(items, size)) / 2
        for item in items:
            tall = size.height if item[0] == "node" else size.lane
            places[level, item] = (x, y + tall / 2)
            y += tall + size.gap_y
    width = size.end + size.gap_x + len(columns) * (size.width + size.gap_x) + size.end
    middle = height / 2
    level_of = {i: level for level, ids in enumerate(graph.levels) for i in ids}
    node_places = {i: places[level, ("node", i)] for i, level in level_of.items()}
    arrows = [
        Arrow(-1, i, _route([(size.end, middle), node_places[i]], size)) for i in graph.levels[0]
    ]
    for a, b in graph.edges:
        lanes = [places[level, ("lane", a)] for level in range(level_of[a] + 1, level_of[b])]
        (x1, y1) = node_places[a]
        end = node_places[b]
        arrows.append(
            Arrow(
                a, b, _route([(x1 + size.width, y1), *lanes, end], size), (a, b) in graph.late_edges
            )
        )
    x1, y1 = node_places[graph.sink]
    arrows.append(
        Arrow(graph.sink, -1, _route([(x1 + size.width, y1), (width - size.end, middle)], size))
    )
    models = list(dict.fromkeys(spec.model for spec in pool.values()))
    called = {pool[node.model].model for node in graph.nodes if get_role(node.role).calls_model}
    used = [model for model in models if model in called]
    tints = {model: colour(models.index(model)) for model in used}
    boxes = []
    for node in graph.nodes:
        calls = get_role(node.role).calls_model
        x = node_places[node.id][0]
        y = node_places[node.id][1] - size.height / 2
        spec = pool[node.model]
        tint = tints[spec.model] if calls else "var(--quiet)"
        model, words = (node.model, spec.words) if calls else ("no model call", "no model call")
        shape = outline(node.role, x, y, size)
        boxes.append(
            Box(
                node.id,
                node.role,
                model,
                words,
                x,
                y,
                shape,
                tint,
                node.id == graph.sink,
                _when(node),
            )
        )
    roles = tuple(dict.fromkeys(node.role for node in graph.nodes))
    return Drawing(width, height, middle, tuple(boxes), tuple(arrows), tuple(tints.items()), roles)


def _when(node: Node) -> str:
    """When a node begins and stops, or how often a router takes which branch, in a few words."""
    if node.route:
        return " | ".join(f"{100 * share:.0f} %" for share in node.route.router.shares)
    gate = [f"gate > {node.gate.over:g}"] if node.gate else []
    waves = [f"waves {', '.join(map(str, node.waves))}"] if node.waves else []
    level = f" {node.stop.level:g}" if node.stop.confident else ""
    return "; ".join(gate + waves + ([f"{node.stop.rule}{level}"] if node.waves else []))


def _ordered(graph: CollaborationGraph) -> list[list[Item]]:
    """The levels with their lanes, each ordered by where its neighbours stand, so that fewer arrows
    cross.
    """
    level_of = {i: level for level, ids in enumerate(graph.levels) for i in ids}
    columns: list[list[Item]] = [[("node", i) for i in ids] for ids in graph.levels]
    before: list[dict[Item, list[Item]]] = [{item: [] for item in items} for items in columns]
    for a, b in graph.edges:
        for level in range(level_of[a] + 1, level_of[b] + 1):
            item: Item = ("node", b) if level == level_of[b] else ("lane", a)
            if item not in before[level]:
                columns[level].append(item)
                before[level][item] = []
            before[level][item].append(("node", a) if level == level_of[a] + 1 else ("lane", a))
    after: list[dict[Item, list[Item]]] = [{item: [] for item in items} for items in columns]
    for level, items in enumerate(columns):
        for item in items:
            for other in before[level][item]:
                after[level - 1][other].append(item)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for level in range(len(columns)) if forward else reversed(range(len(columns))):
            _sort(
                columns,
                level,
                before[level] if forward else after[level],
                level - 1 if forward else level + 1,
            )
    return columns


def _sort(columns: list[list[Item]], level: int, near: dict[Item, list[Item]], beside: int) -> None:
    """Order one level by the mean place of each item's neighbours in the level next to it."""
    if not 0 <= beside < len(columns):
        return
    own = _shares(columns[level])
    others = _shares(columns[beside])
    means = {
        item: sum(others[n] for n in near[item]) / len(near[item]) if near[item] else own[item]
        for item in columns[level]
    }
    columns[level].sort(key=lambda item: (means[item], own[item]))


def _shares(items: Sequence[Item]) -> dict[Item, float]:
    """How far down each item stands, from 0 to 1."""
    return {item: (k + 0.5) / len(items) for k, item in enumerate(items)}


def _height(items: Sequence[Item], size: Size) -> float:
    return sum(size.height if kind == "node" else size.lane for kind, _ in items) + size.gap_y * (
        len(items) - 1
    )


def _route(points: Sequence[tuple[float, float]], size: Size) -> str:
    """A path from the first point to the last, level through the lanes between; the arrow head
    takes the last pixels.
    """
    x1, y1 = points[0]
    path = f"M{x1:.1f} {y1:.1f}"
    for k, (x2, y2) in enumerate(points[1:], 2):
        last = k == len(points)
        end = x2 - 7 if last else x2
        bend = (x2 - x1) * 0.5
        path += f"C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {end:.1f} {y2:.1f}"
        if not last:
            path += f"H{x2 + size.width:.1f}"
        x1 = x2 + size.width
        y1 = y2
    return path


def outline(role: str, x: float, y: float, size: Size = FULL) -> str:
    """The outline of a node with this role."""
    kind = get_role(role).outline
    w = size.width
    h = size.height
    cut = 14 * size.height / FULL.height
    if kind == "rounded":
        r = 8 * size.height / FULL.height
        return (
            f"M{x + r} {y}h{w - 2 * r}a{r} {r} 0 0 1 {r} {r}v{h - 2 * r}a{r} {r} 0 0 1 -{r} {r}"
            f"h-{w - 2 * r}a{r} {r} 0 0 1 -{r} -{r}v-{h - 2 * r}a{r} {r} 0 0 1 {r} -{r}z"
        )
    if kind == "hexagon":
        return (
            f"M{x + cut} {y}h{w - 2 * cut}l{cut} {h / 2}l-{cut} {h / 2}h-{w - 2 * cut}l-{cut}"
            f" -{h / 2}z"
        )
    return f"M{x + cut} {y}h{w - cut}l-{cut} {h}h-{w - cut}z"
