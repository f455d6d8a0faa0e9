"""Journal entries are whole or not at all, and a search goes on from wherever it was killed."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.arithmetic import adders, searched, searcher_of
from tests.support.fakes import ArithmeticClient
from tests.support.project import ROOT
from ttsgraph.base.errors import DataError, InputError, RunStopped
from ttsgraph.base.files import locked
from ttsgraph.base.journal import Journal, read_journal
from ttsgraph.evaluation.archive import Archive
from ttsgraph.searching.methods.summary import SearchOutcome
from ttsgraph.settings.profile import SearchSettings

HEADER = {"type": "search", "identity": "one"}
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


def written(path: Path, entries: list[dict]) -> bytes:
    path.unlink(missing_ok=True)
    journal = Journal(path, HEADER)
    for entry in entries:
        journal.append(entry)
    journal.close()
    return path.read_bytes()


@given(
    entries=st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=5),
    data=st.data(),
)
@SHARED
def test_what_is_cut_anywhere_is_read_up_to_the_last_whole_entry(
    tmp_path: Path, entries: list[dict], data: st.DataObject
) -> None:
    path = tmp_path / "journal.jsonl"
    whole = written(path, entries)
    assert read_journal(path) == entries
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    assert read_journal(path) == [HEADER, *entries][:kept][1:]
    journal = Journal(path, HEADER)
    replayed = [journal.replay(lambda entry: True) for _ in range(max(kept - 1, 0))]
    journal.append({"last": 1})
    journal.close()
    assert replayed == entries[: max(kept - 1, 0)]
    assert read_journal(path) == [*replayed, {"last": 1}]


def test_journals_of_other_searches_are_set_aside_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    said: list[str] = []
    before = written(path, [{"n": 1}])
    for name in ("two", "three"):
        journal = Journal(path, {"type": "search", "identity": name}, said.append)
        assert journal.replay(lambda entry: True) is None
        journal.close()
    assert (tmp_path / "journal.jsonl.previous-1").read_bytes() == before
    assert '"two"' in (tmp_path / "journal.jsonl.previous-2").read_text()
    assert "moved to journal.jsonl.previous-1" in said[0]


@given(data=st.data())
@SHARED
def test_lines_that_are_repeated_moved_or_left_out_are_damage(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "journal.jsonl"
    lines = written(path, [{"n": n % 2} for n in range(5)]).splitlines(keepends=True)
    other = data.draw(st.lists(st.sampled_from(lines), max_size=12))
    path.write_bytes(b"".join(other))
    if other == lines[: len(other)]:
        assert len(read_journal(path)) == max(0, len(other) - 1)
    else:
        with pytest.raises(DataError, match="is damaged; move the file away"):
            read_journal(path)


def test_where_a_run_goes_another_way_the_rest_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    said = []
    written(path, [{"n": 1}, {"n": 2}, {"n": 3}])
    journal = Journal(path, HEADER, said.append)
    assert journal.replay(lambda entry: entry == {"n": 1}) == {"n": 1}
    assert journal.replay(lambda entry: entry == {"n": 4}) is None
    journal.append({"n": 4})
    journal.close()
    assert read_journal(path) == [{"n": 1}, {"n": 4}]
    assert said == [f"{path}: cut 2 entries that this run does not repeat"]


FULL = """
import resource, sys
from pathlib import Path
from ttsgraph.base.journal import Journal
journal = Journal(Path(sys.argv[1]), {"type": "search", "identity": "one"})
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
for n in range(100):
    try:
        journal.append({"n": n, "text": "x" * 90})
    except OSError as error:
        print(n, error.errno)
        break
"""


def test_a_full_disk_leaves_whole_entries(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    said = subprocess.check_output([sys.executable, "-c", FULL, str(path)], text=True, cwd=ROOT)
    failed, _ = map(int, said.split())
    assert 5 < failed < 20
    assert path.read_bytes().endswith(b"\n")
    assert [entry["n"] for entry in read_journal(path)] == list(range(failed))


HOLDER = """
import sys, time
from pathlib import Path
from ttsgraph.base.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_one_run_works_in_a_folder_and_the_lock_of_a_dead_one_means_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            said = rf"another run works here \(process {holder.pid}\)"
            with pytest.raises(InputError, match=said), locked(tmp_path):
                pass
        finally:
            holder.send_signal(signal.SIGKILL)
    assert (tmp_path / ".lock").read_text() == f"{holder.pid}\n"
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    with locked(tmp_path):
        pass


def search(
    path: Path, client: ArithmeticClient | None = None
) -> tuple[SearchOutcome, Archive, ArithmeticClient]:
    client = client or adders()
    searcher = searcher_of("agent_reinforce", SearchSettings(max_iterations=5, patience=4, batch=8))
    with closing(Journal(path, HEADER)) as journal:
        archive = Archive(journal)
        return searched(searcher, archive, client, 16, 20), archive, client


def outcome(found: SearchOutcome, archive: Archive) -> tuple[str, str, str]:
    """All that must be the same after a crash."""
    records = archive.table().drop(columns=MADE_NOW)
    return found.graph.to_json(), found.trajectory.to_json(), records.to_json()


def test_a_search_goes_on_from_any_point_at_which_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    found, archive, client = search(path)
    expected = outcome(found, archive)
    whole = path.read_bytes()
    all_calls = len(client.requests)
    entries = whole.splitlines(keepends=True)
    for cut in [0, 7, *range(len(entries[0]) + 1, len(whole), len(whole) // 8), len(whole)]:
        path.write_bytes(whole[:cut])
        found, archive, client = search(path)
        assert outcome(found, archive) == expected
        numbers = list(range(len(archive.records)))
        assert [record.candidate_id for record in archive.records] == numbers
        records = [entry for entry in read_journal(path) if entry["type"] == "record"]
        assert [record["candidate_id"] for record in records] == numbers
        kept = [json.loads(line)["entry"] for line in entries[: whole[:cut].count(b"\n")]]
        spent = sum(entry["calls"] for entry in kept if entry["type"] == "record")
        assert len(client.requests) <= all_calls - spent
    assert client.requests == []


def test_what_failed_when_a_run_stopped_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    expected = outcome(*search(tmp_path / "undisturbed.jsonl")[:2])
    client = adders()
    client.fails = lambda request: len(client.requests) > 400
    with pytest.raises(RunStopped, match="start again to continue"):
        search(path, client)
    assert any(entry.get("status") == "failed" for entry in read_journal(path))
    found, archive, _ = search(path)
    assert outcome(found, archive) == expected
