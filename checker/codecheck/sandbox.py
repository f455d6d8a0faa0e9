"""Verdicts on model-written programs.

A solution runs in one child process and its tests in another (see sandbox_child.py). Each process
is confined (see isolation.py), has limited resources and no environment variables, runs in its own
session, and is killed with its process group at the time limit. The verdict comes from the tests'
process, to which the solution can send only plain data.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any

from codecheck.errors import NotChecked
from codecheck.isolation import REQUIRED, numpy_folder, readable_paths, require, system_call_filter
from codecheck.sandbox_child import BROKEN, FAILED, PASSED, READY

_CHILD = Path(__file__).with_name("sandbox_child.py")
# The child imports neither from the working directory nor from installed packages; -I would also
# ignore the fixed hash seed.
_OPTIONS = ("-P", "-S", "-s", "-B", "-X", "utf8")
LOOK_S = 0.05
"""Maximum seconds between two checks of a solution's folder and threads."""

_START_S = 120.0
"""Maximum seconds for a confined process to start; its program's time limit begins only after that.
"""

_MAX_SAID = 1024
_NO_SPACE = f"[Errno {errno.ENOSPC}]"
_TIMED_OUT = "it ran out of time"
_OVERFULL = "it wrote more than its folder may hold"
_CROWDED = "it started more threads than allowed"


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits on a solution: seconds of clock and processor time; bytes of memory and of each file;
    open files; bytes and files in its folder; and simultaneous threads.

    A solution can't start processes. On a busy machine it needs more clock time but not more
    processor time, so the clock limit is the generous one.
    """

    wall_s: float = 20.0
    cpu_s: int = 5
    memory: int = 1 << 30
    file_size: int = 1 << 20
    open_files: int = 64
    folder_size: int = 16 << 20
    folder_files: int = 256
    threads: int = 64

    def kernel(self) -> dict[str, int]:
        """Return the limits that the kernel enforces, by their kernel names."""
        return {
            "RLIMIT_CPU": self.cpu_s,
            "RLIMIT_AS": self.memory,
            "RLIMIT_FSIZE": self.file_size,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CORE": 0,
            "RLIMIT_MSGQUEUE": 0,
        }


@dataclass(frozen=True, slots=True)
class SandboxVerdict:
    """Verdict on a solution: whether it passed and, if not, whether it timed out. `detail`
    describes the failure for people; its wording may change.
    """

    passed: bool
    timed_out: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CheckedProgram:
    """A solution and its tests, as source code; they can import the standard library, and numpy if
    it is installed.

    `tests` define `check(function)`, or are asserts that call the function by its name. `given` is
    code that is trusted like the tests; it runs before the tests and before the solution. The tests
    may use `function` and the names defined by `given`, and see nothing else of the solution. They
    may pass the solution plain data, instances of given classes, and values that it has returned;
    it can use other objects only in limited ways.
    """

    solution: str
    function: str
    tests: str
    given: str = ""


def run_checked(
    program: CheckedProgram,
    limits: SandboxLimits | None = None,
    accept_weaker: bool = False,
    python: str = sys.executable,
) -> SandboxVerdict:
    """Test a solution and return the verdict.

    Tests that compare results with arguments don't see the solution's changes to the arguments,
    except the changes made by a call that returns None.

    Raises NotIsolated if the processes can't be isolated and weaker isolation isn't accepted, and
    NotChecked if they can't be started or the tests are invalid: neither is the solution's fault.
    """
    required = _required(accept_weaker)
    limits = limits or SandboxLimits()
    try:
        # The contexts are left in reverse order, so the processes are dead before their folder is
        # removed.
        with _folder() as folder, contextlib.ExitStack() as stack:
            calls_read, calls_write = _pipe(stack)
            answers_read, answers_write = _pipe(stack)
            shared = {"given": program.given, "function": program.function}
            task = shared | {"role": "host", "source": program.solution}
            host = _Child(
                stack, task, limits, required, python, folder, (calls_read, answers_write)
            )
            task = shared | {"role": "checker", "tests": program.tests}
            checker = _Child(
                stack, task, limits, required, python, None, (answers_read, calls_write)
            )
            fault = _listen(host, checker, limits, folder)
    except OSError as error:
        raise NotChecked(f"can't start a process for a program: {error}") from error
    verdict, detail = checker.said(fault)
    if verdict == BROKEN:
        raise NotChecked(f"the tests of {program.function} fail before they call it: {detail}")
    host.require_ready()
    if fault == _OVERFULL:  # a solution may have filled its folder before the checker started
        return SandboxVerdict(False, detail=fault)
    checker.require_ready()
    if verdict == PASSED and not fault:
        return SandboxVerdict(True)
    said = (host.lines[1] if len(host.lines) > 1 else "") or detail or fault
    return SandboxVerdict(False, fault == _TIMED_OUT, _OVERFULL if _NO_SPACE in said else said)


def run_scorer(
    program: str,
    stdin: str,
    limits: SandboxLimits,
    accept_weaker: bool = False,
    python: str = sys.executable,
) -> str:
    """Run a program that reads this string from stdin, confined and limited like a solution, and
    return the last line that it prints.

    Raises NotIsolated like `run_checked`, and NotChecked if the program fails, prints nothing or
    times out.
    """
    required = _required(accept_weaker)
    try:
        with _folder() as folder, contextlib.ExitStack() as stack:
            task = {"role": "scorer", "source": program, "stdin": stdin}
            child = _Child(stack, task, limits, required, python, folder, _pipe(stack))
            fault = _listen(child, child, limits, folder)
    except OSError as error:
        raise NotChecked(f"can't start a process for the grading program: {error}") from error
    child.require_ready()
    verdict, said = child.said(fault or "it ended without a result")
    if verdict != PASSED or fault:
        raise NotChecked(f"the grading program failed: {said or fault}")
    return said


def _required(accept_weaker: bool) -> list[str]:
    """Return the layers required of children. Raises NotIsolated if layers are missing and weaker
    isolation isn't accepted.
    """
    missing = missing_layers()
    require(missing, accept_weaker)
    return [layer for layer in REQUIRED if layer not in missing]


@cache
def missing_layers() -> dict[str, str]:
    """Return the layers that isolation requires and this machine lacks, each with the reason.

    The first call starts a process to find out, and its result is cached. Raises NotChecked if that
    process ends before it is confined.
    """
    with _folder() as folder, contextlib.ExitStack() as stack:
        child = _Child(
            stack, {"role": "probe"}, SandboxLimits(), [], sys.executable, folder, _pipe(stack)
        )
        while child.hear():
            pass
    if not child.lines:
        raise NotChecked(
            f"the process for a program ended with status {child.status} before it was confined"
        )
    errors: dict[str, str] = json.loads(child.lines[0])
    return {layer: why for layer, why in errors.items() if layer in REQUIRED}


class _Child:
    """Confined process that is killed when the stack is closed. The pipe `ends` are passed to the
    process and closed in this one.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        task: dict[str, Any],
        limits: SandboxLimits,
        required: Sequence[str],
        python: str,
        folder: str | None,
        ends: tuple[FileIO, FileIO],
    ) -> None:
        self.pipe, said = _pipe(stack)
        self._said = b""
        disk = {"folder": folder, "size": limits.folder_size, "files": limits.folder_files}
        config = task | {
            "cwd": folder or "/",
            "limits": limits.kernel(),
            "paths": readable_paths(folder),
            "numpy": numpy_folder() if python == sys.executable else None,
            "disk": disk if folder else None,
            "filter": base64.b64encode(system_call_filter()).decode(),
            "required": required,
        }
        self._template = _template(python, os.getpid())
        self.status = 0
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(config).encode())
            file.seek(0)
            self.pid = self._template.fork([each.fileno() for each in (file, *ends, said)])
        stack.push(self._kill)
        for end in (*ends, said):
            end.close()

    @property
    def lines(self) -> list[str]:
        """Complete lines received so far."""
        return self._said.decode(errors="replace").split("\n")[:-1]

    def hear(self) -> bool:
        """Receive the process's next output; return False if it has ended or sent too much."""
        chunk = self.pipe.read(_MAX_SAID)
        self._said += chunk or b""
        return bool(chunk) and len(self._said) < _MAX_SAID

    def said(self, otherwise: str) -> tuple[str, str]:
        """Return the verdict received, with its reason; without a verdict, return FAILED and the
        reason `otherwise`.
        """
        if len(self.lines) < 2:
            return FAILED, otherwise
        verdict, _, why = self.lines[1].partition(" ")
        return verdict, why

    @property
    def ready(self) -> bool:
        """True if the process is confined and has started its task."""
        return self.lines[:1] == [READY]

    def require_ready(self) -> None:
        """Raise NotChecked if the process ended before starting its task."""
        if not self.ready:
            reason = f": {self.lines[0]}" if self.lines else ""
            raise NotChecked(
                f"the process for a program ended with status {self.status} before running"
                f" it{reason}"
            )

    def _kill(self, raised: type[BaseException] | None, *_: object) -> None:
        """Kill the whole process group."""
        # A child that doesn't have its own process group yet is killed as a single process.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)
        try:
            self.status = self._template.status(self.pid)
        except OSError:
            if raised is None:  # an earlier exception matters more than a lost status
                raise


