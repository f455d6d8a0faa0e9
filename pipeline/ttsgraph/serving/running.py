"""The model servers that are up: their record, for other processes, and whether they answer."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from http.client import HTTPException
from io import TextIOWrapper
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from ttsgraph.base.ending import say
from ttsgraph.base.errors import EndpointError
from ttsgraph.base.files import UNREADABLE
from ttsgraph.serving.servers import LOCAL, ServerSpec, served_models

LOOK_S = 0.5


@dataclass(frozen=True)
class _Recorded:
    """One server of a record."""

    name: str
    model: str
    base_url: str
    lists_models: bool


@dataclass(frozen=True)
class _Pool:
    """A record: which process started which servers, the logs of those not started again, by name,
    and whether that process still runs.
    """

    pid: int
    servers: list[_Recorded]
    given_up: dict[str, str]
    kept_up: bool = False


class PoolRecord:
    """The record of servers that this process keeps up: a lock on the file says that it does."""

    def __init__(self, path: Path, specs: Sequence[ServerSpec]) -> None:
        self._path = path
        self._servers = [_Recorded(s.name, s.model, s.base_url, s.lists_models) for s in specs]
        self._given_up: dict[str, str] = {}
        self._held: TextIOWrapper | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def give_up(self, spec: ServerSpec) -> None:
        """Tell whoever waits for this server that it will not come back."""
        self._given_up[spec.name] = str(spec.log)
        self._write()

    def remove(self) -> None:
        """Forget the servers."""
        self._path.unlink(missing_ok=True)
        if self._held is not None:
            self._held.close()

    def _write(self) -> None:
        """Whole or not at all, and locked before it can be seen."""
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        file = part.open("w", encoding="utf-8")
        take(file)
        json.dump(asdict(_Pool(os.getpid(), self._servers, self._given_up)), file, indent=1)
        file.flush()
        part.replace(self._path)
        if self._held is not None:
            self._held.close()
        self._held = file


def take(file: TextIOWrapper, shared: bool = False) -> bool:
    """Whether the kernel's lock on a file could be had; it ends with its holder."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_pool(path: Path, wait_s: float = 0.0) -> dict[str, tuple[str, ...]] | None:
    """Model name -> base URLs of the pool recorded at `path`; None unless all its servers answer
    for their models.

    As long as whoever started it runs, a server that does not answer is being started again: it is
    waited for, up to `wait_s` seconds. Raises EndpointError when it does not come back.
    """
    started = time.monotonic()
    told = False
    while (pool := _read(path)) is not None:
        away = [server for server in pool.servers if not answers(server)]
        if not away:
            return by_model(pool.servers)
        if not pool.kept_up or wait_s <= 0:
            return None
        names = ", ".join(server.name for server in away)
        why = ""
        if pool.given_up:
            why = f"is not started again, see {', '.join(pool.given_up.values())}"
        elif time.monotonic() - started > wait_s:
            why = f"is away for {wait_s:.0f} s"
        if why:
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
    pool = _read(path)
    if pool is None or not pool.kept_up:
        return False
    wanted = {url for several in urls.values() for url in several}
    return wanted <= {server.base_url for server in pool.servers}


def _read(path: Path) -> _Pool | None:
    """The record, or None when there is none that can be read."""
    try:
        with path.open(encoding="utf-8") as file:
            found = json.load(file) | {"kept_up": not take(file, shared=True)}
            pool = TypeAdapter(_Pool).validate_python(found)
            return pool if pool.servers else None
    except (*UNREADABLE, TypeError):  # a server that does not answer as recorded is none either
        return None


def by_model(servers: Iterable[ServerSpec | _Recorded]) -> dict[str, tuple[str, ...]]:
    """Model -> its servers' base URLs, one a replica."""
    found: dict[str, tuple[str, ...]] = {}
    for server in servers:
        found[server.model] = (*found.get(server.model, ()), server.base_url)
    return found


def answers(server: ServerSpec | _Recorded) -> bool:
    """Whether a server is healthy and, where it lists models, has its own."""
    with (
        contextlib.suppress(OSError, HTTPException),
        LOCAL.open(f"{server.base_url.removesuffix('/v1')}/health", timeout=2.0) as response,
    ):
        healthy = 200 <= int(response.status) < 300
        return healthy and (not server.lists_models or serves(server))
    return False


def serves(server: ServerSpec | _Recorded) -> bool:
    """Whether what answers there lists the server's model."""
    return server.model in (served_models(server.base_url) or ())


def listens(url: str) -> bool:
    """Whether something accepts connections at a URL's address."""
    address = urlsplit(url)
    with socket.socket() as probe:
        probe.settimeout(2.0)
        return probe.connect_ex((address.hostname or "", address.port or 0)) == 0
