"""One set of model servers for all stages that run at once: the first starts them, others use them, and one of those goes on with
them when whoever started them ends.

    with shared_servers(Path(".ttsgraph/servers.json"), {"smollm2-135m"}, launch) as urls:
        urls  # {"smollm2-135m": ("http://127.0.0.1:43127/v1",)}
"""

from __future__ import annotations

import fcntl
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from pipeline.errors import InputError
from pipeline.models.launcher import Launcher
from pipeline.models.running import LOOK_S, is_kept_up, read_pool

Urls = Mapping[str, tuple[str, ...]]
"""Model -> the base URLs of its servers."""


@contextmanager
def shared_servers(
    record: Path,
    models: Collection[str],
    launch: Callable[[Urls], Launcher],
    wait_s: float = 0.0,
    console: Console | None = None,
) -> Iterator[Urls]:
    """Base URLs of servers for `models`: those recorded at `record`, or else started here.

    `launch` makes a launcher, not started, for servers at some addresses (free ones where none are given). Servers that another
    process started, and took with it when it ended, are started again here, at the same addresses: calls wait for them. `wait_s` is
    as for `read_pool`. Raises EndpointError when servers can't be had.
    """
    console = console or Console(stderr=True)
    ended = threading.Event()
    with _starting(record, ended, console):
        up = read_pool(record, wait_s, console)
        if up is None or not set(models) <= set(up):
            up, started = None, launch({}).start()
    if up is None:
        try:
            yield started.endpoints
        finally:
            started.stop()
        return
    needed = {model: urls for model, urls in up.items() if model in models}
    heir = _Heir(record, needed, launch, ended, console)
    heir.start()
    try:
        yield up
    finally:
        heir.stop()


class _Heir(threading.Thread):
    """Starts the servers that are used here, should whoever started them end first."""

    def __init__(
        self, record: Path, urls: Urls, launch: Callable[[Urls], Launcher], ended: threading.Event, console: Console
    ) -> None:
        super().__init__(name="heir of model servers", daemon=True)
        self._record, self._urls, self._launch, self._ended, self._console = record, urls, launch, ended, console
        self._launcher: Launcher | None = None

    def run(self) -> None:
        """Look until the end, or until the servers are started here."""
        while not self._ended.wait(LOOK_S):
            if self._looked_after():
                continue
            with _starting(self._record, self._ended, self._console):
                if self._ended.is_set() or self._looked_after():
                    continue
                self._console.print("whoever started the model servers has ended; starting them here", highlight=False)
                try:
                    self._launcher = self._launch(self._urls)
                    self._launcher.start()
                except InputError as error:
                    if not self._ended.is_set():
                        self._console.print(f"model servers could not be started again: {error}", highlight=False)
                return

    def stop(self) -> None:
        """End what was started here, even while it is being started."""
        self._ended.set()
        while self.is_alive():
            if self._launcher is not None:
                self._launcher.stop()
            self.join(LOOK_S)
        if self._launcher is not None:
            self._launcher.stop()

    def _looked_after(self) -> bool:
        """Whether another process keeps the servers up, or has not ended them all yet."""
        return is_kept_up(self._record, self._urls) or any(_listens(url) for urls in self._urls.values() for url in urls)


@contextmanager
def _starting(record: Path, ended: threading.Event, console: Console) -> Iterator[None]:
    """Hold the lock under which servers are looked for and started, so that two processes don't both; not once `ended` is set."""
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.with_suffix(".lock").open("w") as lock:
        told = False
        while not ended.is_set():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    console.print("waiting for model servers that another process is starting", highlight=False)
                told = True
            ended.wait(LOOK_S)
        yield


def _listens(url: str) -> bool:
    """Whether something accepts connections at a URL's address."""
    address = urlsplit(url)
    with socket.socket() as probe:
        probe.settimeout(2.0)
        return probe.connect_ex((address.hostname or "", address.port or 0)) == 0
