"""Nothing that a search writes or says is NaN where a number is meant, whatever models answer."""

from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

import ttsgraph
from lab.fuzz.stand_ins import Habits, StandIns, rows_of
from tests.support.numbers import in_text, odd_numbers
from tests.support.simulated_project import SimulatedProject

CONTEST = {"calls": 150}
SEARCH = {"max_iterations": 3, "patience": 2, "candidates": 2, "batch": 6}
INIT = {"questions": 4, "candidates": 2, "topologies": 2}
WAYS: dict[str, dict[str, Any]] = {
    "contest": {"init": INIT | {"contest": CONTEST}, "search": SEARCH},
    "paper": {"init": INIT, "search": SEARCH | {"way": "paper"}},
}
PILOT = {"questions": 8, "widths": [1, 2], "depths": [1, 2], "max_nodes": 3, "random_graphs": 1}
NOWHERE = {"base_url": "http://nowhere.invalid/v1"}
MODELS = [{"name": "a", "price": 1.0} | NOWHERE, {"name": "b", "price": 2.0} | NOWHERE]
CASES = {
    "none right": ("contest", dict.fromkeys("ab", Habits(0.0))),
    "all blank": ("paper", dict.fromkeys("ab", Habits(0.5, blank=1.0))),
    "some fail": ("contest", dict.fromkeys("ab", Habits(0.5, fails=0.006))),
    "one refuses": ("paper", {"a": Habits(0.5), "b": Habits(0.5, refuses=1.0)}),
}


@pytest.mark.parametrize("case", CASES)
def test_of_a_whole_search(tmp_path: Path, capfd: pytest.CaptureFixture[str], case: str) -> None:
    way, habits = CASES[case]
    given = {"pilot": PILOT, "engine": {"kind": "external"}, **WAYS[way]}
    with chdir(tmp_path):
        client = StandIns("exact", habits)
        rows = rows_of("exact", 40)
        found = ttsgraph.search(MODELS, rows, "exact", "$0.0004", client=client, **given)
        print(found, found.sentence, found.compare(), sep="\n")
        found.save("kept")
    assert odd_numbers(tmp_path) == []
    assert list(in_text("".join(capfd.readouterr()))) == []


def test_of_the_stages(searched: SimulatedProject) -> None:
    for name in ("results", "reports", "data", "mlruns"):
        assert odd_numbers(searched.folder / name) == []
