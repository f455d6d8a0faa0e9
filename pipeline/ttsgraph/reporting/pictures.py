"""Pictures as files: plots by their specifications, graphs by their drawings, the same that the
page shows. The same content is the same file, byte for byte.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined

from ttsgraph.base.files import write_text
from ttsgraph.base.style import fixed
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.reporting.chart import Chart
from ttsgraph.reporting.drawing import END, HEIGHT, WIDTH, draw

TEMPLATES = Path(__file__).parent / "templates"
PNG_SCALE = 2
FORMATS = (".svg", ".png", ".pdf")


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

    return _numbered(vl_convert.vegalite_to_svg(chart.in_file(simulated)))


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
    pool = pool or _members(graph)
    models = ", ".join(
        f"{count} of {pool[model].words}" for model, count in graph.model_counts().items()
    )
    picture = (
        _templates()
        .get_template("graph.svg.j2")
        .render(
            d=draw(graph, pool),
            key=key,
            title=f"{what}: {models}; width {graph.width}, depth {graph.depth}",
            note="simulated" if simulated else "",
            alone=alone,
            w=WIDTH,
            h=HEIGHT,
            end=END,
        )
    )
    return fixed(picture) if alone else picture


def write_picture(svg: str, path: Path) -> Path:
    """Write a picture in the form that the path's ending says, one of FORMATS."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        write_text(path, svg)
        return path
    import vl_convert

    as_png = path.suffix == ".png"
    path.write_bytes(
        vl_convert.svg_to_png(svg, scale=PNG_SCALE) if as_png else vl_convert.svg_to_pdf(svg)
    )
    return path


def of_simulation(path: Path) -> bool:
    """Whether a path says that what is there is simulated; a picture then says so itself, because
    pictures travel without their paths.
    """
    return any("simulated" in part for part in path.parts)


@cache
def _templates() -> Templates:
    return new_templates()


def _members(graph: CollaborationGraph) -> ModelPool:
    """The models that a graph names, of which nothing else is known."""
    names = sorted({node.model for node in graph.nodes})
    return ModelPool(
        tuple(ModelSpec(name, name, None, None, None, None, Price(0.0, 0.0)) for name in names)
    )


def _numbered(svg: str) -> str:
    """A picture whose gradients are numbered from 0: Vega counts on in a process, and the same
    picture is the same file.
    """
    known: dict[str, int] = {}
    return re.sub(
        r"gradient_(\d+)", lambda found: f"gradient_{known.setdefault(found[1], len(known))}", svg
    )
