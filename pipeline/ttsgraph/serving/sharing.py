"""One set of model servers for all stages that run at once: the first starts them, others use them,
and one of those goes on with them when whoever started them ends.

    with shared_servers(Path(".ttsgraph/servers.json"), {"smollm2-135m"}, launch) as urls:
        urls  # {"smollm2-135m": ("http://127.0.0.1:43127/v1",)}
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ttsgraph.base.ending import say
from ttsgraph.base.errors import EndpointError, InputError
from ttsgraph.serving.launcher import (
    LOOK_S,
    Launcher,
    is_kept_up,
    listens,
    read_pool,
    recorded_pool,
    write_pool,
)

Urls = Mapping[str, tuple[str, ...]]
"""Model -> the base URLs of its servers."""

Launch = Callable[[Urls], Launcher]
"""Makes a launcher, not started, for servers at these addresses, or else at free ones."""


@contextmanager
def shared_servers(
    record: Path, models: Collection[str], launch: Launch, wait_s: float = 0.0
) -> Iterator[Urls]:
    """Base URLs of servers for `models`: recorded at `record`, or started by a `Keeper`, or else
    here; those that end with another process start again here, at the same addresses. `wait_s` as
    for `read_pool`. Raises EndpointError when servers can't be had.
    """
    ended = threading.Event()
    with _starting(record, ended):
        while (pool := recorded_pool(record)) is not None and pool.kept_up and not pool.servers:
            if pool.failed:  # its keeper's servers can't be started
                raise EndpointError(pool.failed)
            record.with_suffix(".wanted").touch()
            time.sleep(LOOK_S)
        up = read_pool(record, wait_s) or {}
        here = None if set(models) <= set(up) else launch({}).start()
    if here is not None:
        try:
            yield here.endpoints
        finally:
            here.stop()
        return
    needed = {model: up[model] for model in models}
    successor = _Successor(record, launch, ended, needed)
    successor.start()
    try:
        yield up
    finally:
        successor.stop()


class _Starter(threading.Thread):
    def __init__(self, record: Path, launch: Launch, ended: threading.Event) -> None:
        super().__init__(name="starter of model servers", daemon=True)
        self._record = record
        self._launch = launch
        self._ended = ended
        self._launcher: Launcher | None = None

    def stop(self) -> None:
        """End what was started here, even while it is being started."""
        self._ended.set()
        while self.is_alive():
            if self._launcher is not None:
                self._launcher.stop()
            self.join(LOOK_S)
        if self._launcher is not None:
            self._launcher.stop()


class Keeper(_Starter):
    """Starts servers once another process wants them, and keeps them up until its own end; a
    context manager. It does nothing where another one is. Why they don't start is told to who wants
    them.
    """

    def __init__(self, record: Path, launch: Launch) -> None:
        super().__init__(record, launch, threading.Event())
        self._wanted = record.with_suffix(".wanted")

    def __enter__(self) -> Keeper:
        if not is_kept_up(self._record, {}):
            self._wanted.unlink(missing_ok=True)
            write_pool(self._record)
            self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.ident is not None:
            self.stop()
            self._record.unlink(missing_ok=True)

    def run(self) -> None:
        """Look until the end, or until the servers are wanted."""
        while not self._wanted.exists():
            if self._ended.wait(LOOK_S):
                return
        try:
            self._launcher = self._launch({})
            self._launcher.start()
        except InputError as error:
            write_pool(self._record, failed=str(error))


class _Successor(_Starter):
    """Starts the servers that are used here, should whoever started them end first."""

    def __init__(self, record: Path, launch: Launch, ended: threading.Event, urls: Urls) -> None:
        super().__init__(record, launch, ended)
        self._urls = urls

    def run(self) -> None:
        """Look until the end, or until the servers are started here."""
        while not self._ended.wait(LOOK_S):
            if self._looked_after():
                continue
            with _starting(self._record, self._ended):
                if self._ended.is_set() or self._looked_after():
                    continue
                say("whoever started the model servers has ended; starting them here")
                try:
                    self._launcher = self._launch(self._urls)
                    self._launcher.start()
                except InputError as error:
                    if not self._ended.is_set():
                        say(f"model servers could not be started again: {error}")
                return

    def _looked_after(self) -> bool:
        """Whether another process keeps the servers up, or has not ended them all yet."""
        return is_kept_up(self._record, self._urls) or any(
            listens(url) for urls in self._urls.values() for url in urls
        )


@contextmanager
def _starting(record: Path, ended: threading.Event) -> Iterator[None]:
    """Hold the lock under which servers are looked for and started; not once `ended` is set."""
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.with_suffix(".lock").open("w") as lock:
        told = False
        while not ended.is_set():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    say("waiting for model servers that another process is starting")
                told = True
                ended.wait(LOOK_S)
        yield
