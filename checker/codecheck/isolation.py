"""What a program that a model wrote may do, and whether the kernel enforces it here.

The layers that isolation needs are a seccomp filter that allows a list of system calls and refuses
the rest (no socket, no process, no signal to others; threads) and Landlock rules that leave a
program its folder and Python's own library. Where the kernel also gives user namespaces, the child
has a network and System V objects of its own; nothing promised depends on these.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import tempfile
import zoneinfo
from functools import cache
from pathlib import Path

from codecheck.errors import NotIsolated
from codecheck.sandbox_child import FOLDER_RIGHTS, READ_DIR, READ_FILE, WRITE_FILE

REQUIRED = ("files", "system calls")
"""The layers without which a child is not isolated; its limits are set in any case."""

_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_INSTALLED = {"site-packages", "dist-packages"}

# Memory, time, randomness, its own signals, and files (of which Landlock says which).
_ALLOWED = """
access alarm brk clock_getres clock_gettime clock_nanosleep close dup dup2 dup3 exit exit_group
faccessat faccessat2 fdatasync fstat fsync ftruncate futex getcwd getdents64 getegid geteuid
getgid getitimer getpgrp getpid getppid getrandom getresgid getresuid getrlimit getrusage gettid
gettimeofday getuid lseek lstat madvise membarrier mkdir mmap mprotect mremap msync munmap
nanosleep newfstatat pause poll ppoll pread64 preadv pselect6 pwrite64 pwritev read readlink
readlinkat readv rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigprocmask
rt_sigreturn sched_getaffinity sched_yield select sendfile set_robust_list setitimer sigaltstack
stat statx sysinfo time times umask uname unlink unlinkat write writev
"""
_FCNTL = (0, 1, 2, 3, 1030)
"""Duplicating descriptors and reading flags; not F_SETOWN, which sends signals."""
_THREAD = (0x3D0F00, 0x7D0F00)
"""The flags with which the C libraries begin a thread, of the same process in everything."""
_HERE = 0xFFFFFF9C
"""A path from the working directory on: no deeper than a path can be."""
_UNKNOWN = 38
"""Of a newer way to begin threads, whose flags no filter can see: the older one is taken then."""
_IOCTL = (0x5401, 0x5413, 0x5450, 0x5451)
"""Whether it is a terminal, how large, and close-on-exec."""


@cache
def system_call_filter() -> bytes:
    """The seccomp filter as the kernel's instructions, for this architecture; empty where
    libseccomp is not installed.
    """
    try:
        import pyseccomp as seccomp
    except (RuntimeError, OSError):
        return b""
    # EPERM rather than death: a solution that only tries gets Python's usual exception.
    calls = seccomp.SyscallFilter(seccomp.ERRNO(1))
    argument = seccomp.Arg
    equal = seccomp.EQ
    masked = seccomp.MASKED_EQ
    for name in _ALLOWED.split():
        # An older libseccomp doesn't know the newer ones.
        if seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) != -1:
            calls.add_rule(seccomp.ALLOW, name)
    for command in _FCNTL:
        calls.add_rule(seccomp.ALLOW, "fcntl", argument(1, equal, command))
    for flags in _THREAD:
        calls.add_rule(seccomp.ALLOW, "clone", argument(0, equal, flags))
    calls.add_rule(seccomp.ERRNO(_UNKNOWN), "clone3")
    calls.add_rule(seccomp.ALLOW, "mkdirat", argument(0, masked, 0xFFFFFFFF, _HERE))
    for request in _IOCTL:
        calls.add_rule(seccomp.ALLOW, "ioctl", argument(1, equal, request))
    # Reading its own limits, not setting them, nor touching those of others.
    calls.add_rule(seccomp.ALLOW, "prlimit64", argument(0, equal, 0), argument(2, equal, 0))
    # Before its version 3 Landlock let a file that may not be written be emptied while it is opened
    # for reading.
    kinds = os.O_TRUNC | os.O_ACCMODE
    for name, flags in (("open", 1), ("openat", 2)):
        calls.add_rule(seccomp.ALLOW, name, argument(flags, masked, os.O_TRUNC, 0))
        for write in (os.O_WRONLY, os.O_RDWR):
            calls.add_rule(seccomp.ALLOW, name, argument(flags, masked, kinds, os.O_TRUNC | write))
    with tempfile.TemporaryFile() as file:
        calls.export_bpf(file)
        file.seek(0)
        return file.read()


@cache
def _library_paths() -> dict[str, int]:
    """What a Python program has to read: the standard library without what is installed beside it,
    and shared libraries.
    """
    paths = {
        os.devnull: READ_FILE | WRITE_FILE,
        "/dev/urandom": READ_FILE,
        "/etc/ld.so.cache": READ_FILE,
    }
    library = Path(sysconfig.get_path("stdlib"))
    paths[str(library)] = READ_DIR
    for path in library.iterdir():
        if path.name not in _INSTALLED:
            paths[str(path)] = READ_FILE | READ_DIR if path.is_dir() else READ_FILE
    for name in zoneinfo.TZPATH:
        if Path(name).is_dir():
            paths[name] = READ_FILE | READ_DIR
    for name in _LIBRARIES:
        if Path(name).is_dir():
            paths[name] = READ_FILE
    for path in Path(sys.base_prefix, "lib").glob("*.so*"):
        paths[str(path)] = READ_FILE
    if numpy := numpy_folder():
        paths |= {numpy: READ_FILE | READ_DIR, f"{numpy}.libs": READ_FILE | READ_DIR}
    return paths


@cache
def numpy_folder() -> str | None:
    """Where numpy lies, which programs may use; None where it is not installed."""
    found = importlib.util.find_spec("numpy")
    return None if found is None or found.origin is None else str(Path(found.origin).parent)


def readable_paths(folder: str | None) -> dict[str, int]:
    """Path -> Landlock rights on it and below: Python's library, and its own folder if it has
    one.
    """
    return _library_paths() | ({folder: FOLDER_RIGHTS} if folder else {})


def require(missing: dict[str, str], accept_weaker: bool) -> None:
    """Raises NotIsolated that names the layers that are missing, unless less is accepted."""
    if missing and not accept_weaker:
        reasons = "; ".join(f"{layer}: {why}" for layer, why in missing.items())
        raise NotIsolated(
            f"programs written by models can't be isolated here ({reasons}); expected Linux 5.13 or"
            " later with Landlock, and libseccomp, or accept_weaker"
        )
