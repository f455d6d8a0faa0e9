"""Permissions of model-written programs, and the check that this machine's kernel enforces them.

Isolation requires a seccomp filter that allows a list of system calls and refuses all others (no
sockets, no processes, no signals to other processes; threads are allowed), and Landlock rules that
restrict a program to its folder and Python's own library. If the kernel also offers user
namespaces, the child has a separate network and separate System V objects; no guarantee depends on
these.
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
"""Layers required for isolation; the resource limits of a child are set in any case."""

_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_INSTALLED = {"site-packages", "dist-packages"}

# Memory, time, randomness, a program's own signals, and files (restricted by Landlock).
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
"""fcntl commands that duplicate descriptors, or read or set their flags; not F_SETOWN, which makes
the kernel send signals.
"""
_THREAD = (0x3D0F00, 0x7D0F00)
"""clone flags with which C libraries start a thread in the same process."""
_HERE = 0xFFFFFF9C
"""AT_FDCWD: the path is relative to the working directory."""
_UNKNOWN = 38
"""ENOSYS, returned for clone3 because no filter can see its flags; C libraries then use clone."""
_IOCTL = (0x5401, 0x5413, 0x5450, 0x5451)
"""ioctl requests that read a terminal's settings or size, or set or clear close-on-exec."""


@cache
def system_call_filter() -> bytes:
    """Return the seccomp filter as kernel instructions for this architecture, or b"" if libseccomp
    is not installed.
    """
    try:
        import pyseccomp as seccomp
    except (RuntimeError, OSError):
        return b""
    # EPERM rather than death: a solution that makes a refused call gets Python's usual exception.
    calls = seccomp.SyscallFilter(seccomp.ERRNO(1))
    argument = seccomp.Arg
    equal = seccomp.EQ
    masked = seccomp.MASKED_EQ
    for name in _ALLOWED.split():
        # Older versions of libseccomp don't know the newer system calls.
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
    # A program may read its own limits, but neither set them nor access other processes' limits.
    calls.add_rule(seccomp.ALLOW, "prlimit64", argument(0, equal, 0), argument(2, equal, 0))
    # Landlock before version 3 lets a program truncate a read-only file by opening it for reading,
    # so O_TRUNC is allowed only with a mode for writing.
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
    """Return the paths that a Python program needs, with its Landlock rights on them. They include
    the standard library (without installed packages), shared libraries, and numpy.
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
    """Return the folder of numpy, which programs may use, or None if it is not installed."""
    found = importlib.util.find_spec("numpy")
    return None if found is None or found.origin is None else str(Path(found.origin).parent)


def readable_paths(folder: str | None) -> dict[str, int]:
    """Return the paths that a program may access: those in Python's library, and the program's
    folder if it has one. Each has the Landlock rights on it and on everything below it.
    """
    return _library_paths() | ({folder: FOLDER_RIGHTS} if folder else {})


def require(missing: dict[str, str], accept_weaker: bool) -> None:
    """Raise NotIsolated, which names the missing layers, unless none is missing or weaker isolation
    is accepted.
    """
    if missing and not accept_weaker:
        reasons = "; ".join(f"{layer}: {why}" for layer, why in missing.items())
        raise NotIsolated(
            f"programs written by models can't be isolated here ({reasons}); expected Linux 5.13 or"
            " later with Landlock and libseccomp; install what is missing, or set accept_weaker"
        )
