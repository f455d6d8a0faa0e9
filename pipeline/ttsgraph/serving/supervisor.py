"""Supervisor process, which starts local model servers, restarts servers that end, and itself ends
when no process uses them any more.

    with shared_servers(Path(".ttsgraph/servers.json"), {"smollm2-135m"}, specs, 300) as urls:
        urls  # {"smollm2-135m": ("http://127.0.0.1:43127/v1",)}

The first process that needs the servers starts the supervisor; later processes use the same
servers. Two kernel locks on files next to the record show which processes are alive: the supervisor
holds `servers.lock`, and each user holds a shared lock on `servers.users`. The kernel releases a
lock however its process ends. Without users, the supervisor stops the servers. Each server runs
under `guard.py`, which ends the server's process tree when the supervisor ends.
"""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from http.client import HTTPConnection, HTTPException
from itertools import chain
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from ttsgraph.base.ending import say
from ttsgraph.base.errors import EndpointError
from ttsgraph.base.files import keep, kept
from ttsgraph.base.secrets import SECRET_NAME, redact
from ttsgraph.serving.guard import GRACE_S, end, start
from ttsgraph.serving.servers import ServerSpec

LOOK_S = 0.3
MAX_RESTARTS = 3
"""Maximum number of restarts of one server."""

LOG_TAIL_LINES = 15

Urls = Mapping[str, tuple[str, ...]]
"""Map from each model to the base URLs of its servers."""

Specs = Callable[[], Sequence[ServerSpec]]
"""Function that prepares servers and returns their specifications; called only to start them."""


