"""Width and depth of real models, rebuilt from recorded calls."""

import shutil

import pandas as pd
import pytest

from lab.coder import sweeps
from tests.support.project import ROOT
from ttsgraph.base.errors import DataError
from ttsgraph.base.parsing import load
from ttsgraph.settings.profile import load_profile

PLAN = load(sweeps.Sweeps, ROOT / sweeps.PLAN)
TABLE = pd.read_csv(ROOT / sweeps.TABLE)


MARKS = {"humaneval": [pytest.mark.slow]}
RECORDS = [pytest.param(one, id=one.name, marks=MARKS.get(one.task, ())) for one in PLAN.records]


@pytest.mark.parametrize("record", RECORDS)
def test_the_published_table_is_what_the_calls_give(record, monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = pd.DataFrame(sweeps.rows_of(record, load_profile(PLAN.profile), PLAN.seed))
    wanted = TABLE[TABLE["record"] == record.name].reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, wanted, check_dtype=False, rtol=1e-5)


def test_page_and_figures_are_what_the_table_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (sweeps.TABLE, sweeps.PAGE):
        path.parent.mkdir(parents=True)
        shutil.copy(ROOT / path, path)
    sweeps.write(TABLE)
    for path in (sweeps.TABLE, sweeps.PAGE, *sweeps.FIGURES.values()):
        assert path.read_bytes() == (ROOT / path).read_bytes(), path


def test_a_changed_byte_of_the_calls_is_noticed(tmp_path):
    path = tmp_path / "words.parquet"
    source = ROOT / "published/coder/sweeps/words.parquet"
    shutil.copy(source.with_name("words.parquet.md5"), tmp_path)
    content = bytearray(source.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="MD5"):
        sweeps.checked_calls([path])
