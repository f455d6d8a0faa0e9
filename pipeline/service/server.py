"""Runs the server: who may listen, its socket, and an end that lets requests under way finish."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import typer
import uvicorn
from starlette.types import ASGIApp

from ttsgraph.base.errors import InputError
from ttsgraph.deployment.bundle import Loader
from ttsgraph.service.app import create_app
from ttsgraph.service.deployments import Deployments
from ttsgraph.service.doors import TAKEN_AT_ONCE, Doors, Queue, Sparing, possible_connections
from ttsgraph.service.metrics import Metrics
from ttsgraph.service.processes import serve_in, shared_socket
from ttsgraph.service.traces import Traces
from ttsgraph.settings.service import ServiceSettings, TraceSettings

KEEP_ALIVE_S = 60


def serve(
    loader: Loader, names: Sequence[str], settings: ServiceSettings, no_key: bool = False
) -> None:
    """Serve these names until SIGTERM or SIGINT.

    Raises InputError: no key on a public interface, a port that is taken, a name that can't be
    resolved, an endpoint that is down.
    """
    key = api_key(settings, no_key)
    if settings.workers > 1:
        with _listen(
            settings.host, settings.port
        ) as free:  # or another server on this port would be joined unasked
            port = free.getsockname()[1]
        serve_one = partial(_serve_one, loader, names, settings, key)
        say = partial(_say, names, settings.host, key, settings.workers)
        _log_lines()
        serve_in(settings.workers, serve_one, settings.host, port, settings.drain_s, say)
        return
    _log_lines()
    with _listen(settings.host, settings.port) as listening:
        say = partial(_say, names, settings.host, key, 1)
        asyncio.run(
            _serve(loader, names, settings, key, listening, lambda: say(listening.getsockname()[1]))
        )


def _serve_one(
    loader: Loader,
    names: Sequence[str],
    settings: ServiceSettings,
    key: str | None,
    host: str,
    port: int,
    ready: Callable[[], None],
) -> None:
    """What each of several processes does."""
    _log_lines()
    with shared_socket(host, port) as listening:
        asyncio.run(_serve(loader, names, settings, key, listening, ready))


def _say(names: Sequence[str], host: str, key: str | None, processes: int, port: int) -> None:
    where = f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"
    several = f", in {processes} processes" if processes > 1 else ""
    typer.echo(
        f"serving {', '.join(names)} at {where}, {'with' if key else 'without'} a key{several}"
    )


def _log_lines() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("httpx", "httpx2", "openai"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for strangers in ("asyncio", "uvicorn.error", "ttsgraph.service.doors"):
        logging.getLogger(strangers).addFilter(Sparing())


def api_key(settings: ServiceSettings, no_key: bool) -> str | None:
    """The key that clients have to send, if any. Raises InputError where one is needed and there is
    none.
    """
    key = os.environ.get(settings.api_key_env, "").strip()
    if no_key:
        return None
    if not key and not is_loopback(settings.host):
        raise InputError(
            f"{settings.host} can be reached from elsewhere: expected an API key in the environment"
            f" variable {settings.api_key_env}, which is not set (or --no-key, to let everybody"
            " ask)"
        )
    return key or None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    # With its protocol named, asyncio sets TCP_NODELAY on what it accepts here: else the end of an
    # answer waits up to 40 ms for the acknowledgement of its beginning.
    listening = Queue(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise InputError(
            f"expected to listen at {host} port {port}, but {error.strerror or error}"
        ) from None
    return listening


def config_of(app: ASGIApp, settings: ServiceSettings) -> uvicorn.Config:
    """How uvicorn runs the server."""
    return uvicorn.Config(
        app,
        http=Doors(possible_connections(settings.max_connections), settings.header_s).protocol(),
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        backlog=TAKEN_AT_ONCE,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.drain_s,
    )


@asynccontextmanager
async def open_traces(settings: TraceSettings) -> AsyncIterator[Traces | None]:
    """Where requests are traced to, None where they are not; at the end, what is left is sent.

    Raises InputError where the extra that this needs is not installed.
    """
    if settings.endpoint is None:
        yield None
        return
    traces = Traces(settings)
    try:
        yield traces
    finally:
        await asyncio.to_thread(traces.close)


async def _serve(
    loader: Loader,
    names: Sequence[str],
    settings: ServiceSettings,
    key: str | None,
    listening: socket.socket,
    ready: Callable[[], None],
) -> None:
    metrics = Metrics()
    async with (
        open_traces(settings.traces) as traces,
        Deployments(loader, names, metrics, settings) as deployments,
    ):
        config = config_of(create_app(deployments, metrics, settings, key, traces), settings)
        listening.listen()  # before saying so: who comes before uvicorn is ready waits
        ready()
        # uvicorn raises a signal it has obeyed once more at its end: that must not end what is left
        # to close here.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        await uvicorn.Server(config).serve(sockets=[listening])
