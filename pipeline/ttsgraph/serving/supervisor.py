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

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from ttsgraph.base.ending import say
from ttsgraph.base.errors import EndpointError
from ttsgraph.base.files import keep, kept
from ttsgraph.base.secrets import SECRET_NAME, redact
from ttsgraph.serving.guard import GRACE_S, end, start
from ttsgraph.serving.servers import ServerSpec

LOOK_S = 0.3
TELL_S = 15.0
"""Seconds between two progress lines while waiting."""

MAX_RESTARTS = 3
"""Maximum number of restarts of one server."""

LOG_TAIL_LINES = 15

LOCAL = build_opener(ProxyHandler({}))
"""URL opener that ignores proxy settings, which must not apply to local servers."""

Urls = Mapping[str, tuple[str, ...]]
"""Map from each model to the base URLs of its servers."""


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
                _wait_for_end(record)


def _wait_for_end(record: Path) -> None:
    patience = time.monotonic() + 2 * GRACE_S
    with record.with_suffix(".lock").open("a") as supervised:
        while not _lock(supervised) and time.monotonic() < patience:
            time.sleep(LOOK_S / 3)


@contextmanager
def shared_servers(
    record: Path,
    models: Collection[str],
    specs: Callable[[], Sequence[ServerSpec]],
    timeout_s: float,
) -> Iterator[Urls]:
    """Yield the base URLs of servers for `models`: those in `record`, or new ones from `specs`.

    If the servers in `record` lack some of the models, use a separate record. Each server has
    `timeout_s` seconds to start. Raises EndpointError if servers can't be started.
    """
    log = record.parent / "logs" / f"{record.stem}.log"
    with in_use(record), _lines_said(log):
        urls = _urls(record, specs, timeout_s, log)
        if set(models) <= set(urls):
            yield urls
            return
        digest = sha256(" ".join(sorted(models)).encode()).hexdigest()[:8]
    another = record.with_name(f"{record.stem}-{digest}.json")
    with shared_servers(another, models, specs, timeout_s) as urls:
        yield urls


def _urls(
    record: Path, specs: Callable[[], Sequence[ServerSpec]], timeout_s: float, log: Path
) -> Urls:
    """Return the base URLs of all servers of a record once they answer.

    Start a supervisor if none is running. Raises EndpointError if servers can't be started or don't
    answer in time.
    """
    started = waits = False
    since = time.monotonic()
    while True:
        if (started or waits) and (problem := _failed(record)):
            raise EndpointError(problem)
        with record.with_suffix(".lock").open("a") as lock:
            if _lock(lock):
                if started:
                    raise EndpointError(_failed(record) or f"the model servers ended; see {log}")
                record.unlink(missing_ok=True)
                _supervise(record, specs(), timeout_s, lock, log)
                started = True
        found = recorded(record)
        away = [server["name"] for server in found if not answers(server)]
        if found and not away:
            return by_model(found)
        since = since if found else time.monotonic()
        if time.monotonic() - since > timeout_s:
            raise EndpointError(
                f"expected an answer from each model server within {timeout_s:.0f} s, found none"
                f" from {', '.join(away)}; see the logs in {log.parent}"
            )
        if not (started or waits):
            say("waiting for model servers to start")
            waits = True
        time.sleep(LOOK_S)


def _supervise(
    record: Path, specs: Sequence[ServerSpec], timeout_s: float, lock: IO[str], log: Path
) -> None:
    """Start the supervisor, which takes over the lock.

    It runs in a separate session, so that Ctrl-C reaches only the processes that use the servers.
    """
    with log.open("a") as lines:
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", __name__, str(record), str(timeout_s)),
            stdin=subprocess.PIPE,
            stdout=lines,
            stderr=lines,
            pass_fds=[lock.fileno()],
            start_new_session=True,
            text=True,
        )
    described = json.dumps([asdict(spec) for spec in specs], default=str)
    threading.Thread(target=process.communicate, args=(described,), daemon=True).start()


