"""Running the server: keys, connections, and a shutdown that lets running requests finish."""

import asyncio
import gc
import hashlib
import logging
import os
import re
import resource
import signal
import socket
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import typer
import uvicorn
from starlette.datastructures import Headers
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ttsgraph.base.ending import stopped_by_signals
from ttsgraph.base.errors import InputError
from ttsgraph.deployment.bundle import Loader
from ttsgraph.service.app import App
from ttsgraph.service.errors import ApiError
from ttsgraph.settings.service import ServiceSettings

KEY_VARIABLE = "TTSGRAPH_API_KEY"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses to which only processes on this machine can connect."""

MAX_CONNECTIONS = 1024
"""Maximum number of open connections, well within the usual limit of a process's open files; beyond
that, connections without a complete request are closed, or new ones are asked to retry (503).
"""

MAX_CONNECTIONS_PER_CLIENT = 768
"""Maximum number of open connections per address. It leaves some for others, and most to a gateway,
whose clients all share its address.
"""

RECEIVE_S = 20.0
"""Seconds for a whole request to arrive, counted from the connection or from the request's first
byte, and for a client to read what was sent: enough for the longest body at 420 kbit/s.
"""

DRAIN_S = 30
"""Seconds that running requests have to finish after a stop signal: the grace period of Kubernetes.
deploy/ttsgraph.service waits a little longer.
"""

_LINE = re.compile(r"([0-9a-f]{64})\s+(\w[\w.@-]*)", re.ASCII)
_log = logging.getLogger(__name__)


class ApiKeys:
    """API keys, one of which each request has to send; if none are set, access is open.

    One key can come from the environment, others from a file. Each line of the file has the SHA-256
    of a key in hex, as `sha256sum` writes it, and a name of letters, digits and `_.@-`. Keys of the
    same name belong to the same client. The file is read again when it changes. Raises InputError
    if the file can't be read at the start; if it can't be read later, the old keys stay valid.
    """

    def __init__(self, key: str, file: Path | None) -> None:
        self._own = {_hashed(key.encode()): "environment"} if key else {}
        self._file = file
        self._stamp: tuple[int, ...] = ()
        self._names = self._own
        self.open = not key and file is None  # no key is needed
        self._read()

    def check(self, headers: Headers) -> str | None:
        """Return the name of the request's key, or None if no key is needed.

        Raises ApiError 401 if the key is missing or unknown.
        """
        if self.open:
            return None
        try:
            self._read()
        except InputError as error:
            _log.warning("the old keys stay valid: %s", error)
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        # The look-up compares hashes, so its duration reveals nothing about a guessed key.
        name = self._names.get(_hashed(sent.strip().encode("latin-1")))
        if scheme.lower() != "bearer" or name is None:
            message = "expected one of the server's API keys as a bearer token"
            bearer = {"www-authenticate": "Bearer"}
            raise ApiError(401, message, code="invalid_api_key", headers=bearer)
        return name

    def _read(self) -> None:
        """Read the file, if there is one and it has changed."""
        if self._file is None:
            return
        try:
            now = self._file.stat()  # two changes can have the same time
            before, self._stamp = self._stamp, (now.st_mtime_ns, now.st_size, now.st_ino)
            if before == self._stamp:
                return
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self._file}: can't read the keys file: {error}") from None
        found = dict(self._own)
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            if (parts := _LINE.fullmatch(line.strip())) is None:
                raise InputError(
                    f"{self._file}, line {number}: expected the SHA-256 of a key in hex, a space,"
                    " and the key's name (letters, digits and any of _.@-)"
                )
            found[parts[1]] = parts[2]
        self._names = found


def _hashed(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


class Connection(H11Protocol):
    """HTTP connection that enforces the settings' time limits and connection limits.

    If there are too many connections, one without a whole request is closed to make room for a new
    one, preferably one on which none has ever arrived. Thus no client can shut others out by
    opening many connections and sending nothing, or only a part of a request.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._began = self.loop.time()
        self._has_asked = False
        self._limit: asyncio.TimerHandle | None = None

    @property
    def _waits(self) -> bool:
        """True if the next whole request has yet to arrive."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for a request, and close a surplus connection, if any."""
        super().connection_made(transport)
        # Otherwise, the end of an answer waits up to 40 ms until its beginning is acknowledged.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()
        host = self.client and self.client[0]
        open_now: set[Any] = self.connections
        own = [each for each in open_now if (each.client and each.client[0]) == host]
        self._make_room(own, MAX_CONNECTIONS_PER_CLIENT)
        self._make_room(open_now, MAX_CONNECTIONS)

    def handle_events(self) -> None:
        """Handle what has arrived; a request that has begun must arrive in time."""
        super().handle_events()
        self._has_asked |= not self._waits
        self._watch()

    def pause_writing(self) -> None:
        """Limit the time in which the client has to read the full write buffer."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """End the time limit for reading, because the client has read enough."""
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time limit of the closed connection."""
        super().connection_lost(exc)
        if self._limit:
            self._limit.cancel()

    def _make_room(self, connections: Collection[Any], most: int) -> None:
        """Close a connection without a complete request if there are more than `most` connections.

        If all other connections have a complete request, this connection's requests get status 503.
        """
        if len(connections) <= most:
            return
        waiting = [each for each in connections if each is not self and each._waits]
        if not waiting:
            self.limit_concurrency = 0
            return
        oldest = min(waiting, key=lambda each: (each._has_asked, each._began))
        self.connections.discard(oldest)
        oldest.transport.close()

    def _watch(self) -> None:
        """Limit the time of the connection while the server waits for the client, and only then.

        Between two requests, uvicorn's own limit for idle connections holds instead.
        """
        if self.flow.write_paused or (self._waits and not self.timeout_keep_alive_task):
            abort = self.transport.abort
            self._limit = self._limit or self.loop.call_later(RECEIVE_S, abort)
        elif self._limit:
            self._limit.cancel()
            self._limit = None


def serve(
    loader: Loader, names: Sequence[str], settings: ServiceSettings, no_key: bool = False
) -> None:
    """Serve these names until SIGTERM or SIGINT.

    Raises InputError if the address is public but no key is set, if the port is taken, if a name
    can't be resolved, or if an endpoint is down.
    """
    keys = keys_of(settings, no_key)
    app = App(loader, names, settings, keys)
    # Imported objects are never freed. If each collection checked them, it would take a fifth more
    # time.
    gc.freeze()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each request opens several files
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("ttsgraph").setLevel(logging.INFO)

    async def run(listening: socket.socket) -> None:
        async with app.deployments.running():
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            address = f"http://{host}:{listening.getsockname()[1]}/v1"
            keyed = "without a key" if keys.open else "with a key"
            typer.echo(f"serving {', '.join(names)} at {address}, {keyed}")
            # When uvicorn ends, it re-raises the signals that it handled. They must not interrupt
            # the closing of the deployments.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: None)
            await uvicorn.Server(config_of(app)).serve([listening])

    with _listen(settings.host, settings.port) as listening, stopped_by_signals():
        asyncio.run(run(listening))


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


def config_of(app: ASGIApp) -> uvicorn.Config:
    """Return the settings with which uvicorn runs the server."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=60,  # seconds
        timeout_graceful_shutdown=DRAIN_S,
    )
