"""Pictures of plots and graphs, as files the same that the page shows. The same content is the same
file, byte for byte. A drawing has levels from left to right, the question before them. Arrows that
skip levels run in lanes between the nodes there, one for each node that they come from.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined

from ttsgraph.base.files import write_text
from ttsgraph.base.style import colour, fixed
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import get_role
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.reporting.charts import Chart

TEMPLATES = Path(__file__).parent / "templates"
PNG_SCALE = 2
FORMATS = (".svg", ".png", ".pdf")
SWEEPS = 3


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

Point = tuple[float, float]
Item = tuple[str, int, int]
"""What stands in a level: "node" and its id, or "lane" and the id of the node that its arrows come
from; and the number of the level.
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A node: its place in pixels (left, top), outline by role, and colour by model; no colour
    where it calls none. `words` say of a variant what `model`, its name, stands for; `when` says of
    a gate or a vote in waves when it opens or stops.
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
    width = size.end + size.gap_x + len(columns) * (size.width + size.gap_x) + size.end
    nodes: dict[int, Point] = {}
    lanes: dict[int, list[Point]] = {node.id: [] for node in graph.nodes}
    for level, items in enumerate(columns):
        x = float(size.end + size.gap_x + level * (size.width + size.gap_x))
        y = (height - _height(items, size)) / 2
        for kind, i, _ in items:
            tall = size.height if kind == "node" else size.lane
            if kind == "node":
                nodes[i] = (x, y + tall / 2)
            else:
                lanes[i].append((x, y + tall / 2))
            y += tall + size.gap_y
    question: Point = (size.end, height / 2)
    answer: Point = (width - size.end, height / 2)
    arrows = [Arrow(-1, i, _route([question, nodes[i]], size)) for i in graph.levels[0]]
    for a, b in [*graph.edges, (graph.sink, -1)]:
        x, y = nodes[a]
        end = answer if b == -1 else nodes[b]
        between = [] if b == -1 else [place for place in lanes[a] if place[0] < end[0]]
        path = _route([(x + size.width, y), *between, end], size)
        arrows.append(Arrow(a, b, path, (a, b) in graph.late_edges))
    models = list(dict.fromkeys(spec.model for spec in pool.values()))
    called = {pool[node.model].model for node in graph.nodes if get_role(node.role).calls_model}
    tints = {model: colour(k) for k, model in enumerate(models) if model in called}
    boxes = []
    for node in graph.nodes:
        x, y = nodes[node.id][0], nodes[node.id][1] - size.height / 2
        model = words = "no model call"
        tint = "var(--quiet)"
        if get_role(node.role).calls_model:
            model, words = node.model, pool[node.model].words
            tint = tints[pool[node.model].model]
        shape = outline(node.role, x, y, size)
        last = node.id == graph.sink
        boxes.append(Box(node.id, node.role, model, words, x, y, shape, tint, last, _when(node)))
    roles = tuple(dict.fromkeys(node.role for node in graph.nodes))
    drawn = tuple(boxes), tuple(arrows), tuple(tints.items()), roles
    return Drawing(width, height, height / 2, *drawn)


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
    columns: list[list[Item]] = [
        [("node", i, level) for i in ids] for level, ids in enumerate(graph.levels)
    ]
    before: dict[Item, list[Item]] = defaultdict(list)
    after: dict[Item, list[Item]] = defaultdict(list)
    for a, b in graph.edges:
        lanes: list[Item] = [("lane", a, k) for k in range(level_of[a] + 1, level_of[b])]
        for lane in lanes:
            if lane not in before:
                columns[lane[2]].append(lane)
                before[lane] = []
        for left, right in pairwise([("node", a, level_of[a]), *lanes, ("node", b, level_of[b])]):
            before[right].append(left)
            after[left].append(right)
    places = range(len(columns))
    for _ in range(SWEEPS):
        for level in places[1:]:
            _sort(columns[level], columns[level - 1], before)
        for level in places[-2::-1]:
            _sort(columns[level], columns[level + 1], after)
    return columns


def _sort(items: list[Item], others: list[Item], near: dict[Item, list[Item]]) -> None:
    """Order one level by the mean place of each item's neighbours in the level next to it."""
    own, shares = (
        {item: (k + 0.5) / len(level) for k, item in enumerate(level)} for level in (items, others)
    )

    def place(item: Item) -> tuple[float, float]:
        beside = [shares[other] for other in near[item]] or [own[item]]
        return sum(beside) / len(beside), own[item]

    items.sort(key=place)


def _height(items: Sequence[Item], size: Size) -> float:
    boxes = sum(size.height if kind == "node" else size.lane for kind, *_ in items)
    return boxes + size.gap_y * (len(items) - 1)


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
    cut = 14 * h / FULL.height
    if kind == "rounded":
        r = 8 * h / FULL.height
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


def new_templates() -> Templates:
    """The templates, without what a page adds to them."""
    return Templates(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def chart_svg(chart: Chart, simulated: bool) -> str:
    """A plot as SVG with the light theme's colours."""
    import vl_convert  # slow to import

    svg = vl_convert.vegalite_to_svg(chart.in_file(simulated))
    # Vega counts gradients on in a process, and the same picture is to be the same file.
    known: dict[str, str] = {}
    return re.sub(r"gradient_\d+", lambda m: known.setdefault(m[0], f"gradient_{len(known)}"), svg)


def graph_svg(
    graph: CollaborationGraph,
    pool: ModelPool | None = None,
    what: str = "Graph",
    key: str = "graph",
    simulated: bool = False,
    alone: bool = True,
) -> str:
    """A graph as SVG, under a title that begins with what it is: a file of its own with the light
    theme's colours, or a part of a page. Without a pool, each of its models is taken for another.
    """
    if pool is None:
        names = sorted({node.model for node in graph.nodes})
        free = Price(0.0, 0.0)
        pool = ModelPool(tuple(ModelSpec(n, n, None, None, None, None, free) for n in names))
    models = ", ".join(
        f"{count} of {pool[model].words}" for model, count in graph.model_counts().items()
    )
    template = new_templates().get_template("graph.svg.j2")
    picture = template.render(
        d=draw(graph, pool),
        key=key,
        title=f"{what}: {models}; width {graph.width}, depth {graph.depth}",
        note="simulated" if simulated else "",
        alone=alone,
        w=FULL.width,
        h=FULL.height,
        end=FULL.end,
    )
    return fixed(picture) if alone else picture


def write_picture(svg: str, path: Path) -> Path:
    """Write a picture in the form that the path's ending says, one of FORMATS."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        write_text(path, svg)
        return path
    import vl_convert

    if path.suffix == ".png":
        path.write_bytes(vl_convert.svg_to_png(svg, scale=PNG_SCALE))
    else:
        path.write_bytes(vl_convert.svg_to_pdf(svg))
    return path


def of_simulation(path: Path) -> bool:
    """Whether a path says that what is there is simulated; a picture then says so itself, because
    pictures travel without their paths.
    """
    return any("simulated" in part for part in path.parts)
