"""Colours, thinning, drawings and figures of the report."""

import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert

from tests.reporting.test_answer import pool_of
from tests.support.project import ROOT
from ttsgraph.base.style import DASHES, SERIES, SHAPES, TONES
from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.topologies import chain, parallel
from ttsgraph.reporting import figures
from ttsgraph.reporting.answer import Verdict
from ttsgraph.reporting.charts import MOST, in_script, sweeps, thinned, validated_front
from ttsgraph.reporting.figures import Row, TableSource
from ttsgraph.reporting.pictures import FULL, chart_svg, draw, graph_svg, write_picture
from ttsgraph.stages.schemas import Evaluations, Trajectory


def matrix(text: str) -> np.ndarray:
    """Three rows of three numbers."""
    return np.array(text.split(), float).reshape(3, 3)


# How linear RGB looks to people who lack one kind of cone (Machado, Oliveira and Fernandes 2009,
# severity 1).
SIGHT = {
    "all cones": matrix("1 0 0  0 1 0  0 0 1"),
    "protanopia": matrix(
        "0.152286 1.052583 -0.204868  0.114503 0.786281 0.099216  -0.003882 -0.048116 1.051998"
    ),
    "deuteranopia": matrix(
        "0.367322 0.860646 -0.227968  0.280085 0.672501 0.047413  -0.011820 0.042940 0.968881"
    ),
    "tritanopia": matrix(
        "1.255528 -0.076749 -0.178779  -0.078411 0.930809 0.147602  0.004733 0.691367 0.303900"
    ),
}
XYZ = matrix(
    "0.4124564 0.3575761 0.1804375  0.2126729 0.7151522 0.0721750  0.0193339 0.1191920 0.9503041"
)
FARTHEST_ALIKE = 20.0


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    x, y, z = (XYZ @ np.clip(rgb, 0, 1)) / (XYZ @ np.ones(3))
    x, y, z = (np.cbrt(t) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    dark, light = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", SERIES)
@pytest.mark.parametrize("sight", SIGHT)
def test_series_can_be_told_apart_whatever_colours_someone_sees(theme: str, sight: str) -> None:
    seen = [lab(SIGHT[sight] @ linear(colour)) for colour in SERIES[theme]]
    nearest = min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2))
    assert nearest >= FARTHEST_ALIKE
    assert len(set(SHAPES)) == len(set(DASHES)) == len(seen)  # which say the same


@pytest.mark.parametrize("theme", SERIES)
def test_colours_stand_out_from_the_page_and_words_can_be_read(theme: str) -> None:
    tones = TONES[theme]
    assert min(contrast(colour, tones["page"]) for colour in SERIES[theme]) >= 3
    pairs = list(itertools.product(("ink", "quiet", "accent", "warn"), ("page", "raised")))
    for ink, back in [*pairs, ("ink", "warn-back")]:
        assert contrast(tones[ink], tones[back]) >= 4.5


def test_few_candidates_are_all_drawn_and_of_many_some_of_every_part_of_the_search() -> None:
    few = pd.DataFrame({"accuracy": [np.nan, *[0.5] * (MOST - 1)]})
    assert thinned(few, set()) == list(range(1, MOST))  # without a score there is no place for it
    rows = thinned(pd.DataFrame({"accuracy": [0.5] * 20_000}), {3, 19_998})
    assert {0, 3, 19_998, 19_999} <= set(rows)
    assert MOST <= len(rows) <= MOST + 2
    assert max(np.diff(rows)) <= 1 + 20_000 / MOST


def test_the_front_is_of_validated_candidates_that_nothing_beats_in_score_and_cost() -> None:
    frame = pd.DataFrame(
        {
            "accuracy": [0.9, 0.5, 0.6, 0.4, 0.8, 0.7, 0.55],
            "budget_units": [1.0, 2.0, 3.0, 3.0, 9.0, 1.5, 1.5],
            "split": ["train", *["val"] * 6],
            "status": ["ok", "ok", "ok", "ok", "failed", "ok", "ok"],
            "graph": ["a", "b", "c", "d", "e", "f", "f"],
        }
    )
    front = validated_front([TableSource("archive.parquet", frame)])
    assert [row.place for row in front] == ["6", "2"]


@pytest.mark.parametrize(
    ("found_only", "rival_only", "p", "answer", "places"),
    [
        ([9, 8], [1, 0], [0.02, 0.01], "Yes", (["1", "2"], [], [])),
        ([9, 5], [1, 4], [0.02, 1.0], "In part", (["1"], ["2"], [])),
        ([3, 5], [1, 6], [0.6, 1.0], "Not shown", ([], ["1", "2"], [])),
        ([9, 1], [1, 9], [0.02, 0.02], "No", (["1"], [], ["2"])),
    ],
)
def test_what_was_found_beats_a_rival_only_where_a_test_shows_it(
    found_only, rival_only, p, answer, places
) -> None:
    frame = pd.DataFrame(
        {
            "arm": ["found", "single", "fixed_topology"],
            "found_only": [0, *found_only],
            "rival_only": [0, *rival_only],
        }
        | {"p_differs": [1.0, *p]}
    )
    told = Verdict(method_of(frame))
    assert told.answer == answer
    ranked = [[row.place for row in told.ranked(how)] for how in ("ahead", "unclear", "behind")]
    assert tuple(ranked) == places


def method_of(test: pd.DataFrame, record: dict[str, Any] | None = None) -> Any:
    source = TableSource("test.parquet", test)
    return SimpleNamespace(name="m", test=source, lineage=Row("lineage.json", "", record or {}))


