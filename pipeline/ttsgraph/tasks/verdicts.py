"""Verdicts on programs, kept in a file: the same program isn't run on the same tests again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import astuple
from functools import lru_cache
from pathlib import Path
from threading import Lock

import codecheck
from ttsgraph.tasks.programs import CheckedProgram, SandboxLimits, passes


class Verdicts:
    """Whether programs pass their tests, by all that decides it: program, tests, limits, and the
    checker's own code. May be used by several threads and processes.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Lock()
        self._store = sqlite3.connect(path, timeout=60, check_same_thread=False)
        self._store.execute("pragma journal_mode=wal")
        self._store.execute(
            "create table if not exists verdicts (key text primary key, passed integer not null)"
        )

    def passes(self, program: CheckedProgram, limits: SandboxLimits, accept_weaker: bool) -> bool:
        """Whether a program passes its tests. Raises as `programs.passes`, keeping nothing."""
        what = json.dumps([_checker(), astuple(program), astuple(limits), accept_weaker])
        key = hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()
        with self._lock:
            found = self._store.execute(
                "select passed from verdicts where key = ?", (key,)
            ).fetchone()
        if found is not None:
            return bool(found[0])
        passed = passes(program, limits, accept_weaker)
        with self._lock, self._store:
            self._store.execute("insert or replace into verdicts values (?, ?)", (key, passed))
        return passed


@lru_cache(maxsize=1)
def _checker() -> str:
    """The digest of the checker's code."""
    digest = hashlib.sha256()
    for path in sorted(Path(codecheck.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
