"""Deployment of re-searches (`make deploy`): each task's re-search as a Prefect deployment, which
runs on a schedule and when a pool changes.

The command uses the Prefect server at PREFECT_API_URL, or starts one, and runs until it is
interrupted; with a work pool, its workers run the searches. Every `research.watch_s` seconds it
checks the profile's pool and the /v1/models of newcomers' endpoints. A change triggers a run under
an idempotency key, so two observers of the same change start only one run.
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
from ttsgraph.base.wording import first_line
from ttsgraph.deployment.provenance import pool_fingerprint, sha256
from ttsgraph.runtime.clients import with_newcomers
from ttsgraph.settings.profile import Params, load_params, load_profile
from ttsgraph_flows import research as research_module
from ttsgraph_flows.ending import command
from ttsgraph_flows.registry import Registry
from ttsgraph_flows.repro import prefect_server
from ttsgraph_flows.research import research, searched_before

RETRY_S = 2.0
"""Seconds before a failed check is repeated."""

AWAY = 5
"""Consecutive failures after which Prefect's absence is reported once. A few failures are normal at
the start, when there is no deployment yet.
"""


def serve_searches(pool: str, params: Params) -> None:
    """Run requested searches in processes on this machine, or delegate them to the workers of a
    work pool, until interrupted. The workers use this folder, so they must be able to access it.
    """
    # Only one run of a task at a time: other runs wait, and then find no change.
    wait = ConcurrencyLimitStrategy.ENQUEUE
    one_by_one = ConcurrencyLimitConfig(limit=1, collision_strategy=wait)
    cron = load_profile(params.profile).research.cron
    known: Any = {"cron": cron, "concurrency_limit": one_by_one}
    own = {task: {"task": task, "reason": "schedule"} for task in params.tasks}
    if not pool:
        made: Any = [research.to_deployment(task, parameters=own[task], **known) for task in own]
        serve(*made, print_starting_message=False)
        return
    here = Path.cwd()
    entry = f"{Path(research_module.__file__).resolve()}:research"
    flow: Any = research.from_source(source=str(here), entrypoint=entry)
    known |= {"work_pool_name": pool, "print_next_steps": False, "ignore_warnings": True}
    for task in own:
        flow.deploy(task, parameters=own[task], **known)
    say(f"deploy: run `prefect worker start --pool {pool}` in {here} to run requested searches")
    threading.Event().wait()


def request(task: str, pool: str, params: Params) -> None:
    """Request a re-search for the current pool. Repeated requests start only one run while
    everything that the re-search depends on stays the same: this pool, the champion, and the pool
    searched last. Raises InputError if the registry can't be read.
    """
    champion = Registry(params.tracking_uri).champion(task)
    before = searched_before(params.profile, task)
    known = champion.label if champion else "", before.pool if before else ""
    key = sha256(" ".join([task, pool, *known]))
    given = {"task": task, "reason": "the pool changed"}
    at_once: Any = {"timeout": 0, "idempotency_key": key, "as_subflow": False}
    run: Any = run_deployment(f"research/{task}", parameters=given, **at_once)
    say(f"deploy {task}: the pool changed; started run {run.name}")


def watch(stop: threading.Event) -> None:
    """Request a re-search at the start and whenever a pool has changed, until `stop` is set.

    A check that fails, or a request that can't be sent, is repeated after RETRY_S.
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
                    request(task, pool, params)
                    seen[task] = pool
            wait = profile.research.watch_s
            failures = 0
        except InputError as error:
            say(f"deploy: {error}")
        except (PrefectException, httpx.HTTPError) as error:
            failures += 1
            if failures == AWAY:
                why = f"can't request a search from Prefect ({type(error).__name__})"
                say(f"deploy: {why}; trying again every {RETRY_S:g} s")


def deploy(pool: str = "") -> None:
    """Serve the deployments until interrupted; requested searches run here, or in the workers of a
    work pool. Raises InputError if Prefect is unreachable.
    """
    load_profile(load_params().profile)  # raises early if the settings are invalid
    # Runs are separate processes, which find the flows in this folder.
    folders = str(Path.cwd()), os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    if (where := os.environ.get("PREFECT_API_URL")) is None:
        with prefect_server(services=True) as url:
            # A separate process, because Prefect reads its settings once, at import.
            again = [sys.executable, "-m", "ttsgraph_flows.deploy", "--pool", pool]
            child = subprocess.Popen(again, env=os.environ | {"PREFECT_API_URL": url})
            try:
                sys.exit(child.wait())
            finally:
                child.terminate()
                child.wait()
    params = load_params()
    stop = threading.Event()
    threading.Thread(target=watch, args=(stop,), daemon=True).start()
    say(f"deploy: {', '.join(params.tasks)}: serving re-searches through {where}; Ctrl-C stops")
    try:
        serve_searches(pool, params)
    except (PrefectException, httpx.HTTPError) as error:
        raise InputError(
            f"expected Prefect's server at PREFECT_API_URL {where}, but it can't be used:"
            f" {first_line(error)}; start it, or unset PREFECT_API_URL to start one automatically"
        ) from None
    finally:
        stop.set()


if __name__ == "__main__":
    command(deploy, pool={"default": "", "help": "Prefect work pool whose workers search"})
