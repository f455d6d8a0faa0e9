"""Which differences between a rebuilt result and its record count."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ttsgraph.base.rounding import rounded
from ttsgraph_flows.compare_records import Equality, compared, differences

COMPARED = yaml.safe_load(Path(__file__).with_name("compared_values.yaml").read_text())


@pytest.mark.parametrize("what", COMPARED)
def test_values_are_equal_by_their_kind_and_what_differs_is_named(what):
    kept, found, named = COMPARED[what]
    assert not [*differences(kept, kept)]
    said = "; ".join(differences(kept, found))
    assert named in said
    assert bool(named) == bool(said)


DIGITS = {"csv": "a,graph_hash\n0.1,1e5\n", "json": '{"a": 0.1}', "jsonl": '{"a": 0.1}\n{"a": 1}'}


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
    for ending, text in DIGITS.items():
        rebuilt = text.replace("0.1", "0.10000000001")
        assert said(f"results/p/t/x.{ending}", text.encode(), rebuilt) == str(Equality.DIGITS)
    (tmp_path / "plots").mkdir()
    assert not isinstance(compared("reports/p/plots", tmp_path / "plots", "a", None), str)


def test_last_digits_do_not_rank():
    shares = [right / questions for questions in (48, 84, 200) for right in range(questions)]
    other = [share + (-1) ** k * 3e-16 for k, share in enumerate(shares)]
    assert [*map(rounded, other)] == [*map(rounded, shares)]
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
