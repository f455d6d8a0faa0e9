"""The table of served questions: what each answer was, cost, and was worth; the last `rows` are
kept.

One SQLite file that only its owner can read, and the server's processes share. One thread in the
background writes in order.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ttsgraph.base.errors import DataError
from ttsgraph.base.sqlite import write_ahead
from ttsgraph.deployment.promotion import Decision, Duel, Side

T = TypeVar("T")
TrialKey = tuple[str, str, str]
"""Its task, and the versions of the champion and of the challenger."""

BUSY_S = 30.0
_IT = "task = ? and champion = ? and challenger = ?"
TRACE_ID = 32
"""Characters of a trace id, which the id of a response ends in."""
_TABLES = """
create table if not exists served (
    seq integer primary key autoincrement, trace text unique not null, at real not null,
    model text not null, task text not null, version text not null, arm text, champion text,
    cost real not null, agreement real, degraded integer not null,
    question text, answer text, score real, right_answer text, client text, counts integer,
    asker text
);
create index if not exists of_version on served (task, version, seq);
create table if not exists trials (
    task text, champion text, challenger text,
    promote integer, reason text, told integer not null default 0,
    primary key (task, champion, challenger)
);
create table if not exists alerts (
    task text, version text, figure text, at real not null,
    primary key (task, version, figure)
);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer as it is kept. `arm` is its side in a trial against `champion`, a version; of an
    `asker` that is not known anybody may judge it.
    """

    trace: str
    model: str
    task: str
    version: str
    cost: float
    agreement: float | None = None
    degraded: bool = False
    question: str | None = None
    answer: str | None = None
    arm: Side | None = None
    champion: str | None = None
    asker: str | None = None


class Book:
    """The table. Its methods block; `later` runs one in the background, after those before it."""

    def __init__(self, path: Path, rows: int) -> None:
        self._rows = rows
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="served")
        made_private(path)
        # Each `with` is a transaction, which begins with its first change.
        self._table = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level="IMMEDIATE", check_same_thread=False
        )
        self._table.row_factory = sqlite3.Row
        write_ahead(self._table, BUSY_S)
        self._table.executescript(f"pragma synchronous = normal;{_TABLES}")
        columns = [row["name"] for row in self._rows_of("pragma table_info(served)")]
        if "asker" not in columns:  # a table of an earlier version
            self._rows_of("alter table served add column asker text")

    def later(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run one of the methods in the background."""
        return self._worker.submit(work, *arguments)

    def close(self) -> None:
        """Wait for what is under way."""
        self._worker.shutdown()
        self._table.close()

    def _rows_of(
        self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[sqlite3.Row]:
        """The rows of one statement, in a transaction of its own."""
        with self._table as table:
            return table.execute(sql, values).fetchall()

    def add(self, entry: Entry) -> None:
        """Keep an answer; the oldest make room."""
        row = {**asdict(entry), "at": time.time()}
        places = ", ".join(f":{column}" for column in row)
        with self._table as table:
            table.execute(f"insert into served ({', '.join(row)}) values ({places})", row)
            oldest = "delete from served where seq <= (select max(seq) from served) - ?"
            table.execute(oldest, (self._rows,))

    def find(self, reference: str) -> Mapping[str, Any] | None:
        """An answer's row, by its trace id or the id of the response."""
        found = self._rows_of("select * from served where trace = ?", (reference[-TRACE_ID:],))
        return dict(found[0]) if found else None

    def judge(
        self, reference: str, score: float, right: str | None, client: str, clients: int
    ) -> bool:
        """Keep what an answer was worth, by its trace id or its response's; the last word counts.
        False where it had a score. Of a client with more than one in `clients` of the scores that
        count, one is kept and does not count.
        """
        values = {"trace": reference[-TRACE_ID:], "score": score, "right": right}
        values |= {"client": client, "clients": clients}
        with self._table as table:
            first = table.execute(
                "update served set client = :client, counts = ("
                " select coalesce(sum(o.client is :client), 0) * (:clients - 1)"
                "  <= coalesce(sum(o.client is not :client), 0) from served o where o.counts"
                "  and o.task = served.task and o.version = served.version and o.arm is served.arm)"
                " where trace = :trace and score is null",
                values,
            ).rowcount
            worth = "update served set score = :score, right_answer = :right where trace = :trace"
            table.execute(worth, values)
        return bool(first)

    def is_open(self, trial: TrialKey, confidence: float, most: int) -> bool:
        """Whether a trial goes on; a new one begins, one that scores decide ends."""
        with self._table as table:
            new = "insert or ignore into trials (task, champion, challenger) values (?,?,?)"
            table.execute(new, trial)
            found = table.execute(f"select promote from trials where {_IT}", trial).fetchone()
            if found["promote"] is not None:
                return False
            decision = _duel(table, trial).decision(confidence, most)
            if decision is not None:
                ended = f"update trials set promote = ?, reason = ? where {_IT}"
                table.execute(ended, (decision.promote, decision.reason, *trial))
        return decision is None

    def settled(self) -> list[tuple[TrialKey, Decision]]:
        """Trials that were decided and that nobody was told of; each is given to one asker."""
        rows = self._rows_of(
            "update trials set told = 1 where promote is not null and told = 0"
            " returning task, champion, challenger, promote, reason"
        )
        return [
            ((task, old, new), Decision(bool(promote), reason))
            for task, old, new, promote, reason in rows
        ]

    def not_told(self, trial: TrialKey) -> None:
        """Telling failed: it is given out again."""
        self._rows_of(f"update trials set told = 0 where {_IT}", trial)

    def last(self, task: str, version: str, figure: str, count: int) -> list[float]:
        """The last known values of a version's score, cost or agreement; scores that count."""
        assert figure in ("score", "cost", "agreement")
        known = "counts" if figure == "score" else f"{figure} is not null"
        rows = self._rows_of(
            f"select {figure} from served where task = ? and version = ? and {known}"
            " order by seq desc limit ?",
            (task, version, count),
        )
        return [float(value) for (value,) in rows]

    def alert(self, task: str, version: str, figure: str) -> bool:
        """Whether this is the first that is heard of it."""
        new = "insert or ignore into alerts values (?,?,?,?) returning at"
        return bool(self._rows_of(new, (task, version, figure, time.time())))

    def no_alert(self, task: str, version: str, figure: str) -> None:
        """It is over, or nobody could be told: it may be an alert again."""
        over = "delete from alerts where task = ? and version = ? and figure = ?"
        self._rows_of(over, (task, version, figure))

    def questions(self, task: str) -> list[dict[str, str]]:
        """Served questions with right answers, as rows: told, or the graph's own if right."""
        rows = self._rows_of(
            "select trace as id, question, coalesce(right_answer, answer) as answer from served"
            " where task = ? and question is not null"
            " and (right_answer is not null or score = 1) order by seq",
            (task,),
        )
        return [dict(row) for row in rows]


def _duel(table: sqlite3.Connection, trial: TrialKey) -> Duel:
    """A trial from its scores, in the order of the answers, since its challenger's first."""
    its = "task = :task and arm = 'challenger' and champion = :old and version = :new"
    duel = Duel()
    for arm, score in table.execute(
        f"select arm, score from served where counts and ({its} or task = :task"
        f" and arm = 'champion' and version = :old and seq >= (select min(seq) from served"
        f" where {its})) order by seq",
        dict(zip(("task", "old", "new"), trial, strict=True)),
    ):
        duel.see(arm, score)
    return duel


def made_private(path: Path) -> None:
    """Make a file that only its owner can read, or make it so. Raises DataError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise DataError(f"{path}: expected to write there, but {error.strerror}") from None
