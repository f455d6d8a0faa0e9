"""The default profile as its recorded calls have it: README says what comes of them."""

import json
from contextlib import chdir
from pathlib import Path

import pytest

from lab.readme import BEGIN, END, block
from tests.support.project import ROOT
from ttsgraph.settings.profile import load_params
from ttsgraph_flows.answers import answers_file
from ttsgraph_flows.dvc_stages import runs_of
from ttsgraph_flows.verify import copy_into, recorded_calls, replay_in

pytestmark = pytest.mark.long
TASK = "math"


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first task, rebuilt from the calls that are shipped, and its report."""
    folder = tmp_path_factory.mktemp("laptop").resolve()
    with chdir(ROOT):
        params = load_params().model_copy(update={"tasks": (TASK,)})
        recorded = recorded_calls(params, TASK, {})
        assert recorded is not None
        copy_into(folder, params)
        replay_in(folder, params.profile, [recorded])
    with chdir(folder):
        for run in runs_of(params, TASK, of_all=True):
            run.run()
    return folder


def test_readme_says_of_the_first_task_what_its_tables_have(laptop: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    told = json.loads((laptop / answers_file("laptop")).read_text())
    in_readme = readme.partition(BEGIN)[2].partition(END)[0]
    made = block(told, {}).partition(BEGIN)[2].partition(END)[0]
    assert made.strip() in in_readme
