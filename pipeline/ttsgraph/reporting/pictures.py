"""Pictures of graphs and plots: SVG with the page's colour variables, and files. The same content
gives the same file, byte for byte.
"""

import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout
from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined

from ttsgraph.base.files import write_text
from ttsgraph.base.style import colour, fixed, in_both_themes
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.roles import Outline, get_role
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.reporting.explain import calls_by_model

TEMPLATES = Path(__file__).parent / "templates"
PNG_SCALE = 2
FORMATS = (".svg", ".png", ".pdf")

WIDTH, HEIGHT, END = 172, 50, 66
"""Width and height of a box, and width of the texts at both ends of a drawing, in pixels."""
BETWEEN, BELOW, MARGIN, HEAD = 38, 30, 8, 7
"""Distance between two steps and between two boxes of a step, margin around the drawing, and length
of an arrow's head, in pixels.
"""
KEY, LETTER = 15, 6
"""Height of a line of the key and width of a letter in the key, in pixels."""

Point = tuple[float, float]


@dataclass(slots=True)
class Box:
    """Box for nodes with the same function or, without nodes, for one of the drawing's two ends.

    `title` is the nodes' model, or their role if they call no model. `when` is the condition of a
    gate or of a vote in waves. `counts`: the box's answer is the graph's answer. The size (`w`,
    `h`) is for a layout from top to bottom, the centre (`xy`) for the picture.
    """

    ids: tuple[int, ...]
    title: str
    role: str = ""
    when: str = ""
    colour: str = "var(--quiet)"
    outline: Outline | None = None
    counts: bool = False
    w: float = HEIGHT
    h: float = WIDTH
    xy: Point = (0.0, 0.0)


@dataclass(slots=True)
class Arrow:
    """Arrow between two boxes, which are given by their indices in the drawing.

    `later`: the arrow is used only if an earlier stage leaves the question open. `share`: the share
    of the questions that a router sends this way. `points`: the arrow's ends and bends.
    """

    source: int
    target: int
    later: bool
    share: str = ""
    points: Sequence[Point] = ()

    def setpath(self, points: Sequence[Point]) -> None:
        """Store the points that the layout computes; grandalf calls this method."""
        self.points = points

    @property
    def path(self) -> str:
        """Arrow as an SVG path, level where it passes a step and where its head begins."""
        (x, y), *others = self.points
        path = f"M{x:.1f} {y:.1f}"
        for k, (next_x, next_y) in enumerate(others, 1):
            half = 0 if k == len(others) else WIDTH / 2
            middle = (x + next_x - half) / 2
            path += f"C{middle:.1f} {y:.1f} {middle:.1f} {next_y:.1f}"
            path += f" {next_x - half:.1f} {next_y:.1f}h{2 * half:g}"
            x, y = next_x + half, next_y
        return path


@dataclass(frozen=True, slots=True)
class Drawing:
    """Drawing of a graph in pixels: boxes for question, nodes and answer, arrows, and a key."""

    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    width: float
    height: float
    key: Sequence[str]


def draw(graph: CollaborationGraph, pool: ModelPool) -> Drawing:
    """Lay a graph out from left to right; nodes with the same function share a box.

    A router is drawn where it decides: after the question, before its branches. `pool` is the
    profile's whole pool, so a model and its variants have the same colour in all pictures.
    """
    groups = _alike(graph)
    models = list(dict.fromkeys(spec.model for spec in pool.values()))
    tints = {model: colour(k) for k, model in enumerate(models)}
    inner = [_box(graph, ids, pool, tints) for ids in groups]
    boxes = [Box((), "question", h=END), *inner, Box((), "answer", h=END)]
    place = {i: k for k, ids in enumerate(groups, 1) for i in ids}
    late = graph.late_edges
    links = [(place[a], place[b], (a, b) in late, "") for a, b in graph.edges]
    first, shares = 0, dict.fromkeys(graph.levels[0], "")
    ends: tuple[int, ...] = (graph.sink,)
    if graph.route:
        first, ends = place[graph.sink], graph.route.ends
        links = [(0, first, False, ""), *(link for link in links if link[1] != first)]
        shares = {i: f"{100 * graph.asked[i]:.0f} %" for i in shares}
    links += [(first, place[i], False, share) for i, share in shares.items()]
    links += [(place[i], len(boxes) - 1, False, "") for i in ends]
    arrows = [Arrow(*link) for link in dict.fromkeys(links)]
    width, height = _lay_out(boxes, arrows)
    key = textwrap.wrap(_key(boxes, arrows), int((width - MARGIN) / LETTER))
    return Drawing(boxes, arrows, width, height + KEY * len(key), key)


