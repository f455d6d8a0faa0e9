"""Running the server: keys, the socket, and a shutdown that lets running requests finish."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import resource
import signal
import socket
from collections.abc import Sequence
from functools import partial

import typer
import uvicorn
from prometheus_client import CollectorRegistry, start_http_server
from starlette.types import ASGIApp

from ttsgraph.base.ending import stopped_by_signals
from ttsgraph.base.errors import InputError
from ttsgraph.deployment.bundle import Loader
from ttsgraph.service.app import App
from ttsgraph.service.connections import Connection
from ttsgraph.service.limits import ApiKeys
from ttsgraph.settings.service import ServiceSettings


def serve(
    loader: Loader, names: Sequence[str], settings: ServiceSettings, no_key: bool = False
) -> None:
    """Serve these names until SIGTERM or SIGINT.

    Raises InputError if the address is public but no key is set, if the port is taken, if a name
    can't be resolved, or if an endpoint is down.
    """
    keys = keys_of(settings, no_key)
    app = App(loader, names, settings, keys)
    _begin_process()
    with _listen(settings.host, settings.port) as listening, stopped_by_signals():
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        port = listening.getsockname()[1]
        keyed = "without a key" if keys.open else "with a key"
        line = f"serving {', '.join(names)} at http://{host}:{port}/v1, {keyed}"
        asyncio.run(_run(app, settings, listening, line))


async def _run(app: App, settings: ServiceSettings, listening: socket.socket, said: str) -> None:
    async with app.running():
        if settings.metrics_port is not None:
            _serve_metrics(app.metrics.registry, settings.metrics_host, settings.metrics_port)
        listening.listen()
        typer.echo(said)
        # When uvicorn ends, it re-raises the signals that it handled. They must not interrupt
        # the closing of the deployments.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        await uvicorn.Server(config_of(app, settings)).serve([listening])


def _serve_metrics(registry: CollectorRegistry, host: str, port: int) -> None:
    """Serve /metrics without a key on a separate port until the process ends.

    Raises InputError if the server can't listen on that port.
    """
    try:
        answering, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise _taken("service.metrics_port: ", host, port, error) from None
    typer.echo(f"metrics at http://{host}:{answering.server_port}/metrics")


def _begin_process() -> None:
    # Imported objects are never freed. If each collection checked them, it would take a fifth more
    # time.
    gc.freeze()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each request opens several files
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("httpx", "httpx2", "openai", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def keys_of(settings: ServiceSettings, no_key: bool) -> ApiKeys:
    """Return the keys that clients may send; without any, access is open.

    Raises InputError if the address is public but no key is set, unless `no_key` allows it, or if
    the keys file can't be read.
    """
    if no_key:
        return ApiKeys("", None)
    key = os.environ.get(settings.api_key_env, "").strip()
    keys = ApiKeys(key, settings.keys_file)
    if keys.open and not is_loopback(settings.host):
        raise InputError(
            f"expected an API key for the public address {settings.host}, found none: set the"
            f" environment variable {settings.api_key_env} or service.keys_file, or allow open"
            " access with --no-key"
        )
    return keys


def is_loopback(host: str) -> bool:
    """Return True if only processes on this machine can connect to the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    # The protocol is named because asyncio then sets TCP_NODELAY on accepted connections.
    # Otherwise, the end of an answer waits up to 40 ms for the acknowledgement of its beginning.
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
    return InputError(f"{where}can't listen on {host} port {port}: {error.strerror or error}")


def config_of(app: ASGIApp, settings: ServiceSettings) -> uvicorn.Config:
    """Return the settings with which uvicorn runs the server."""
    return uvicorn.Config(
        app,
        http=partial(Connection, settings),  # type: ignore[arg-type]  # a factory
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=60,  # seconds
        timeout_graceful_shutdown=settings.drain_s,
    )
