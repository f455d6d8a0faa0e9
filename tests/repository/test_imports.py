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

HEAVY = {
    "aiohttp",
    "dvc",
    "fastapi",
    "httpx2",
    "jinja2",
    "matplotlib",
    "mlflow",
    "networkx",
    "openai",
    "pandas",
    "pandera",
}
HEAVY |= {"prefect", "pyarrow", "scipy", "uvicorn", "vl_convert"}


def imported(code: str) -> set[str]:
    """Names of all modules after this code, in a process of its own."""
    told = f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def heavy(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules} & HEAVY


@pytest.fixture(scope="module")
def floor() -> int:
    return len(imported(startup.FLOOR))


def test_help_imports_little_beyond_its_parser(floor):
    found = imported(
        "import sys; sys.argv = ['ttsgraph', '--help']\nfrom ttsgraph.cli import"
        " app\napp(standalone_mode=False)"
    )
    assert not heavy(found)
    assert "numpy" not in found
    assert len(found) <= 3 * floor


def test_the_cost_of_a_graph_needs_no_plots_tables_or_clients(floor, tmp_path: Path):
    (tmp_path / "graph.json").write_text(parallel(["llama-3.2-1b"] * 2, "llama-3.2-1b").to_json())
    arguments = [
        "ttsgraph",
        "graph",
        "cost",
        str(tmp_path / "graph.json"),
        "--profile",
        "paper",
        "--task",
        "math",
    ]
    found = imported(
        f"import sys; sys.argv = {arguments}\n"
        "from ttsgraph.cli import app\n"
        "app(standalone_mode=False)"
    )
    assert not heavy(found)
    assert len(found) <= 5 * floor


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
    assert heavy(found["stage"]) <= {"pandas", "pandera", "pyarrow"}
    for name, modules in found.items():
        assert not heavy(modules) & {"aiohttp", "dvc", "matplotlib", "mlflow", "networkx"}, name
        assert not modules & {"openai", "scipy.optimize", "scipy.stats", "sqlalchemy"}, name


def test_to_see_that_nothing_has_changed_needs_none_of_what_a_stage_needs(floor):
    found = imported("import ttsgraph_flows.repro")
    assert not heavy(found)
    assert len(found) <= 4 * floor


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
        "from ttsgraph.base.unneeded import as_if_missing\n"
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
