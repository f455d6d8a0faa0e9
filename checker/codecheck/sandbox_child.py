"""Processes behind a verdict: a host that runs a solution and a checker that runs its tests, or a
single scorer.

sandbox.py runs this module as a program. It forks a process for each task, because importing the
modules again for each would take longer than most verdicts.

Host and checker share no memory, and the host never holds anything that decides a verdict. The
checker calls the solution through a pair of pipes that carry only data (see sandbox_values.py) and
compares the results in its own interpreter; only its output decides the verdict. The module uses
only the standard library, imported before the process confines itself.
"""

from __future__ import annotations
import __future__

import ast
import base64
import ctypes
import functools
import io
import json
import operator
import os
import resource
import socket
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING or __name__ != "__main__":
    from codecheck.sandbox_library import prepare
    from codecheck.sandbox_objects import OPERATIONS, Held, Lending, Solution, borrowed
    from codecheck.sandbox_oracles import compares_arguments
    from codecheck.sandbox_values import Codec, classes_of
    from codecheck.sandbox_wire import Channel, Wire
else:  # run as a program, which finds only the standard library
    sys.path.append(str(Path(__file__).parent))
    from sandbox_library import prepare
    from sandbox_objects import OPERATIONS, Held, Lending, Solution, borrowed
    from sandbox_oracles import compares_arguments
    from sandbox_values import Codec, classes_of
    from sandbox_wire import Channel, Wire

    sys.path.pop()

READY = "ready"
LOADED = "loaded"
PASSED = "passed"
FAILED = "failed"
BROKEN = "broken"
DEFINITIONS = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Try),
)
"""Kinds of top-level statements that define names; the code after the last of them in a module is
assumed to be examples and tests.
"""

