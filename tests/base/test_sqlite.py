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


def test_it_waits_for_another_that_is_writing_and_gives_up_in_the_end(tmp_path):
    file = tmp_path / "new.db"
    with (
        closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as writer,
        closing(sqlite3.connect(file, timeout=60, factory=Watched)) as opened,
    ):
        opened.refused = threading.Event()
        writer.execute("begin immediate")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            write_ahead(opened, 0.1)
        opened.refused.clear()
        ending = threading.Thread(target=lambda: opened.refused.wait() and writer.execute("commit"))
        ending.start()
        write_ahead(opened, 60)
        ending.join()
        assert opened.execute("pragma journal_mode").fetchone() == ("wal",)
