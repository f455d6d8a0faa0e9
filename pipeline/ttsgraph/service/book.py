"""Table of the most recent served answers with their cost and feedback.

The table is an SQLite file that only its owner can read, and that several server processes may
share. In each process, one background thread reads and writes it, in the order of the calls.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from ttsgraph.base.errors import DataError
from ttsgraph.base.sqlite import write_ahead
from ttsgraph.base.state import STATE
from ttsgraph.deployment.promotion import Decision, ab_decision

TABLE = STATE / "served.db"
"""Path of a project's table."""

ROWS = 100_000
"""Number of most recent answers that are kept: with texts, some hundred megabytes."""

T = TypeVar("T")
TrialKey = tuple[str, str, str]
"""Task, champion's version and challenger's version, which identify an A/B test."""

BUSY_S = 30.0
TRACE_ID = 32
"""Number of characters of a trace id; the id of a response ends with a trace id."""
_TABLES = """
pragma synchronous = normal;
begin immediate;
create table if not exists served (
    seq integer primary key autoincrement, trace text unique not null, at real not null,
    model text not null, task text not null, version text not null,
    cost real not null, agreement real, degraded integer not null,
    question text, answer text, score real, right_answer text,
    asker text, champion text, counts integer
);
create index if not exists of_version on served (task, version, seq);
select asker, champion, counts from served limit 0;
commit;
"""
"""Statements that create the table, and fail if the file has a table of another form."""
_JUDGE = """
update served set score = :score, right_answer = :right,
    counts = case when score is not null then counts else (
        select total(o.asker is served.asker) * (:clients - 1)
            <= total(o.asker is not served.asker) from served o where o.counts
            and (o.task, o.version) = (served.task, served.version)
            and o.champion is served.champion) end
where trace = :trace
"""


class AnswerLog:
    """Table of the last ROWS served answers.

    The methods block; `later` runs them one after the other in a background thread.
    """

    def __init__(self, path: Path) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="served")
        made_private(path)
        try:
            # Each `with self._table` is a transaction, which begins at its first write.
            self._table = sqlite3.connect(
                path, timeout=BUSY_S, isolation_level="IMMEDIATE", check_same_thread=False
            )
            self._table.row_factory = sqlite3.Row
            write_ahead(self._table, BUSY_S)
            self._table.executescript(_TABLES)
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{path}: expected a table of served answers, but it can't be used ({error});"
                " stop other programs that use the file, or move it away to start a new table"
            ) from None

    def later(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Run one of the methods in the background, after those already submitted."""
        return asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)

    def close(self) -> None:
        """Wait for pending work, and close the table."""
        self._worker.shutdown()
        self._table.close()

    def _run(self, sql: str, **values: Any) -> list[sqlite3.Row]:
        """Run one statement in its own transaction, and return its rows."""
        with self._table as table:
            return table.execute(sql, values).fetchall()

    def add(self, **columns: Any) -> None:
        """Add an answer, given columns of the table, and delete the oldest surplus rows.

        The column `asker` is the client that asked, and `champion` the champion's version in the
        A/B test of the answer, if any.
        """
        row = {"at": time.time(), "degraded": False, **columns}
        places = ", ".join(f":{column}" for column in row)
        self._run(f"insert into served ({', '.join(row)}) values ({places})", **row)
        oldest = "delete from served where seq <= (select max(seq) from served) - :rows"
        self._run(oldest, rows=ROWS)

    def find(self, reference: str) -> Mapping[str, Any] | None:
        """Return the row of an answer by its trace id or response id, or None if it isn't kept."""
        found = self._run("select * from served where trace = :id", id=reference[-TRACE_ID:])
        return dict(found[0]) if found else None

    def judge(self, trace: str, score: float, right: str | None, clients: int) -> None:
        """Store feedback on an answer, given by its trace id. It replaces any earlier feedback.

        The feedback is stored but not counted if the client that asked has already given more than
        1 / `clients` of the counted scores of the same version and side.
        """
        self._run(_JUDGE, trace=trace, score=score, right=right, clients=clients)

    def decision(self, trial: TrialKey, confidence: float, most: int) -> Decision | None:
        """Return the decision of an A/B test, or None while the test is undecided.

        The test uses the counted scores since the challenger's first answer, in the order of the
        answers.
        """
        scores = self._run(
            "select iif(version = :new, 'challenger', 'champion'), score from served"
            " where counts and task = :task and champion = :old"
            " and version in (:old, :new) and seq >= (select min(seq) from served"
            " where task = :task and champion = :old and version = :new) order by seq",
            **dict(zip(("task", "old", "new"), trial, strict=True)),
        )
        return ab_decision([(arm, score) for arm, score in scores], confidence, most)

    def last(self, task: str, version: str, figure: str, count: int) -> list[float]:
        """Return the latest known values (at most `count`) of a version's score, cost or agreement.

        Scores that aren't counted are left out.
        """
        assert figure in ("score", "cost", "agreement")
        known = "counts" if figure == "score" else f"{figure} is not null"
        sql = f"select {figure} from served where task = :task and version = :version and {known}"
        sql += " order by seq desc limit :count"
        return [value for (value,) in self._run(sql, task=task, version=version, count=count)]

    def questions(self, task: str) -> list[dict[str, str]]:
        """Return a task's served questions whose right answers are known.

        The right answer comes from feedback, or is the graph's own answer if its score is 1.
        """
        rows = self._run(
            "select trace as id, question, coalesce(right_answer, answer) as answer from served"
            " where task = :task and question is not null"
            " and (right_answer is not null or score = 1) order by seq",
            task=task,
        )
        return [dict(row) for row in rows]


def made_private(path: Path) -> None:
    """Create a file that only its owner can read, if it doesn't exist.

    Raises DataError if the file can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        raise DataError(
            f"{path}: can't write the file ({error.strerror}); correct its permissions or the path"
        ) from None
