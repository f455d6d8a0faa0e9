"""README's answer is that of the last report: one command puts it there."""

from __future__ import annotations

import hashlib
import json
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest
import yaml

from lab.coder.run import MARKS
from lab.coder.run import OVERVIEW as CODER_OVERVIEW
from lab.readme import ANSWERS, BEGIN, END, OVERVIEW, PICTURE, readme, with_block
from tests.support.project import ROOT
from ttsgraph.base.errors import InputError
from ttsgraph_flows.answers import answers_file

TOLD = {
    "profile": "laptop",
    "simulated": False,
    "tasks": [
        {
            "task": "math",
            "sentence": "Use this: three calls of a and their majority.",
            "serve": "ttsgraph serve math@champion",
            "graph": ["question"],
            "heads": ["graph", "right"],
            "rows": [["→ found by random", "50.8 %"], ["a", "47.3 %"]],
        }
    ],
}


def shipped(name: str) -> bytes:
    """A file as the last commit has it: `make repro` writes another dvc.lock."""
    done = subprocess.run(["git", "show", f"HEAD:{name}"], cwd=ROOT, capture_output=True)
    return done.stdout if done.returncode == 0 else (ROOT / name).read_bytes()


def test_every_figure_of_the_answer_is_that_of_the_run_in_dvc_lock() -> None:
    """`make readme` writes all of it; a figure that was typed, or is of another run, shows here.

    That the run's figures are those of its tables is for tests/reporting/test_laptop_page.py.
    """
    shown = shipped("README.md").decode()
    told = shipped(str(ANSWERS))
    assert with_block(shown, json.loads(told)) == shown
    stages = yaml.safe_load(shipped("dvc.lock"))["stages"]
    kept = {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", ())}
    digest = hashlib.md5(told).hexdigest()
    assert kept[f"reports/{json.loads(told)['profile']}/answers.json"] == digest


def test_what_is_said_of_the_coders_is_that_of_the_published_run() -> None:
    shown = shipped("README.md").decode()
    told = shipped("published/coder/answers.json")
    assert with_block(shown, json.loads(told), marks=MARKS, overview=CODER_OVERVIEW) == shown
    lock = yaml.safe_load(shipped("published/coder/lock.yaml"))["stages"]
    kept = {out["path"]: out["md5"] for stage in lock.values() for out in stage["outs"]}
    assert kept["reports/coder/answers.json"] == hashlib.md5(told).hexdigest()


def test_the_answer_goes_between_its_marks_and_nothing_else_changes() -> None:
    before = (ROOT / "README.md").read_text()
    after = with_block(before, TOLD)
    head = before.partition(BEGIN)[0]
    tail = before.partition(END)[2]
    assert after.startswith(head)
    assert after.endswith(tail)
    assert "**math**: Use this: three calls of a and their majority." in after
    assert "| → found by random | 50.8 % |" in after
    assert after.count(BEGIN) == after.count(END) == 1
    assert f"]({OVERVIEW})" in after
    assert with_block(after, TOLD) == after


def test_what_is_simulated_says_so() -> None:
    assert "Simulated: no language model answered." in with_block(
        f"{BEGIN}{END}", TOLD | {"simulated": True}
    )


def test_a_readme_without_marks_is_left_alone() -> None:
    with pytest.raises(InputError, match="expected the lines"):
        with_block("# A project", TOLD)


def test_the_pictures_come_with_it(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"# A\n{BEGIN}\n{END}\n")
    (tmp_path / "params.yaml").write_text("{profile: laptop, tasks: [math], methods: [random]}")
    with chdir(tmp_path):
        with pytest.raises(InputError, match="`make repro` makes it"):
            readme()
        plots = answers_file("laptop").parent / "plots" / "math"
        plots.mkdir(parents=True)
        answers_file("laptop").write_text(json.dumps(TOLD))
        (plots / "graph_to_use.svg").write_text("<svg>graph</svg>")
        (plots / "overview.svg").write_text("<svg>scores</svg>")
        readme()
        assert PICTURE.read_text() == "<svg>graph</svg>"
        assert OVERVIEW.read_text() == "<svg>scores</svg>"
        assert json.loads(ANSWERS.read_text()) == TOLD
        assert "Use this: three calls" in Path("README.md").read_text()
