"""Colours, thinning, drawings and figures of the report."""

import itertools
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert

from tests.reporting.test_answer import pool_of
from tests.support.colours import contrast
from tests.support.project import ROOT
from tests.support.routers import by_field
from ttsgraph.base.style import COLOURS
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.topologies import chain, parallel, routed, single
from ttsgraph.reporting.answer import best_made_by_hand
from ttsgraph.reporting.charts import LINE, chart_svg, overview
from ttsgraph.reporting.figures import TableSource
from ttsgraph.reporting.pictures import HEIGHT, Drawing, draw, graph_svg, write_picture
from ttsgraph.stages.schemas import Evaluations, Trajectory


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_stand_out_from_the_page_and_words_can_be_read(theme):
    tones = {name: pair[theme] for name, pair in COLOURS.items()}
    series = [tone for name, tone in tones.items() if name.startswith("series")]
    assert min(contrast(colour, tones["page"]) for colour in series) >= 3
    pairs = list(itertools.product(("ink", "quiet", "accent", "warn"), ("page", "raised")))
    for ink, back in [*pairs, ("ink", "warn-back")]:
        assert contrast(tones[ink], tones[back]) >= 4.5


@pytest.mark.parametrize("metric", ["flops", "dollars", "runtime", "one of a user's own"])
def test_the_first_plot_has_a_name_at_every_point_and_scores_of_the_test_alone(metric):
    """The strongest graph made by hand among them; equal scores don't cover their names."""
    rows = [
        ("found", "found graph", "f", 0.8, 100, 3.0),
        ("single", "a", "s", 0.7, 100, 1.0),
        ("self_consistency", "majority of 3 x a", "m", 0.79, 100, 3.0),
        ("fixed_topology", "family: 4 x b", "p", 0.79, 100, 3.0),
        ("team", "theirs", "t", float("nan"), 0, 2.0),
    ]
    columns = ["arm", "label", "graph_hash", "accuracy", "n_scored", "budget_units"]
    frame = pd.DataFrame(rows, columns=columns).assign(accuracy_low=0.6, accuracy_high=0.9)
    test = TableSource("test.parquet", frame)
    method = SimpleNamespace(test=test, finder="found by random")
    task: Any = SimpleNamespace(name="math", methods=[method])
    chart = overview(task, test.rows[0], metric)
    (points,) = chart.spec["datasets"].values()
    named = {point["name"]: point["name_y"] for point in points}
    assert list(named) == ["use this", "best single call: a", *frame["label"][2:4]]
    heights = sorted(named.values())
    assert min(np.diff(heights)) * 270 / 0.3 >= LINE - 1e-6
    svg = chart_svg(chart, simulated=False)
    assert svg == chart_svg(chart, simulated=False)  # DVC compares files
    assert all(f">{name}<" in svg for name in named)
    assert all(f'aria-label="test.parquet#{k}"' in svg for k in range(4))
    assert best_made_by_hand(test)["label"] == "majority of 3 x a"


ASKED = [(0, "assistant", "m"), (1, "assistant", "k"), (2, "assistant", "m"), (3, "voter", "k")]
WIDE = CollaborationGraph(
    tuple(Node(*each) for each in [*ASKED, (5, "fuser", "k")]),
    ((0, 1), (1, 2), (0, 5), (2, 5), (0, 3), (3, 5)),
)
ROUTE = routed(
    by_field("topic", {"x": 1}, [0.75, 0.25]), [single("m"), parallel(["k"] * 3, "k", "voter")]
)


def ends_of(drawing: Drawing) -> set[tuple[tuple[int, ...] | str, tuple[int, ...] | str]]:
    """The arrows by the nodes at both ends."""
    names = [box.ids or box.title for box in drawing.boxes]
    return {(names[arrow.source], names[arrow.target]) for arrow in drawing.arrows}


@pytest.mark.parametrize(
    "graph", [WIDE, ROUTE, chain(["m"] * 6), parallel(["m", "k"] * 6, "k", "voter")]
)
def test_a_drawing_has_every_node_once_uncovered_with_its_arrows(graph):
    drawing = draw(graph, pool_of("k", "m"))
    inner = [box for box in drawing.boxes if box.ids]
    assert sorted(i for box in inner for i in box.ids) == sorted(node.id for node in graph.nodes)
    for a, b in itertools.combinations(drawing.boxes, 2):
        apart = [abs(p - q) for p, q in zip(a.xy, b.xy, strict=True)]
        assert apart[0] >= (a.h + b.h) / 2 or apart[1] >= HEIGHT
    points = [*(box.xy for box in drawing.boxes), *(p for a in drawing.arrows for p in a.points)]
    assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in points)
    if graph.route is None:
        box_of = {i: box.ids for box in inner for i in box.ids}
        wanted = {(box_of[a], box_of[b]) for a, b in graph.edges}
        wanted |= {("question", box_of[i]) for i in graph.levels[0]}
        assert ends_of(drawing) == wanted | {(box_of[graph.sink], "answer")}


def test_a_router_is_drawn_where_it_decides_with_the_share_of_each_branch():
    drawing = draw(ROUTE, pool_of("k", "m"))
    router, voter = (ROUTE.sink,), (4,)
    assert ends_of(drawing) == {
        *(("question", router), (router, (0,)), (router, (1, 2, 3)), ((1, 2, 3), voter)),
        *(((0,), "answer"), (voter, "answer")),
    }
    names = [box.title for box in drawing.boxes]
    shares = {names[arrow.target]: arrow.share for arrow in drawing.arrows if arrow.share}
    assert shares == {"m": "75 %", "3 × k": "25 %"}
    assert ">75 %</text>" in graph_svg(ROUTE, pool_of("k", "m"))


DRAWN = {"trajectory": {*Trajectory.columns}}
DRAWN |= {"comparison": {*Evaluations.columns, "task", "method", "what"}}


@pytest.mark.parametrize("name", DRAWN)
def test_what_dvc_draws_is_in_the_table_that_its_template_is_for(name):
    template = (ROOT / ".dvc" / "plots" / f"{name}.json").read_text()
    assert f"template: {name}\n" in (ROOT / "dvc.yaml").read_text()
    fields = set(re.findall(r'"(?:field)": "(\w+)"', template))
    assert {"rev"} < fields <= DRAWN[name] | {"rev"}
    filled = template.replace('"<DVC_METRIC_DATA>"', "[]").replace("<DVC_METRIC_TITLE>", name)
    assert "<DVC_" not in filled
    assert vl_convert.vegalite_to_vega(filled)["marks"]


def test_a_picture_is_written_in_each_format_and_says_where_it_is_simulated(tmp_path):
    graph = parallel(["a", "a"], "b", "fuser")
    assert ">simulated<" in graph_svg(graph, simulated=True)
    assert ">simulated<" not in graph_svg(graph)
    for ending, begin in ((".svg", b"<svg"), (".png", b"\x89PNG")):
        path = write_picture(graph_svg(graph), tmp_path / "new" / f"graph{ending}")
        assert path.read_bytes().lstrip().startswith(begin)
