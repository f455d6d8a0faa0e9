"""A history is read as it was written, and a search goes on from wherever it ended."""

import json
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.arithmetic import adders, searched, searcher_of
from tests.support.fakes import ArithmeticClient
from ttsgraph.base.bookkeeping import without_bookkeeping
from ttsgraph.base.errors import DataError
from ttsgraph.base.history import read_history, write_history
from ttsgraph.evaluation.archive import Archive
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Request
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.settings.profile import SearchSettings

MADE_NOW = ["wall_s", "cached_calls", "spent_dollars"]
"""Columns that say how this very run came by its figures, not what they are."""

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


SHARED = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(
    entries=st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=5),
    data=st.data(),
)
@SHARED
def test_a_history_is_read_as_it_was_written_or_not_at_all(
    tmp_path: Path, entries: list[dict], data: st.DataObject
) -> None:
    path = tmp_path / "history.jsonl"
    write_history(entries, path)
    assert read_history(path) == without_bookkeeping(entries)
    lines = path.read_bytes().splitlines(keepends=True)
    other = data.draw(st.lists(st.sampled_from(lines), max_size=12))
    path.write_bytes(b"".join(other))
    if other == lines[: len(other)]:
        assert len(read_history(path)) == max(0, len(other) - 1)
    else:
        with pytest.raises(DataError, match="is damaged"):
            read_history(path)
    whole = b"".join(lines)
    place = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(DataError, match="is damaged"):
        read_history(path)


def search(folder: Path, client: ArithmeticClient) -> tuple[SearchOutcome, Archive]:
    """A search with its call cache; only the language model is a fake."""
    searcher = searcher_of("agent_reinforce", SearchSettings(max_iterations=5, patience=4, batch=8))
    archive = Archive()
    with closing(CallCache(folder / "calls")) as cache:
        return searched(searcher, archive, CachedClient(client, cache), 16, 20), archive


def outcome(found: SearchOutcome, archive: Archive) -> tuple[str, str, str, str]:
    """All that must be the same after a crash."""
    records = archive.table().drop(columns=MADE_NOW)
    history = json.dumps(without_bookkeeping([*archive.history]))
    return found.graph.to_json(), found.trajectory.to_json(), records.to_json(), history


class Killed(Exception):
    """As far as a search can notice."""


def killed(made: list[Request], most: int, request: Request) -> bool:
    if len(made) > most:
        raise Killed
    return False


def test_a_search_goes_on_from_any_point_at_which_it_ended(tmp_path: Path) -> None:
    client = adders()
    expected = outcome(*search(tmp_path / "undisturbed", client))
    calls = len(client.requests)
    for number, last in enumerate(range(1, calls, calls // 5)):
        folder = tmp_path / str(number)
        first, again = adders(), adders()
        first.fails = partial(killed, first.requests, last)
        with pytest.raises(Killed):
            search(folder, first)
        assert outcome(*search(folder, again)) == expected
        keys = [[each.key() for each in client.requests] for client in (first, again)]
        assert not set(keys[0][:last]) & set(keys[1])
