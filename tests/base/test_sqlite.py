"""A file that several processes open at once, the first time."""

import sqlite3
import threading
from contextlib import closing

import pytest

from ttsgraph.base.sqlite import write_ahead


class Watched(sqlite3.Connection):
    """Says when it was refused."""

    refused: threading.Event

    def execute(self, *statement):
        try:
            return super().execute(*statement)
        except sqlite3.OperationalError:
            self.refused.set()
            raise


@pytest.fixture
def writer(tmp_path):
    """Another connection, in the middle of writing to a new file."""
    with closing(
        sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    ) as writer:
        writer.execute("begin immediate")
        yield writer


@pytest.fixture
def opened(tmp_path):
    with closing(sqlite3.connect(tmp_path / "new.db", timeout=60, factory=Watched)) as opened:
        opened.refused = threading.Event()
        yield opened


def test_it_waits_for_the_one_that_is_writing(writer, opened):
    def end():
        opened.refused.wait()
        writer.execute("commit")

    ending = threading.Thread(target=end)
    ending.start()
    write_ahead(opened, 60)
    ending.join()
    assert opened.execute("pragma journal_mode").fetchone() == ("wal",)


def test_one_that_never_ends_is_an_error(writer, opened):
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        write_ahead(opened, 0.1)
