"""Switching a database to SQLite's WAL mode, with retries."""

import sqlite3

import tenacity


def write_ahead(connection: sqlite3.Connection, wait_s: float) -> None:
    """Switch a database to WAL mode, in which readers never wait for a writer.

    The switch fails if several processes open a new file in parallel. SQLite's own time-out doesn't
    cover it, so it is retried for `wait_s` seconds. Raises sqlite3.OperationalError if the last try
    fails.
    """
    tenacity.Retrying(
        retry=tenacity.retry_if_exception_message(match=".*locked"),
        stop=tenacity.stop_after_delay(wait_s),
        wait=tenacity.wait_random(0.01, 0.05),
        reraise=True,
    )(connection.execute, "pragma journal_mode = wal")
