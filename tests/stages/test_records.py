"""Any damage to a file gives what was written, or a message whose advice works."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ttsgraph.base.errors import DataError, InputError
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.dialect import Dialect, DialectStore
from ttsgraph.stages.bookkeeping import without_bookkeeping
from ttsgraph.stages.history import read_history, write_history
from ttsgraph.stages.project import Folder
from ttsgraph.stages.records import (
    GateVerdict,
    SearchRecord,
    StartRecord,
    read_data,
    read_found,
    write_record,
)
from ttsgraph_flows.dvc_stages import flow_of


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """A file's content as a crash, a bad disk or a careless hand leaves it."""
    kinds = ["cut", "flipped", "empty", "doubled", "random", "grown", "zeroed"]
    try:
        data = json.loads(content)
    except ValueError:
        data = None
    kind = draw(st.sampled_from([*kinds, "keys", "types"] if isinstance(data, dict) else kinds))
    if kind in ("keys", "types"):
        return json.dumps(_otherwise(draw, data, kind)).encode()
    at = draw(st.integers(0, len(content) - 1))
    before, after = content[:at], content[at + 1 :]
    return {
        "cut": lambda: before,
        "flipped": lambda: before + bytes([content[at] ^ draw(st.integers(1, 255))]) + after,
        "zeroed": lambda: before + b"\0" * (len(content) - at),
        "grown": lambda: before + draw(st.binary(min_size=1, max_size=8)) + content[at:],
        "empty": lambda: b"",
        "doubled": lambda: content * 2,
        "random": lambda: draw(st.binary(max_size=200)),
    }[kind]()


def _otherwise(draw: st.DrawFn, data: Any, kind: str) -> Any:
    """Data without one of its keys, or with a value of another type, at any depth."""
    if isinstance(data, dict) and data:
        key = draw(st.sampled_from(sorted(data)))
        if isinstance(data[key], dict | list) and data[key] and draw(st.booleans()):
            return data | {key: _otherwise(draw, data[key], kind)}
        if kind == "keys":
            return {name: value for name, value in data.items() if name != key}
        return data | {
            key: draw(st.sampled_from([None, [], {}, "x", -1, 1e999, True, [[]], {"a": 1}]))
        }
    if isinstance(data, list) and data:
        return [*data[:-1], _otherwise(draw, data[-1], kind)]
    return draw(st.sampled_from([None, "x", -1]))


def same(first: Any, second: Any) -> bool:
    """Whether two things that were read are the same; NaN is itself."""
    if isinstance(first, pd.DataFrame):
        return isinstance(second, pd.DataFrame) and first.equals(second)
    return repr(first) == repr(second)


@contextmanager
def restored(folder: Path, path: Path) -> Iterator[bytes]:
    """The content of a file of a project, which is the same again afterwards."""
    with chdir(folder):
        content = path.read_bytes()
        try:
            yield content
        finally:
            path.write_bytes(content)


SHARED = [HealthCheck.function_scoped_fixture]


def test_a_record_that_is_none_of_its_kind_is_not_written(tmp_path):
    with pytest.raises(InputError, match="missing key 'counts'"):
        write_record(StartRecord, tmp_path / "start.json", {})
    assert not list(tmp_path.iterdir())


@settings(deadline=None, suppress_health_check=SHARED)
@given(data=st.data())
@example(data=None)
def test_what_was_kept_is_there_as_it_was_or_not_at_all(tmp_path, data):
    path = tmp_path / "kept.json"
    habits = DialectStore(path)
    dialect = Dialect(frozenset({"seed", "max_tokens"}), False)
    habits.keep("http://here m", dialect)
    content = path.read_bytes()
    path.write_bytes(b"[" * 100_000 if data is None else data.draw(damaged(content)))
    assert habits.get("http://here m") in (dialect, None)


RESULTS = Path("results/simulated-small/math")
DATA = Path("data/simulated-small/math")
METHOD = RESULTS / "random"
REMEDY = (
    r"`python -m ttsgraph_flows\.\w+[^`]*`|`make repro` makes it|delete the file|move the file away"
)
RECORDS = {
    RESULTS / "start.json": (StartRecord, "init_instances"),
    METHOD / "search.json": (SearchRecord, "search"),
    METHOD / "verdict.json": (GateVerdict, "evaluate"),
}
DAMAGED = (
    *(DATA / "questions.parquet", METHOD / "archive.parquet", METHOD / "search.json"),
    *(METHOD / "verdict.json", METHOD / "graph.json"),
)
"""One of each way to read: a table with and without a graph, a record, plain data, a graph."""


def content_of(path: Path) -> Any:
    """What a stage reads from a file."""
    if path.suffix == ".parquet":
        return Folder(path.parent, searched=path.parent == METHOD).table(path.stem)
    if path in RECORDS:
        kind, made_by = RECORDS[path]
        return read_data(kind, path, made_by)
    return read_found(METHOD)[0].content_hash


@pytest.mark.parametrize("path", DAMAGED, ids=lambda path: path.name)
def test_a_damaged_file_of_a_stage_is_read_right_or_told(copied, path):
    with restored(copied.folder, path) as content:
        expected = content_of(path)

        @settings(max_examples=60, deadline=None)
        @given(damaged(content))
        def check(bad: bytes) -> None:
            path.write_bytes(bad)
            try:
                found = content_of(path)
            except InputError as error:
                said = str(error)
                assert str(path) in said
                assert "\n" not in said
                assert re.search(REMEDY, said), said
            else:
                assert same(found, expected), found

        check()


def run(command: str) -> None:
    """Run a stage with its options, as a message gives them, in this process."""
    stage, *options = shlex.split(command)
    flow_of(stage)(**dict(zip([name[2:] for name in options[::2]], options[1::2], strict=True)))


SEARCHED = "--task math --method random"
CASES = [
    ("profile --task math", DATA / "questions.parquet", b"PAR1"),
    ("init_instances --task math", RESULTS / "pilot.parquet", b""),
    (f"search {SEARCHED}", RESULTS / "start.json", lambda kept: kept[:99] + b"?" + kept[100:]),
    (f"evaluate {SEARCHED}", METHOD / "trajectory.csv", None),
    (f"evaluate {SEARCHED}", METHOD / "history.jsonl", lambda kept: kept[: len(kept) // 2]),
    ("report", METHOD / "verdict.json", b"{}"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "path", "damage"), CASES, ids=lambda value: getattr(value, "name", None)
)
def test_the_advice_about_a_damaged_file_works(copied, command, path, damage):
    with restored(copied.folder, path) as content:
        expected = content_of(path)
        path.unlink()
        if damage is not None:
            path.write_bytes(damage(content) if callable(damage) else damage)
        with pytest.raises(InputError, match=re.escape(str(path))) as caught:
            run(command)
        said = str(caught.value)
        if "move the file away" in said:
            path.rename(path.with_name("away"))
        if advised := re.search(r"`python -m ttsgraph_flows\.([^`]*)`", said):
            run(advised[1])
        run(command)
        assert same(content_of(path), expected)


@pytest.mark.slow
def test_a_graph_that_is_not_the_found_one_is_told(copied):
    path = METHOD / "graph.json"
    with restored(copied.folder, path) as content:
        model = CollaborationGraph.from_json(content.decode()).nodes[0].model
        path.write_bytes(content.replace(model.encode(), b"another", 1))
        with pytest.raises(DataError, match="not the one that the search found"):
            read_found(METHOD)


numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


entry_lists = st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=5)


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
