"""Transport of a stage's work to workers as Prefect tasks, by Dask's task runner."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any
from urllib.parse import urlsplit

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.settings import PREFECT_API_URL
from prefect.task_runners import TaskRunner

from ttsgraph.base.ending import GO_ON, say
from ttsgraph.base.errors import EndpointError, RunStopped, SettingsError
from ttsgraph.runtime.workers import PIECES_PER_WORKER, Carry, PieceResult, WorkPiece, work_on
from ttsgraph.settings.stages import WorkerSettings


@task(name="evaluate", cache_policy=NO_CACHE, persist_result=False)
def evaluate(work: WorkPiece) -> PieceResult:
    """Do one piece of a stage's work in a worker's process."""
    return work_on(work)


@contextmanager
def carrier(settings: WorkerSettings) -> Iterator[Carry]:
    """Yield a function that carries pieces to workers. Raises SettingsError, EndpointError."""
    context = copy_context()  # a piece's task run belongs to the current flow run
    if not PREFECT_API_URL.value():
        raise SettingsError(
            f"workers of kind {settings.kind}: expected in PREFECT_API_URL the URL of a Prefect"
            " server that all of them reach, found none; `make repro` starts one for local workers,"
            " for others see docs/vllm.md"
        )
    # The cluster is left first, which ends waiting for unfinished pieces.
    with (
        ThreadPoolExecutor(PIECES_PER_WORKER * settings.count) as waiting,
        _started(settings) as runner,
    ):

        def carried(work: WorkPiece) -> PieceResult:
            try:
                done: PieceResult = runner.submit(evaluate, parameters={"work": work}).result()
            except Exception as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise RunStopped(
                    f"workers ({settings.kind}): a piece of work was lost: {reason}; {GO_ON}"
                ) from None
            return done

        async def carry(work: WorkPiece) -> PieceResult:
            # A context can be entered by only one thread at a time.
            return await asyncio.get_running_loop().run_in_executor(
                waiting, context.copy().run, carried, work
            )

        yield carry


@contextmanager
def _started(settings: WorkerSettings) -> Iterator[TaskRunner[Any]]:
    """Yield the task runner with its cluster. Raises SettingsError, EndpointError."""
    try:
        runner = _runner(settings)
    except ImportError:
        raise SettingsError(
            f"workers of kind {settings.kind}: expected the package prefect-{settings.kind}, found"
            f" none; pip install 'ttsgraph[{settings.kind}]'"
        ) from None
    with runner:
        try:
            # Dask's runner connects when its client is first requested.
            client = getattr(runner, "client", None)
            if client is not None and not client.scheduler_info()["workers"]:
                say(
                    f"workers (dask): the cluster at {settings.address} has no workers yet; waiting"
                )
        except (OSError, TimeoutError) as error:
            where = settings.address or "this machine"
            raise EndpointError(
                f"workers of kind {settings.kind}: can't reach a cluster at {where}: {error}"
            ) from None
        yield runner


def own_host(settings: WorkerSettings) -> str:
    """Return the name under which workers reach this machine."""
    if settings.address is None:
        return "127.0.0.1"
    from distributed.utils import get_ip

    found = get_ip(urlsplit(settings.address).hostname)  # type: ignore[no-untyped-call]
    return str(found)


def _runner(settings: WorkerSettings) -> TaskRunner[Any]:
    """Return Dask's task runner, for the cluster at the address or a local one."""
    from prefect_dask.task_runners import DaskTaskRunner

    logging.getLogger("distributed").setLevel(logging.ERROR)
    if settings.address is not None:
        return DaskTaskRunner(address=settings.address)
    started = {
        "n_workers": settings.count,
        "threads_per_worker": PIECES_PER_WORKER,
        "dashboard_address": "127.0.0.1:0",
    }
    return DaskTaskRunner(cluster_kwargs=started)
