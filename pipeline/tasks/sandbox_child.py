"""The two processes behind a verdict, run as a program by sandbox.py: the host runs a solution, the checker its tests.

They share no memory, and the host never holds anything that makes a pass. The checker calls the solution through a pair of pipes
on which only plain data travels, compares what comes back in its own interpreter, and alone holds the pipe of the verdict.
Uses the standard library only, and imports what it needs before it confines itself.
"""

from __future__ import annotations

import base64
import builtins
import ctypes
import json
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any, NoReturn

READY, LOADED, PASSED, FAILED, BROKEN = "ready", "loaded", "passed", "failed", "broken"
MAX_MESSAGE = 16 << 20
"""Bytes of one call or one answer."""
MAX_ITEMS = 1_000_000
"""Items taken from an iterator that a solution returned."""

# From the kernel's headers; the Landlock numbers are the same on every architecture.
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 1, 22, 38, 2
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x08000000, 0x10000000, 0x40000000
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT, LANDLOCK_VERSION, LANDLOCK_PATH_BENEATH = 444, 445, 446, 1, 1
WRITE_FILE, READ_FILE, READ_DIR, REMOVE_FILE, MAKE_REG, TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 8, 1 << 14
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Landlock version -> how many rights on files it knows; 16 from version 5 on."""

_libc = ctypes.CDLL(None, use_errno=True)


def confine(config: Mapping[str, Any]) -> dict[str, str]:
    """Give up everything a solution needs not; returns layer -> why it failed, empty if all hold. Limits raise OSError."""
    errors: dict[str, str] = {}
    for name, limit in config["limits"].items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    layers: dict[str, Callable[[], object]] = {
        "namespaces": lambda: _checked(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC)),
        # The solution dies with the process that asked, however that one ends.
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
    padded = [*(ctypes.c_ulong(v) if isinstance(v, int) else v for v in values), *[ctypes.c_ulong(0)] * (4 - len(values))]
    _checked(_libc.prctl(option, *padded))


def _filter_calls(program: bytes) -> None:
    """Install a compiled seccomp filter: 8 bytes an instruction."""
    if not program:
        raise OSError("libseccomp is not installed")

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    code = Program(len(program) // 8, program)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.cast(ctypes.byref(code), ctypes.c_void_p))


def _restrict_files(paths: Mapping[str, int]) -> None:
    """From here on only these paths, with these rights on them and all below, by Landlock."""
    version = _checked(_libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(LANDLOCK_VERSION)))
    handled = (1 << FILE_RIGHTS.get(version, 16)) - 1
    # All rights on files; binding and connecting TCP (from version 4); abstract sockets and signals (from version 6).
    fields = [handled, 3, 3][: 1 + (version >= 4) + (version >= 6)]
    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    rules = _checked(_libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(8 * len(fields)), ctypes.c_uint(0)))

    class Rule(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))

    for path, rights in paths.items():
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # what isn't there needs no permission
        rule = Rule(rights & handled, parent)
        _checked(_libc.syscall(LANDLOCK_ADD, rules, LANDLOCK_PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint(0)))
        os.close(parent)
    _checked(_libc.syscall(LANDLOCK_RESTRICT, rules, ctypes.c_uint(0)))
    os.close(rules)


class Unsendable(TypeError):
    """A value that is not plain data."""


class Opaque:
    """Stands for a value that can't travel: equal to nothing, without any use."""


