"""Verdicts on programs written by a model.

A solution runs in one child process and its tests in another (see sandbox_child.py), both confined
(see isolation.py) and limited, without environment, each in a session of its own, and killed as a
group at the time limit. The verdict comes from the process of the tests, which the solution can
reach only with plain data.
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
# Neither the working directory nor installed packages; -I would also ignore the fixed hash seed.
_OPTIONS = ("-P", "-S", "-s", "-B", "-X", "utf8")
_LOOK_S = 0.05
"""How often a solution's folder is looked at."""

_START_S = 120.0
"""How long a confined process may take to start: the limits are the program's, not the machine's.
"""

_MAX_SAID = 1024
_NO_SPACE = f"[Errno {errno.ENOSPC}]"
_TIMED_OUT = "it ran out of time"
_OVERFULL = "it wrote more than its folder may hold"
_CROWDED = "it started more threads than it may"


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What a solution may use: seconds of clock and of processor, bytes of memory and per file,
    open files, its folder, and its threads at a time.

    It may start no process. A busy machine stretches the clock but not the processor time, so the
    clock's limit is the generous one.
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
        """The limits that the kernel enforces, by their names there."""
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
    """Whether a solution passed; if not, whether the clock ran out, and what was said of it (not to
    be relied on).
    """

    passed: bool
    timed_out: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CheckedProgram:
    """A solution and its tests, as source code for the standard library.

    `tests` define `check(function)`, or are asserts on the function by its name. They may use the
    names that `given` defines, which is trusted as they are and runs before the solution too, and
    `function` by its name; they see nothing else of the solution, and what they pass to it must be
    plain data, instances of given classes, or what it returned.
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
    """Test a solution. What it changes in an argument is not seen by the tests.

    Raises NotIsolated when its processes can't be isolated, unless less is accepted, and
    NotChecked when they could not be started or the tests themselves are no program, because
    neither says anything about the solution.
    """
    required = _required(accept_weaker)
    limits = limits or SandboxLimits()
    try:
        # Left in reverse order: the processes are dead before their folder is removed.
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
        raise NotChecked(f"no process for a program could be started: {error}") from error
    verdict, detail = checker.said(fault)
    if verdict == BROKEN:
        raise NotChecked(
            f"the tests of {program.function} are no program that can check it: {detail}"
        )
    host.require_ready()
    if fault == _OVERFULL:  # it may have been quicker than the checker's start
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
    """The last line that a program prints which reads this text, confined and limited as a solution
    is.

    Raises NotIsolated as `run_checked` does, and NotChecked when the program fails, prints
    nothing or runs out of time.
    """
    required = _required(accept_weaker)
    try:
        with _folder() as folder, contextlib.ExitStack() as stack:
            task = {"role": "scorer", "source": program, "stdin": stdin}
            child = _Child(stack, task, limits, required, python, folder, _pipe(stack))
            fault = _listen(child, child, limits, folder)
    except OSError as error:
        raise NotChecked(
            f"no process for the program that grades could be started: {error}"
        ) from error
    child.require_ready()
    verdict, said = child.said(fault or "it ended without a word")
    if verdict != PASSED or fault:
        raise NotChecked(f"the program that grades failed: {said or fault}")
    return said


def _required(accept_weaker: bool) -> list[str]:
    """The layers that children have to have. Raises NotIsolated."""
    missing = missing_layers()
    require(missing, accept_weaker)
    return [layer for layer in REQUIRED if layer not in missing]


@cache
def missing_layers() -> dict[str, str]:
    """The layers that isolation needs and this machine does not give, each with the reason.

    Costs one process, once. Raises NotChecked when it can't be had.
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
    """One confined process, killed when the stack is left. Given the ends of pipes that it may use;
    these are closed here.
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
        """The whole lines it has said so far."""
        return self._said.decode(errors="replace").split("\n")[:-1]

    def hear(self) -> bool:
        """Take in what it says next; False when it has ended, or said too much."""
        chunk = self.pipe.read(_MAX_SAID)
        self._said += chunk or b""
        return bool(chunk) and len(self._said) < _MAX_SAID

    def said(self, otherwise: str) -> tuple[str, str]:
        """The verdict it has said, and why; failed for this reason where it has said none."""
        if len(self.lines) < 2:
            return FAILED, otherwise
        verdict, _, why = self.lines[1].partition(" ")
        return verdict, why

    @property
    def ready(self) -> bool:
        """Whether it has started its work."""
        return self.lines[:1] == [READY]

    def require_ready(self) -> None:
        """Raises NotChecked when it ended before it could start its work."""
        if not self.ready:
            reason = f": {self.lines[0]}" if self.lines else ""
            raise NotChecked(
                f"the process for a program ended with status {self.status} before it"
                f" ran it{reason}"
            )

    def _kill(self, raised: type[BaseException] | None, *_: object) -> None:
        """The whole process group is dead afterwards."""
        # Without a group of its own yet, it is alone.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)
        try:
            self.status = self._template.status(self.pid)
        except OSError:
            if raised is None:  # what is raised already says more than a lost status
                raise


class _Template:
    """A process that has imported what children need, and forks them.

    It runs in a session of its own and ends when this process has, or closes its end of the socket.
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
        """The number of a new process that has these files. Raises OSError."""
        return self._ask(b"fork", files)

    def status(self, pid: int) -> int:
        """How a process ended, as subprocess says it; waits until it has. Raises OSError."""
        return os.waitstatus_to_exitcode(self._ask(str(pid).encode()))

    @property
    def ended(self) -> bool:
        """Whether it can fork no more."""
        return self._process.poll() is not None

    def _ask(self, message: bytes, files: Sequence[int] = ()) -> int:
        answer = b""
        with self._lock:
            try:
                socket.send_fds(self._socket, [message], files)
                answer = self._socket.recv(64)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it has ended
            except BaseException:  # what it answers later would be taken for another's
                self._process.kill()
                self._process.wait()
                raise
        if not answer:
            raise OSError(f"what starts them ended with status {self._process.wait()}")
        return int(answer)


