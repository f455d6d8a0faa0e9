"""`make repro`: `dvc repro` with one Prefect server and one set of model servers for all stages.

If nothing changed, no server is started. Model servers start only with the first call that is not
in the cache.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from ttsgraph.base.ending import EXIT_INPUT, say, stopped_by_signals
from ttsgraph.base.errors import EndpointError
from ttsgraph.base.files import write_text
from ttsgraph.base.state import STATE
from ttsgraph.serving.guard import end, start
from ttsgraph.serving.servers import free_ports
from ttsgraph.serving.supervisor import healthy
from ttsgraph.settings.profile import Params, Profile, load_params, load_profile
from ttsgraph_flows.answers import tell
from ttsgraph_flows.dvc_stages import DVC, dvc, with_this_python
from ttsgraph_flows.ending import command

START_TIMEOUT_S = 300.0
"""Seconds to wait for the Prefect server on a busy machine. If the server has exited, the wait ends
immediately.
"""

BEGINS = b"Running stage '"
LOCKS = Path(".dvc/tmp/rwlock")
FETCHED = ("weights of ", "questions of ")
"""Requirements that doctor may report as missing, but that a run fetches itself."""


def forget_dead_holders() -> None:
    """Remove DVC's list of read and write locks if no running DVC process holds one.

    After a kill, DVC itself keeps the list as long as any process has the killed process's ID:
    until the killed process is reaped, or longer if another process gets the ID. A truncated list
    names no holder.
    """
    with suppress(FileNotFoundError):
        holders = re.findall(r'"pid": (\d+)', LOCKS.read_text(encoding="utf-8"))
        if not any(_is_dvc(int(pid)) for pid in holders):
            LOCKS.unlink()


def _is_dvc(pid: int) -> bool:
    with suppress(psutil.Error):  # a process that wasn't reaped has no command line
        return "dvc" in " ".join(psutil.Process(pid).cmdline())
    return False


def run_dvc(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run DVC and return its exit status. Each stage is named as it starts, and shows its progress.

    DVC and its descendants end with this process, or if an exception is raised here.
    """
    guard = start(command, None, env)
    try:
        assert guard.stdout is not None
        for line in guard.stdout:
            if line.startswith(BEGINS):
                print(line.decode(errors="replace").rstrip().rstrip(":"), flush=True)
        return guard.wait()
    finally:
        end([guard])


def changed_stages() -> dict[str, Any]:
    """Return stage -> reason for the stages that `dvc repro` would certainly run; later stages may
    run too.

    Raises EndpointError if DVC fails.
    """
    forget_dead_holders()
    return dict(json.loads(dvc("status", "--json") or "{}"))


@contextmanager
def prefect_server(state: Path = STATE, services: bool = False) -> Iterator[str]:
    """Run a Prefect server; yield its API URL.

    Without such a server, each stage would start its own, which takes about 6 s. `services` adds
    the scheduler and other services, which stages don't need. Raises EndpointError if the server
    doesn't start.
    """
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "prefect", "server", "start", "--no-ui"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += [] if services else ["--no-services"]
    env = os.environ | {"PREFECT_HOME": str((state / "prefect").resolve())}
    # Guarded like model servers: the server ends with this process in any case, and an interrupt
    # reaches the server's users first.
    server = start(command, state / "prefect.log", env)
    url = f"http://127.0.0.1:{port}/api"
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        while not healthy(url):
            if time.monotonic() > deadline or server.poll() is not None:
                raise EndpointError(f"the Prefect server didn't start; see {state}/prefect.log")
            time.sleep(0.2)
        yield url
    finally:
        end([server])


def require_gpus(name: str, profile: Profile) -> None:
    """Print doctor's findings for a GPU profile, with the placement of its servers. Raises
    EndpointError if a requirement that a run doesn't fetch itself is missing.
    """
    if profile.engine.device != "gpu":
        return
    from ttsgraph.runtime.doctor import examine, in_lines

    findings = examine(profile)
    print(*in_lines(findings), sep="\n")
    subjects = [one.subject for one in findings if not one.ok]
    if missing := [subject for subject in subjects if not subject.startswith(FETCHED)]:
        raise EndpointError(
            f"profile {name}: missing are {', '.join(missing)}; nothing was started or fetched"
        )


def choose(name: str, path: Path = Path("params.yaml")) -> None:
    """Set the profile in params.yaml, and leave the rest of the file unchanged."""
    text = path.read_text(encoding="utf-8")
    write_text(path, re.sub(r"(?m)^profile:.*$", f"profile: {name}", text))


@stopped_by_signals()
def repro(profile: str = "", folder: Path = Path()) -> None:
    """Rebuild changed results, with this profile if one is named.

    `folder` is this folder's path for display. Ends with exit code 2 if a stage failed or the input
    is invalid. Raises EndpointError if dvc is not installed.
    """
    given = load_params()
    name = profile or given.profile
    params = given.model_copy(update={"profile": name})
    loaded = load_profile(name)
    for task in params.tasks:
        # Unless lengths are given, costs are unknown before the profile stage.
        if loaded.task(task).lengths.given is not None:
            loaded.budget_on(task).require_feasible()
    if find_spec("dvc") is None:
        raise EndpointError("expected the package dvc, but it is not installed; run `make setup`")
    chosen = name != given.profile
    if chosen:
        require_gpus(name, loaded)
        choose(name)
    if changed_stages():
        if not chosen:
            require_gpus(name, loaded)
        _rebuild(params, loaded)
    else:
        print("Data and pipelines are up to date.")
    tell(name, folder=folder)


def _rebuild(params: Params, profile: Profile) -> None:
    """Run `dvc repro` with one Prefect server and one set of model servers."""
    # Imported late, because these imports take longer than detecting that nothing has changed.
    from ttsgraph.searching.methods import searcher_class
    from ttsgraph.serving.running import servers_on_demand
    from ttsgraph_flows.verify import recall

    for method in params.methods:
        searcher_class(method)  # raises early if there is no such method
    recall(params, profile)
    env = with_this_python()
    with ExitStack() as stack:
        if "PREFECT_API_URL" not in env:
            env["PREFECT_API_URL"] = stack.enter_context(prefect_server())
        stack.enter_context(servers_on_demand(profile))
        status = run_dvc([*DVC, "--wait-for-lock", "repro"], env)
    if status != 0:
        kept = "computed results are kept; run `make repro` to resume"
        say(f"error: a stage failed, see above; {kept}")
        sys.exit(EXIT_INPUT)


if __name__ == "__main__":
    command(repro, profile={"default": ""})
