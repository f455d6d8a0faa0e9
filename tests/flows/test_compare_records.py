"""Which differences between a rebuilt result and its record count."""

import math
import subprocess
import sys
from copy import deepcopy
from typing import Any

import pytest

from tests.support.simulated_project import SimulatedProject
from ttsgraph.base.rounding import rounded
from ttsgraph_flows.compare_records import READERS, compared, differences

FOUND = "random"


def content(project: SimulatedProject, name: str) -> Any:
    path = project.results / name
    return READERS[path.suffix](path.read_bytes())


def flip(table: Any) -> None:
    table["correct"][3] = not table["correct"][3]


def dearer(table: Any) -> None:
    table["dollars"][0] *= 1 + 1e-4


def fewer(table: Any) -> None:
    for values in table.values():
        values.pop()


def swapped(graph: Any) -> None:
    graph["nodes"][0]["model"] = "another"


TAMPERED = {
    "a wrong grade": (f"{FOUND}/answers.parquet", flip, "correct[3]"),
    "a call that costs more": (f"{FOUND}/archive.parquet", dearer, "dollars[0]"),
    "an iteration less": (f"{FOUND}/trajectory.csv", fewer, "entries"),
    "a swapped graph": (f"{FOUND}/graph.json", swapped, "nodes[0].model"),
    "a key less": (f"{FOUND}/scores.json", lambda scores: scores.pop("found"), "found is missing"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_tampered_with_is_found_and_named(searched, what):
    name, change, said = TAMPERED[what]
    kept = content(searched, name)
    assert not [*differences(kept, deepcopy(kept))]
    found = deepcopy(kept)
    change(found)
    assert said in "; ".join(differences(kept, found))


def moved(value: Any) -> Any:
    """Plain data with other last digits, and with other checksums of it."""
    if isinstance(value, dict):
        texts = ("checksum", "crc32", "trajectory_md5")
        exact = ("correct", "dollars", "budget_units", "units")
        return {k: "" if k in texts else v if k in exact else moved(v) for k, v in value.items()}
    if isinstance(value, list):
        return [moved(each) for each in value]
    return value * (1 + 1e-9) + 1e-17 if isinstance(value, float) else value


@pytest.mark.parametrize("name", ["start.json", f"{FOUND}/history.jsonl", f"{FOUND}/nodes.parquet"])
def test_last_digits_and_checksums_of_them_do_not_count(searched, name):
    kept = content(searched, name)
    assert not [*differences(kept, moved(kept))]


@pytest.mark.parametrize(
    ("kept", "found", "equal"),
    [
        (math.nan, math.nan, True),
        (math.nan, 0.0, False),
        (None, math.nan, False),
        (0.0, -1e-17, True),
        (0.0, 1e-6, False),
        (1, 1.0, False),
        (True, 1, False),
        (3, 4, False),
        ("a", "b", False),
    ],
)
def test_values_are_equal_by_their_kind(kept, found, equal):
    assert equal is (not [*differences({"x": [kept]}, {"x": [found]})])


def test_what_has_no_values_is_compared_by_its_hash_and_pictures_are_not(tmp_path):
    def said(path: str, kept: bytes | None, rebuilt: str | None = "{") -> str:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if rebuilt is not None:
            file.write_text(rebuilt)
        return str(compared(path, file, "a", kept))

    assert "recorded: a" in said("calls/p/t/profile.parquet", b"")
    assert "content isn't here" in said("results/p/t/start.json", None)
    assert "they can't be read" in said("results/p/t/start.json", b"{}")
    assert "is missing" in said("reports/p/answers.json", None, rebuilt=None)
    (tmp_path / "plots").mkdir()
    assert not isinstance(compared("reports/p/plots", tmp_path / "plots", "a", None), str)


def test_last_digits_do_not_rank():
    shares = [right / questions for questions in (48, 84, 200) for right in range(questions)]
    other = [share + (-1) ** k * 3e-16 for k, share in enumerate(shares)]

    def ranking(values: list[float]) -> list[int]:
        return sorted(range(len(values)), key=lambda k: -rounded(values[k]))

    assert ranking(other) == ranking(shares)
    assert rounded(0.1 + 0.2 - 0.3) == 0.0
    assert math.isnan(rounded(math.nan))


def test_a_table_in_memory_is_read_by_no_thread_that_may_outlive_the_process():
    command = """\
import io, os, pandas as pd, pyarrow.dataset
from ttsgraph_flows.dvc_store import table_of
file = io.BytesIO()
pd.DataFrame({"a": range(9)}).to_parquet(file)
threads = os.listdir("/proc/self/task")
assert list(table_of(file.getvalue())["a"]) == [*range(9)]
assert os.listdir("/proc/self/task") == threads
"""
    subprocess.run([sys.executable, "-c", command], check=True)
