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
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.secrets import SECRET_NAME, redact
from ttsgraph.serving.guard import GRACE_S, end, start
from ttsgraph.serving.running import PoolRecord, answers, by_model, is_kept_up, serves
from ttsgraph.serving.servers import HOST, ServerSpec, served_models

START_TIMEOUT_S = 300.0
WATCH_S = 0.5
TELL_S = 30.0
"""Seconds between two lines about what is waited for, where no terminal shows it all the time."""

LOG_TAIL_LINES = 15


@dataclass
class _Running:
    """A started server's guard, and when it was started (monotonic seconds)."""

    spec: ServerSpec
    guard: subprocess.Popen[bytes]
    since: float = field(default_factory=time.monotonic)
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
        console: Console | None = None,
    ) -> None:
        self._specs = tuple(specs)
        self._state = state
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._max_restarts = max_restarts
        self._console = console or Console(stderr=True)
        self._running: list[_Running] = []
        self._record: PoolRecord | None = None
        self._stopping = threading.Event()
        self._watch: threading.Thread | None = None

    @property
    def endpoints(self) -> dict[str, tuple[str, ...]]:
        """Model name -> base URLs, one a replica."""
        return by_model(
            (model, spec.base_url) for spec in self._specs for model in spec.served_models
        )

    def start(self) -> Launcher:
        """Start what is missing, and wait until every server answers for its models.

        All start at once, but of servers that share a GPU one after another: each measures what of
        its memory is taken.

        Raises EndpointError when a port is taken by something else, or a server ends or isn't up
        within the time limit; whatever was started is stopped again.
        """
        atexit.register(self.stop)
        try:
            self._start_all([spec for spec in self._specs if not _already_up(spec)])
            if self._running:
                # A pool that was only reused belongs to whoever started it, a record of others to
                # whoever keeps those up.
                if self._state is not None and not is_kept_up(self._state, {}):
                    self._record = PoolRecord(self._state, self._specs)
                self._stopping.clear()
                self._watch = threading.Thread(
                    target=self._restart_dead, name="model server watch", daemon=True
                )
                self._watch.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process this launcher started and forget the recorded pool; safe to call
        again.
        """
        atexit.unregister(self.stop)
        self._stopping.set()
        if self._watch is not None:
            self._watch.join()
            self._watch = None
        running = self._running
        self._running = []
        end([server.guard for server in running], self._grace_s)
        if self._record is not None:
            self._record.remove()
            self._record = None

    def __enter__(self) -> Launcher:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _restart_dead(self) -> None:
        """Until `stop`: start a server again that ended; its clients find it at the same address
        once it is up.
        """
        while not self._stopping.wait(WATCH_S):
            for place, server in enumerate(self._running):
                code = server.guard.poll()
                if code is None or server.restarts > self._max_restarts:
                    continue
                again = server.restarts < self._max_restarts
                if again and self._starts_on(server.spec.gpus):
                    continue
                end([server.guard], self._grace_s)  # which closes its pipe
                server.restarts += 1
                what = (
                    "starting it again"
                    if again
                    else (
                        f"not started again after {self._max_restarts} times; see {server.spec.log}"
                    )
                )
                self._console.print(
                    f"model server {server.spec.name} ended with status {code}; {what}",
                    highlight=False,
                )
                if again:
                    self._running[place] = _Running(
                        server.spec,
                        spawn(server.spec, self._grace_s, "ab"),
                        restarts=server.restarts,
                    )
                elif self._record is not None:
                    self._record.give_up(server.spec)

    def _starts_on(self, gpus: Sequence[int]) -> bool:
        """Whether a server on one of these GPUs is alive, but not up yet."""
        for server in self._running:
            spec = server.spec
            late = time.monotonic() - server.since > self._timeout_s
            if (
                not (server.up or late)
                and set(gpus) & set(spec.gpus)
                and server.guard.poll() is None
            ):
                server.up = answers(spec.base_url, spec.served_models, spec.lists_models)
                if not server.up:
                    return True
        return False

    def _start_all(self, specs: Sequence[ServerSpec]) -> None:
        """Start these servers and wait for them, with a progress line."""
        if not specs:
            return
        self._console.print(
            f"starting model servers: {', '.join(spec.name for spec in specs)}", highlight=False
        )
        for note in dict.fromkeys(spec.note for spec in specs if spec.note):
            self._console.print(f"  {note}", highlight=False)
        spinner = self._console.status("") if self._console.is_terminal else None
        told = time.monotonic()
        left = list(specs)
        waiting = list[_Running]()
        with spinner or contextlib.nullcontext():
            while True:
                for spec in list(left):
                    if not any(set(spec.gpus) & set(server.spec.gpus) for server in waiting):
                        left.remove(spec)
                        waiting.append(_Running(spec, spawn(spec, self._grace_s)))
                        self._running.append(waiting[-1])
                for server in list(waiting):
                    if self._is_up(server):
                        server.up = True
                        waiting.remove(server)
                        seconds = time.monotonic() - server.since
                        self._console.print(
                            f"  {server.spec.name} is up after {seconds:.0f} s", highlight=False
                        )
                if not waiting and not left:
                    return
                if waiting:
                    line = (
                        f"waiting {time.monotonic() - waiting[0].since:.0f} s for"
                        f" {waiting[0].spec.name} ({waiting[0].spec.log})"
                    )
                    if spinner is not None:
                        spinner.update(line)
                    elif time.monotonic() - told > TELL_S:
                        told = time.monotonic()
                        self._console.print(f"  {line}", highlight=False)
                time.sleep(0.2)

    def _is_up(self, server: _Running) -> bool:
        """Whether it answers; raises EndpointError when it never will."""
        spec = server.spec
        code = server.guard.poll()
        if code is not None:
            raise EndpointError(failure(spec, f"ended with status {code} before it was up"))
        if answers(spec.base_url, spec.served_models, spec.lists_models):
            return True
        if time.monotonic() - server.since > self._timeout_s:
            raise EndpointError(failure(spec, f"was not up after {self._timeout_s:.0f} s"))
        return False


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
    """True when the port already serves the expected models; EndpointError when something else is
    there.
    """
    if spec.lists_models and serves(spec.base_url, spec.served_models):
        return True
    with socket.socket() as probe:
        probe.settimeout(2.0)
        if probe.connect_ex((HOST, spec.port)) != 0:
            return False
    found = served_models(spec.base_url)
    there = (
        f"serves {', '.join(found) or 'no model'}"
        if found is not None
        else "does not answer as an OpenAI API"
    )
    raise EndpointError(
        f"port {spec.port} is taken: expected {', '.join(spec.served_models)} or nothing there, "
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
