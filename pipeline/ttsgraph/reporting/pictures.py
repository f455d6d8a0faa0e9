"""Pictures of graphs and plots: SVG with the page's colour variables, and files. The same content
gives the same file, byte for byte.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout
from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined

from ttsgraph.base.files import write_bytes, write_text
from ttsgraph.base.style import colour, fixed, in_both_themes
from ttsgraph.base.wording import counted
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.roles import Outline, get_role
from ttsgraph.pool.spec import ModelPool

TEMPLATES = Path(__file__).parent / "templates"
PNG_SCALE = 2
FORMATS = (".svg", ".png")

WIDTH, HEIGHT, END = 172, 50, 66
"""Width and height of a box, and width of the texts at both ends of a drawing, in pixels."""
BETWEEN, BELOW, MARGIN, HEAD = 38, 20, 8, 7
"""Distance between two steps and between two boxes of a step, margin around the drawing, and length
of an arrow's head, in pixels.
"""

QUIET = "var(--quiet)"
Point = tuple[float, float]


@dataclass(slots=True)
class Box:
    """Box for nodes with the same function or, without nodes, for one of the drawing's two ends.

    `title` is the nodes' model, or their role if they call no model. `counts`: the box's answer is
    the graph's answer. The size (`w`, `h`) is for a layout from top to bottom, the centre (`xy`)
    for the picture.
    """

    ids: tuple[int, ...]
    title: str
    role: str = ""
    colour: str = QUIET
    outline: Outline | None = None
    counts: bool = False
    w: float = HEIGHT
    h: float = END
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
        """Arrow as an SVG path."""
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in self.points)


@dataclass(frozen=True, slots=True)
class Drawing:
    """Drawing of a graph in pixels: boxes for question, nodes and answer, and arrows."""

    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    width: float
    height: float


def draw(graph: CollaborationGraph, pool: ModelPool | None = None) -> Drawing:
    """Lay a graph out from left to right; nodes with the same function share a box.

    A router is drawn where it decides: after the question, before its branches. `pool` is the
    profile's whole pool, so a model and its variants have the same colour in all pictures; without
    it, each name counts as a separate model.
    """
    late = graph.late_edges
    alike: dict[object, list[int]] = defaultdict(list)  # same function, inputs and readers
    for i in graph.order:
        node = graph.node(i)
        readers = tuple((b, late.get((i, b))) for b in graph.successors[i])
        does = node.role, node.model, repr(node.settings)
        alike[does, graph.predecessors[i], readers].append(i)
    models = {node.model: node.model for node in graph.nodes}
    if pool is not None:
        models = {name: spec.model for name, spec in pool.items()}
    inner = [_box(graph, ids, models) for ids in alike.values()]
    boxes = [Box((), "question"), *inner, Box((), "answer")]
    place = {i: k for k, box in enumerate(boxes) for i in box.ids}
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
    return Drawing(boxes, arrows, *_lay_out(boxes, arrows))


def _box(graph: CollaborationGraph, ids: Sequence[int], models: Mapping[str, str]) -> Box:
    """Return the box of these nodes; `models` maps each name in the pool to its model."""
    node = graph.node(ids[0])
    role = get_role(node.role)
    count = f"{len(ids)} × " if len(ids) > 1 else ""
    counts = node.id == graph.sink and graph.route is None
    said = f"{count}{node.role}", "no model call", QUIET
    if role.calls_model:
        place = list(dict.fromkeys(models.values())).index(models[node.model])
        said = f"{count}{node.model}", node.role, colour(place)
    return Box(tuple(ids), *said, role.outline, counts, h=WIDTH)


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
        # An arrow is level where it passes a step.
        between, sides = arrow.points[1:-1], (-WIDTH / 2, WIDTH / 2)
        bends = [(x + right + side, y + down) for y, x in between for side in sides]
        arrow.points = [start, *bends, end]
    return boxes[-1].xy[0] + END / 2 + MARGIN, max(heights) + down + HEIGHT / 2 + MARGIN


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
    """Return a graph as SVG, with colours as CSS variables; the title begins with `what`."""
    size = f"{counted(len(graph.nodes), 'node')}, width {graph.width}, depth {graph.depth}"
    template = new_templates().get_template("graph.svg.j2")
    return template.render(d=draw(graph, pool), title=f"{what}: {size}", simulated=simulated)


def write_picture(svg: str, path: Path) -> Path:
    """Write a picture in the format of the path's suffix, one of FORMATS."""
    if path.suffix == ".svg":
        write_text(path, in_both_themes(svg))
        return path
    import vl_convert  # large, and needs the extra `page`

    write_bytes(path, vl_convert.svg_to_png(fixed(svg), scale=PNG_SCALE))
    return path


def of_simulation(path: Path) -> bool:
    """Return True if a path is for simulated results. Pictures of such results say so, because they
    may be copied without their paths.
    """
    return any("simulated" in part for part in path.parts)