@contextmanager
def _lines_said(log: Path) -> Iterator[None]:
    """Print the lines that the supervisor adds to its log while the context is open."""
    log.parent.mkdir(parents=True, exist_ok=True)
    ended = threading.Event()
    with log.open("a+", errors="replace") as lines:

        def follow() -> None:
            last = False
            while not last:
                last = ended.wait(LOOK_S)
                for line in lines:
                    say(line.rstrip())

        follower = threading.Thread(target=follow, name="lines of the supervisor", daemon=True)
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()


def _lock(file: IO[str]) -> bool:
    """Try to lock a file without waiting; return False if another process holds a lock on it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def recorded(record: Path) -> list[dict[str, Any]]:
    """Return the servers in a record, or an empty list until all of them are up."""
    return list((kept(record) or {}).get("servers", ()))


def _failed(record: Path) -> str:
    return str((kept(record) or {}).get("failed", ""))


def by_model(servers: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return a map from each model to the base URLs of its servers, one per replica."""
    found: dict[str, tuple[str, ...]] = {}
    for server in servers:
        found[server["model"]] = (*found.get(server["model"], ()), server["base_url"])
    return found


def served_models(base_url: str) -> tuple[str, ...] | None:
    """Return the names of the models that an OpenAI API lists, or None if no such API answers."""
    try:
        with LOCAL.open(f"{base_url}/models", timeout=2.0) as response:
            return tuple(str(model["id"]) for model in json.load(response)["data"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None


def answers(server: Mapping[str, Any]) -> bool:
    """Return True if a server is healthy and, if it lists models at all, lists its model."""
    url = server["base_url"]
    with (
        contextlib.suppress(OSError, HTTPException),
        LOCAL.open(f"{url.removesuffix('/v1')}/health", timeout=2.0) as response,
    ):
        healthy = 200 <= int(response.status) < 300
        return healthy and (
            not server["lists_models"] or server["model"] in (served_models(url) or ())
        )
    return False


@dataclass
class _ServerProcess:
    """Server with its guard (None if it isn't started) and its start time (monotonic seconds)."""

    spec: ServerSpec
    guard: subprocess.Popen[bytes] | None = None
    since: float = 0.0
    restarts: int = 0
    up: bool = False
    """True if the server has answered since its latest start."""


class Servers:
    """Servers of a supervisor.

    `look`, which the supervisor calls repeatedly, starts servers and restarts those that have
    ended; `stop` ends all of them.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._running: list[_ServerProcess] = []
        self._last_line = time.monotonic()

    def begin(self, specs: Sequence[ServerSpec]) -> None:
        """Set the servers to start: those not yet up. Raises EndpointError if a port is taken."""
        self._running = [_ServerProcess(spec) for spec in specs if not _already_up(spec)]
        say(f"starting model servers: {', '.join(server.spec.name for server in self._running)}")

    @property
    def up(self) -> bool:
        """True if all servers answer."""
        return all(server.up for server in self._running)

    def look(self) -> str:
        """Start the servers that need to be started, and check those that are starting.

        A server waits while another one starts on its GPUs; a server that has ended is started
        again at the same address. If a server is given up on, return the reason, otherwise "".
        Raises EndpointError if a server ends, or isn't up in time, at its first start.
        """
        failed = ""
        for server in self._running:
            if server.guard is None:
                if not self._gpus_taken(server):
                    self._spawn(server)
            elif server.guard.poll() is None:
                if not server.up:
                    self._ask(server)
            elif server.restarts <= MAX_RESTARTS:
                failed = self._restart(server, server.guard) or failed
        return failed

    def stop(self) -> None:
        """End every process started here."""
        grace_s = max((server.spec.grace_s for server in self._running), default=0.0)
        end([server.guard for server in self._running if server.guard], grace_s)

    def _spawn(self, server: _ServerProcess) -> None:
        spec = server.spec
        server.since = time.monotonic()
        # A server gets only the secrets that it needs, so that no others can get into its log.
        passed = (key for key in os.environ if key in spec.secrets or not SECRET_NAME.search(key))
        env = {key: os.environ[key] for key in passed}
        mode: Literal["wb", "ab"] = "ab" if server.restarts else "wb"
        server.guard = start(spec.command, Path(spec.log), env | dict(spec.env), spec.grace_s, mode)

    def _gpus_taken(self, server: _ServerProcess) -> bool:
        """Return True if another server is still starting on one of the same GPUs.

        A starting server measures the memory in use, so two must not start on a GPU in parallel.
        """
        return any(
            other.guard is not None
            and not other.up
            and other.guard.poll() is None
            and time.monotonic() - other.since <= self._timeout_s
            for other in self._running
            if set(other.spec.gpus) & set(server.spec.gpus)
        )

    def _ask(self, server: _ServerProcess) -> None:
        """Check whether a starting server is up, and report its progress.

        Raises EndpointError if the server isn't up in time at its first start.
        """
        spec = server.spec
        now = time.monotonic()
        seconds = now - server.since
        if answers(spec.entry()):
            server.up = True
            say(f"  {spec.name} is up after {seconds:.0f} s")
        elif seconds > self._timeout_s and not server.restarts:
            raise EndpointError(_failure(spec, f"was not up after {self._timeout_s:.0f} s"))
        elif now - self._last_line > TELL_S:
            self._last_line = now
            say(f"  still waiting for {spec.name} after {seconds:.0f} s ({spec.log})")

    def _restart(self, server: _ServerProcess, guard: subprocess.Popen[bytes]) -> str:
        """Prepare to restart an ended server; return the reason if it is given up on, or "".

        Raises EndpointError if the server ended during its first start.
        """
        spec = server.spec
        status = guard.returncode
        if not (server.up or server.restarts):
            raise EndpointError(_failure(spec, f"ended with status {status} before it was up"))
        end([guard], spec.grace_s)  # also closes the guard's standard input
        server.up = False
        server.restarts += 1
        if server.restarts > MAX_RESTARTS:
            return (
                f"model server {spec.name} ended {server.restarts} times, most recently with status"
                f" {status}, and is not restarted; see {spec.log}, and stop all processes that use"
                " it"
            )
        server.guard = None
        say(f"model server {spec.name} ended with status {status}; restarting it")
        return ""


def _already_up(spec: ServerSpec) -> bool:
    """Return True if a server at this address already serves the model.

    Raises EndpointError if another process uses the port.
    """
    found = served_models(spec.base_url)
    if spec.lists_models and spec.model in (found or ()):
        return True
    address = urlsplit(spec.base_url)
    with socket.socket() as probe:
        probe.settimeout(2.0)
        if probe.connect_ex((address.hostname or "", address.port or 0)) != 0:
            return False
    there = "does not answer as an OpenAI API"
    if found is not None:
        there = f"serves {', '.join(found) or 'no model'}"
    raise EndpointError(
        f"port {spec.port} is taken: expected {spec.model} or a free port, "
        f"but the process there {there}; stop it or choose another port"
    )


def _failure(spec: ServerSpec, what: str) -> str:
    """Return a failed server's error message: what happened, the end of its log, and a remedy."""
    with contextlib.suppress(OSError), Path(spec.log).open(errors="replace") as log:
        lines = deque(log, LOG_TAIL_LINES)
        tail = redact("".join(f"    {line.rstrip()[:300]}\n" for line in lines))
        return (
            f"model server {spec.name} {what}; the last lines of {spec.log}:\n{tail}"
            f"  if {spec.command[0]} is missing or lacks a package, run `make setup`"
        )
    return f"model server {spec.name} {what}; it left no log at {spec.log}"


def main(arguments: Sequence[str]) -> int:
    """Supervise the servers described on standard input until no process uses them."""
    record, timeout_s = Path(arguments[0]), float(arguments[1])
    specs = [ServerSpec(**each) for each in json.load(sys.stdin)]
    users = record.with_suffix(".users").open("a")
    servers = Servers(timeout_s)
    try:
        servers.begin(specs)
        while not _lock(users):
            failed = servers.look()
            if failed:
                say(failed)
            if failed or (servers.up and not recorded(record)):
                keep(record, {"servers": [spec.entry() for spec in specs], "failed": failed})
            time.sleep(LOOK_S)
        record.unlink(missing_ok=True)
        return 0
    except EndpointError as error:
        keep(record, {"failed": str(error)})
        return 1
    finally:
        servers.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
