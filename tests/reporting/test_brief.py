"""How a run ends on a terminal and in a log: the report's sentence, the graph in characters, and a
small table.
"""

from __future__ import annotations

import io
import json
from contextlib import chdir
from pathlib import Path

import pytest
from rich.console import Console

from ttsgraph.graphs.graph import CollaborationGraph, Node
from ttsgraph.graphs.topologies import chain, grid, parallel, single
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.reporting.explain import drawn
from ttsgraph_flows.answers import answers_file, tell

POOL = ModelPool(
    tuple(ModelSpec(name, "f", 1e9, 1e9, 1, 1, Price(1.0, 1.0)) for name in ("small", "large"))
)


@pytest.mark.parametrize(
    ("graph", "lines"),
    [
        (single("small"), ["question ──▶ ▢ small ──▶ answer"]),
        (chain(["small", "large"]), ["question ──▶ ▢ small ────▶ ▢ large ──▶ answer"]),
        (
            parallel(["small"] * 3 + ["large"] * 4, "small", "voter"),
            [
                "question ─┬▶ 3 × ▢ small ─┐──▶ ◇ voter ──▶ answer",
                "          └▶ 4 × ▢ large ─┘",
            ],
        ),
    ],
)
def test_a_graph_in_characters(graph: CollaborationGraph, lines: list[str]) -> None:
    assert drawn(graph, POOL) == lines


def test_a_graph_that_skips_levels_is_told_in_steps() -> None:
    nodes = tuple(Node(i, "assistant", "small") for i in range(3))
    told = drawn(CollaborationGraph(nodes, ((0, 1), (0, 2), (1, 2))), POOL)
    assert told[0] == "step 1: node 0 (assistant, small) answers the question alone"
    assert [line.partition(":")[0] for line in told] == ["step 1", "step 2", "step 3"]
    assert drawn(grid(2, 2, "small", "voter"), POOL)[0].startswith("step 1: ")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A project whose report stage has run."""
    found = "→ found by random|50.8 %|45.9 to 55.6|$0.012 per 1,000 questions|7.20|2.1 s|"
    one = "small|47.3 %|42.4 to 52.1|$0.0018 per 1,000 questions|1.10|0.31 s|0.059"
    rows = [found.split("|"), one.split("|")]
    told = {
        "task": "math",
        "sentence": "Use this, but it is not proven: three calls of small and their majority. "
        + "50.8 % right " * 12,
        "serve": "ttsgraph serve math@champion",
        "graph": ["question ──▶ 3 × ▢ small ──▶ ◇ voter ──▶ answer"],
        "heads": ["graph", "right", "interval", "price", "units", "time", "p"],
        "rows": rows,
    }
    path = tmp_path / answers_file("laptop")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"profile": "laptop", "simulated": False, "tasks": [told]}))
    return tmp_path


def test_a_terminal_gets_the_sentence_the_graph_the_table_and_the_command(written: Path) -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, record=True)
    with chdir(written):
        tell("laptop", console)
    shown = console.export_text()
    assert "math: Use this, but it is not proven: three calls of small" in shown
    assert "question ──▶ 3 × ▢ small ──▶ ◇ voter ──▶ answer" in shown
    assert max(map(len, shown.splitlines())) <= 120
    (used,) = [line for line in shown.splitlines() if "→" in line]
    assert used.split("  ")[1].strip() == "→ found by random"
    assert "ttsgraph serve math@champion" in shown
    assert "report: reports/laptop/index.html" in shown


def test_a_log_gets_the_sentence_on_one_line(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chdir(written):
        tell("laptop")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert sum("Use this" in line and "50.8 % right" in line for line in shown.splitlines()) == 1
