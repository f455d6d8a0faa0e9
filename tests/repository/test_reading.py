"""How much has to be read to understand one iteration of a search: the files that run in it, and
the ways that a question, the budget and a candidate go through the layers, traced.
"""

import re
import tomllib
from itertools import pairwise

import pytest

from tests.support.project import ROOT
from tests.support.walks import Call, Walks, traced_search
from ttsgraph.graphs.budget import Budget
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.tasks.base import Question

MOST_FILES = 27
MOST_CLIMBS = {Question: 3, Budget: 0, CollaborationGraph: 5}


@pytest.fixture(scope="module")
def walks() -> Walks:
    return traced_search()


@pytest.fixture(scope="module")
def floors() -> dict[str, int]:
    """Folder of the library -> its layer, counted from below."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(each["layers"] for each in settings["contracts"] if each["type"] == "layers")
    return {
        name.strip(): floor
        for floor, names in enumerate(reversed(layers))
        for name in names.split("|")
    }


def way(value: int, calls: list[Call]) -> list[tuple[str, str]]:
    """The folders and functions that a value is given to, each function where it has it first."""
    seen = {(call.file.split("/")[0], call.function): None for call in calls if value in call.given}
    return list(seen)


def climbs(steps: list[tuple[str, str]], floors: dict[str, int]) -> int:
    return sum(floors[after] > floors[before] for (before, _), (after, _) in pairwise(steps))


def test_an_iteration_runs_in_few_files(walks):
    files = sorted(walks.files)
    assert len(files) <= MOST_FILES, "\n".join([f"{len(files)} files:", *files])


def test_contributing_says_which_files_these_are(walks):
    whole = (ROOT / "CONTRIBUTING.md").read_text()
    table = whole.partition("## One iteration of a search")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+/\w+\.py)`", table)
    assert len(named) == len(set(named))
    assert set(named) == walks.files


@pytest.mark.parametrize("kind", MOST_CLIMBS, ids=lambda kind: kind.__name__)
def test_what_an_iteration_is_about_climbs_back_seldom(walks, floors, kind):
    values = walks.of(kind)
    assert values
    for calls in walks.iterations:
        for value in values:
            steps = way(value, calls)
            shown = "\n".join(" ".join(step) for step in steps)
            assert climbs(steps, floors) <= MOST_CLIMBS[kind], shown


def test_no_value_is_handed_up(walks, floors):
    """A caller gives it to its own layer or to one below."""
    handed = {
        (call.caller, call.file, call.function)
        for calls in walks.iterations
        for call in calls
        if call.given and call.caller
        if floors[call.file.split("/")[0]] > floors[call.caller.split("/")[0]]
    }
    assert handed == set()
