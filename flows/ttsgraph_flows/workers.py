"""Transfer of a stage's work to the workers of a Dask cluster."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from ttsgraph.base.ending import GO_ON, say
from ttsgraph.base.errors import EndpointError, RunStopped, SettingsError
from ttsgraph.base.wording import first_line
from ttsgraph.runtime.workers import PIECES_PER_WORKER, Carry, PieceResult, WorkPiece, work_on
from ttsgraph.settings.stages import WorkerSettings


@contextmanager
def carrier(settings: WorkerSettings) -> Iterator[Carry]:
    """Yield a function that sends a piece of work to a worker and returns its result. Raises
    SettingsError if Dask is not installed, and EndpointError if the cluster can't be reached.
    """
    # The connection closes before the threads end, so that no thread waits for an unfinished piece.
    threads = ThreadPoolExecutor(PIECES_PER_WORKER * settings.count)
    with threads, _connected(settings) as client:

        def carried(work: WorkPiece) -> PieceResult:
            try:
                done: PieceResult = client.submit(work_on, work, pure=False).result()
            except Exception as error:
                why = f"a piece of work was lost: {first_line(error)}; {GO_ON}"
                raise RunStopped(f"workers ({settings.kind}): {why}") from None
            return done

        async def carry(work: WorkPiece) -> PieceResult:
            return await asyncio.get_running_loop().run_in_executor(threads, carried, work)

        yield carry


@contextmanager
def _connected(settings: WorkerSettings) -> Iterator[Any]:
    """Yield a client of the cluster at the address in the settings, or of a new local cluster.
    Raises SettingsError if Dask is not installed, and EndpointError if the cluster can't be
    reached.
    """
    try:
        from distributed import Client
    except ImportError:
        raise SettingsError(
            f"workers of kind {settings.kind}: expected the package `distributed`, but it is not"
            f" installed; run `pip install 'ttsgraph[{settings.kind}]'`"
        ) from None
    logging.getLogger("distributed").setLevel(logging.ERROR)
    cluster: dict[str, Any] = {"address": settings.address}
    if settings.address is None:
        cluster = {"n_workers": settings.count, "threads_per_worker": PIECES_PER_WORKER}
        cluster["dashboard_address"] = "127.0.0.1:0"
    try:
        client = Client(**cluster)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError) as error:
        raise EndpointError(
            f"workers of kind {settings.kind}: expected a cluster at"
            f" {settings.address or 'this machine'}, but it can't be reached: {error}"
        ) from None
    with client:
        if not client.scheduler_info()["workers"]:
            say(f"workers (dask): the cluster at {settings.address} has no workers yet; waiting")
        yield client


def own_host(settings: WorkerSettings) -> str:
    """Return the host name or address under which workers reach this machine."""
    if settings.address is None:
        return "127.0.0.1"
    from distributed.utils import get_ip

    found = get_ip(urlsplit(settings.address).hostname)  # type: ignore[no-untyped-call]
    return str(found)
