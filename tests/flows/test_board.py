"""Progress of a whole run: which stage runs, and what it came to."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.project import ROOT
from ttsgraph.settings.profile import Params, load_profile
from ttsgraph_flows.repro import run_dvc, side_by_side

STAGES = """
import sys
for k, name in enumerate(("pilot", "search", "evaluate")):
    command = f"python -m ttsgraph_flows.{name} --task math"
    print(f"Running stage '{name}@math':\\n> {command}", flush=True)
    print(f"{name} math: done in 0:00:0{k}", file=sys.stderr, flush=True)
    print("Updating lock file 'dvc.lock'\\n", flush=True)
print("ERROR: failed to reproduce", file=sys.stderr, flush=True)
sys.exit(3)
"""


def test_what_runs_is_named_and_says_what_it_came_to(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_dvc([[sys.executable, "-c", STAGES]], os.environ) == 3
    said = capfd.readouterr()
    names = ("pilot", "search", "evaluate")
    assert said.out.splitlines() == [f"Running stage '{name}@math'" for name in names]
    done = [f"{name} math: done in 0:00:0{k}" for k, name in enumerate(names)]
    assert said.err.splitlines() == [*done, "ERROR: failed to reproduce"]


def test_what_runs_side_by_side_is_told_as_it_comes_and_fails_as_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each waits for the other, so one after the other they would not end."""
    meets = (
        "import pathlib, sys, time\n"
        "mine, other = map(pathlib.Path, sys.argv[1:3])\n"
        "print(f\"Running stage '{mine.name}'\", flush=True); mine.touch()\n"
        "while not other.exists(): time.sleep(.01)\n"
        "sys.exit(int(sys.argv[3]))"
    )
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    commands = [
        [sys.executable, "-c", meets, one, two, "0"],
        [sys.executable, "-c", meets, two, one, "4"],
    ]
    assert run_dvc(commands, os.environ) == 4
    assert sorted(capfd.readouterr().out.split("'")[1::2]) == ["one", "two"]


def test_tasks_run_side_by_side_where_models_are_served_here() -> None:
    params = Params(profile="laptop", tasks=("math", "mmlu"), methods=("random",))
    both = ["pilot@math", "report", "evaluate@mmlu-random"]
    laptop = load_profile("laptop", ROOT / "profiles")
    first, second = side_by_side(params, laptop, both)
    assert first[0] == "sample@math"
    assert second[-1] == "evaluate@mmlu-random"
    assert side_by_side(params, laptop, both[:2]) == []
    assert side_by_side(params, load_profile("simulated", ROOT / "profiles"), both) == []
