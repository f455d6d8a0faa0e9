"""Checker of programs (the package codecheck), with this library's errors, and verdicts stored in a
file: the same program isn't run on the same tests again.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import codecheck
from codecheck import CheckedProgram, SandboxLimits
from ttsgraph.base.errors import CallFailed, DataError, InputError


class IsolationError(InputError):
    """Generated programs can't be isolated here, and the settings don't accept less."""


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except codecheck.NotIsolated as error:
        raise IsolationError(
            f"{error}; sandbox.accept_weaker: true in the profile accepts resource limits only"
        ) from None
    except codecheck.NotChecked as error:
        raise CallFailed(str(error)) from error
    except codecheck.TestsError as error:
        raise DataError(str(error)) from None


@_own_errors()
def missing_layers() -> dict[str, str]:
    """Layers of isolation that this machine lacks, each with the reason. Raises CallFailed."""
    return codecheck.missing_layers()


@_own_errors()
def require_isolation(accept_weaker: bool) -> None:
    """Raise IsolationError if programs can't be isolated, unless less is accepted."""
    codecheck.require(codecheck.missing_layers(), accept_weaker)


@_own_errors()
def passes(program: CheckedProgram, limits: SandboxLimits, accept_weaker: bool) -> bool:
    """True if a program passes its tests. Raises IsolationError, and CallFailed if none could be
    run.
    """
    return codecheck.run_checked(program, limits, accept_weaker).passed


@_own_errors()
def score(program: str, stdin: str, limits: SandboxLimits, accept_weaker: bool) -> str:
    """Last line printed by a trusted program that reads this text. Raises the same errors as
    `passes`.
    """
    return codecheck.run_scorer(program, stdin, limits, accept_weaker)


@_own_errors()
def given_tests(row: Mapping[str, Any], function: str, grading: str, where: str) -> str:
    """Public tests of a row as a program, or "". Raises DataError."""
    return codecheck.given_tests(row, function, grading, where)


class Verdicts:
    """Verdicts on programs by everything that decides them: program, tests, limits, and the
    checker's own code. Safe for several threads and processes.
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
        """True if a program passes its tests. Raises the same errors as `passes`; errors are not
        stored.
        """
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
    """Digest of the checker's code."""
    digest = hashlib.sha256()
    for path in sorted(Path(codecheck.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
