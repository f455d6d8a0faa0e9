"""README's answer is that of the last report: one command puts it there."""

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


SHOWN = [
    (ANSWERS, "dvc.lock", {}),
    (
        "published/coder/answers.json",
        "published/coder/lock.yaml",
        {"marks": MARKS, "overview": CODER_OVERVIEW},
    ),
]


@pytest.mark.parametrize(("answers", "lock", "options"), SHOWN)
def test_every_figure_of_an_answer_is_that_of_its_run(answers, lock, options) -> None:
    """A figure that was typed, or is of another run, shows here."""
    shown = shipped("README.md").decode()
    told = shipped(str(answers))
    assert with_block(shown, json.loads(told), **options) == shown
    stages = yaml.safe_load(shipped(lock))["stages"]
    kept = {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", ())}
    path = f"reports/{json.loads(told)['profile']}/answers.json"
    assert kept[path] == hashlib.md5(told).hexdigest()


def test_what_is_simulated_says_so_and_a_readme_without_marks_is_left_alone() -> None:
    simulated = with_block(f"{BEGIN}{END}", TOLD | {"simulated": True})
    assert "Simulated: no language model answered." in simulated
    with pytest.raises(InputError, match="expected the lines"):
        with_block("# A project", TOLD)


def test_the_answer_goes_between_its_marks_and_its_pictures_come_with_it(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"# A\n{BEGIN}\n{END}\nthe rest\n")
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
        after = Path("README.md").read_text()
    assert after.startswith(f"# A\n{BEGIN}")
    assert after.endswith(f"{END}\nthe rest\n")
    for part in ("Use this: three calls of a", "| → found by random | 50.8 % |", f"]({OVERVIEW})"):
        assert part in after
    assert with_block(after, TOLD) == after
