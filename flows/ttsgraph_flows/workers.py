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
from ttsgraph.settings.stages import Workers


@contextmanager
def carrier(workers: Workers) -> Iterator[tuple[Carry, int]]:
    """Yield a function that sends a piece of work to a worker and returns its result, and the
    number of workers. Raises SettingsError if Dask is not installed, and EndpointError if the
    cluster can't be reached.
    """
    client = _connected(workers)
    count = workers if isinstance(workers, int) else len(client.nthreads())
    if not count:
        say(f"workers: the cluster at {workers} has no workers yet; waiting")
        count = 1
    # The connection closes before the threads end, so that no thread waits for an unfinished piece.
    with ThreadPoolExecutor(PIECES_PER_WORKER * count) as threads, client:

        def carried(work: WorkPiece) -> PieceResult:
            try:
                done: PieceResult = client.submit(work_on, work, pure=False).result()
            except Exception as error:
                why = f"a piece of work was lost: {first_line(error)}; {GO_ON}"
                raise RunStopped(f"workers: {why}") from None
            return done

        async def carry(work: WorkPiece) -> PieceResult:
            return await asyncio.get_running_loop().run_in_executor(threads, carried, work)

        yield carry, count


def _connected(workers: Workers) -> Any:
    """Return a client of the cluster at this address, or of a new local cluster. Raises
    SettingsError if Dask is not installed, and EndpointError if the cluster can't be reached.
    """
    try:
        from distributed import Client
    except ImportError:
        raise SettingsError(
            "workers: expected the package `distributed`, but it is not installed; run"
            " `pip install 'ttsgraph[dask]'`"
        ) from None
    logging.getLogger("distributed").setLevel(logging.ERROR)
    cluster: dict[str, Any] = {"address": workers}
    if isinstance(workers, int):
        cluster = {"n_workers": workers, "threads_per_worker": PIECES_PER_WORKER}
        cluster["dashboard_address"] = "127.0.0.1:0"
    try:
        return Client(**cluster)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError) as error:
        raise EndpointError(
            f"workers: expected a cluster at {cluster.get('address', 'this machine')}, but it can't"
            f" be reached: {error}"
        ) from None


def own_host(workers: Workers) -> str:
    """Return the host name or address under which workers reach this machine."""
    if isinstance(workers, int):
        return "127.0.0.1"
    from distributed.utils import get_ip

    found = get_ip(urlsplit(workers).hostname)  # type: ignore[no-untyped-call]
    return str(found)
