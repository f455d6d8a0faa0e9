"""What `make deploy` runs: the re-search of each task as a Prefect deployment, on a schedule and
when a pool changes. It uses the Prefect server of PREFECT_API_URL, or starts one of its own, and
works until it is interrupted; with a work pool, workers run the searches. The pool of the profile
and the /v1/models of the newcomers' endpoints are looked at every `research.watch_s` seconds; a
change triggers a run under an idempotency key, so that two that notice the same change make one.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from prefect import serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments import run_deployment
from prefect.exceptions import PrefectException

from ttsgraph.base.ending import say
from ttsgraph.base.errors import InputError
from ttsgraph.deployment.provenance import pool_fingerprint, sha256
from ttsgraph.runtime.clients import with_newcomers
from ttsgraph.settings.profile import Params, load_params, load_profile
from ttsgraph_flows import research as research_module
from ttsgraph_flows.alerts import on_drift
from ttsgraph_flows.ending import command
from ttsgraph_flows.registry import Registry
from ttsgraph_flows.repro import prefect_server
from ttsgraph_flows.research import research, searched_before

RETRY_S = 2.0
"""Seconds until what failed is looked at again."""

AWAY = 5
"""Failures in a row after which it is said, once, that Prefect is away: at the beginning there is
no deployment yet.
"""


def settings_of(task: str, params: Params) -> dict[str, Any]:
    """A task's deployment. One run at a time: others wait, and then find nothing changed."""
    return {
        "name": task,
        "cron": load_profile(params.profile).research.cron,
        "parameters": {"task": task, "reason": "schedule"},
        "concurrency_limit": ConcurrencyLimitConfig(
            limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE
        ),
        "triggers": [on_drift(task)],
    }


def serve_here(params: Params) -> None:
    """Run what is asked for in processes of this machine, until interrupted."""
    made: Any = [research.to_deployment(**settings_of(task, params)) for task in params.tasks]
    serve(*made, print_starting_message=False)


def leave_to(pool: str, params: Params) -> None:
    """Leave what is asked for to the workers of a work pool, and wait until interrupted. They work
    in this folder, so it is one that they share.
    """
    here = Path.cwd()
    entry = f"{Path(research_module.__file__).resolve()}:research"
    flow: Any = research.from_source(source=str(here), entrypoint=entry)
    for task in params.tasks:
        of_task = settings_of(task, params)
        flow.deploy(work_pool_name=pool, print_next_steps=False, ignore_warnings=True, **of_task)
    say(f"deploy: `prefect worker start --pool {pool}` in {here} runs what is asked for")
    threading.Event().wait()


def state_key(task: str, pool: str, params: Params) -> str:
    """A hash of the pool that there is now, the champion, and the pool that was searched last: what
    a re-search depends on. Raises InputError when the registry can't be read.
    """
    champion = Registry(params.tracking_uri).champion(task)
    before = searched_before(params.profile, task)
    searched = before.pool if before is not None else ""
    return sha256(f"{task} {pool} {champion.label if champion else ''} {searched}")


def trigger(task: str, key: str) -> Any:
    """Ask for a re-search; the same key asks for the same run."""
    parameters = {"task": task, "reason": "the pool changed"}
    return run_deployment(
        f"research/{task}", parameters=parameters, timeout=0, idempotency_key=key, as_subflow=False
    )


def watch(stop: threading.Event) -> None:
    """Ask for a re-search when a pool is not the one seen before, the first time included, until
    told to stop. What can't be read or reported now is looked at again soon.
    """
    seen: dict[str, str] = {}
    wait = RETRY_S
    failures = 0
    while not stop.wait(wait):
        wait = RETRY_S
        try:
            params = load_params()
            profile = load_profile(params.profile)
            pool = pool_fingerprint(with_newcomers(profile))
            for task in params.tasks:
                if seen.get(task) != pool:
                    run = trigger(task, state_key(task, pool, params))
                    say(f"deploy {task}: the pool is not the one seen before; run {run.name}")
                    seen[task] = pool
            wait = profile.research.watch_s
            failures = 0
        except InputError as error:
            say(f"deploy: {error}")
        except (PrefectException, httpx.HTTPError) as error:
            failures += 1
            if failures == AWAY:
                say(
                    "deploy: Prefect can't be told of a change now, trying again each"
                    f" {RETRY_S:g} s: {type(error).__name__}"
                )


def deploy(pool: str = "") -> None:
    """Serve the deployments until interrupted, here or by the workers of a work pool. Raises
    InputError when Prefect is away.
    """
    load_profile(load_params().profile)  # refuses before anything is started
    # Runs are processes of their own, and find the flows here.
    path = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    if "PREFECT_API_URL" not in os.environ:
        with prefect_server(services=True) as url:
            # A process of its own, because Prefect reads its settings once, when it is imported.
            again = [
                sys.executable,
                "-m",
                "ttsgraph_flows.deploy",
                *(["--pool", pool] * bool(pool)),
            ]
            child = subprocess.Popen(
                again, env=os.environ | {"PREFECT_API_URL": url, "PYTHONPATH": path}
            )
            try:
                sys.exit(child.wait())
            finally:
                child.terminate()
                child.wait()
    os.environ["PYTHONPATH"] = path
    params = load_params()
    stop = threading.Event()
    threading.Thread(target=watch, args=(stop,), daemon=True).start()
    where = os.environ["PREFECT_API_URL"]
    say(f"deploy: {', '.join(params.tasks)} at {where}; interrupt to stop")
    work: Callable[[Params], None] = partial(leave_to, pool) if pool else serve_here
    try:
        work(params)
    except (PrefectException, httpx.HTTPError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"expected Prefect's server at PREFECT_API_URL {where}, but {why}; start it, or unset"
            " PREFECT_API_URL to have one started"
        ) from None
    finally:
        stop.set()


if __name__ == "__main__":
    command(deploy, pool={"default": "", "help": "a work pool of Prefect whose workers search"})
