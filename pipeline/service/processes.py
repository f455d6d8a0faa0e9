"""Several processes that serve on one port: the system shares the connections out among them.

Each has a socket of its own with SO_REUSEPORT. With one socket for all, the process that wakes
first would take all of a burst, as asyncio accepts whatever waits. One that dies is replaced; all
end with the process that started them.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType

from prometheus_client import multiprocess

from ttsgraph.base.errors import InputError, TTSGraphError
from ttsgraph.service.doors import Queue

FIGURES = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus-client looks for the folder in which processes keep their figures, to add them
up.
"""

STARTING_S = 120
"""For a process to resolve what it serves and to listen."""

KILLED_S = 5
"""Beyond the time for draining, before a process that is told to stop is killed."""

_log = logging.getLogger(__name__)

ServeOne = Callable[[str, int, Callable[[], None]], None]
"""(host, port, ready) -> serves there until told to stop; calls `ready` once it listens. It is sent
to other processes.
"""


def shared_socket(host: str, port: int) -> socket.socket:
    """A socket bound to an address that other processes of this user may bind too. Raises
    OSError.
    """
    sharing = Queue(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    try:
        sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sharing.bind((host, port))
    except OSError:
        sharing.close()
        raise
    return sharing


def serve_in(
    count: int,
    serve_one: ServeOne,
    host: str,
    port: int,
    drain_s: float,
    say: Callable[[int], None],
) -> None:
    """Serve in so many processes until SIGTERM or SIGINT; `say` is told the port once all of them
    listen.

    Raises InputError for what keeps a process from starting.
    """
    with (
        tempfile.TemporaryDirectory(prefix="ttsgraph-figures-") as figures,
        closing(shared_socket(host, port)) as holding,
    ):
        before = os.environ.get(FIGURES)
        os.environ[FIGURES] = figures
        crew = _Crew(serve_one, host, holding.getsockname()[1], figures)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, crew.stop)
        try:
            for _ in range(count):
                crew.start()
            crew.await_listening()
            if not crew.stopping.is_set():
                say(crew.port)
            crew.watch()
        finally:
            crew.end(drain_s)
            os.environ.pop(FIGURES)
            if before is not None:
                os.environ[FIGURES] = before


class _Crew:
    """The processes, each with the pipe over which it says that it listens, or why not."""

    def __init__(self, serve_one: ServeOne, host: str, port: int, figures: str) -> None:
        self.serve_one = serve_one
        self.host = host
        self.port = port
        self.figures = figures
        self.stopping = threading.Event()
        self._processes: dict[BaseProcess, Connection] = {}
        # Not forked: threads and locks of what is loaded here would come along half-way.
        self._context = multiprocessing.get_context("spawn")

    def stop(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Tell all to finish what is under way; also a signal's handler."""
        self.stopping.set()
        for process in list(self._processes):
            if process.is_alive():
                process.terminate()

    def start(self) -> BaseProcess:
        """One more process."""
        ours, its = self._context.Pipe()
        process = self._context.Process(
            target=_run, args=(self.serve_one, self.host, self.port, its)
        )
        process.start()
        its.close()
        self._processes[process] = ours
        return process

    def await_listening(self) -> None:
        """Wait until all listen. Raises InputError with the reason of the first that can't."""
        for pipe in list(self._processes.values()):
            problem = _heard(pipe)
            if problem and not self.stopping.is_set():
                raise InputError(problem)

    def watch(self) -> None:
        """Replace what dies until it is time to stop."""
        while not self.stopping.is_set():
            wait([process.sentinel for process in self._processes], timeout=1.0)
            for process in [process for process in self._processes if not process.is_alive()]:
                self._forget(process)
                if not self.stopping.is_set():
                    _log.warning(
                        "process %s ended with exit code %s; starting another",
                        process.pid,
                        process.exitcode,
                    )
                    if problem := _heard(self._processes[self.start()]):
                        _log.error("it could not start: %s", problem)

    def end(self, drain_s: float) -> None:
        """Stop all; those that take longer than draining may are killed."""
        self.stop()
        for process in list(self._processes):
            process.join(drain_s + KILLED_S)
            if process.is_alive():
                process.kill()
                process.join()
            self._forget(process)

    def _forget(self, process: BaseProcess) -> None:
        self._processes.pop(process).close()
        if process.pid is not None:
            multiprocess.mark_process_dead(process.pid, self.figures)  # type: ignore[no-untyped-call]


def _heard(pipe: Connection) -> str:
    """What a process says of its start: nothing where it listens, or why it doesn't."""
    try:
        return (
            str(pipe.recv())
            if pipe.poll(STARTING_S)
            else f"a server process took longer than {STARTING_S} s to start"
        )
    except (EOFError, OSError):
        return "a server process ended before it listened; what it said stands above"


def _run(serve_one: ServeOne, host: str, port: int, pipe: Connection) -> None:
    """A process of the crew."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # until it serves: the process that started it says when to stop
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    try:
        serve_one(host, port, lambda: pipe.send(""))
    except TTSGraphError as error:
        pipe.send(str(error))


def _end_with_parent(pipe: Connection) -> None:
    """Stop as on SIGTERM once the other end of the pipe is gone."""
    try:
        pipe.poll(None)
        pipe.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
