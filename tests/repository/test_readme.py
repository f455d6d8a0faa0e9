"""The figures of README and of the page of results are those of the records."""

import hashlib
import json
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest
import yaml

from lab import readme
from tests.support.project import ROOT
from ttsgraph.base.errors import InputError
from ttsgraph_flows.answers import answers_file


def shipped(name: str) -> bytes:
    """A file as the last commit has it: `make repro` writes another dvc.lock."""
    done = subprocess.run(["git", "show", f"HEAD:{name}"], cwd=ROOT, capture_output=True)
    return done.stdout if done.returncode == 0 else (ROOT / name).read_bytes()


@pytest.mark.parametrize("page", [*readme.blocks()], ids=str)
def test_every_generated_block_is_what_the_records_give(page: Path) -> None:
    """A typed figure, or a record without its page, shows here: python -m lab.readme --recorded."""
    with chdir(ROOT):
        assert readme.page_of(page) == page.read_text()


LOCKS = {
    str(readme.ANSWERS): "dvc.lock",
    "published/coder/answers.json": "published/coder/lock.yaml",
}


@pytest.mark.parametrize("record", LOCKS)
def test_a_recorded_answer_is_that_of_its_run(record: str) -> None:
    told = shipped(record)
    stages = yaml.safe_load(shipped(LOCKS[record]))["stages"]
    kept = {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", ())}
    path = f"reports/{json.loads(told)['profile']}/answers.json"
    assert kept[path] == hashlib.md5(told).hexdigest()


def test_the_last_report_goes_into_the_docs(tmp_path: Path) -> None:
    for name in ("lab", "published"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "params.yaml").write_text("{profile: laptop, tasks: [math], methods: [random]}")
    (tmp_path / "docs").mkdir()
    told = json.loads((ROOT / readme.ANSWERS).read_text()) | {"simulated": True}
    with chdir(tmp_path):
        with pytest.raises(InputError, match="run `make repro`"):
            readme.take_report()
        plots = answers_file("laptop").parent / "plots" / "math"
        plots.mkdir(parents=True)
        answers_file("laptop").write_text(json.dumps(told))
        (plots / "graph_to_use.svg").write_text("<svg>graph</svg>")
        (plots / "overview.svg").write_text("<svg>scores</svg>")
        readme.take_report()
        assert readme.PICTURE.read_text() == "<svg>graph</svg>"
        text = "\n".join(readme.blocks()[readme.RESULTS]["answer"]())
    (task,) = told["tasks"]
    for part in ("Simulated: no language model", task["sentence"], f"| {task['rows'][0][0]} |"):
        assert part in text
    assert f"]({readme.OVERVIEW.name})" in text