class _Template:
    """Process that has imported the children's modules, and forks children.

    The template runs in its own session, and ends when its parent ends or closes the other end of
    the socket.
    """

    def __init__(self, python: str) -> None:
        self._lock = Lock()
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_START_S)
        with its:
            self._process = subprocess.Popen(
                [python, *_OPTIONS, str(_CHILD)],
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PYTHONHASHSEED": "0"},
                start_new_session=True,
            )

    def fork(self, files: Sequence[int]) -> int:
        """Fork a process that gets these files, and return its id. Raises OSError if it can't be
        forked.
        """
        return self._ask(b"fork", files)

    def status(self, pid: int) -> int:
        """Wait for a process to end, and return its exit status in the same form as subprocess.
        Raises OSError if the template has ended.
        """
        return os.waitstatus_to_exitcode(self._ask(str(pid).encode()))

    @property
    def ended(self) -> bool:
        """True if the template has ended and can fork no more children."""
        return self._process.poll() is not None

    def _ask(self, message: bytes, files: Sequence[int] = ()) -> int:
        answer = b""
        with self._lock:
            try:
                socket.send_fds(self._socket, [message], files)
                answer = self._socket.recv(64)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the template has ended
            except BaseException:  # a late answer would be taken for the answer to another request
                self._process.kill()
                self._process.wait()
                raise
        if not answer:
            raise OSError(f"the process that forks it ended with status {self._process.wait()}")
        return int(answer)


