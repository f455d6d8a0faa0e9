"""`make repro`: `dvc repro` with one Prefect server and one set of model servers for all stages.

If nothing changed, no server is started. Model servers start only with the first call that is not
in the cache.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from ttsgraph.settings.profile import Params, Profile, load_params, load_profile
from ttsgraph_flows.answers import tell
from ttsgraph_flows.dvc_stages import DVC, dvc, require_sections, runs_of, with_this_python
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
        text = LOCKS.read_text(encoding="utf-8")
        if not any(_is_dvc(int(pid)) for pid in re.findall(r'"pid": (\d+)', text)):
            LOCKS.unlink()


def _is_dvc(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        try:
            command = " ".join(process.cmdline())
        except psutil.AccessDenied:  # another user's process, possibly DVC
            return True
        return process.status() != psutil.STATUS_ZOMBIE and "dvc" in command
    return False


def run_dvc(commands: Sequence[Sequence[str]], env: Mapping[str, str]) -> int:
    """Run several DVC processes in parallel; return 0 or the exit status of a failed one, once all
    have exited.

    Each stage is named as it starts, and shows its progress: a live display if there is one
    process, else a line at the stage's end. All processes end with this one, or if an exception is
    raised here, with their descendants.
    """
    plain = {"TERM": "dumb"} if len(commands) > 1 else {}
    started: list[subprocess.Popen[bytes]] = []
    readers = []
    try:
        for command in commands:
            started.append(start(command, None, {**env, **plain}))
            reader = threading.Thread(target=_print_stages, args=started[-1:], daemon=True)
            reader.start()
            readers.append(reader)
        for reader in readers:
            reader.join()
        return max(guard.wait() for guard in started)
    finally:
        end(started)


def _print_stages(guard: subprocess.Popen[bytes]) -> None:
    """Print the name of each stage that a DVC process starts."""
    assert guard.stdout is not None
    for line in guard.stdout:
        if line.startswith(BEGINS):
            print(line.decode(errors="replace").rstrip().rstrip(":"), flush=True)


def side_by_side(params: Params, profile: Profile, stages: Collection[str]) -> list[list[str]]:
    """Return the stages of each changed task, in order, or an empty list if tasks don't run in
    parallel.

    Several changed tasks run in parallel if models are served on this machine, because a stage that
    waits for its last answers leaves the servers idle. With endpoints, one stage runs at a time,
    because the endpoints' limits apply to each stage.
    """
    if not profile.hosted:
        return []
    chains = [[run.name for run in runs_of(params, task)] for task in params.tasks]
    changed = [chain for chain in chains if not set(chain).isdisjoint(stages)]
    return changed if len(changed) > 1 else []


def changed_stages() -> dict[str, Any]:
    """Return stage -> reason for the stages that `dvc repro` would certainly run; later stages may
    run too.

    Raises SettingsError if the profile lacks a section that dvc.yaml lists, and EndpointError if
    DVC fails.
    """
    require_sections(load_params().profile)
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
        while not _answers(f"{url}/health"):
            if time.monotonic() > deadline or server.poll() is not None:
                raise EndpointError(f"the Prefect server didn't start; see {state}/prefect.log")
            time.sleep(0.2)
        yield url
    finally:
        end([server])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


def require_gpus(name: str, profile: Profile) -> None:
    """Print doctor's findings for a GPU profile, with the placement of its servers. Raises
    EndpointError if a requirement that a run doesn't fetch itself is missing.
    """
    if profile.engine.device != "gpu":
        return
    from ttsgraph.runtime.doctor import examine, in_lines

    findings = examine(profile)
    for line in in_lines(findings):
        print(line)
    subjects = [one.subject for one in findings if not one.ok]
    missing = [subject for subject in subjects if not subject.startswith(FETCHED)]
    if missing:
        raise EndpointError(
            f"profile {name}: expected all requirements listed by doctor, found {len(missing)}"
            f" missing ({', '.join(missing[:4])}{', ...' if len(missing) > 4 else ''}); nothing was"
            " started or fetched"
        )


def choose(name: str, path: Path = Path("params.yaml")) -> None:
    """Set the profile in params.yaml, and leave the rest of the file unchanged."""
    text = path.read_text(encoding="utf-8")
    write_text(path, re.sub(r"(?m)^profile:.*$", f"profile: {name}", text))


@stopped_by_signals()
def repro(profile: str = "", only_ask: bool = False, folder: Path = Path()) -> None:
    """Rebuild changed results, with this profile if one is named.

    `only_ask` only checks whether that is possible here. `folder` is this folder's path for
    display. Ends with exit code 2 if a stage failed or the input is invalid. Raises EndpointError
    if dvc is not installed.
    """
    params = load_params()
    name = profile or params.profile
    loaded = load_profile(name)
    if only_ask:
        if loaded.engine.device == "gpu" and (name != params.profile or changed_stages()):
            require_gpus(name, loaded)
        return
    if name != params.profile:
        choose(name)
        params = load_params()
    for task in params.tasks:
        # Unless lengths are given, costs are unknown before the profile stage.
        if loaded.task(task).lengths.given is not None:
            loaded.budget_on(task).require_feasible()
    if find_spec("dvc") is None:
        raise EndpointError("expected the package dvc, but it is not installed; run `make setup`")
    if stages := changed_stages():
        require_gpus(name, loaded)
        _rebuild(params, loaded, stages)
    else:
        print("Data and pipelines are up to date.")
    tell(params.profile, folder=folder)


def _rebuild(params: Params, profile: Profile, stages: Collection[str]) -> None:
    """Run `dvc repro` with one Prefect server and one set of model servers. `stages` are those that
    have changed.
    """
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
        command = [*DVC, "--wait-for-lock", "repro"]
        chains = side_by_side(params, profile, stages)
        tasks = [[*command, "--single-item", *chain] for chain in chains]
        status = run_dvc(tasks, env) if tasks else 0
        if status == 0:
            status = run_dvc([command], env)
    if status != 0:
        kept = "computed results are kept; run `make repro` to resume"
        say(f"error: a stage failed, see above; {kept}")
        sys.exit(EXIT_INPUT)


if __name__ == "__main__":
    command(repro, profile={"default": ""}, only_ask={"action": "store_true"})
