"""Running the server: keys, the socket, and a shutdown that lets running requests finish."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import Sequence
from functools import partial

import typer
import uvicorn
from starlette.types import ASGIApp

from ttsgraph.base.ending import stopped_by_signals
from ttsgraph.base.errors import InputError
from ttsgraph.deployment.bundle import Loader
from ttsgraph.service.app import App
from ttsgraph.service.connections import Connection
from ttsgraph.service.limits import ApiKeys
from ttsgraph.settings.service import ServiceSettings

KEY_VARIABLE = "TTSGRAPH_API_KEY"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses to which only processes on this machine can connect."""


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
        typer.echo(said)
        # When uvicorn ends, it re-raises the signals that it handled. They must not interrupt
        # the closing of the deployments.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        await uvicorn.Server(config_of(app, settings)).serve([listening])


def _begin_process() -> None:
    # Imported objects are never freed. If each collection checked them, it would take a fifth more
    # time.
    gc.freeze()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each request opens several files
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("ttsgraph").setLevel(logging.INFO)


def keys_of(settings: ServiceSettings, no_key: bool) -> ApiKeys:
    """Return the keys that clients may send; without any, access is open.

    Raises InputError if the address is public but no key is set, unless `no_key` allows it, or if
    the keys file can't be read.
    """
    if no_key:
        return ApiKeys("", None)
    keys = ApiKeys(os.environ.get(KEY_VARIABLE, "").strip(), settings.keys_file)
    if keys.open and settings.host not in LOOPBACK:
        raise InputError(
            f"expected an API key for the public address {settings.host}, found none: set the"
            f" environment variable {KEY_VARIABLE} or service.keys_file, or allow open"
            " access with --no-key"
        )
    return keys


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections, which wait until the server runs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # `::` is IPv4 as well
    try:
        return socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"can't listen on {host} port {port}: {why}") from None


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
