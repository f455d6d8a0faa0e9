"""Where the nodes and arrows of a collaboration graph stand in its picture: levels from left to right, the question before them."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.graph import CollaborationGraph
from pipeline.reporting.style import colour
from pipeline.roles import get_role

WIDTH, HEIGHT = 148, 52
GAP_X, GAP_Y = 64, 22
END = 84
SWEEPS = 4


@dataclass(frozen=True, slots=True)
class Box:
    """A node: its place in pixels (left, top), outline by role, and colour by model; no colour where it calls none."""

    id: int
    role: str
    model: str
    x: float
    y: float
    outline: str
    colour: str
    is_sink: bool


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow; `source` or `target` is -1 for the question and the answer."""

    source: int
    target: int
    path: str


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


def draw(graph: CollaborationGraph, models: list[str]) -> Drawing:
    """Lay a graph out. `models` are those of the pool in order, so that a model has one colour in all pictures."""
    columns = _ordered(graph)
    tallest = max(map(len, columns))
    height = tallest * (HEIGHT + GAP_Y) + GAP_Y
    places = {}
    for level, ids in enumerate(columns):
        top = (height - len(ids) * (HEIGHT + GAP_Y) + GAP_Y) / 2
        for k, i in enumerate(ids):
            places[i] = (END + GAP_X + level * (WIDTH + GAP_X), top + k * (HEIGHT + GAP_Y))
    width = END + GAP_X + len(columns) * (WIDTH + GAP_X) + END
    middle = height / 2
    arrows = [Arrow(-1, i, _curve(END, middle, places[i][0], _mid(places[i]))) for i in columns[0]]
    for a, b in graph.edges:
        arrows.append(Arrow(a, b, _curve(places[a][0] + WIDTH, _mid(places[a]), places[b][0], _mid(places[b]))))
    sink = places[graph.sink]
    arrows.append(Arrow(graph.sink, -1, _curve(sink[0] + WIDTH, _mid(sink), width - END, middle)))
    used = [model for model in models if any(n.model == model and get_role(n.role).calls_model for n in graph.nodes)]
    tints = {model: colour(models.index(model)) for model in used}
    boxes = []
    for node in graph.nodes:
        calls = get_role(node.role).calls_model
        x, y = places[node.id]
        tint = tints[node.model] if calls else "var(--quiet)"
        model = node.model if calls else "no model call"
        boxes.append(Box(node.id, node.role, model, x, y, _outline(node.role, x, y), tint, node.id == graph.sink))
    roles = tuple(dict.fromkeys(node.role for node in graph.nodes))
    return Drawing(width, height, middle, tuple(boxes), tuple(arrows), tuple(tints.items()), roles)


def _ordered(graph: CollaborationGraph) -> list[list[int]]:
    """The levels, each ordered by where its neighbours stand, so that fewer arrows cross."""
    columns = [list(level) for level in graph.levels]
    for sweep in range(SWEEPS):
        rank = {i: k / max(1, len(ids) - 1) for ids in columns for k, i in enumerate(ids)}
        for ids in columns if sweep % 2 == 0 else columns[::-1]:
            near = graph.predecessors if sweep % 2 == 0 else graph.successors
            means = {i: sum(rank[n] for n in near[i]) / len(near[i]) if near[i] else rank[i] for i in ids}
            ids.sort(key=lambda i: (means[i], i))
            rank |= {i: k / max(1, len(ids) - 1) for k, i in enumerate(ids)}
    return columns


def _mid(place: tuple[float, float]) -> float:
    return place[1] + HEIGHT / 2


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    """From one point to another, leaving and arriving level; the arrow head takes the last pixels."""
    bend = max(24.0, (x2 - x1) * 0.45)
    return f"M{x1:.1f} {y1:.1f}C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2 - 7:.1f} {y2:.1f}"


def _outline(role: str, x: float, y: float) -> str:
    """A rectangle for an assistant, a hexagon for a fuser, slanted ends for others."""
    w, h, cut = WIDTH, HEIGHT, 14
    if role == "assistant":
        r = 8
        return (
            f"M{x + r} {y}h{w - 2 * r}a{r} {r} 0 0 1 {r} {r}v{h - 2 * r}a{r} {r} 0 0 1 -{r} {r}"
            f"h-{w - 2 * r}a{r} {r} 0 0 1 -{r} -{r}v-{h - 2 * r}a{r} {r} 0 0 1 {r} -{r}z"
        )
    if role == "fuser":
        return f"M{x + cut} {y}h{w - 2 * cut}l{cut} {h / 2}l-{cut} {h / 2}h-{w - 2 * cut}l-{cut} -{h / 2}z"
    return f"M{x + cut} {y}h{w - cut}l-{cut} {h}h-{w - cut}z"