class Items:
    """Stands for an iterator or a view: can be iterated over, equal to nothing."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)


_COLLECTIONS: dict[str, type[list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}


def encode(value: Any) -> Any:
    """A value as JSON: plain data as itself, or as [kind, content]; subclasses as what they extend. Raises Unsendable."""
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else ["int", hex(value)]
    for kind, collection in _COLLECTIONS.items():
        if isinstance(value, collection):
            return [kind, [encode(item) for item in value]]
    if isinstance(value, dict):
        return ["dict", [[encode(key), encode(item)] for key, item in value.items()]]
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    if isinstance(value, bytes | bytearray):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, Fraction | Decimal):
        return [type(value).__name__, str(value)]
    if isinstance(value, Iterable):
        return ["items", [encode(item) for item in islice(value, MAX_ITEMS)]]
    if isinstance(value, Opaque):  # a solution's own answer, handed back to it
        return ["opaque", None]
    raise Unsendable(f"a {type(value).__name__} is no plain data")


def decode(value: Any) -> Any:
    """The inverse of `encode`: nothing but instances of built-in types, whatever was sent. Raises on what is malformed."""
    if not isinstance(value, list):
        if isinstance(value, dict):
            raise ValueError("expected plain data")
        return value
    kind, content = value
    if kind in _COLLECTIONS:
        return _COLLECTIONS[kind](decode(item) for item in content)
    decoders: dict[str, Callable[[Any], Any]] = {
        "int": lambda text: int(text, 16),
        "dict": lambda pairs: {decode(key): decode(item) for key, item in pairs},
        "complex": lambda parts: complex(*parts),
        "bytes": bytes.fromhex,
        "Fraction": Fraction,
        "Decimal": Decimal,
        "items": lambda items: Items([decode(item) for item in items]),
        "opaque": lambda _: Opaque(),
    }
    return decoders[kind](content)


class Channel:
    """Messages of one line each on a pair of pipes."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = os.fdopen(read, "rb"), os.fdopen(write, "wb")

    def send(self, message: Any) -> None:
        """Write one message. Raises OSError when nobody reads it."""
        self._write.write(json.dumps(message).encode() + b"\n")
        self._write.flush()

    def receive(self) -> Any:
        """The next message. Raises EOFError when there is none, ValueError when it is too long or not JSON."""
        line = self._read.readline(MAX_MESSAGE)
        if not line.endswith(b"\n"):
            raise ValueError("an answer was too long") if line else EOFError
        return json.loads(line)


def host(config: Mapping[str, Any], calls: Channel, say: Callable[[str], None]) -> None:
    """Run a solution, then answer calls of its function until there are no more."""
    program: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compile(config["source"].encode(errors="replace"), "solution", "exec"), program)
        calls.send(LOADED)
        while True:
            try:
                arguments, named = decode(calls.receive())
            except EOFError:
                return
            try:
                reply = {"value": encode(program[config["function"]](*arguments, **named))}
            except Unsendable:
                reply = {"value": ["opaque", None]}
            except Exception as error:
                reply = {"raised": type(error).__name__, "message": str(error)[:200]}
            calls.send(reply)
    except BaseException as error:
        say(f"{type(error).__name__}: {error}"[:200])


def checker(config: Mapping[str, Any], calls: Channel, say: Callable[[str], None]) -> None:
    """Run the tests on a solution that is behind the pipes, and say the verdict."""

    def end(verdict: str) -> NoReturn:
        say(verdict)
        os._exit(0)

    def solution(*arguments: Any, **named: Any) -> Any:
        try:
            call = encode((arguments, named))
        except Unsendable as error:
            end(f"{BROKEN} the tests call with a value that can't travel: {error}")
        try:
            calls.send(call)
            reply = calls.receive()
            value = decode(reply["value"]) if "value" in reply else None
        except EOFError:
            end(FAILED)
        except Exception as error:  # a solution that answers with anything else than data has failed, whatever a test makes of it
            end(f"{FAILED} {type(error).__name__}: {error}"[:200])
        if "value" in reply:
            return value
        raise _error(reply)

    tests: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(compile(config["given"], "given", "exec"), tests)
        tests[config["function"]] = solution
        exec(compile(config["tests"], "tests", "exec"), tests)
        check = tests["check"]
    except BaseException as error:
        end(f"{BROKEN} {type(error).__name__}: {error}"[:200])
    try:
        # Nothing is decided before the solution is there, also by tests that don't call it.
        if calls.receive() != LOADED:
            end(FAILED)
        check(solution)
    except BaseException as error:
        end(f"{FAILED} {type(error).__name__}: {error}"[:200])
    end(PASSED)


def _error(reply: Mapping[str, Any]) -> Exception:
    """The exception that the solution raised, as far as it is a built-in one."""
    kind = getattr(builtins, str(reply["raised"]), None)
    message = f"{reply['raised']}: {reply['message']}"
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return RuntimeError(message)
    try:
        return kind(reply["message"])
    except Exception:
        return RuntimeError(message)


def main() -> None:
    """Read what to do from stdin, confine this process, and do it."""
    config = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 0)
    os.environ.clear()

    def say(text: str) -> None:
        os.write(config["said"], text.encode(errors="replace") + b"\n")

    errors = confine(config)
    if config["role"] == "probe":
        say(json.dumps(errors))
    elif lacking := [f"{name}: {why}" for name, why in errors.items() if name in config["required"]]:
        say(f"can't be confined ({'; '.join(lacking)})")
    else:
        say(READY)
        calls = Channel(config["read"], config["write"])
        {"host": host, "checker": checker}[config["role"]](config, calls, say)
    os._exit(0)


if __name__ == "__main__":
    main()
