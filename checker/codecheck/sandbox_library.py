"""Replacements for library parts that need forbidden resources: asyncio's loops wake without a pair
of sockets, and thread pools work without system semaphores. An installed numpy is made available.

Uses only the standard library.
"""

from __future__ import annotations

import ctypes
import importlib.util
import queue
import sys
import threading
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from typing import Any


def prepare(source: str, config: Mapping[str, Any]) -> None:
    """Install the replacements that a program with this source may need, and make numpy available
    if it is installed.
    """
    if "asyncio" in source.lower() or "async " in source:
        _wake_without_sockets()
    if "multiprocessing" in source:
        _pool_without_semaphores()
    if config.get("numpy"):
        # One thread per core would use up a program's memory.
        ctypes.CDLL(None).setenv(b"OPENBLAS_NUM_THREADS", b"1", 1)
        sys.meta_path.append(_Installed("numpy", config["numpy"]))


class _Installed:
    """Import finder for a single package, in the package's folder."""

    def __init__(self, name: str, folder: str) -> None:
        self._name = name
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the package's spec, or None for any other name."""
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(
            name, f"{self._folder}/__init__.py", submodule_search_locations=[self._folder]
        )


class _Wakes:
    """Selector without files for an event loop; it waits until another thread wakes it."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait until woken, or until the timeout; return no events."""
        self._woken.wait(timeout)
        self._woken.clear()
        return []

    def wake(self) -> None:
        """End the current wait, or else the next one."""
        self._woken.set()

    def get_map(self) -> dict[int, Any]:
        """Return an empty map, because there are no files."""
        return {}

    def register(self, *_: Any) -> None:
        """Raise PermissionError, because an isolated program can't wait for files."""
        raise PermissionError("an isolated program can't wait for files or sockets")

    def close(self) -> None:
        """Do nothing, because nothing is open."""


def _wake_without_sockets() -> None:
    from asyncio.selector_events import BaseSelectorEventLoop

    loop: Any = BaseSelectorEventLoop
    begin = loop.__init__
    loop.__init__ = lambda self, selector=None: begin(self, selector or _Wakes())
    loop._make_self_pipe = loop._close_self_pipe = lambda self: None
    loop._write_to_self = lambda self: self._selector.wake()


class _Notes(queue.SimpleQueue[Any]):
    _reader = None


def _pool_without_semaphores() -> None:
    from multiprocessing import pool

    class InThreads:
        """Context that multiprocessing uses for a thread pool."""

        SimpleQueue = _Notes

    def begin(
        self: Any, processes: Any = None, initializer: Any = None, initargs: Any = ()
    ) -> None:
        pool.Pool.__init__(self, processes or 4, initializer, initargs, context=InThreads())

    def wait(sentinels: Any, notes: Any, timeout: float | None = None) -> None:
        notes.get()
        while not notes.empty():
            notes.get()

    threads: Any = pool.ThreadPool
    threads.__init__ = begin
    pools: Any = pool.Pool
    pools._wait_for_updates = staticmethod(wait)
