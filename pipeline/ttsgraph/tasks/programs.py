"""The program checker (package codecheck), raising this library's errors, and a file of verdicts,
so that no program is run twice on the same tests.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import codecheck
import finalanswer
from codecheck import CheckedProgram, SandboxLimits
from ttsgraph.base.errors import CallFailed, DataError, InputError
from ttsgraph.base.sqlite import write_ahead

_WAIT_S = 60.0
"""Maximum number of seconds to wait for other processes that use a file of verdicts."""


class IsolationError(InputError):
    """Error raised if generated programs can't be isolated here and the settings don't accept
    weaker isolation.
    """


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise this library's errors in place of errors of the packages codecheck and finalanswer."""
    try:
        yield
    except codecheck.NotIsolated as error:
        raise IsolationError(
            f"{error}; to accept resource limits only, set sandbox.accept_weaker: true in the"
            " profile"
        ) from None
    except (codecheck.NotChecked, finalanswer.NotCompared) as error:
        raise CallFailed(str(error)) from error
    except finalanswer.MissingLibrary as error:
        raise InputError(
            f"kind math: {error}: pip install 'ttsgraph[kinds]'; kind `number` compares plain"
            " numbers without it"
        ) from None
    except codecheck.TestsError as error:
        raise DataError(str(error)) from None


missing_layers = own_errors()(codecheck.missing_layers)
"""Return the layers of isolation that this machine lacks, each with the reason. Raises CallFailed
if the child process that probes them fails.
"""

score = own_errors()(codecheck.run_scorer)
"""Run a trusted program on this `stdin`, and return the last line that it prints. Raises the same
errors as `passes`.
"""

given_tests = own_errors()(codecheck.given_tests)
"""Return the public tests in a row as a program, or "" if there are none. Raises DataError if they
can't be used.
"""


@own_errors()
def require_isolation(accept_weaker: bool) -> None:
    """Raise IsolationError if programs can't be isolated, unless `accept_weaker`."""
    codecheck.require(codecheck.missing_layers(), accept_weaker)


@lru_cache(maxsize=20_000)
@own_errors()
def passes(program: CheckedProgram, limits: SandboxLimits, accept_weaker: bool) -> bool:
    """Return True if a program passes its tests. Results are cached, because different graphs often
    give the same answer. Raises IsolationError if it can't be isolated, and
    CallFailed if it could not be run.
    """
    return codecheck.run_checked(program, limits, accept_weaker).passed


class Verdicts:
    """Verdicts on programs, keyed by everything that decides them: the program, its tests, the
    limits, and the checker's own code. Safe to use from several threads and processes.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Lock()
        self._store = sqlite3.connect(
            path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )
        write_ahead(self._store, _WAIT_S)
        self._run("create table if not exists verdicts (key text primary key, passed integer)")

    def passes(self, program: CheckedProgram, limits: SandboxLimits, accept_weaker: bool) -> bool:
        """Return True if a program passes its tests. Raises the same errors as the function
        `passes`; errors are not stored.
        """
        what = json.dumps([_checker(), astuple(program), astuple(limits), accept_weaker])
        key = hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()
        found = self._run("select passed from verdicts where key = ?", key)
        if found is None:
            found = (passes(program, limits, accept_weaker),)
            self._run("insert or replace into verdicts values (?, ?)", key, *found)
        return bool(found[0])

    def _run(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        """Execute a statement, and return its first row, if it has one."""
        with self._lock:
            return self._store.execute(statement, values).fetchone()


@lru_cache(maxsize=1)
def _checker() -> str:
    """Return a digest of the checker's code."""
    modules = sorted(Path(codecheck.__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in modules)).hexdigest()
