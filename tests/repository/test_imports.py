"""What a command or a stage imports, which is what its first line waits for."""

import json
import sys

import pytest

from tests.support.processes import said_by
from tests.support.project import ROOT
from ttsgraph.graphs.topologies import parallel

FORMATS = {"dvc", "jinja2", "matplotlib", "mlflow", "networkx", "pandas", "pandera", "pyarrow"}
CLIENTS = {"aiohttp", "altair", "fastapi", "httpx2", "openai", "prefect", "scipy", "uvicorn"}
HEAVY = FORMATS | CLIENTS | {"vl_convert"}
WEIGHTS = {"torch", "transformers", "vllm"}
STAGES = "from ttsgraph_flows import sample, profile, pilot, search, evaluate, report"
STAGES += ", init_family, init_instances"
CLIENTS_OF_A_STAGE = {"aiohttp", "openai", "dvc", "mlflow", "sqlalchemy"}
DRAWN = {"matplotlib", "networkx", "scipy.optimize", "scipy.stats"}


def imported(code: str) -> set[str]:
    """Names of all modules after this code, in a process of its own."""
    told = f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)))"
    return set(json.loads(said_by([sys.executable, "-c", told], ROOT).splitlines()[-1]))


@pytest.fixture(scope="module")
def floor():
    return len(imported("import typer, pydantic"))


def command(*arguments: str) -> str:
    return (
        f"import sys; sys.argv = {['ttsgraph', *arguments]}\n"
        "from ttsgraph.cli import app\n"
        "app(standalone_mode=False)"
    )


LOADED = {
    # code, what it does without, and how many times as many modules as there are at least
    "help": (command("--help"), HEAVY | {"numpy"}, 3),
    "explain": (command("explain", "GRAPH", "--profile", "paper", "--task", "math"), HEAVY, 5),
    "whether anything has changed": ("import ttsgraph_flows.repro", HEAVY, 4),
    "python": ("import ttsgraph", HEAVY | WEIGHTS, 2),
    "search": ("import ttsgraph; ttsgraph.search", {"mlflow", "prefect", "dvc"} | WEIGHTS, 20),
    "stage": ("import ttsgraph_flows.stage", HEAVY - {"pandas", "pandera", "pyarrow"}, 99),
    "stages": (STAGES, CLIENTS_OF_A_STAGE | DRAWN, 99),
}


@pytest.mark.parametrize("what", LOADED)
def test_what_is_not_needed_is_not_imported(floor, tmp_path, what):
    code, none_of, most = LOADED[what]
    graph = tmp_path / "graph.json"
    graph.write_text(parallel(["llama-3.2-1b"] * 2, "llama-3.2-1b").to_json())
    found = imported(code.replace("GRAPH", str(graph)))
    assert not (found | {name.partition(".")[0] for name in found}) & none_of
    assert len(found) <= most * floor
