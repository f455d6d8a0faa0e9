"""Start and stop local OpenAI-compatible model servers, and let other processes find them.

    served = {"smollm2-135m": Hosted(".ttsgraph/models/smollm2-135m")}
    specs = server_specs("vllm", served, log_dir=Path(".ttsgraph/logs"))
    with Launcher(specs, state=Path(".ttsgraph/pool.json")) as pool:
        pool.endpoints  # {"smollm2-135m": ("http://127.0.0.1:43127/v1",)}

Each runs under `guard.py`, which ends its process tree when this process ends, however it does. One
that dies while it is needed is started again at the same address.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import psutil

from ttsgraph.base.ending import say
from ttsgraph.base.errors import EndpointError
from ttsgraph.base.files import keep, kept
from ttsgraph.base.secrets import SECRET_NAME, redact
from ttsgraph.serving.guard import GRACE_S, end, start
from ttsgraph.serving.servers import ServerSpec

LOOK_S = 0.5
CLOCK_S = 2.0
"""By how much the times of two processes' beginnings may be off."""

TELL_S = 15.0
"""Seconds between two lines about what is waited for."""

LOG_TAIL_LINES = 15

LOCAL = build_opener(ProxyHandler({}))
"""A proxy set for the outside world must not be asked for this machine's own servers."""


@dataclass(frozen=True)
class RecordedServer:
    """One server of a record."""

    name: str
    model: str
    base_url: str
    lists_models: bool


@dataclass(frozen=True)
class Pool:
    """A record: which process keeps up which servers (none yet where they start once wanted), when
    it was written (Unix seconds), and why missing ones will not come.
    """

    pid: int
    written: float
    servers: tuple[RecordedServer, ...]
    failed: str = ""

    @property
    def kept_up(self) -> bool:
        """Whether that process still runs; a later one may have its number."""
        try:
            process = psutil.Process(self.pid)
            began = process.create_time()
            return began <= self.written + CLOCK_S and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def write_pool(path: Path, specs: Sequence[ServerSpec] = (), failed: str = "") -> None:
    """Record servers that this process keeps up."""
    servers = tuple(RecordedServer(s.name, s.model, s.base_url, s.lists_models) for s in specs)
    keep(path, asdict(Pool(os.getpid(), time.time(), servers, failed)))


def recorded_pool(path: Path) -> Pool | None:
    """The record, or None when there is none that can be read."""
    found = kept(path)
    if found is None:
        return None
    return Pool(**found | {"servers": tuple(RecordedServer(**each) for each in found["servers"])})


def is_free(path: Path) -> bool:
    """Whether this process may record servers there: nobody keeps up others that are recorded."""
    pool = recorded_pool(path)
    if pool is None or not pool.kept_up:
        return True
    return pool.pid == os.getpid() and not pool.servers


def read_pool(path: Path, wait_s: float = 0.0) -> dict[str, tuple[str, ...]] | None:
    """Model -> base URLs of the pool recorded at `path`; None unless all its servers answer. While
    whoever started it runs, a silent one is being started again, and waited for up to `wait_s`
    seconds. Raises EndpointError when it does not come back.
    """
    started = time.monotonic()
    told = False
    while (pool := recorded_pool(path)) is not None and pool.servers:
        away = [server for server in pool.servers if not answers(server)]
        if not away:
            return by_model(pool.servers)
        if not pool.kept_up or wait_s <= 0:
            return None
        names = ", ".join(server.name for server in away)
        late = f"is away for {wait_s:.0f} s" if time.monotonic() - started > wait_s else ""
        if why := pool.failed or late:
            raise EndpointError(
                f"model server {names} {why}; stop the process that started it ({pool.pid}), then"
                " start again"
            )
        if not told:
            say(f"waiting for model servers that are being started again: {names}")
            told = True
        time.sleep(LOOK_S)
    return None


def is_kept_up(path: Path, urls: Mapping[str, Sequence[str]]) -> bool:
    """Whether whoever recorded these servers (model -> base URLs), and maybe others, still runs."""
    pool = recorded_pool(path)
    if pool is None or not pool.kept_up:
        return False
    wanted = {url for several in urls.values() for url in several}
    return wanted <= {server.base_url for server in pool.servers}


