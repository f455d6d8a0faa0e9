"""A history is read as it was written, or not at all."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ttsgraph.base.errors import DataError
from ttsgraph.stages.bookkeeping import without_bookkeeping
from ttsgraph.stages.history import read_history, write_history

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


entry_lists = st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=5)
SHARED = [HealthCheck.function_scoped_fixture]


@given(entries=entry_lists, data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=SHARED)
def test_a_history_is_read_as_it_was_written_or_not_at_all(tmp_path, entries, data):
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
