"""Start and stop local OpenAI-compatible model servers, and let other processes find the ones that
are up.

    served = {"smollm2-135m": Hosted(".ttsgraph/models/smollm2-135m")}
    specs = server_specs("vllm", served, log_dir=Path(".ttsgraph/logs"))
    with Launcher(specs, state=Path(".ttsgraph/pool.json")) as pool:
        pool.endpoints  # {"smollm2-135m": ("http://127.0.0.1:43127/v1",)}

Every server is started under `guard.py`, which ends its whole process tree when this process ends,
however it ends; so no signal handler is touched. A server that dies while it is needed is started
again at the same address.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from ttsgraph.base.ending import say
from ttsgraph.base.errors import EndpointError
from ttsgraph.base.secrets import SECRET_NAME, redact
from ttsgraph.serving.guard import GRACE_S, end, start
from ttsgraph.serving.running import PoolRecord, answers, by_model, is_kept_up, listens, serves
from ttsgraph.serving.servers import ServerSpec, served_models

START_TIMEOUT_S = 300.0
WATCH_S = 0.5
TELL_S = 30.0
"""Seconds between two lines about what is waited for, where no terminal shows it all the time."""

LOG_TAIL_LINES = 15


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
    """Servers for a pool: `start` brings up those that aren't there yet, `stop` ends exactly those
    it started.

    `state`, when given, records the pool for `read_pool` while it is up. A server that ends by
    itself once it was up is started again, at most `max_restarts` times each. Use as a context
    manager.
    """

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        *,
        state: Path | None = None,
        timeout_s: float = START_TIMEOUT_S,
        grace_s: float = GRACE_S,
        max_restarts: int = 3,
    ) -> None:
        self._specs = tuple(specs)
        self._state = state
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._max_restarts = max_restarts
        self._running: list[_Running] = []
        self._record: PoolRecord | None = None
        self._stopping = threading.Event()
        self._watch: threading.Thread | None = None

    @property
    def endpoints(self) -> dict[str, tuple[str, ...]]:
        """Model name -> base URLs, one a replica."""
        return by_model(self._specs)

    def start(self) -> Launcher:
        """Start what is missing, and wait until every server answers for its models.

        All start at once, but of servers that share a GPU one after another: each measures what of
        its memory is taken.

        Raises EndpointError when a port is taken by something else, or a server ends or isn't up
        within the time limit; whatever was started is stopped again.
        """
        atexit.register(self.stop)
        self._stopping.clear()
        try:
            self._running = [_Running(spec) for spec in self._specs if not _already_up(spec)]
            if self._running:
                self._start_all()
                # A pool that was only reused belongs to whoever started it, a record of others to
                # whoever keeps those up.
                if self._state is not None and not is_kept_up(self._state, {}):
                    self._record = PoolRecord(self._state, self._specs)
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
        atexit.unregister(self.stop)
        self._stopping.set()
        if self._watch is not None:
            self._watch.join()
            self._watch = None
        end([server.guard for server in self._running if server.guard], self._grace_s)
        if self._record is not None:
            self._record.remove()
            self._record = None

    def __enter__(self) -> Launcher:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _start_all(self) -> None:
        """Start all servers and wait for them, with a progress line."""
        names = ", ".join(server.spec.name for server in self._running)
        say(f"starting model servers: {names}")
        for note in dict.fromkeys(server.spec.note for server in self._running):
            if note:
                say(f"  {note}")
        console = Console(stderr=True)
        spinner = console.status("") if console.is_terminal else None
        told = time.monotonic()
        with spinner or contextlib.nullcontext():
            while waiting := [server for server in self._running if not server.up]:
                for server in waiting:
                    if self._stopping.is_set():
                        raise EndpointError("model servers were stopped while they were started")
                    if server.guard is not None:
                        self._require_up(server)
                    elif not self._gpus_taken(server):
                        self._spawn(server, "wb")
                first = next(server for server in waiting if server.guard is not None)
                line = (
                    f"waiting {time.monotonic() - first.since:.0f} s for {first.spec.name}"
                    f" ({first.spec.log})"
                )
                if spinner is not None:
                    spinner.update(line)
                elif time.monotonic() - told > TELL_S:
                    told = time.monotonic()
                    say(f"  {line}")
                time.sleep(0.2)

    def _restart_dead(self) -> None:
        """Until `stop`: start servers that ended again, where their clients look for them."""
        while not self._stopping.wait(WATCH_S):
            for server in self._running:
                code = None if server.guard is None else server.guard.poll()
                if server.guard is None:
                    if not self._gpus_taken(server):
                        self._spawn(server, "ab")
                elif code is not None and server.restarts <= self._max_restarts:
                    self._ended(server, server.guard, code)

    def _ended(self, server: _Running, guard: subprocess.Popen[bytes], code: int) -> None:
        """Say that a server ended, and have it started again, unless that was done too often."""
        end([guard], self._grace_s)  # which closes its pipe
        server.restarts += 1
        what = "starting it again"
        if server.restarts <= self._max_restarts:
            server.guard = None
        else:
            what = f"not started again after {self._max_restarts} times; see {server.spec.log}"
            if self._record is not None:
                self._record.give_up(server.spec)
        say(f"model server {server.spec.name} ended with status {code}; {what}")

    def _spawn(self, server: _Running, mode: Literal["wb", "ab"]) -> None:
        server.since = time.monotonic()
        server.up = False
        server.guard = spawn(server.spec, self._grace_s, mode)

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
        spec = server.spec
        server.up = answers(spec)
        if server.up:
            say(f"  {spec.name} is up after {time.monotonic() - server.since:.0f} s")
        return server.up

    def _require_up(self, server: _Running) -> None:
        """See whether it is up. Raises EndpointError when it never will be."""
        code = None if server.guard is None else server.guard.poll()
        if code is not None:
            raise EndpointError(failure(server.spec, f"ended with status {code} before it was up"))
        if not self._look(server) and time.monotonic() - server.since > self._timeout_s:
            raise EndpointError(failure(server.spec, f"was not up after {self._timeout_s:.0f} s"))


def spawn(
    spec: ServerSpec, grace_s: float = GRACE_S, mode: Literal["wb", "ab"] = "wb"
) -> subprocess.Popen[bytes]:
    """Start one server under its guard."""
    # No secret goes to a server on this machine but those that it needs, so no other can end up in
    # its log.
    env = {
        key: value
        for key, value in os.environ.items()
        if key in spec.secrets or not SECRET_NAME.search(key)
    }
    env |= dict(spec.env)
    return start(spec.command, spec.log, env, grace_s, mode)


def _already_up(spec: ServerSpec) -> bool:
    """Whether the model is served there. Raises EndpointError where something else is."""
    if spec.lists_models and serves(spec):
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


def failure(spec: ServerSpec, what: str) -> str:
    """The message for a server that failed: what happened, the end of its log, what to do."""
    with contextlib.suppress(OSError), spec.log.open(errors="replace") as log:
        tail = redact(
            "".join(f"    {line.rstrip()[:300]}\n" for line in deque(log, LOG_TAIL_LINES))
        )
        return (
            f"model server {spec.name} {what}; the last lines of {spec.log}:\n{tail}"
            f"  if {spec.command[0]} is missing or lacks a package, run `make setup`"
        )
    return f"model server {spec.name} {what}; it left no log at {spec.log}"