_TEMPLATES: dict[tuple[str, int], _Template] = {}
_TEMPLATES_LOCK = Lock()


def _template(python: str, owner: int) -> _Template:
    """The template of this process, `owner`, for a Python; a new one where it has ended."""
    with _TEMPLATES_LOCK:
        found = _TEMPLATES.get((python, owner))
        if found is None or found.ended:
            found = _TEMPLATES[python, owner] = _Template(python)
        return found


class _Clock:
    """The time that children have: to start, then that of their limits."""

    def __init__(self, limits: SandboxLimits, *children: _Child) -> None:
        self.limits = limits
        self.children = children
        self.started = False
        self.deadline = time.monotonic() + _START_S

    def pause(self) -> float:
        """Seconds to listen before looking again."""
        return max(0.0, min(_LOOK_S, self.deadline - time.monotonic()))

    def over(self) -> bool:
        """Whether their time is over."""
        if not self.started and all(child.ready for child in self.children):
            self.started = True
            self.deadline = time.monotonic() + self.limits.wall_s
        return time.monotonic() >= self.deadline


def _listen(host: _Child, checker: _Child, limits: SandboxLimits, folder: str) -> str:
    """Hear both until the checker has ended; returns what ended them before that, if anything. A
    process that has no other is both.

    A host that has not begun by then is heard to its end: its status says why it could not.
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
    """What of its limits that the kernel does not hold a process is beyond; "" for nothing."""
    with contextlib.suppress(OSError):  # it has ended
        if os.stat(f"/proc/{pid}/task").st_nlink - 2 > limits.threads:
            return _CROWDED
    return _OVERFULL if _overfull(folder, pid, limits) else ""


def _overfull(folder: str, pid: int, limits: SandboxLimits) -> bool:
    """Whether the files of a folder are too many or too large, those counted that a process has
    deleted and still holds.
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
    """Inode -> bytes of files of this device that have no name any more and are open, or mapped:
    those are as large as may be.
    """
    held: dict[int, int] = {}
    with contextlib.suppress(OSError):  # it has ended, or /proc is not for us
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
    """A private folder, removed afterwards; by a later process if this one is killed. Raises
    OSError.
    """
    _remove_left_folders(tempfile.gettempdir())
    unlocked = Path(tempfile.mkdtemp(prefix="codecheck-new-"))
    folder = unlocked.with_name(unlocked.name.replace("-new-", "-run-", 1))
    lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(folder)  # under the name that is looked for only once it is locked
        yield str(folder)
    finally:
        _remove(folder)
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder, however deep: what a folder in it holds is moved up before that one goes."""
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
    """Remove, once, the folders that nobody holds any more: who made them was killed."""
    for folder in Path(place).glob("codecheck-run-*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)


def _pipe(stack: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    """A pipe's ends for reading and writing, closed with the stack."""
    read, write = os.pipe()
    return stack.enter_context(FileIO(read, "rb")), stack.enter_context(FileIO(write, "wb"))