_TEMPLATES: dict[tuple[str, int], _Template] = {}
_TEMPLATES_LOCK = Lock()


def _template(python: str, owner: int) -> _Template:
    """Return this process's template for a Python interpreter; start one if there is none or it has
    ended. `owner` is this process's id.
    """
    with _TEMPLATES_LOCK:
        found = _TEMPLATES.get((python, owner))
        if found is None or found.ended:
            found = _TEMPLATES[python, owner] = _Template(python)
        return found


class _Clock:
    """Deadline for children: first for their start, then for their work, as set by the limits."""

    def __init__(self, limits: SandboxLimits, *children: _Child) -> None:
        self.limits = limits
        self.children = children
        self.started = False
        self.deadline = time.monotonic() + _START_S

    def pause(self) -> float:
        """Return the number of seconds to wait before the next check."""
        return max(0.0, min(LOOK_S, self.deadline - time.monotonic()))

    def over(self) -> bool:
        """Return True if the deadline has passed; once all children have started, set the deadline
        for their work.
        """
        if not self.started and all(child.ready for child in self.children):
            self.started = True
            self.deadline = time.monotonic() + self.limits.wall_s
        return time.monotonic() >= self.deadline


def _listen(host: _Child, checker: _Child, limits: SandboxLimits, folder: str) -> str:
    """Receive output from both processes until the checker has ended, and return ""; if they have
    to be killed before that, return the fault.

    A scorer is passed as both host and checker. If the host has not started when the checker ends,
    the host's output is read to its end, because that output explains the failure.
    """
    clock = _Clock(limits, host, checker)
    ended: set[_Child] = set()
    with selectors.DefaultSelector() as selector:
        for child in {host, checker}:
            selector.register(child.pipe, selectors.EVENT_READ, child)
        while True:
            for key, _ in selector.select(clock.pause()):
                if not key.data.hear():
                    selector.unregister(key.fileobj)
                    ended.add(key.data)
            if checker in ended and (host.ready or host in ended):
                return ""
            if clock.over():
                return _TIMED_OUT
            if fault := _excess(folder, host.pid, limits):
                return fault


