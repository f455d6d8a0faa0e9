"""The model servers that are up on this machine: their record, through which other processes find
them, and whether they answer.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from http.client import HTTPException
from io import TextIOWrapper
from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Console

from ttsgraph.base.errors import EndpointError
from ttsgraph.base.files import UNREADABLE
from ttsgraph.serving.servers import LOCAL, ServerSpec, served_models

LOOK_S = 0.5


@dataclass(frozen=True)
class _Recorded:
    """One server of a record."""

    name: str
    base_url: str
    models: list[str]
    lists_models: bool


@dataclass(frozen=True)
class _Pool:
    """A record: which process started which servers and whether it still runs, and the logs of
    those not started again, by name.
    """

    pid: int
    servers: list[_Recorded]
    given_up: dict[str, str]
    kept_up: bool


class PoolRecord:
    """The record of servers that this process keeps up. The lock that it holds on the file ends
    with it, however it ends.
    """

    def __init__(self, path: Path, specs: Sequence[ServerSpec]) -> None:
        self._path = path
        self._specs = specs
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
        servers = [
            asdict(_Recorded(s.name, s.base_url, list(s.served_models), s.lists_models))
            for s in self._specs
        ]
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        file = part.open("w", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(
            {"pid": os.getpid(), "servers": servers, "given_up": self._given_up}, file, indent=1
        )
        file.flush()
        part.replace(self._path)
        if self._held is not None:
            self._held.close()
        self._held = file


def read_pool(
    path: Path, wait_s: float = 0.0, console: Console | None = None
) -> dict[str, tuple[str, ...]] | None:
    """Model name -> base URLs of the pool recorded at `path`; None unless all its servers answer
    for their models.

    As long as whoever started it runs, a server that does not answer is being started again: it is
    waited for, up to `wait_s` seconds. Raises EndpointError when it does not come back.
    """
    started = time.monotonic()
    told = False
    while (pool := _read(path)) is not None:
        away = [
            server
            for server in pool.servers
            if not answers(server.base_url, server.models, server.lists_models)
        ]
        if not away:
            return by_model(
                (model, server.base_url) for server in pool.servers for model in server.models
            )
        if not pool.kept_up or wait_s <= 0:
            return None
        names = ", ".join(server.name for server in away)
        if pool.given_up or time.monotonic() - started > wait_s:
            why = (
                f"is not started again, see {', '.join(pool.given_up.values())}"
                if pool.given_up
                else f"is away for {wait_s:.0f} s"
            )
            raise EndpointError(
                f"model server {names} {why}; stop the process that started it ({pool.pid}), then"
                " start again"
            )
        if not told:
            (console or Console(stderr=True)).print(
                f"waiting for model servers that are being started again: {names}", highlight=False
            )
            told = True
        time.sleep(LOOK_S)
    return None


def is_kept_up(path: Path, urls: Mapping[str, Sequence[str]]) -> bool:
    """Whether whoever recorded these servers (model -> base URLs) at `path`, and maybe others,
    still runs.
    """
    pool = _read(path)
    wanted = {url for several in urls.values() for url in several}
    return (
        pool is not None and pool.kept_up and wanted <= {server.base_url for server in pool.servers}
    )


def _read(path: Path) -> _Pool | None:
    """The record, or None when there is none that can be read."""
    try:
        with path.open(encoding="utf-8") as file:
            found = json.load(file)
            kept_up = False
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                kept_up = True
            pool = TypeAdapter(_Pool).validate_python({**found, "kept_up": kept_up})
            return pool if pool.servers else None
    except (*UNREADABLE, TypeError):  # a server that does not answer as recorded is none either
        return None


def by_model(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """(model, base URL) pairs as model -> its base URLs, one a replica."""
    found: dict[str, tuple[str, ...]] = {}
    for model, url in pairs:
        found[model] = (*found.get(model, ()), url)
    return found


def answers(base_url: str, models: Sequence[str], lists_models: bool) -> bool:
    """Whether a server is healthy and, where it lists models, has these."""
    return _healthy(base_url) and (not lists_models or serves(base_url, models))


def serves(base_url: str, models: Sequence[str]) -> bool:
    """Whether an OpenAI API lists these models."""
    found = served_models(base_url)
    return found is not None and set(models) <= set(found)


def _healthy(base_url: str) -> bool:
    """Whether /health answers with success."""
    with (
        contextlib.suppress(OSError, HTTPException),
        LOCAL.open(f"{base_url.removesuffix('/v1')}/health", timeout=2.0) as response,
    ):
        return 200 <= int(response.status) < 300
    return False