def _key(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    """Return the key to a drawing's marks, as text."""
    marks = {
        "one colour: one model": len({box.colour for box in boxes if box.role}) > 1,
        "thick rim: its answer is the graph's": len(boxes) > 3 and any(b.counts for b in boxes),
        "dashed arrow: used only if the question is still open": any(a.later for a in arrows),
        "at an arrow: its share of the questions": any(a.share for a in arrows),
    }
    return "; ".join(mark for mark, occurs in marks.items() if occurs)


def _alike(graph: CollaborationGraph) -> list[tuple[int, ...]]:
    """Return the nodes in groups that have the same function, inputs and readers."""
    late = graph.late_edges
    groups: dict[object, list[int]] = defaultdict(list)
    for i in graph.order:
        node = graph.node(i)
        readers = tuple((b, late.get((i, b))) for b in graph.successors[i])
        does = node.role, node.model, repr(node.settings)
        groups[does, graph.predecessors[i], readers].append(i)
    return [tuple(ids) for ids in groups.values()]


def _box(
    graph: CollaborationGraph, ids: tuple[int, ...], pool: ModelPool, tints: Mapping[str, str]
) -> Box:
    node = graph.node(ids[0])
    role = get_role(node.role)
    count = f"{len(ids)} × " if len(ids) > 1 else ""
    box = Box(ids, f"{count}{node.role}", "no model call", _when(node), outline=role.outline)
    if role.calls_model:
        box.title, box.role = f"{count}{node.model}", node.role
        box.colour = tints[pool[node.model].model]
    box.counts = node.id == graph.sink and graph.route is None
    return box


def _when(node: Node) -> str:
    """Return the conditions under which a node begins and stops, in a few words."""
    gate = [f"gate > {node.gate.over:g}"] if node.gate else []
    waves = [f"waves {', '.join(map(str, node.waves))}"] if node.waves else []
    level = f" {node.stop.level:g}" if node.stop.confident else ""
    return "; ".join(gate + waves + ([f"{node.stop.rule}{level}"] if node.waves else []))


def _lay_out(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Point:
    """Lay out boxes and arrows by Sugiyama's method; return the picture's size."""
    vertices = [Vertex(box) for box in boxes]
    for vertex in vertices:
        vertex.view = vertex.data
    edges = [Edge(vertices[arrow.source], vertices[arrow.target]) for arrow in arrows]
    for edge, arrow in zip(edges, arrows, strict=True):
        edge.view = arrow
    layout = SugiyamaLayout(Graph(vertices, edges).C[0])
    layout.xspace, layout.yspace = BELOW, BETWEEN
    layout.init_all(roots=vertices[:1])
    layout.draw()
    layout.draw_edges()
    heights = [box.xy[0] for box in boxes] + [y for each in arrows for y, _ in each.points]
    down = MARGIN + HEIGHT / 2 - min(heights)
    right = MARGIN + END / 2 - boxes[0].xy[1]
    for box in boxes:
        box.xy = box.xy[1] + right, box.xy[0] + down
    for arrow in arrows:
        source, target = boxes[arrow.source], boxes[arrow.target]
        start = source.xy[0] + source.h / 2, source.xy[1]
        end = target.xy[0] - target.h / 2 - HEAD, target.xy[1]
        arrow.points = [start, *((x + right, y + down) for y, x in arrow.points[1:-1]), end]
    return boxes[-1].xy[0] + END / 2 + MARGIN, max(heights) + down + HEIGHT / 2 + BELOW - MARGIN


def new_templates() -> Templates:
    """Return the templates without the filters and globals that pages add."""
    return Templates(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def graph_svg(
    graph: CollaborationGraph,
    pool: ModelPool | None = None,
    what: str = "Graph",
    simulated: bool = False,
) -> str:
    """Return a graph as SVG, with colours as CSS variables.

    The picture's title begins with `what`. Without a pool, each model name counts as a separate
    model.
    """
    if pool is None:
        names = sorted({node.model for node in graph.nodes})
        free = Price(0.0, 0.0)
        pool = ModelPool(tuple(ModelSpec(n, n, None, None, None, None, free) for n in names))
    title = f"{what}: {calls_by_model(graph, pool)[1]}; width {graph.width}, depth {graph.depth}"
    template = new_templates().get_template("graph.svg.j2")
    return template.render(d=draw(graph, pool), title=title, simulated=simulated)


def write_picture(svg: str, path: Path) -> Path:
    """Write a picture in the format of the path's suffix, one of FORMATS."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        write_text(path, in_both_themes(svg))
        return path
    svg = fixed(svg)
    import vl_convert  # large, and needs the extra `page`

    if path.suffix == ".png":
        path.write_bytes(vl_convert.svg_to_png(svg, scale=PNG_SCALE))
    else:
        path.write_bytes(vl_convert.svg_to_pdf(svg))
    return path


def of_simulation(path: Path) -> bool:
    """Return True if a path is for simulated results. Pictures of such results say so, because they
    may be copied without their paths.
    """
    return any("simulated" in part for part in path.parts)