def test_what_the_gate_selected_is_the_row_that_the_record_names() -> None:
    labels = ["found graph", "a", "b"]
    frame = pd.DataFrame({"arm": ["found", "single", "single"], "label": labels})
    told = Verdict(method_of(frame, {"gate": {"arm": "single", "label": "b"}}))
    assert (told.found.place, told.selected.place) == ("0", "2")
    assert Verdict(method_of(frame)).selected.place == "0"


ASKED = [(0, "assistant", "m"), (1, "assistant", "k"), (2, "assistant", "m"), (3, "voter", "k")]
WIDE = CollaborationGraph(
    tuple(Node(*each) for each in [*ASKED, (5, "fuser", "k")]),
    ((0, 1), (1, 2), (0, 5), (2, 5), (0, 3), (3, 5)),
)


@pytest.mark.parametrize("graph", [WIDE, chain(["m"] * 6), parallel(["m", "k"] * 6, "k", "voter")])
def test_no_node_of_a_drawing_covers_another_and_every_edge_has_its_arrow(
    graph: CollaborationGraph,
) -> None:
    drawing = draw(graph, pool_of("k", "m"))
    assert {box.id for box in drawing.boxes} == {node.id for node in graph.nodes}
    for a, b in itertools.combinations(drawing.boxes, 2):
        assert abs(a.x - b.x) >= FULL.width or abs(a.y - b.y) >= FULL.height
    for box in drawing.boxes:
        assert 0 <= box.x <= drawing.width - FULL.width
        assert 0 <= box.y <= drawing.height - FULL.height
    arrows = {(arrow.source, arrow.target) for arrow in drawing.arrows}
    sources_of = {(-1, i) for i in graph.levels[0]}
    assert arrows == set(graph.edges) | sources_of | {(graph.sink, -1)}
    assert [box.id for box in drawing.boxes if box.is_sink] == [graph.sink]


def test_a_model_has_one_colour_in_all_drawings_and_a_voter_has_none() -> None:
    colours = dict(draw(WIDE, pool_of("k", "other", "m")).models)
    assert colours == {"k": "var(--series-0)", "m": "var(--series-2)"}
    voter = next(box for box in draw(WIDE, pool_of("k", "m")).boxes if box.role == "voter")
    assert (voter.model, voter.colour) == ("no model call", "var(--quiet)")


@pytest.mark.parametrize(
    "text",
    ["</script>", "<!--<script>", "<!-- <SCRIPT x", "</SCRIPT", "a < b <!-", "]]><!--", "\u2028<"],
)
def test_no_text_ends_or_nests_the_script_that_holds_it(text: str) -> None:
    for held in (text, {text: [text]}):
        written = in_script(json.dumps(held))
        assert json.loads(written) == held
        assert not re.search("</|<!--|<script", written, re.IGNORECASE)


def test_text_of_a_table_can_not_become_markup() -> None:
    assert "<script>" not in figures.num(Row("f", "0", {"label": "<script>"}), "label")


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("trajectory", {*Trajectory.to_schema().columns}),
        ("comparison", {*Evaluations.to_schema().columns, "task", "method", "what"}),
    ],
)
def test_what_dvc_draws_is_in_the_table_that_its_template_is_for(
    name: str, columns: set[str]
) -> None:
    template = (ROOT / ".dvc" / "plots" / f"{name}.json").read_text()
    assert f"template: {name}\n" in (ROOT / "dvc.yaml").read_text()
    fields = set(re.findall(r'"(?:field)": "(\w+)"', template))
    assert {"rev"} < fields <= columns | {"rev"}
    filled = template.replace('"<DVC_METRIC_DATA>"', "[]").replace("<DVC_METRIC_TITLE>", name)
    assert "<DVC_" not in filled
    assert vl_convert.vegalite_to_vega(filled)["marks"]


def sweep_svgs(within_budget: bool, simulated: bool) -> list[str]:
    """The pictures of a pilot whose first two random graphs have the same models."""
    accuracy = np.array([0.4, 0.5, 0.6, 0.3, 0.7])
    table = pd.DataFrame(
        {
            "sweep": ["family"] * 3 + ["width_x_depth"] * 2,
            "label": ["4 x a", "4 x a", "2 x a + 2 x b", "1 x 2", "2 x 2"],
            "n_scored": 20,
            "budget_units": 4.0,
            "accuracy": accuracy,
            "accuracy_low": accuracy - 0.1,
            "accuracy_high": accuracy + 0.1,
            "within_budget": within_budget,
        }
    )
    charts = sweeps("math", TableSource("pilot.parquet", table))
    assert charts[0].spec["height"] == 28 * 2 + 10  # the same models share a line
    return [chart_svg(chart, simulated) for chart in charts]


def test_pictures_mark_what_is_over_the_budget_or_simulated_and_are_the_same_each_time(
    tmp_path: Path,
) -> None:
    dots, heat_map = sweep_svgs(True, simulated=False)
    faint_dots, starred = sweep_svgs(False, simulated=True)
    assert sweep_svgs(False, simulated=True) == [faint_dots, starred]
    assert 'opacity="0.35"' in faint_dots
    assert 'opacity="0.35"' not in dots
    assert "70%*" in starred
    assert not any("*" in text for text in re.findall(r">([^<]*%[^<]*)<", heat_map))
    assert [">simulated<" in svg for svg in (dots, heat_map, faint_dots, starred)] == [0, 0, 1, 1]
    graph = parallel(["a", "a"], "b", "fuser")
    assert ">simulated<" in graph_svg(graph, simulated=True)
    assert not re.search(r">simulated<|var\(--", graph_svg(graph))
    for ending, begin in ((".svg", b"<svg"), (".png", b"\x89PNG"), (".pdf", b"%PDF")):
        path = write_picture(graph_svg(graph), tmp_path / "new" / f"graph{ending}")
        assert path.read_bytes().lstrip().startswith(begin)
