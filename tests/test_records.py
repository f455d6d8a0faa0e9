"""Any damage to a file that a stage reads gives what was written, or a message whose advice works."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flows import evaluate, init_family, init_instances, pilot, profile, report, research, sample, search
from flows.stage import load_stage, read_found
from pipeline import schemas
from pipeline.errors import DataError, InputError
from pipeline.files import keep, kept
from pipeline.graph import CollaborationGraph
from pipeline.journal import read
from pipeline.limits import Account
from pipeline.models.habits import Habits
from pipeline.models.running import _read as read_servers
from pipeline.progress import Spent
from pipeline.schemas import read_table
from pipeline.stages.records import (
    Gated,
    Preferred,
    Researched,
    Searched,
    Started,
    read_data,
    read_record,
    write_record,
)
from tests.simulated_project import SimulatedProject

STARTED = {"counts": {"m": 2, "n": 1}, "mean_accuracy": 0.5, "exchanges": []}
PREFERRED = {"models": ["m", "n"], "reason": "m is better", "exchanges": []}
RESEARCHED = {"plan": "warm", "reason": "joined: n", "pool": "p", "champion": "math/1", "promoted": False, "version": "", "calls": 3}


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """A file's content as a crash, a bad disk or a careless hand leaves it."""
    kinds = ["cut", "flipped", "empty", "doubled", "random", "grown", "zeroed"]
    try:
        data = json.loads(content)
    except ValueError:
        data = None
    kind = draw(st.sampled_from([*kinds, "keys", "types"] if isinstance(data, dict) else kinds))
    at = draw(st.integers(0, len(content) - 1))
    if kind == "cut":
        return content[:at]
    if kind == "flipped":
        return content[:at] + bytes([content[at] ^ draw(st.integers(1, 255))]) + content[at + 1 :]
    if kind == "zeroed":
        return content[:at] + b"\0" * (len(content) - at)
    if kind == "grown":
        return content[:at] + draw(st.binary(min_size=1, max_size=8)) + content[at:]
    if kind in ("keys", "types"):
        return json.dumps(_otherwise(draw, data, kind)).encode()
    return {"empty": b"", "doubled": content * 2}.get(kind) or (b"" if kind == "empty" else draw(st.binary(max_size=200)))


def _otherwise(draw: st.DrawFn, data: Any, kind: str) -> Any:
    """Plain data without one of its keys, or with a value of another type in its place; at any depth."""
    if isinstance(data, dict) and data:
        key = draw(st.sampled_from(sorted(data)))
        if isinstance(data[key], dict | list) and data[key] and draw(st.booleans()):
            return data | {key: _otherwise(draw, data[key], kind)}
        if kind == "keys":
            return {name: value for name, value in data.items() if name != key}
        return data | {key: draw(st.sampled_from([None, [], {}, "x", -1, 1e999, True, [[]], {"a": 1}]))}
    if isinstance(data, list) and data:
        return [*data[:-1], _otherwise(draw, data[-1], kind)]
    return draw(st.sampled_from([None, "x", -1]))


def same(first: Any, second: Any) -> bool:
    """Whether two things that were read are the same; NaN is itself."""
    if isinstance(first, pd.DataFrame):
        return isinstance(second, pd.DataFrame) and first.equals(second)
    return repr(first) == repr(second)


def read_right_or_told(path: Path, content: bytes, reader: Callable[[], Any], expected: Any) -> None:
    """Put damaged content in place; what is read is as expected, or the error names the file and what to do."""
    path.write_bytes(content)
    try:
        found = reader()
    except InputError as error:
        said = str(error)
        assert str(path) in said
        assert "\n" not in said
        assert re.search(r"`python -m flows\.\w+[^`]*`|`make repro` makes it|delete the file|move the file away", said), said
    else:
        assert same(found, expected), found


RECORDS = {"start.json": (Started, STARTED), "preference.json": (Preferred, PREFERRED), "outcome.json": (Researched, RESEARCHED)}
SHARED = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", RECORDS)
@SHARED
@given(data=st.data())
def test_a_damaged_record_is_read_right_or_told(tmp_path: Path, name: str, data: st.DataObject) -> None:
    kind, content = RECORDS[name]
    path = tmp_path / "results" / "laptop" / "math" / name
    write_record(kind, path, content)
    expected = read_record(kind, path, "search")
    read_right_or_told(path, data.draw(damaged(path.read_bytes())), lambda: read_record(kind, path, "search"), expected)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "[" * 100_000, "1" * 5000, '{"counts": 3}', '{"counts": {"m": 0}}', "\udcff"]
)
def test_a_record_without_its_keys_names_the_command_that_makes_it(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "results" / "laptop" / "math" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=r"`python -m flows\.init_family --profile laptop --task math`, or `make repro`"):
        read_record(RECORDS[name][0], path, "init_family")


def test_a_record_that_is_none_of_its_kind_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing key 'counts'"):
        write_record(Started, tmp_path / "start.json", {})
    assert not list(tmp_path.iterdir())


@SHARED
@given(data=st.data())
def test_what_was_kept_is_there_as_it_was_or_not_at_all(tmp_path: Path, data: st.DataObject) -> None:
    value = [{"accuracy": 0.25, "graph": "{}"}, {"accuracy": None}]
    keep(tmp_path / "cell.json", value)
    (tmp_path / "cell.json").write_bytes(data.draw(damaged((tmp_path / "cell.json").read_bytes())))
    assert kept(tmp_path / "cell.json") in (value, None)
    (tmp_path / "cell.json").unlink()
    assert kept(tmp_path / "cell.json") is None


@SHARED
@given(data=st.data())
def test_a_damaged_account_lifts_no_limit(tmp_path: Path, data: st.DataObject) -> None:
    account = Account(tmp_path / "spent.json", "one")
    account.write(Spent(12.5, 300, 7.25))
    content = data.draw(damaged(account.path.read_bytes()))
    read_right_or_told(account.path, content, account.read, Spent(12.5, 300, 7.25))


@SHARED
@given(data=st.data())
def test_damaged_habits_are_as_they_were_or_found_out_again(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "endpoints.json"
    habits = Habits(path)
    habits.keeper("http://here m")(research_dialect())
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    assert habits.get("http://here m") in (research_dialect(), None)


def research_dialect() -> Any:
    """What an endpoint without seeds and system messages takes."""
    from pipeline.models.dialect import Dialect

    return Dialect("max_completion_tokens", frozenset({"seed"}), system=False)


@SHARED
@given(data=st.data())
@example(data=None)
def test_a_damaged_record_of_servers_names_servers_or_none(tmp_path: Path, data: st.DataObject | None) -> None:
    path = tmp_path / "servers.json"
    server = {"name": "m", "base_url": "http://127.0.0.1:9/v1", "models": ["m"], "lists_models": True}
    content = json.dumps({"pid": 1, "servers": [server], "given_up": {}}).encode()
    path.write_bytes(b"[" * 100_000 if data is None else data.draw(damaged(content)))
    found = read_servers(path)
    assert found is None or all(isinstance(s.base_url, str) and isinstance(s.models, list) for s in found.servers)
