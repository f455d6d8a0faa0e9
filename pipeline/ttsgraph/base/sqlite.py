"""The switch to SQLite's WAL mode, which SQLite's own time-out doesn't cover."""

from __future__ import annotations

import sqlite3

import tenacity


def write_ahead(connection: sqlite3.Connection, wait_s: float) -> None:
    """Put the file into WAL mode, in which readers never wait. SQLite's time-out does not cover
    this change, which fails if several processes open a new file, so it is retried for `wait_s`.
    Raises sqlite3.OperationalError if that is not enough.
    """
    tenacity.Retrying(
        retry=tenacity.retry_if_exception_message(match=".*locked"),
        stop=tenacity.stop_after_delay(wait_s),
        wait=tenacity.wait_random(0.01, 0.05),
        reraise=True,
    )(connection.execute, "pragma journal_mode = wal")