def _excess(folder: str, pid: int, limits: SandboxLimits) -> str:
    """Return a description of an exceeded limit, of those that the kernel doesn't enforce, or "" if
    none is exceeded.
    """
    with contextlib.suppress(OSError):  # the process has ended
        if os.stat(f"/proc/{pid}/task").st_nlink - 2 > limits.threads:
            return _CROWDED
    return _OVERFULL if _overfull(folder, pid, limits) else ""


def _overfull(folder: str, pid: int, limits: SandboxLimits) -> bool:
    """Return True if a folder has too many files or too many bytes, including deleted files that
    the process still holds.
    """
    files = size = 0
    places = [folder]
    while places and files <= limits.folder_files:
        with contextlib.suppress(OSError), os.scandir(places.pop()) as entries:
            for entry in entries:
                files += 1
                size += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    places.append(entry.path)
    held = _deleted_but_held(pid, os.stat(folder).st_dev, limits.file_size)
    return files + len(held) > limits.folder_files or size + sum(held.values()) > limits.folder_size


def _deleted_but_held(pid: int, device: int, file_size: int) -> dict[int, int]:
    """Return the size in bytes, by inode, of each deleted file on this device that the process
    still has open or mapped. A file that is only mapped counts as `file_size` bytes.
    """
    held: dict[int, int] = {}
    with contextlib.suppress(OSError):  # the process has ended, or /proc is not accessible
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
        for line in maps.splitlines():
            parts = line.split(None, 5)
            if line.endswith(" (deleted)") and int(parts[4]) and _device(parts[3]) == device:
                held[int(parts[4])] = file_size
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(entry.path)
                if found.st_nlink == 0 and found.st_dev == device:
                    held[found.st_ino] = found.st_blocks * 512
    return held


def _device(shown: str) -> int:
    major, minor = shown.split(":")
    return os.makedev(int(major, 16), int(minor, 16))


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """Yield a private folder that is removed afterwards, or by a later process if this one is
    killed. Raises OSError if it can't be created.
    """
    _remove_left_folders(tempfile.gettempdir())
    unlocked = Path(tempfile.mkdtemp(prefix="codecheck-new-"))
    folder = unlocked.with_name(unlocked.name.replace("-new-", "-run-", 1))
    lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(folder)  # locked first, because others remove unlocked folders
        yield str(folder)
    finally:
        _remove(folder)
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder of any depth: move the content of each subfolder up before removing it."""
    with contextlib.suppress(OSError):
        while entries := list(os.scandir(folder)):
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry)
                    continue
                os.chmod(entry, 0o700)
                for inner in list(os.scandir(entry)):
                    os.rename(inner, folder / os.urandom(8).hex())
                os.rmdir(entry)
        folder.rmdir()


@cache
def _remove_left_folders(place: str) -> None:
    """Remove folders left by killed processes, once per process and place."""
    for folder in Path(place).glob("codecheck-run-*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)


def _pipe(stack: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    """Return a pipe's ends for reading and writing; they are closed with the stack."""
    read, write = os.pipe()
    return stack.enter_context(FileIO(read, "rb")), stack.enter_context(FileIO(write, "wb"))
