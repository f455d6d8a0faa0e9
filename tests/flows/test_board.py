"""Progress of a whole run: one live board where there is a terminal, a line a stage elsewhere."""

import io
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.project import ROOT
from ttsgraph.evaluation.progress import BestScore, QuestionDone, Remark, run_state
from ttsgraph.settings.profile import Params, load_profile
from ttsgraph_flows.live import BOARD, Board, live
from ttsgraph_flows.repro import run_dvc, side_by_side


def test_a_stage_writes_how_far_it_is_and_what_it_came_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = Board(tmp_path)
    monkeypatch.setenv(BOARD, str(tmp_path))
    with live(run_state("evaluate math random", 4)) as publish:
        (begun,) = board.postings()
        assert (begun.share, begun.ended) == (0.0, False)
        publish(QuestionDone())
        publish(BestScore(0.5, 0.4, 0.6, "found"))
        publish(Remark("version math/1 is promoted"))
    (ended,) = board.postings()
    assert (ended.share, ended.ended) == (0.25, True)
    assert ended.line.startswith("evaluate math random: done in ")
    assert ended.line.endswith("; best 0.50 (0.40 to 0.60; found); version math/1 is promoted")
    assert capsys.readouterr().err == ""


STAGES = f"""
import json, os, pathlib, sys
for k, name in enumerate(("pilot", "search", "evaluate")):
    command = f"python -m ttsgraph_flows.{{name}} --task math"
    print(f"Running stage '{{name}}@math':\\n> {{command}}", flush=True)
    line = f"{{name}} math: done in 0:00:0{{k}}"
    if folder := os.environ.get({BOARD!r}):
        known = dict(label=name, headline=name, share=1.0, time="", details="", line=line)
        path = pathlib.Path(folder, f"{{name}}.json")
        path.write_text(json.dumps(known | dict(ended=True)))
    else:
        print(line, file=sys.stderr, flush=True)
    print("Updating lock file 'dvc.lock'\\n", flush=True)
print("ERROR: failed to reproduce", file=sys.stderr, flush=True)
sys.exit(3)
"""


def rebuild(folder: Path, console: Console | None) -> int:
    return run_dvc([[sys.executable, "-c", STAGES]], os.environ, folder, console)


def test_a_log_says_which_stage_runs_and_what_it_came_to(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert rebuild(tmp_path / "board", None) == 3
    said = capfd.readouterr()
    names = ("pilot", "search", "evaluate")
    assert said.out.splitlines() == [f"Running stage '{name}@math'" for name in names]
    done = [f"{name} math: done in 0:00:0{k}" for k, name in enumerate(names)]
    assert said.err.splitlines() == [*done, "ERROR: failed to reproduce"]


def test_a_terminal_has_one_board_of_all_stages_and_the_errors_above_it(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, record=True)
    assert rebuild(tmp_path / "board", console) == 3
    text = console.export_text()
    assert "ERROR: failed to reproduce" in text
    assert "Running stage" not in text
    assert "Updating lock" not in text
    for name in ("pilot", "search", "evaluate"):
        assert f"✓ {name} math: done in" in text


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
    assert run_dvc(commands, os.environ, tmp_path, None) == 4
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
