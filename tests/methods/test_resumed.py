"""A search that is started again goes on from its last snapshot as if it had never stopped, with
every method; what the journal says counts, whatever the snapshot says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.base.test_journal import HEADER, outcome
from tests.support.arithmetic import adders, searched, searcher_of
from ttsgraph.base.journal import Journal, read_journal
from ttsgraph.evaluation.archive import Archive, Record, Snapshot
from ttsgraph.methods import SEARCHERS
from ttsgraph.methods.summary import Found
from ttsgraph.settings.profile import SearchSettings

METHODS = ("agent_reinforce", "bayesian", "gptswarm", "maao", "random", "textgrad")
ITERATIONS = 8
RACES = {"enabled": True, "first": 4, "growth": 2.0, "confidence": 0.6}


class Asked:
    """Counts what a searcher is asked for."""

    def __init__(self) -> None:
        self.iterations = 0
        self.told: list[Record] = []


def search(
    folder: Path,
    method: str,
    least: int = 1,
    races: bool = False,
    keeping: type[Snapshot] = Snapshot,
) -> tuple[Found, Archive, Asked]:
    """A search in this folder, with snapshots after `least` evaluations; its model is a fake."""
    wanted = SearchSettings(
        max_iterations=ITERATIONS,
        patience=ITERATIONS,
        batch=8,
        racing=RACES if races else {"enabled": False},
    )
    searcher = searcher_of(method, wanted)
    asked = Asked()
    propose = searcher.propose

    def counted(count: int):  # what is proposed again was not taken up
        asked.iterations += 1
        return propose(count)

    searcher.propose = counted
    snapshot = keeping(folder / "snapshot.json", least)
    with closing(Journal(folder / "journal.jsonl", HEADER, mark=snapshot.mark)) as journal:
        archive = Archive(journal, snapshot)
        found = searched(searcher, archive, adders(), 16, 20, asked.told.append)
    return found, archive, asked


def snapshots(folder: Path, method: str, races: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """Each snapshot that a search makes, with the journal up to it."""
    kept: list[bytes] = []

    class Watched(Snapshot):
        def write(self, mark, state):
            super().write(mark, state)
            kept.append(self.path.read_bytes())

    search(folder, method, races=races, keeping=Watched)
    whole = (folder / "journal.jsonl").read_bytes()
    for text in kept:
        end = json.loads(text.partition(b"\n")[2])["mark"]["end"]
        yield text, whole[:end]


def test_every_method_says_what_its_state_is():
    assert set(METHODS) == {name for name, kind in SEARCHERS.items() if "state" in vars(kind)}


@pytest.mark.parametrize(
    ("method", "races"), [*((method, False) for method in METHODS), ("agent_reinforce", True)]
)
def test_a_search_goes_on_from_a_snapshot_as_if_it_had_not_stopped(
    tmp_path: Path, method: str, races: bool
) -> None:
    whole = tmp_path / "whole"
    again = tmp_path / "again"
    again.mkdir()
    taken = list(snapshots(whole, method, races))
    found, archive, first = search(tmp_path / "plain", method, least=10**6, races=races)
    assert not (tmp_path / "plain" / "snapshot.json").exists()
    assert len(taken) == ITERATIONS - 1
    assert first.iterations == ITERATIONS
    expected = outcome(found, archive)
    for number, (snapshot, journal) in list(enumerate(taken, 2))[:: 3 if races else 2]:
        (again / "snapshot.json").write_bytes(snapshot)
        (again / "journal.jsonl").write_bytes(journal)
        found, archive, asked = search(again, method, races=races)
        assert asked.iterations == ITERATIONS - number
        assert outcome(found, archive) == expected
        assert [record.candidate_id for record in asked.told] == list(range(len(asked.told)))
        assert asked.told == list(archive.records)
        assert archive.records[-1] == asked.told[-1]
        types = [
            [entry["type"] for entry in read_journal(folder / "journal.jsonl")]
            for folder in (again, whole)
        ]
        assert types[0] == types[1]


def test_a_finished_search_that_is_run_again_goes_on_from_its_last_snapshot(tmp_path: Path) -> None:
    found, archive, _ = search(tmp_path, "random")
    before = (tmp_path / "journal.jsonl").read_bytes()
    again, recalled, asked = search(tmp_path, "random")
    assert outcome(again, recalled) == outcome(found, archive)
    assert asked.iterations == 0
    assert (tmp_path / "journal.jsonl").read_bytes() == before


def another(folder: Path) -> None:
    """A snapshot of another search in place of its own."""
    search(folder / "other", "gptswarm")
    (folder / "snapshot.json").write_bytes((folder / "other" / "snapshot.json").read_bytes())


def shortened(folder: Path) -> None:
    """A journal that ends before its snapshot."""
    path = folder / "journal.jsonl"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damaged(change):
    def damage(folder: Path) -> None:
        path = folder / "snapshot.json"
        path.write_text(change(path.read_text()))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        another,
        shortened,
        damaged(lambda text: text[:-10]),
        damaged(lambda text: text.replace('"iteration":', '"iteratiom":')),
        damaged(lambda text: ""),
        damaged(lambda text: "x" * 70 + "\n{}"),
    ],
)
def test_a_snapshot_that_is_not_the_journals_is_as_good_as_none(tmp_path: Path, damage) -> None:
    found, archive, _ = search(tmp_path, "random")
    damage(tmp_path)
    again, recalled, asked = search(tmp_path, "random")
    assert asked.iterations == ITERATIONS
    assert outcome(again, recalled) == outcome(found, archive)
