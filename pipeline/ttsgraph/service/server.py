"""Runs the server: who may listen, its socket, its processes, and an end that lets requests under
way finish.
"""

from __future__ import annotations

import gc
import ipaddress
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import typer
import uvicorn
from prometheus_client import CollectorRegistry, multiprocess, start_http_server
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from ttsgraph.base.errors import InputError
from ttsgraph.deployment.bundle import Loader
from ttsgraph.service.app import App
from ttsgraph.service.doors import (
    QUEUED,
    TAKEN_AT_ONCE,
    DoorsConfig,
    GuardedProtocol,
    Sparing,
    possible_connections,
)
from ttsgraph.service.limits import Keys
from ttsgraph.service.metrics import FOLDER, together
from ttsgraph.settings.service import ServiceSettings

KEEP_ALIVE_S = 60
STARTING_S = 120
"""For a process to resolve what it serves and to listen."""

HEALTH_S = 30
"""Without a word from a process before it is replaced: enough to import it on a busy machine."""


def serve(
    loader: Loader, names: Sequence[str], settings: ServiceSettings, no_key: bool = False
) -> None:
    """Serve these names until SIGTERM or SIGINT; SIGHUP starts several processes anew, one after
    the other.

    Raises InputError: no key on a public interface, a port that is taken, a name that can't be
    resolved, an endpoint that is down.
    """
    keys = keys_of(settings, no_key)
    app = App(loader, names, settings, keys, _begin_process)
    with ExitStack() as stack:
        listening = stack.enter_context(_listen(settings.host, settings.port))
        config = config_of(app, settings)

        def ready(registry: CollectorRegistry) -> None:
            listening.listen(QUEUED)  # asyncio lets as many wait as it takes at once
            stack.enter_context(metrics_at(registry, settings))
            _say(names, settings, listening.getsockname()[1], not keys.open)

        if settings.workers > 1:
            os.environ[FOLDER] = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="ttsgraph-figures-")
            )
            _Crew(config, listening, ready).run()
            return
        # uvicorn raises a signal that it has obeyed once more at its end, which must not end what
        # is left to close here.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        try:
            _Server(config, lambda: ready(app.metrics.registry)).run([listening])
        except SystemExit:
            raise app.problem or InputError("the server could not start") from None


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the application, and listen."""
        await super().startup(sockets)
        self._ready()


class _Crew(Multiprocess):
    """uvicorn's processes, which share one socket and are replaced when they die."""

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        ready: Callable[[CollectorRegistry], None],
    ) -> None:
        super().__init__(config, [listening])
        self._ready = ready
        self._figures = os.environ[FOLDER]

    def init_processes(self) -> None:
        """Start all, and say so once all listen. Raises InputError where one does not."""
        super().init_processes()
        if all(one.wait_until_ready(STARTING_S, self.should_exit) for one in self.processes):
            self._ready(together(self._figures))
            return
        self.should_exit.set()
        for one in self.processes:
            one.kill()
            one.join()
        raise InputError("a server process could not start; what it said stands above")

    def keep_subprocess_alive(self) -> None:
        """Replace what died: its requests are no longer under way."""
        before = {one.pid for one in self.processes}
        super().keep_subprocess_alive()
        self.sockets[0].listen(QUEUED)  # a new process has let one wait
        for pid in before - {one.pid for one in self.processes}:
            multiprocess.mark_process_dead(pid, self._figures)  # type: ignore[no-untyped-call]


def end_with_parent() -> None:
    """In a process of the crew: stop as on SIGTERM once the one that started it is gone."""
    if (parent := multiprocessing.parent_process()) is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def metrics_at(registry: CollectorRegistry, settings: ServiceSettings) -> Iterator[None]:
    """/metrics on a port of its own, without a key, where the settings name one. Raises
    InputError.
    """
    if settings.metrics_port is None:
        yield
        return
    host = settings.metrics_host
    try:
        answering, _ = start_http_server(settings.metrics_port, host, registry)
    except OSError as error:
        where = "service.metrics_port: "
        raise _taken(where, host, settings.metrics_port, error) from None
    typer.echo(f"metrics at http://{host}:{answering.server_port}/metrics")
    try:
        yield
    finally:
        answering.shutdown()
        answering.server_close()


def _say(names: Sequence[str], settings: ServiceSettings, port: int, keyed: bool) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    several = f", in {settings.workers} processes" if settings.workers > 1 else ""
    typer.echo(
        f"serving {', '.join(names)} at http://{host}:{port}/v1,"
        f" {'with' if keyed else 'without'} a key{several}"
    )


def _begin_process() -> None:
    """What each process of the server does first."""
    end_with_parent()
    gc.freeze()  # what is imported stays: looking through it again and again takes a fifth longer
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("httpx", "httpx2", "openai"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for strangers in ("asyncio", "uvicorn.error", "ttsgraph.service.doors"):
        logging.getLogger(strangers).addFilter(Sparing())


def keys_of(settings: ServiceSettings, no_key: bool) -> Keys:
    """The keys of which clients have to send one, if any. Raises InputError where one is needed and
    there is none, or their file can't be read.
    """
    if no_key:
        return Keys("", None)
    key = os.environ.get(settings.api_key_env, "").strip()
    keys = Keys(key, settings.keys_file)
    if keys.open and not is_loopback(settings.host):
        raise InputError(
            f"{settings.host} can be reached from elsewhere: expected an API key in the environment"
            f" variable {settings.api_key_env}, which is not set, or service.keys_file (or"
            " --no-key, to let everybody ask)"
        )
    return keys


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    # With its protocol named, asyncio sets TCP_NODELAY on what it accepts here: else the end of an
    # answer waits up to 40 ms for the acknowledgement of its beginning.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise _taken("", host, port, error) from None
    return listening


def _taken(where: str, host: str, port: int, error: OSError) -> InputError:
    said = error.strerror or error
    return InputError(f"{where}expected to listen at {host} port {port}, but {said}")


def config_of(app: ASGIApp, settings: ServiceSettings) -> uvicorn.Config:
    """How uvicorn runs the server."""
    config = DoorsConfig(
        app,
        http=GuardedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        proxy_headers=False,
        workers=settings.workers,
        # Connections taken at once: one, where other processes wait for their share.
        backlog=TAKEN_AT_ONCE if settings.workers == 1 else 1,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.drain_s,
        timeout_worker_healthcheck=HEALTH_S,
    )
    config.most = possible_connections(settings.max_connections)
    config.header_s = settings.header_s
    config.without_request = {}
    return config