# From the kernel's headers; the Landlock numbers are the same on every architecture.
PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
LANDLOCK_CREATE = 444
LANDLOCK_ADD = 445
LANDLOCK_RESTRICT = 446
LANDLOCK_VERSION = 1
LANDLOCK_PATH_BENEATH = 1
WRITE_FILE, READ_FILE, READ_DIR = 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
TRUNCATE = 1 << 14
FOLDER_RIGHTS = (
    (READ_FILE | WRITE_FILE | READ_DIR | REMOVE_FILE | MAKE_REG | TRUNCATE) | MAKE_DIR | REMOVE_DIR
)
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of file rights by Landlock version; 16 from version 5 on."""

_libc = ctypes.CDLL(None, use_errno=True)


def confine(config: Mapping[str, Any]) -> dict[str, str]:
    """Give up everything that a solution doesn't need, and return the isolation layers that failed,
    each with the reason. Raises OSError if a limit can't be set.
    """
    errors: dict[str, str] = {}
    for name, limit in config["limits"].items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    user = os.getuid()
    group = os.getgid()
    layers: dict[str, Callable[[], object]] = {
        "namespaces": lambda: _checked(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC)),
        # The mount has to come before the Landlock rules, which forbid mounts.
        "disk": lambda: _mount_folder(config.get("disk"), user, group),
        # The kernel kills the child when its parent, the template process, ends in any way.
        "parent": lambda: _prctl(PR_SET_PDEATHSIG, 9),
        "files": lambda: _restrict_files(config["paths"]),
        "system calls": lambda: _filter_calls(base64.b64decode(config["filter"])),
    }
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    for name, layer in layers.items():
        try:
            layer()
        except OSError as error:
            errors[name] = str(error)
    return errors


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _prctl(option: int, *values: int | ctypes.c_void_p) -> None:
    padded = [*values, 0, 0, 0, 0][:4]
    _checked(_libc.prctl(option, *(ctypes.c_ulong(v) if isinstance(v, int) else v for v in padded)))


def _mount_folder(disk: Mapping[str, Any] | None, user: int, group: int) -> None:
    """Mount a separate, size-limited file system in memory at the disk's folder, and make it the
    working directory. Do nothing if the process has no disk.
    """
    if disk is None:
        return
    _checked(_libc.unshare(CLONE_NEWNS))
    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, line in maps.items():
        Path("/proc/self", name).write_text(line, encoding="ascii")
    folder = str(disk["folder"]).encode()
    options = f"size={disk['size']},nr_inodes={disk['files'] + 1},mode=700".encode()
    _checked(
        _libc.mount(
            b"tmpfs", folder, b"tmpfs", ctypes.c_ulong(MS_NOSUID | MS_NODEV | MS_NOEXEC), options
        )
    )
    os.chdir(folder)


def _filter_calls(program: bytes) -> None:
    """Install a compiled seccomp filter: 8 bytes per instruction."""
    if not program:
        raise OSError("libseccomp is not installed")

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    code = Program(len(program) // 8, program)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.cast(ctypes.byref(code), ctypes.c_void_p))


def _restrict_files(paths: Mapping[str, int]) -> None:
    """Use Landlock to restrict this process to these paths and everything below them, with the
    given rights.
    """
    version = _checked(
        _libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(LANDLOCK_VERSION))
    )
    handled = (1 << FILE_RIGHTS.get(version, 16)) - 1
    # Restrict all rights on files, binding and connecting TCP sockets (from version 4), and
    # abstract sockets and signals (from version 6).
    fields = [handled, 3, 3][: 1 + (version >= 4) + (version >= 6)]
    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    rules = _checked(
        _libc.syscall(
            LANDLOCK_CREATE, attributes, ctypes.c_size_t(8 * len(fields)), ctypes.c_uint(0)
        )
    )

    class Rule(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))

    for path, rights in paths.items():
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # a missing file needs no permission
        rule = Rule(rights & handled, parent)
        _checked(
            _libc.syscall(
                LANDLOCK_ADD, rules, LANDLOCK_PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint(0)
            )
        )
        os.close(parent)
    _checked(_libc.syscall(LANDLOCK_RESTRICT, rules, ctypes.c_uint(0)))
    os.close(rules)


def host(config: Mapping[str, Any], calls: Channel, say: Callable[[str], None]) -> None:
    """Run a solution, then carry out the checker's requests on it and its objects until the checker
    ends.
    """
    program = _module("program")
    held = Held()
    operations = OPERATIONS | {"some": held.some, "fail": held.fail, "wait": held.wait}

    def do(operation: str, target: Any, *arguments: Any, **named: Any) -> Any:
        value = program[config["function"]] if target is None else target
        return operations[operation](value, *arguments, **named)

    def ask(operation: str, lent: Any, *arguments: Any, **named: Any) -> Any:
        """Request an operation on an object of the tests."""
        value, error = wire.ask(operation, lent, arguments, named)
        if error is not None:
            raise error
        return value

    try:
        _execute(config["given"].encode(errors="replace"), "given", program)
        given = classes_of(program)
        codec = Codec(
            held.hold, held.find, given, lambda content: borrowed(ask, content), finds_library=True
        )
        wire = Wire(calls, codec, do)
        _run(config["source"].encode(errors="replace"), program, config["function"])
        codec.given = given | {
            name: kind for name in given if isinstance(kind := program.get(name), type)
        }
        calls.send(LOADED)
        while True:
            try:
                wire.answer_next()
            except (EOFError, BrokenPipeError):
                return  # the checker has ended, and reported why
    except BaseException as error:
        say(f"{type(error).__name__}: {error}"[:200])


def _execute(source: Any, name: str, names: dict[str, Any], flags: int = 0) -> None:
    """Run source code or a syntax tree with these global names."""
    exec(compile(source, name, "exec", flags=flags, dont_inherit=True), names)


def _module(name: str) -> dict[str, Any]:
    """Register a new module, so that pickle and readers of annotations find it, and return its
    namespace.
    """
    module = types.ModuleType(name)
    sys.modules[name] = module
    return module.__dict__


class _Nothing(io.RawIOBase):
    """Empty standard input for a program; it records whether the program tried to read it."""

    was_read = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read nothing, and record the attempt."""
        self.was_read = True
        return 0


def _run(source: bytes, program: dict[str, Any], function: str) -> None:
    """Run a module as an import would, but ignore errors in the code after its last definition,
    because it usually consists of examples and tests.

    That code is run at all because it may fill a table that the function needs. Raises any earlier
    error, and the last ignored one (or else KeyError) if the module doesn't define the function.
    """
    module = ast.parse(source, "solution")
    kinds = enumerate(module.body, 1)
    defines = [number for number, each in kinds if isinstance(each, DEFINITIONS)]
    end = max(defines, default=len(module.body))
    flags = _future(module)
    nothing = _Nothing()
    sys.stdin = io.TextIOWrapper(io.BufferedReader(nothing), encoding="utf-8")
    failure: BaseException = KeyError(function)
    for number, statement in enumerate(module.body):
        try:
            _execute(ast.Module([statement], []), "solution", program, flags)
        except (Exception, SystemExit) as error:
            failure = error
            # An error after the program has read the empty stdin is expected, because its input is
            # missing.
            goes_on = nothing.was_read and function in program and isinstance(error, Exception)
            if number < end and not goes_on:
                raise
    if function not in program:
        raise failure


