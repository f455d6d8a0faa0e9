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

import codecheck
from codecheck import CheckedProgram, SandboxLimits
from ttsgraph.base.errors import CallFailed, DataError, InputError


class IsolationError(InputError):
    """Error raised if generated programs can't be isolated here and the settings don't accept
    weaker isolation.
    """


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except codecheck.NotIsolated as error:
        raise IsolationError(
            f"{error}; to accept resource limits only, set sandbox.accept_weaker: true in the"
            " profile"
        ) from None
    except codecheck.NotChecked as error:
        raise CallFailed(str(error)) from error
    except codecheck.TestsError as error:
        raise DataError(str(error)) from None


missing_layers = _own_errors()(codecheck.missing_layers)
"""Return the layers of isolation that this machine lacks, each with the reason. Raises CallFailed
if the child process that probes them fails.
"""

score = _own_errors()(codecheck.run_scorer)
"""Run a trusted program on this `stdin`, and return the last line that it prints. Raises the same
errors as `passes`.
"""

given_tests = _own_errors()(codecheck.given_tests)
"""Return the public tests in a row as a program, or "" if there are none. Raises DataError if they
can't be used.
"""


@_own_errors()
def require_isolation(accept_weaker: bool) -> None:
    """Raise IsolationError if programs can't be isolated, unless `accept_weaker`."""
    codecheck.require(codecheck.missing_layers(), accept_weaker)


@_own_errors()
def passes(program: CheckedProgram, limits: SandboxLimits, accept_weaker: bool) -> bool:
    """Return True if a program passes its tests. Raises IsolationError if it can't be isolated, and
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
        self._store = sqlite3.connect(path, timeout=60, check_same_thread=False)
        self._store.execute("pragma journal_mode=wal")
        self._store.execute(
            "create table if not exists verdicts (key text primary key, passed integer not null)"
        )

    def passes(self, program: CheckedProgram, limits: SandboxLimits, accept_weaker: bool) -> bool:
        """Return True if a program passes its tests. Raises the same errors as the function
        `passes`; errors are not stored.
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
    """Return a digest of the checker's code."""
    digest = hashlib.sha256()
    for path in sorted(Path(codecheck.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
