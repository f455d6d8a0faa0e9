"""Start and stop local OpenAI-compatible model servers, and let other processes find the ones that are up.

    specs = vllm_specs({"smollm2-135m": ".ttsgraph/models/smollm2-135m"}, log_dir=Path(".ttsgraph/logs"))
    with Launcher(specs, state=Path(".ttsgraph/pool.json")) as pool:
        pool.endpoints  # {"smollm2-135m": "http://127.0.0.1:43127/v1"}

Every server is started under `guard.py`, which ends its whole process tree when this process ends, however it ends; so
no signal handler is touched.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from rich.console import Console

from pipeline.errors import EndpointError
from pipeline.models.servers import HOST, LOCAL, ServerSpec, served_models

START_TIMEOUT_S = 300.0
GRACE_S = 10.0
LOG_TAIL_LINES = 15
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.IGNORECASE)


@dataclass
class _Running:
    """A started server's guard, and when it was started (monotonic seconds)."""

    spec: ServerSpec
    guard: subprocess.Popen[bytes]
    since: float = field(default_factory=time.monotonic)


def read_pool(path: Path) -> dict[str, str] | None:
    """Model name -> base URL of the pool recorded at `path`; None unless all its servers answer for their models."""
    try:
        servers = json.loads(path.read_text())["servers"]
        pool = {str(model): str(server["base_url"]) for server in servers for model in server["models"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    lists = {url: served_models(url) or () for url in set(pool.values())}
    return pool if pool and all(model in lists[url] for model, url in pool.items()) else None


class Launcher:
    """Servers for a pool: `start` brings up those that aren't there yet, `stop` ends exactly those it started.

    `state`, when given, records the pool for `read_pool` while it is up. Use as a context manager.
    """

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        *,
        state: Path | None = None,
        timeout_s: float = START_TIMEOUT_S,
        grace_s: float = GRACE_S,
        console: Console | None = None,
    ) -> None:
        self._specs = tuple(specs)
        self._state = state
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._console = console or Console(stderr=True)
        self._running: list[_Running] = []
        self._recorded = False

    @property
    def endpoints(self) -> dict[str, str]:
        """Model name -> base URL."""
        return {model: spec.base_url for spec in self._specs for model in spec.served_models}

    def start(self) -> Launcher:
        """Start what is missing, all at once, and wait until every server answers for its models.

        Raises EndpointError when a port is taken by something else, or a server ends or isn't up within the time limit;
        whatever was started is stopped again.
        """
        atexit.register(self.stop)
        try:
            for spec in [spec for spec in self._specs if not _already_up(spec)]:
                self._running.append(self._spawn(spec))
            self._await_all()
            self._record()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process this launcher started and forget the recorded pool; safe to call again."""
        atexit.unregister(self.stop)
        running, self._running = self._running, []
        for server in running:
            with contextlib.suppress(ProcessLookupError):
                server.guard.send_signal(signal.SIGTERM)
        for server in running:
            try:
                server.guard.wait(self._grace_s + 5)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(server.guard.pid, signal.SIGKILL)
                server.guard.wait()
            if server.guard.stdin is not None:
                server.guard.stdin.close()
        if self._state is not None and self._recorded:
            self._recorded = False
            self._state.unlink(missing_ok=True)

    def __enter__(self) -> Launcher:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _spawn(self, spec: ServerSpec) -> _Running:
        """Start one server under its guard, in a session of its own so that Ctrl-C reaches it only through `stop`."""
        guard = (sys.executable, "-I", str(Path(__file__).with_name("guard.py")), str(self._grace_s))
        # Nothing secret goes to a server on this machine, so nothing secret can end up in its log.
        env = {key: value for key, value in os.environ.items() if not _SECRET.search(key)} | dict(spec.env)
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        with spec.log.open("wb") as log:
            return _Running(
                spec,
                subprocess.Popen(
                    guard + spec.command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=env,
                    start_new_session=True,
                ),
            )

    def _await_all(self) -> None:
        """Wait for the started servers, with a progress line."""
        waiting = list(self._running)
        if not waiting:
            return
        names = ", ".join(server.spec.name for server in waiting)
        self._console.print(f"starting model servers: {names}", highlight=False)
        spinner = self._console.status("") if self._console.is_terminal else None
        with spinner or contextlib.nullcontext():
            while waiting:
                for server in list(waiting):
                    if self._is_up(server):
                        waiting.remove(server)
                        seconds = time.monotonic() - server.since
                        self._console.print(f"  {server.spec.name} is up after {seconds:.0f} s", highlight=False)
                if spinner is not None and waiting:
                    spinner.update(f"waiting {time.monotonic() - waiting[0].since:.0f} s for {waiting[0].spec.name}")
                time.sleep(0.2 if waiting else 0)

    def _is_up(self, server: _Running) -> bool:
        """Whether it answers; raises EndpointError when it never will."""
        spec, code = server.spec, server.guard.poll()
        if code is not None:
            raise EndpointError(_failure(spec, f"ended with status {code} before it was up"))
        if _healthy(spec):
            found = served_models(spec.base_url)
            if found is not None and set(spec.served_models) <= set(found):
                return True
        if time.monotonic() - server.since > self._timeout_s:
            raise EndpointError(_failure(spec, f"was not up after {self._timeout_s:.0f} s"))
        return False

    def _record(self) -> None:
        """Write the state file, whole or not at all; a pool that was only reused belongs to whoever started it."""
        if self._state is None or not self._running:
            return
        servers = [{"name": s.name, "base_url": s.base_url, "models": list(s.served_models)} for s in self._specs]
        self._state.parent.mkdir(parents=True, exist_ok=True)
        part = self._state.with_name(f"{self._state.name}.{os.getpid()}")
        part.write_text(json.dumps({"pid": os.getpid(), "servers": servers}, indent=1) + "\n")
        part.replace(self._state)
        self._recorded = True


def _already_up(spec: ServerSpec) -> bool:
    """True when the port already serves the expected models; EndpointError when something else is there."""
    found = served_models(spec.base_url)
    if found is not None and set(spec.served_models) <= set(found):
        return True
    with socket.socket() as probe:
        probe.settimeout(2.0)
        if probe.connect_ex((HOST, spec.port)) != 0:
            return False
    there = f"serves {', '.join(found) or 'no model'}" if found is not None else "does not answer as an OpenAI API"
    raise EndpointError(
        f"port {spec.port} is taken: expected {', '.join(spec.served_models)} or nothing there, "
        f"but what listens {there}; stop it or choose another port"
    )


def _healthy(spec: ServerSpec) -> bool:
    """Whether /health answers with success."""
    try:
        with LOCAL.open(f"http://{HOST}:{spec.port}/health", timeout=2.0) as response:
            return 200 <= int(response.status) < 300
    except (OSError, HTTPException):
        return False


def _failure(spec: ServerSpec, what: str) -> str:
    """The message for a server that did not come up: what happened, the end of its log, what to do."""
    with contextlib.suppress(OSError), spec.log.open(errors="replace") as log:
        tail = "".join(f"    {line.rstrip()[:300]}\n" for line in deque(log, LOG_TAIL_LINES))
        return (
            f"model server {spec.name} {what}; the last lines of {spec.log}:\n{tail}"
            f"  if {spec.command[0]} is missing or lacks a package, run `make setup`"
        )
    return f"model server {spec.name} {what}; it left no log at {spec.log}"