def _future(module: ast.Module) -> int:
    """Return the compiler flags set by a module's __future__ imports."""
    names = {
        alias.name
        for statement in module.body
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        for alias in statement.names
    }
    known = names.intersection(__future__.all_feature_names)
    return functools.reduce(operator.or_, (getattr(__future__, n).compiler_flag for n in known), 0)


def scorer(config: Mapping[str, Any], calls: Channel, say: Callable[[str], None]) -> None:
    """Run a program with the given stdin; report the last line that it printed, or the reason for
    its failure.
    """
    sys.stdin = io.StringIO(config["stdin"])
    sys.stdout = io.StringIO()
    printed = sys.stdout
    why = ""
    try:
        _execute(config["source"], "program", {"__name__": "__main__"})
    except SystemExit as error:
        why = f"it exited with {error.code!r}" if error.code else ""
    except BaseException as error:
        why = f"{type(error).__name__}: {error}"
    lines = [line for line in printed.getvalue().splitlines() if line.strip()]
    if not why and not lines:
        why = "it printed nothing"
    say(f"{FAILED if why else PASSED} {' '.join((why or lines[-1]).split())}"[:300])


def checker(config: Mapping[str, Any], calls: Channel, say: Callable[[str], None]) -> None:
    """Run the tests on a solution behind the pipes, and report the verdict."""

    def end(verdict: str, error: BaseException | None = None) -> NoReturn:
        say(f"{verdict} {type(error).__name__}: {error}"[:200] if error else verdict)
        os._exit(0)

    begun = False

    def begin() -> None:
        """Wait for the solution to load. No test passes before then, even if it doesn't call the
        solution.
        """
        nonlocal begun
        if not begun:
            begun = True
            if calls.receive() != LOADED:
                end(FAILED)

    def ask(operation: str, target: Any, *arguments: Any, **named: Any) -> Any:
        try:
            begin()
            value, error = wire.ask(operation, target, arguments, named, is_compared)
        except EOFError:
            end(FAILED)
        # A solution that answers with anything but data has failed, whatever the test does with the
        # answer.
        except Exception as error:
            end(FAILED, error)
        if error is None:
            return value
        if operation == "next" and str(error).startswith("StopIteration"):
            raise StopIteration
        raise error

    lending = Lending(ask)
    tests = _module("tests")
    try:
        _execute(config["given"], "given", tests)
        wire = Wire(
            calls, Codec(lending.lend, lending.meet, classes_of(tests), lending.find), lending.do
        )
        is_compared = compares_arguments(config["tests"], config["function"])
        code = compile(config["tests"], "tests", "exec", dont_inherit=True)
    except BaseException as error:
        end(BROKEN, error)
    tests[config["function"]] = solution = Solution(ask, config["function"])
    try:
        exec(code, tests)
        if not begun or "check" in tests:  # otherwise the tests are asserts, which have passed
            check = tests["check"]
            begin()
            check(solution)
    except BaseException as error:
        end(FAILED if begun else BROKEN, error)
    end(PASSED)


def serve() -> None:
    """Fork a process for each task received over the socket on stdin, until the socket is closed.

    A message with the task's file and pipe ends is answered with the id of the new process. A
    message with a process id is answered with that process's wait status once it has ended; until
    then the system can't reuse the id. This process itself reads no task, and its children die with
    it.
    """
    asked = socket.socket(fileno=0)
    while True:
        message, files, _, _ = socket.recv_fds(asked, 64, 4)
        if not message:
            os._exit(0)
        if files:
            number = os.fork()
            if not number:
                os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 0)  # closes the socket
                os.setsid()
                main(*files)
            for file in files:
                os.close(file)
        else:
            _, number = os.waitpid(int(message), 0)
        asked.send(str(number).encode())


def main(task: int, read: int, write: int, said: int) -> NoReturn:
    """Read the task from a file, confine this process, and run the task."""
    with open(task, encoding="utf-8") as file:
        config = json.load(file)
    os.chdir(config["cwd"])
    os.environ.clear()

    def say(text: str) -> None:
        os.write(said, text.encode(errors="replace") + b"\n")

    errors = confine(config)
    if config["role"] == "probe":
        say(json.dumps(errors))
    elif lacking := [f"{each}: {errors[each]}" for each in config["required"] if each in errors]:
        say(f"it can't be confined ({'; '.join(lacking)})")
    else:
        say(READY)
        calls = Channel(read, write)
        prepare(" ".join(str(config.get(key)) for key in ("source", "given", "tests")), config)
        {"host": host, "checker": checker, "scorer": scorer}[config["role"]](config, calls, say)
    os._exit(0)


if __name__ == "__main__":
    serve()
