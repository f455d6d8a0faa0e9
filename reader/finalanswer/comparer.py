"""Whether two formulas are equal, decided in a child process, because some formulas keep SymPy busy
for hours.

math-verify's own time limit is an alarm, which works only in a main thread and not inside long
integer arithmetic. The child's limit is processor time, enforced by the kernel, so that a verdict
doesn't depend on how busy the machine is.
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
    """math-verify behind a pipe: started at the first use, again after a formula that was too much
    for it. Thread-safe.
    """

    def __init__(
        self, cpu_seconds: float = 5.0, memory: int = 2 << 30, python: str = sys.executable
    ) -> None:
        worker = Path(__file__).with_name("comparer_worker.py")
        # -P keeps this folder off the child's import path, where a module could hide the standard
        # library's.
        self._command = [python, "-P", str(worker), str(cpu_seconds), str(memory)]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def equal(self, right: str, answer: str) -> bool:
        """Whether `answer` equals `right`; False when it takes too long to tell. Raises
        NotCompared when the child won't start, and MissingLibrary without math-verify.
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
        """End the child; the next comparison starts another. A child also ends with its parent."""
        with self._lock:
            if self._process is not None:
                self._stop(self._process)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        if find_spec("math_verify") is None:
            raise MissingLibrary("expected math-verify, to compare formulas")
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
                f"the process that compares formulas ended with status {process.returncode}; is"
                " math-verify installed?"
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
