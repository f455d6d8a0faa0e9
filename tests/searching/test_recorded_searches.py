"""The same code and seed make the same search on every machine. A change that is meant to change
what a search does records them anew: `python -m tests.searching.test_recorded_searches`.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest

from lab.pools.run import searched
from lab.pools.tables import table_of
from lab.pools.worlds import world_of

RECORDS = Path(__file__).parents[1] / "data" / "searches"
SEARCHES = {
    "lookup": ("lookup-1", 60, "8-cheap", {}),
    "equals": ("equals", 40, "8-cheap", {"search": {"way": "paper"}}),
    "weighed": ("noisy-keys", 30, "8-cheap", {"objective": {"kind": "joint", "half_s": 2.0}}),
}
SHOWN = ["iteration", "found_by", "split", "graph_hash", "n_scored", "accuracy", "calls"]


def made(name: str, folder: Path) -> str:
    """Return the contest's and the loop's candidates of a search on a table of answers, as CSV."""
    world, count, budget, sections = SEARCHES[name]
    known = table_of(world_of(world).pool, count, seed=5)
    found = searched(known, world_of(world).limits[budget], seed=5, **sections)
    assert found.searched is not None
    found.searched.project.folder.save(folder)
    archives = map(pd.read_parquet, sorted(folder.rglob("archive.parquet")))
    return pd.concat(archives)[SHOWN].round({"accuracy": 9}).to_csv(index=False)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_made_again_as_recorded(name, tmp_path):
    assert made(name, tmp_path) == (RECORDS / f"{name}.csv").read_text()


if __name__ == "__main__":
    for each in SEARCHES:
        with TemporaryDirectory() as folder:
            (RECORDS / f"{each}.csv").write_text(made(each, Path(folder)))
