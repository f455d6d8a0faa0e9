"""The command line as a person uses it: a real process, its output and its exit code."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.oracles import CHAIN_OF_3_LLAMA_8B, LABELED, UNLABELED
from tests.support.stub_server import StubServer, serve
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.graphs.topologies import chain, parallel

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the command line reads."""
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path


def ttsgraph(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ttsgraph", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def write(folder: Path, graph: CollaborationGraph | dict) -> str:
    path = folder / "graph.json"
    path.write_text(graph.to_json() if isinstance(graph, CollaborationGraph) else json.dumps(graph))
    return str(path)


def fails(done: subprocess.CompletedProcess[str], *expected: str) -> None:
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    for part in expected:
        assert part in done.stderr


def test_cost_prints_what_theorem_1_says(project):
    file = write(project, chain(["llama-3.1-8b"] * 3))
    done = ttsgraph(project, "graph", "cost", file, "--profile", "paper", "--task", "math")
    cost = json.loads(done.stdout)
    assert {"flops", "budget_units", "dollars", "width", "depth", "n_nodes"} <= set(cost)
    assert cost["budget_units"] == pytest.approx(CHAIN_OF_3_LLAMA_8B, abs=0.01)
    assert (cost["width"], cost["depth"], cost["n_nodes"]) == (1, 3, 3)


@pytest.mark.parametrize("n", [1, 7, 8])
def test_dags(project, n):
    done = ttsgraph(project, "dags", str(n))
    assert json.loads(done.stdout) == {"n": n, "labeled": LABELED[n], "unlabeled": UNLABELED[n]}


def test_dags_of_forty_nodes_has_only_the_labeled_count(project):
    shown = json.loads(ttsgraph(project, "dags", "40").stdout)
    assert shown["unlabeled"] is None
    assert len(str(shown["labeled"])) > 200


def test_validate_says_what_a_graph_is(project):
    file = write(project, parallel(["gemma-3-1b"] * 3, "llama-3.2-1b"))
    shown = json.loads(ttsgraph(project, "graph", "validate", file, "--profile", "paper").stdout)
    assert (shown["valid"], shown["n_nodes"], shown["width"], shown["depth"]) == (True, 4, 3, 2)


def test_draw_writes_a_picture(project):
    file = write(project, parallel(["a", "b"], "c"))
    done = ttsgraph(project, "graph", "draw", file, "--out", str(project / "graph.svg"))
    assert done.returncode == 0
    assert "<svg" in (project / "graph.svg").read_text()
    fails(
        ttsgraph(project, "graph", "draw", file, "--out", "graph.txt"),
        ".svg",
        "graph.txt",
    )


def test_an_estimate_adds_up(project):
    shown = json.loads(ttsgraph(project, "estimate", "--profile", "paper", "--task", "math").stdout)
    assert shown["calls"]["total"] == sum(v for k, v in shown["calls"].items() if k != "total")
    assert shown["calls"]["profile"] == 6 * (
        750 + 8 * 3
    )  # each alone, and what reading answers adds
    low, high = shown["dollars_between"]
    assert 1 < low < shown["dollars"] < high < 20
    hours = sum(shown["hours_by_stage"].values())
    assert shown["seconds"] / 3600 == pytest.approx(hours, abs=0.05)
    assert (
        json.loads(ttsgraph(project, "estimate", "--profile", "laptop", "--task", "math").stdout)[
            "seconds"
        ]
        is None
    )


def test_ask_runs_the_graph_on_a_served_model(project):
    with serve(StubServer(("stub",), skill=1.0)) as url:
        use_stub(project, url)
        file = write(project, parallel(["only"] * 3, "only", "voter"))
        done = ttsgraph(
            project,
            "graph",
            "ask",
            file,
            "12 + 7",
            "--profile",
            "stub",
            "--task",
            "math",
            "--trace",
        )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["answer"], shown["calls"], len(shown["nodes"])) == ("19", 3, 4)


def use_stub(project: Path, url: str, served_as: str = "stub") -> None:
    data = yaml.safe_load((ROOT / "profiles" / "laptop.yaml").read_text())
    model = {
        "family": "f",
        "total": 1e8,
        "non_embedding": 1e8,
        "layers": 2,
        "hidden": 8,
        "price": 0.1,
    }
    data["pool"] = {"only": model | {"base_url": url, "served_as": served_as}}
    data["engine"] = {"kind": "external", "max_retries": 0}
    data["tasks"]["math"]["prompt"] = {"style": "chat"}
    (project / "profiles" / "stub.yaml").write_text(yaml.safe_dump(data))


