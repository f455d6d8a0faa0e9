"""What a command or a stage imports: the time to its first line is the modules that it loads,
counted here, not timed.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.benchmarks import startup
from tests.support.project import ROOT
from ttsgraph.graphs.topologies import parallel

FORMATS = {"dvc", "jinja2", "matplotlib", "mlflow", "networkx", "pandas", "pandera", "pyarrow"}
CLIENTS = {"aiohttp", "fastapi", "httpx2", "openai", "prefect", "scipy", "uvicorn", "vl_convert"}
HEAVY = FORMATS | CLIENTS
WEIGHTS = {"torch", "transformers", "vllm"}


def imported(code: str) -> set[str]:
    """Names of all modules after this code, in a process of its own."""
    told = f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def first_names(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.fixture(scope="module")
def floor() -> int:
    return len(imported(startup.FLOOR))


def command(*arguments: str) -> str:
    return (
        f"import sys; sys.argv = {['ttsgraph', *arguments]}\n"
        "from ttsgraph.cli import app\n"
        "app(standalone_mode=False)"
    )


@pytest.mark.parametrize(
    ("code", "none_of", "most"),
    [
        (command("--help"), HEAVY | {"numpy"}, 3),
        (command("graph", "cost", "GRAPH", "--profile", "paper", "--task", "math"), HEAVY, 5),
        ("import ttsgraph_flows.repro", HEAVY, 4),
        ("import ttsgraph", HEAVY | WEIGHTS, 2),
        ("import ttsgraph; ttsgraph.search", {"mlflow", "prefect", "dvc"} | WEIGHTS, 20),
    ],
    ids=["help", "what a graph costs", "whether anything has changed", "python", "search"],
)
def test_what_is_not_needed_is_not_imported(
    floor: int, tmp_path: Path, code: str, none_of: set[str], most: int
) -> None:
    graph = tmp_path / "graph.json"
    graph.write_text(parallel(["llama-3.2-1b"] * 2, "llama-3.2-1b").to_json())
    found = imported(code.replace("GRAPH", str(graph)))
    assert not first_names(found) & none_of
    assert len(found) <= most * floor


def test_importing_everything_imports_no_torch() -> None:
    found = imported(
        "import importlib, pkgutil, ttsgraph\n"
        "for module in pkgutil.walk_packages(ttsgraph.__path__, 'ttsgraph.'):\n"
        "    importlib.import_module(module.name)\n"
    )
    assert not first_names(found) & WEIGHTS


STAGES = ("stage", *startup.STAGES)


def test_a_stage_imports_no_client_of_models_no_mlflow_and_draws_nothing():
    # One after another in one process: what is in none of these sets no stage imports, and the
    # first that has it is at fault.
    code = "import json, sys\nfrom importlib import import_module\n"
    code += (
        f"for name in {STAGES}:\n"
        "    import_module(f'ttsgraph_flows.{name}')\n"
        "    print(json.dumps([name, list(sys.modules)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = {name: set(modules) for name, modules in map(json.loads, done.stdout.splitlines())}
    assert list(found) == list(STAGES)
    assert first_names(found["stage"]) & HEAVY <= {"pandas", "pandera", "pyarrow"}
    for name, modules in found.items():
        assert not first_names(modules) & {"aiohttp", "dvc", "matplotlib", "mlflow", "networkx"}, (
            name
        )
        assert not modules & {"openai", "scipy.optimize", "scipy.stats", "sqlalchemy"}, name


def test_a_table_is_checked_without_what_is_installed_for_others():
    found = imported(
        "import pandas as pd\n"
        "from ttsgraph.base.errors import DataError\n"
        "from ttsgraph.stages.schemas import Questions, check\n"
        "row = {name: [''] for name in Questions.to_schema().columns}\n"
        "try:\n"
        "    check(pd.DataFrame(row), Questions, 'table')\n"
        "except DataError as error:\n"
        "    assert 'str_length' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('expected an empty text to be told')\n"
    )
    assert not {"dask", "hypothesis"} & found


def test_what_was_as_if_missing_can_be_imported_afterwards_and_what_is_loaded_stays():
    imported(
        "import sys, decimal\n"
        "from ttsgraph.base.extras import as_if_missing\n"
        "with as_if_missing('fractions', 'decimal'):\n"
        "    import decimal as loaded\n"
        "    assert loaded is decimal\n"
        "    try:\n"
        "        import fractions\n"
        "    except ImportError:\n"
        "        pass\n"
        "    else:\n"
        "        raise AssertionError('expected it to be as if missing')\n"
        "import fractions\n"
        "assert sys.modules['decimal'] is decimal\n"
    )