@contextmanager
def in_use(record: Path) -> Iterator[None]:
    """Keep the servers of a record running, once they are started, until the context ends.

    When the last user's context ends, wait a few seconds for the supervisor to end.
    """
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.with_suffix(".users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)  # waits while servers are being stopped
        try:
            yield
        finally:
            if _lock(users):  # this was the last user, so the supervisor ends
                users.close()
                patience = time.monotonic() + 2 * GRACE_S
                with record.with_suffix(".lock").open("a") as supervised:
                    while not _lock(supervised) and time.monotonic() < patience:
                        time.sleep(LOOK_S / 3)


@contextmanager
def shared_servers(
    record: Path, models: Collection[str], specs: Specs, timeout_s: float
) -> Iterator[Urls]:
    """Yield the base URLs of servers for `models`: those in `record`, or new ones from `specs`.

    If the servers in `record` lack some of the models, use a separate record. Each server has
    `timeout_s` seconds to start. Raises EndpointError if servers can't be started.
    """
    with in_use(record):
        urls = _urls(record, specs, timeout_s)
        if set(models) <= set(urls):
            yield urls
            return
        digest = sha256(" ".join(sorted(models)).encode()).hexdigest()[:8]
    another = record.with_name(f"{record.stem}-{digest}.json")
    with shared_servers(another, models, specs, timeout_s) as urls:
        yield urls


def _urls(record: Path, specs: Specs, timeout_s: float) -> Urls:
    """Return the base URLs of all servers of a record once they answer.

    Start a supervisor if none is running, and print the lines that it writes meanwhile. Raises
    EndpointError if servers can't be started, or don't answer in time after they were up.
    """
    log = record.parent / "logs" / f"{record.stem}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    started, first = False, True
    since = time.monotonic()
    with log.open("a+", errors="replace") as lines:
        while True:
            with record.with_suffix(".lock").open("a") as lock:
                supervised = not _lock(lock)
                found = kept(record) or {}
                # At the first look, a supervisor that failed before may still be about to end.
                if not first and ("failed" in found or (started and not supervised)):
                    raise EndpointError(found.get("failed", f"the model servers ended; see {log}"))
                if not supervised:
                    record.unlink(missing_ok=True)
                    _supervise(record, specs(), timeout_s, lock, log)
                    started = True
            for line in lines:
                say(line.rstrip())
            urls = found.get("urls", {}) if supervised else {}
            away = [url for url in chain.from_iterable(urls.values()) if not healthy(url)]
            if urls and not away:
                return {model: tuple(replicas) for model, replicas in urls.items()}
            since = since if urls else time.monotonic()
            if time.monotonic() - since > timeout_s:
                raise EndpointError(
                    f"expected an answer from {', '.join(away)}, found none; see {log.parent}"
                )
            if first and not started:
                say("waiting for model servers to start")
            first = False
            time.sleep(LOOK_S)


def _supervise(
    record: Path, specs: Sequence[ServerSpec], timeout_s: float, lock: IO[str], log: Path
) -> None:
    """Start the supervisor, which takes over the lock.

    It runs in a separate session, so that Ctrl-C reaches only the processes that use the servers.
    """
    described = json.dumps([asdict(spec) for spec in specs], default=str)
    with log.open("a") as lines:
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", __name__, str(record), str(timeout_s), described),
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
            pass_fds=[lock.fileno()],
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()


def _lock(file: IO[str]) -> bool:
    """Try to lock a file without waiting; return False if another process holds a lock on it."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def healthy(base_url: str) -> bool:
    """Return True if the server at this URL answers that it is healthy."""
    # Unlike urllib, this class ignores proxy settings, which must not apply to local servers.
    address = urlsplit(base_url.removesuffix("/v1"))
    connection = HTTPConnection(address.netloc, timeout=2.0)
    with suppress(OSError, HTTPException), closing(connection):
        connection.request("GET", f"{address.path}/health")
        return connection.getresponse().status < 400
    return False


@dataclass
class _Server:
    """Server with its guard (None if it isn't started) and its start time (monotonic seconds)."""

    spec: ServerSpec
    guard: subprocess.Popen[bytes] | None = None
    since: float = 0.0
    restarts: int = 0
    up: bool = False
    """True if the server has answered since its latest start."""

    def start(self) -> None:
        """Start the server, with only the secrets that it needs, so that no others can get into its
        log.
        """
        spec = self.spec
        passed = (key for key in os.environ if key in spec.secrets or not SECRET_NAME.search(key))
        env = {key: os.environ[key] for key in passed}
        self.since = time.monotonic()
        self.guard = start(spec.command, Path(spec.log), env | dict(spec.env), spec.grace_s)

    def check(self, guard: subprocess.Popen[bytes], timeout_s: float) -> None:
        """Note whether the started server is up; if it has ended, prepare to start it again.

        Raises EndpointError if it isn't up in time, or has ended once too often.
        """
        name = self.spec.name
        seconds = time.monotonic() - self.since
        status = guard.poll()
        if status is not None:
            if not (self.up or self.restarts):
                raise self.failure(f"ended with status {status} before it was up")
            if self.restarts == MAX_RESTARTS:
                raise self.failure(f"ended with status {status} and is not restarted again")
            say(f"model server {name} ended with status {status}; restarting it")
            end([guard])
            self.up, self.guard = False, None
            self.restarts += 1
        elif not self.up and healthy(self.spec.base_url):
            self.up = True
            say(f"  {name} is up after {seconds:.0f} s")
        elif not self.up and seconds > timeout_s:
            raise self.failure(f"was not up after {timeout_s:.0f} s")

    def failure(self, what: str) -> EndpointError:
        """Return an error that says what happened, the end of the server's log, and a remedy."""
        spec = self.spec
        lines = Path(spec.log).read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        tail = redact("".join(f"    {line[:300]}\n" for line in lines))
        return EndpointError(
            f"model server {spec.name} {what}; the last lines of {spec.log}:\n{tail}"
            f"  if {spec.command[0]} is missing or lacks a package, run `make setup`"
        )


def main(arguments: Sequence[str]) -> int:
    """Supervise the described servers until no process uses them.

    A server that is given up on ends all of them; the reason is then in the record.
    """
    record, timeout_s = Path(arguments[0]), float(arguments[1])
    specs = [ServerSpec(**each) for each in json.loads(arguments[2])]
    urls = {each.model: [s.base_url for s in specs if s.model == each.model] for each in specs}
    users = record.with_suffix(".users").open("a")
    servers = [_Server(spec) for spec in specs]
    try:
        say(f"starting model servers: {', '.join(server.spec.name for server in servers)}")
        for server in servers:
            Path(server.spec.log).unlink(missing_ok=True)
        while not _lock(users):
            for server in servers:
                starting = (each.spec.gpus for each in servers if each.guard and not each.up)
                if server.guard is not None:
                    server.check(server.guard, timeout_s)
                # A starting server measures the memory in use, so two must not start on a GPU in
                # parallel.
                elif set(server.spec.gpus).isdisjoint(chain.from_iterable(starting)):
                    server.start()
            if not record.exists() and all(server.up for server in servers):
                keep(record, {"urls": urls})
            time.sleep(LOOK_S)
        record.unlink(missing_ok=True)
        return 0
    except EndpointError as error:
        say(str(error))
        keep(record, {"failed": str(error)})
        return 1
    finally:
        grace_s = max((server.spec.grace_s for server in servers), default=0.0)
        end([server.guard for server in servers if server.guard], grace_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
