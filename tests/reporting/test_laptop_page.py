"""The default profile as its recorded calls have it: the page of results shows them."""

import json
from contextlib import chdir
from pathlib import Path

import pytest

from lab.readme import OVERVIEW, RESULTS, answer
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


def test_the_page_of_results_has_of_the_first_task_what_its_tables_have(laptop: Path) -> None:
    told = json.loads((laptop / answers_file("laptop")).read_text())
    assert "\n".join(answer(told, OVERVIEW)) in (ROOT / RESULTS).read_text()
