"""Comparison of formulas in a child process, because SymPy may need hours for some formulas.

math-verify's own time limit is an alarm, which works only in the main thread and not during long
integer arithmetic. The child has a limit on its processor time, enforced by the kernel, so the
result doesn't depend on the machine's load.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

from finalanswer.errors import MissingLibrary, NotCompared


class FormulaComparer:
    """math-verify in a child process, which is started at first use and restarted after a formula
    has exceeded the limits. Thread-safe.
    """

    def __init__(
        self, cpu_seconds: float = 5.0, memory: int = 2 << 30, python: str = sys.executable
    ) -> None:
        worker = Path(__file__).with_name("comparer_worker.py")
        # -P keeps this folder off the child's import path: its modules could shadow the standard
        # library's modules.
        self._command = [python, "-P", str(worker), str(cpu_seconds), str(memory)]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def equal(self, right: str, answer: str) -> bool:
        """Return True if `answer` equals `right`, and False if the comparison exceeds the limits.

        Raises NotCompared if the child can't be started, and MissingLibrary if math-verify is not
        installed.
        """
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            reply = ""
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps([right, answer]) + "\n")
                process.stdin.flush()
                reply = process.stdout.readline()
            if not reply:
                self._stop(process)
            return reply == "true\n"

    def close(self) -> None:
        """End the child; the next comparison starts a new one. The child also ends when this
        process exits.
        """
        with self._lock:
            if self._process is not None:
                self._stop(self._process)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        if find_spec("math_verify") is None:
            raise MissingLibrary("expected math-verify, which compares formulas, to be installed")
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
        except OSError as error:
            raise NotCompared(f"can't start the process that compares formulas: {error}") from error
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            self._stop(process)
            raise NotCompared(
                f"the process that compares formulas ended with status {process.returncode};"
                " check that math-verify can be imported"
            )
        self._process = process
        atexit.register(self.close)
        return process

    def _stop(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.communicate()
        process.wait()
        self._process = None
        atexit.unregister(self.close)
