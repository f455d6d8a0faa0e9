"""What `make deploy` runs: the re-search of each task as a Prefect deployment, on a schedule and
when a pool changes. It uses the Prefect server of PREFECT_API_URL, or starts one of its own, and
works until it is interrupted. The pool of the profile and the /v1/models of the newcomers'
endpoints are looked at every `research.watch_s` seconds; a change triggers a run under an
idempotency key, so that two that notice the same change make one run.
"""

import os
import subprocess
import sys
import threading
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
from ttsgraph_flows.alerts import on_drift
from ttsgraph_flows.ending import guarded
from ttsgraph_flows.registry import Registry
from ttsgraph_flows.repro import prefect_server
from ttsgraph_flows.research import research, searched_before

RETRY_S = 2.0
"""Seconds until what failed is looked at again."""


def deployments(params: Params) -> list[Any]:
    """One deployment a task. One run at a time: others wait, and then find nothing changed."""
    cron = load_profile(params.profile).research.cron
    limit = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)
    return [
        research.to_deployment(
            name=task,
            cron=cron,
            parameters={"task": task, "reason": "schedule"},
            concurrency_limit=limit,
            triggers=[on_drift(task)],
        )
        for task in params.tasks
    ]


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
        except InputError as error:
            say(f"deploy: {error}")
        except (PrefectException, httpx.HTTPError) as error:
            say(
                "deploy: Prefect can't be told of a change now, trying again:"
                f" {type(error).__name__}"
            )


def deploy() -> None:
    """Serve the deployments until interrupted."""
    load_profile(load_params().profile)  # refuses before anything is started
    # Runs are processes of their own, and find the flows here.
    path = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    if "PREFECT_API_URL" not in os.environ:
        with prefect_server(services=True) as url:
            # A process of its own, because Prefect reads its settings once, when it is imported.
            again = [sys.executable, "-m", "ttsgraph_flows.deploy"]
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
    say(f"deploy: {', '.join(params.tasks)} at {os.environ['PREFECT_API_URL']}; interrupt to stop")
    try:
        serve(*deployments(params), print_starting_message=False)
    finally:
        stop.set()


if __name__ == "__main__":
    guarded(deploy)