def by_model(servers: Iterable[ServerSpec | RecordedServer]) -> dict[str, tuple[str, ...]]:
    """Model -> its servers' base URLs, one a replica."""
    found: dict[str, tuple[str, ...]] = {}
    for server in servers:
        found[server.model] = (*found.get(server.model, ()), server.base_url)
    return found


def served_models(base_url: str) -> tuple[str, ...] | None:
    """The model names an OpenAI API lists, or None when nothing there answers as one."""
    try:
        with LOCAL.open(f"{base_url}/models", timeout=2.0) as response:
            return tuple(str(model["id"]) for model in json.load(response)["data"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None


def answers(server: ServerSpec | RecordedServer) -> bool:
    """Whether a server is healthy and, where it lists models, has its own."""
    with (
        contextlib.suppress(OSError, HTTPException),
        LOCAL.open(f"{server.base_url.removesuffix('/v1')}/health", timeout=2.0) as response,
    ):
        healthy = 200 <= int(response.status) < 300
        return healthy and (not server.lists_models or _serves(server))
    return False


def _serves(server: ServerSpec | RecordedServer) -> bool:
    return server.model in (served_models(server.base_url) or ())


def listens(url: str) -> bool:
    """Whether something accepts connections at a URL's address."""
    address = urlsplit(url)
    with socket.socket() as probe:
        probe.settimeout(2.0)
        return probe.connect_ex((address.hostname or "", address.port or 0)) == 0


@dataclass
class _Running:
    """A server, its guard if it has been started, and when that was (monotonic seconds)."""

    spec: ServerSpec
    guard: subprocess.Popen[bytes] | None = None
    since: float = 0.0
    restarts: int = 0
    up: bool = False
    """Whether it has answered since it was started."""


class Launcher:
    """Servers for a pool: `start` brings up those that are missing, `stop` ends those it started; a
    context manager. `state` records the pool for `read_pool`. A server that ends by itself is
    started again, at most `max_restarts` times.
    """

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        *,
        state: Path | None = None,
        timeout_s: float = 300.0,
        grace_s: float = GRACE_S,
        max_restarts: int = 3,
    ) -> None:
        self._specs = tuple(specs)
        self._state = state
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._max_restarts = max_restarts
        self._running: list[_Running] = []
        self._record: Path | None = None
        self._stopping = threading.Event()
        self._watch: threading.Thread | None = None

    @property
    def endpoints(self) -> dict[str, tuple[str, ...]]:
        """Model name -> base URLs, one a replica."""
        return by_model(self._specs)

    def start(self) -> Launcher:
        """Start what is missing, of servers that share a GPU one after another, as each measures
        what of its memory is taken; wait until all answer. Raises EndpointError, with what was
        started stopped, when a port is taken, or a server ends or isn't up in time.
        """
        try:
            self._running = [_Running(spec) for spec in self._specs if not _already_up(spec)]
            if self._running:
                self._start_all()
                # A pool that was only reused belongs to whoever started it.
                if self._state is not None and is_free(self._state):
                    write_pool(self._state, self._specs)
                    self._record = self._state
                self._watch = threading.Thread(
                    target=self._restart_dead, name="model server watch", daemon=True
                )
                self._watch.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process started here and forget the recorded pool; safe to call again."""
        self._stopping.set()
        if self._watch is not None:
            self._watch.join()
            self._watch = None
        end([server.guard for server in self._running if server.guard], self._grace_s)
        if self._record is not None:
            self._record.unlink(missing_ok=True)
            self._record = None

    def __enter__(self) -> Launcher:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _start_all(self) -> None:
        """Start all servers and wait for them; lines say now and then for which."""
        say(f"starting model servers: {', '.join(server.spec.name for server in self._running)}")
        for note in dict.fromkeys(server.spec.note for server in self._running):
            if note:
                say(f"  {note}")
        told = time.monotonic()
        while waiting := [server for server in self._running if not server.up]:
            for server in waiting:
                if self._stopping.is_set():
                    raise EndpointError("model servers were stopped while they were started")
                if server.guard is not None:
                    self._require_up(server, server.guard)
                elif not self._gpus_taken(server):
                    self._spawn(server, "wb")
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                first = next(server for server in waiting if server.guard is not None)
                seconds = told - first.since
                say(f"  waiting {seconds:.0f} s for {first.spec.name} ({first.spec.log})")
            time.sleep(0.2)

    def _restart_dead(self) -> None:
        """Until `stop`: start servers that ended again, where their clients look for them."""
        while not self._stopping.wait(LOOK_S):
            for server in self._running:
                if server.guard is None:
                    if not self._gpus_taken(server):
                        self._spawn(server, "ab")
                elif server.restarts <= self._max_restarts and server.guard.poll() is not None:
                    self._ended(server, server.guard)

    def _ended(self, server: _Running, guard: subprocess.Popen[bytes]) -> None:
        """Say that a server ended, and have it started again, unless that was done too often."""
        end([guard], self._grace_s)  # which closes its pipe
        server.restarts += 1
        what = "starting it again"
        if server.restarts <= self._max_restarts:
            server.guard = None
        else:
            log = server.spec.log
            what = f"not started again after {self._max_restarts} times; see {log}"
            if self._record is not None:
                write_pool(self._record, self._specs, f"is not started again, see {log}")
        say(f"model server {server.spec.name} ended with status {guard.returncode}; {what}")

    def _spawn(self, server: _Running, mode: Literal["wb", "ab"]) -> None:
        spec = server.spec
        server.since = time.monotonic()
        server.up = False
        # No secret goes to a server on this machine but those that it needs, so no other can end
        # up in its log.
        passed = (key for key in os.environ if key in spec.secrets or not SECRET_NAME.search(key))
        env = {key: os.environ[key] for key in passed}
        server.guard = start(spec.command, spec.log, env | dict(spec.env), self._grace_s, mode)

    def _gpus_taken(self, server: _Running) -> bool:
        """Whether another server on its GPUs is being started, which measures what is taken."""
        for other in self._running:
            if not set(other.spec.gpus) & set(server.spec.gpus) or other.up or other.guard is None:
                continue
            late = time.monotonic() - other.since > self._timeout_s
            if not (late or other.guard.poll() is not None or self._look(other)):
                return True
        return False

    def _look(self, server: _Running) -> bool:
        """Whether it answers for its models; said once."""
        server.up = answers(server.spec)
        if server.up:
            say(f"  {server.spec.name} is up after {time.monotonic() - server.since:.0f} s")
        return server.up

    def _require_up(self, server: _Running, guard: subprocess.Popen[bytes]) -> None:
        """See whether it is up. Raises EndpointError when it never will be."""
        if guard.poll() is not None:
            what = f"ended with status {guard.returncode} before it was up"
            raise EndpointError(_failure(server.spec, what))
        if not self._look(server) and time.monotonic() - server.since > self._timeout_s:
            raise EndpointError(_failure(server.spec, f"was not up after {self._timeout_s:.0f} s"))


def _already_up(spec: ServerSpec) -> bool:
    """Whether the model is served there. Raises EndpointError where something else is."""
    if spec.lists_models and _serves(spec):
        return True
    if not listens(spec.base_url):
        return False
    there = "does not answer as an OpenAI API"
    if (found := served_models(spec.base_url)) is not None:
        there = f"serves {', '.join(found) or 'no model'}"
    raise EndpointError(
        f"port {spec.port} is taken: expected {spec.model} or nothing there, "
        f"but what listens {there}; stop it or choose another port"
    )


def _failure(spec: ServerSpec, what: str) -> str:
    """The message for a server that failed: what happened, the end of its log, what to do."""
    with contextlib.suppress(OSError), spec.log.open(errors="replace") as log:
        lines = deque(log, LOG_TAIL_LINES)
        tail = redact("".join(f"    {line.rstrip()[:300]}\n" for line in lines))
        return (
            f"model server {spec.name} {what}; the last lines of {spec.log}:\n{tail}"
            f"  if {spec.command[0]} is missing or lacks a package, run `make setup`"
        )
    return f"model server {spec.name} {what}; it left no log at {spec.log}"
