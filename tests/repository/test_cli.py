"""The command line as a person uses it: its output, its one line of error and its exit code."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.oracles import CHAIN_OF_3_LLAMA_8B
from tests.support.project import MODEL, ROOT
from tests.support.stub_server import StubServer, serve
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import chain, parallel

PAPER = ("--profile", "paper")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what the command line reads."""
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shown(ttsgraph):
    """What a command prints, as data."""
    return lambda *arguments: json.loads(ttsgraph(*arguments).stdout)


@pytest.fixture
def fails(ttsgraph):
    """Whether a command ends with one line that has these parts, and with exit code 2."""

    def run(arguments: tuple[str, ...], *expected: str) -> None:
        done = ttsgraph(*arguments)
        assert done.code == 2
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.strip().splitlines()) == 1
        for part in expected:
            assert part in done.stderr

    return run


def write(folder: Path, graph: CollaborationGraph | dict) -> str:
    path = folder / "graph.json"
    path.write_text(graph.to_json() if isinstance(graph, CollaborationGraph) else json.dumps(graph))
    return str(path)


def test_cost_prints_what_theorem_1_says(project, shown):
    file = write(project, chain(["llama-3.1-8b"] * 3))
    cost = shown("graph", "cost", file, *PAPER, "--task", "math")
    assert {"flops", "budget_units", "dollars", "width", "depth", "n_nodes"} <= set(cost)
    assert cost["budget_units"] == pytest.approx(CHAIN_OF_3_LLAMA_8B, abs=0.01)
    assert (cost["width"], cost["depth"], cost["n_nodes"]) == (1, 3, 3)


def test_validate_says_what_a_graph_is(project, shown):
    file = write(project, parallel(["gemma-3-1b"] * 3, "llama-3.2-1b"))
    found = shown("graph", "validate", file, *PAPER)
    assert (found["valid"], found["n_nodes"], found["width"], found["depth"]) == (True, 4, 3, 2)


def test_draw_writes_a_picture(project, ttsgraph, fails):
    file = write(project, parallel(["a", "b"], "c"))
    assert ttsgraph("graph", "draw", file, "--out", "graph.svg").code == 0
    assert "<svg" in (project / "graph.svg").read_text()
    fails(("graph", "draw", file, "--out", "graph.txt"), ".svg", "graph.txt")


def test_an_estimate_adds_up(project, shown):
    found = shown("estimate", *PAPER, "--task", "math")
    assert found["calls"]["total"] == sum(v for k, v in found["calls"].items() if k != "total")
    # each alone, and what reading answers adds
    assert found["calls"]["profile"] == 6 * (750 + 8 * 3)
    low, high = found["dollars_between"]
    assert 1 < low < found["dollars"] < high < 20
    hours = sum(found["hours_by_stage"].values())
    assert found["seconds"] / 3600 == pytest.approx(hours, abs=0.05)
    assert shown("estimate", "--profile", "laptop", "--task", "math")["seconds"] is None


def use_stub(project: Path, url: str) -> tuple[str, ...]:
    """A profile with one model, at this URL; returns the options that choose it."""
    data = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    data["pool"] = {"only": MODEL | {"base_url": url, "served_as": "stub"}}
    data["engine"] = {"kind": "external", "max_retries": 0}
    data["tasks"]["math"]["prompt"] = {"style": "chat"}
    (project / "profiles" / "stub.yaml").write_text(yaml.safe_dump(data))
    return ("--profile", "stub", "--task", "math")


def test_ask_runs_the_graph_on_a_served_model(project, shown):
    file = write(project, parallel(["only"] * 3, "only", "voter"))
    with serve(StubServer(("stub",), skill=1.0)) as url:
        found = shown("graph", "ask", file, "12 + 7", *use_stub(project, url), "--trace")
    assert (found["answer"], found["calls"], len(found["nodes"])) == ("19", 3, 4)


def test_ask_needs_the_worked_examples_of_few_shot_prompts(project, fails):
    file = write(project, chain(["smollm2-135m"]))
    asked = ("graph", "ask", file, "12 + 7", "--profile", "laptop", "--task", "math")
    fails(asked, "the stage 'sample' makes it")


def nodes(*roles: str, model: str = "gemma-3-1b") -> list[dict]:
    return [{"id": i, "role": role, "model": model} for i, role in enumerate(roles)]


THREE = nodes("assistant", "assistant", "assistant")


class TestBadInputGetsOneLineAndExitCode2:
    @pytest.mark.parametrize(
        ("nodes", "edges", "expected"),
        [
            (
                THREE,
                [[0, 1], [1, 0], [1, 2]],
                "expected an acyclic graph, found a cycle among nodes [0, 1]",
            ),
            (nodes("voter"), [], "needs at least 1 predecessor, found 0"),
            (nodes("assistant", model="gpt"), [], "unknown model 'gpt'; the pool has"),
        ],
    )
    def test_graphs(self, project, fails, nodes, edges, expected):
        file = write(project, {"nodes": nodes, "edges": edges})
        fails(("graph", "validate", file, *PAPER), expected)

    @pytest.mark.parametrize(
        "command", [("estimate",), ("lineage", "math@champion"), ("new-task", "a", "b.jsonl")]
    )
    def test_outside_a_project(self, tmp_path, monkeypatch, fails, command):
        monkeypatch.chdir(tmp_path)
        fails(command, "params.yaml: expected a settings file", "run this in a project's folder")

    @pytest.mark.parametrize(
        ("command", "expected"),
        [
            (
                ("graph", "ask", "results/laptop/math/random/graph.json", "1 + 1"),
                ("`make repro` makes it",),
            ),
            (
                ("graph", "cost", "nothing.json", *PAPER),
                ("nothing.json", "no such file; correct the path"),
            ),
            (
                ("graph", "cost", "graph.json", "--profile", "desktop"),
                ("unknown profile 'desktop'", "laptop, paper"),
            ),
        ],
    )
    def test_names_of_nothing(self, project, fails, command, expected):
        write(project, chain(["gemma-3-1b"]))
        fails(command, *expected)

    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            (
                "patience:",
                "patiance:",
                ("paper.yaml: unknown key 'search.patiance', did you mean 'patience'?",),
            ),
            ("limit: 80", "limit: 0.5", ("budget 0.5 (flops) holds no call", "raise budget.limit")),
        ],
    )
    def test_settings(self, project, fails, old, new, expected):
        path = project / "profiles" / "paper.yaml"
        path.write_text(path.read_text().replace(old, new))
        fails(("estimate", *PAPER), *expected)

    def test_endpoint_that_refuses(self, project, fails):
        options = use_stub(project, "http://127.0.0.1:9/v1")
        fails(
            ("graph", "ask", write(project, chain(["only"])), "1 + 1", *options),
            "127.0.0.1:9",
            "Connection error",
            "start it, or correct base_url",
        )

    def test_model_the_server_does_not_have(self, project, fails):
        file = write(project, chain(["only"]))
        with serve(StubServer(("other",))) as url:
            asked = ("graph", "ask", file, "1 + 1", *use_stub(project, url))
            fails(asked, "expected model 'stub'", "has other")