def test_ask_needs_the_worked_examples_of_few_shot_prompts(project):
    file = write(project, chain(["smollm2-135m"]))
    fails(
        ttsgraph(project, "graph", "ask", file, "12 + 7", "--profile", "laptop", "--task", "math"),
        "the stage 'sample' makes it",
    )


CYCLE = {
    "nodes": [{"id": i, "role": "assistant", "model": "gemma-3-1b"} for i in range(3)],
    "edges": [[0, 1], [1, 0], [1, 2]],
}
TWO_SINKS = {"nodes": CYCLE["nodes"], "edges": [[0, 1]]}


class TestBadInputGetsOneLineAndExitCode2:
    @pytest.mark.parametrize(
        ("graph", "expected"),
        [
            (CYCLE, "expected an acyclic graph, found a cycle among nodes [0, 1]"),
            (TWO_SINKS, "expected one sink"),
            (
                {"nodes": [{"id": 0, "role": "voter", "model": "gemma-3-1b"}], "edges": []},
                "needs at least 1 predecessor, found 0",
            ),
            (
                {"nodes": [{"id": 0, "role": "poet", "model": "gemma-3-1b"}], "edges": []},
                "unknown role 'poet'",
            ),
            (
                {"nodes": [{"id": 0, "role": "assistant", "model": "gpt"}], "edges": []},
                "unknown model 'gpt'; the pool has",
            ),
        ],
    )
    def test_graphs(self, project, graph, expected):
        fails(
            ttsgraph(project, "graph", "validate", write(project, graph), "--profile", "paper"),
            expected,
        )

    def test_outside_a_project(self, tmp_path):
        for command in (["estimate"], ["lineage", "math@champion"], ["new-task", "a", "b.jsonl"]):
            fails(
                ttsgraph(tmp_path, *command),
                "params.yaml: expected a settings file",
                "run this in a project's folder",
            )

    def test_a_graph_of_a_run_that_has_not_been(self, project):
        fails(
            ttsgraph(project, "graph", "ask", "results/laptop/math/random/graph.json", "1 + 1"),
            "`make repro` makes it",
        )
        fails(ttsgraph(project, "explain", "results/laptop/math/random"), "`make repro` makes it")

    def test_missing_graph_file(self, project):
        fails(
            ttsgraph(project, "graph", "cost", "nothing.json", "--profile", "paper"),
            "nothing.json",
            "no such file; correct the path",
        )

    def test_unknown_profile_and_task(self, project):
        file = write(project, chain(["gemma-3-1b"]))
        fails(
            ttsgraph(project, "graph", "cost", file, "--profile", "desktop"),
            "unknown profile 'desktop'",
            "laptop, paper",
        )
        fails(
            ttsgraph(project, "graph", "cost", file, "--profile", "paper", "--task", "chess"),
            "unknown task 'chess'",
        )

    def test_unknown_key(self, project):
        path = project / "profiles" / "paper.yaml"
        path.write_text(path.read_text().replace("patience:", "patiance:"))
        done = ttsgraph(project, "estimate", "--profile", "paper")
        fails(done, "paper.yaml: unknown key 'search.patiance', did you mean 'patience'?")

    def test_budget_below_one_call(self, project):
        path = project / "profiles" / "paper.yaml"
        path.write_text(path.read_text().replace("limit: 80", "limit: 0.5"))
        fails(
            ttsgraph(project, "estimate", "--profile", "paper"),
            "budget 0.5 (flops) holds no call",
            "raise budget.limit",
        )

    def test_endpoint_that_refuses(self, project):
        use_stub(project, "http://127.0.0.1:9/v1")
        file = write(project, chain(["only"]))
        fails(
            ttsgraph(project, "graph", "ask", file, "1 + 1", "--profile", "stub"),
            "127.0.0.1:9",
            "Connection error",
            "start it, or correct base_url",
        )

    def test_model_the_server_does_not_have(self, project):
        with serve(StubServer(("other",))) as url:
            use_stub(project, url)
            file = write(project, chain(["only"]))
            fails(
                ttsgraph(project, "graph", "ask", file, "1 + 1", "--profile", "stub"),
                "expected model 'stub'",
                "has other",
            )
