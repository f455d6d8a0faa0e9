"""What `make repro` runs: `dvc repro`, with one Prefect server and one set of model servers for all
its stages. When nothing changed, neither is started; model servers are once a stage makes a call
that is not in the cache.
"""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ttsgraph.base.ending import EXIT_INPUT, say, stopped_by_signals
from ttsgraph.base.errors import EndpointError
from ttsgraph.base.files import write_text
from ttsgraph.base.state import STATE
from ttsgraph.serving.guard import end, start
from ttsgraph.settings.profile import Params, Profile, load_params, load_profile
from ttsgraph_flows.answers import tell
from ttsgraph_flows.dvc_stages import DVC, dvc, require_sections, runs_of
from ttsgraph_flows.ending import command
from ttsgraph_flows.live import BOARD, REFRESH_PER_S, Board, wants_display

START_TIMEOUT_S = 300.0
"""A server that has ended is noticed at once; one that a busy machine keeps waiting is waited for.
"""

GRACE_S = 4.0
"""Seconds that what DVC runs has to end by itself when all is to stop."""

BEGINS = "Running stage '"
CHATTER = (
    *("> python -m ttsgraph_flows.", "Stage '", "Updating lock file", "Generating lock file"),
    *("Use `dvc push`", "To track the changes", "\tgit add", "To enable auto staging"),
    "\tdvc config core.autostage",
)
"""What DVC says that is of no use to who waits for a result."""

LOCKS = Path(".dvc/tmp/rwlock")
FETCHED = ("weights of ", "questions of ")
"""What doctor finds missing, and a run fetches by itself."""


def forget_dead_holders() -> None:
    """Remove DVC's list of read and write locks if no DVC that holds one runs any more. After a
    kill DVC does so only once the number of the killed process is free: it isn't while the process
    waits to be reaped, or once another has got it. A list that was cut off names no holder.
    """
    try:
        text = LOCKS.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    if not any(_is_dvc(int(pid)) for pid in re.findall(r'"pid": (\d+)', text)):
        LOCKS.unlink(missing_ok=True)


def _is_dvc(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and any(
            "dvc" in part for part in process.cmdline()
        )
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # somebody else's, which may be one
        return True


@contextmanager
def ended_with_all_below(child: subprocess.Popen[str]) -> Iterator[None]:
    """What is raised here ends a process, then all that it started."""
    try:
        yield
    except BaseException:
        below: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(child.pid)
            process.suspend()  # so that it starts nothing between the look and its end
            below = process.children(recursive=True)
        child.kill()
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(below, timeout=GRACE_S)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        raise


def run_dvc(
    commands: Sequence[Sequence[str]],
    env: Mapping[str, str],
    folder: Path,
    console: Console | None,
) -> int:
    """Run these DVCs side by side; returns 0, or the exit status of one that failed, once all have
    ended. With a console their stages are shown on one board, and what they print stands above it.
    Without, DVC says which stage it runs, and a stage what it came to. Whatever is raised meanwhile
    ends all of them with all that they run.
    """
    shown = {BOARD: str(folder.resolve())} if console else {}
    with ExitStack() as stack:
        children = []
        for command in commands:
            child = subprocess.Popen(
                command,
                env={**env, **shown},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if console else None,
                text=True,
                errors="replace",
            )
            stack.enter_context(child)
            stack.enter_context(ended_with_all_below(child))
            children.append(child)
        lines = lines_of(children)
        if console is None:
            for line in lines:
                if line.startswith(BEGINS):
                    print(line.rstrip().rstrip(":"), flush=True)
        else:
            with Live(Board(folder), console=console, refresh_per_second=REFRESH_PER_S):
                for line in lines:
                    if line.strip() and not line.startswith((BEGINS, *CHATTER)):
                        console.print(Text(line.rstrip()), soft_wrap=True)
        return max(abs(child.wait()) for child in children)


def lines_of(children: Sequence[subprocess.Popen[str]]) -> Iterator[str]:
    """What they print, line by line as it comes, until all have ended."""
    lines: SimpleQueue[str | None] = SimpleQueue()

    def read(child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    for child in children:
        threading.Thread(target=read, args=(child,), daemon=True).start()
    for _ in children:
        yield from iter(lines.get, None)


def side_by_side(params: Params, profile: Profile, stages: Collection[str]) -> list[list[str]]:
    """The changed tasks' stages, in order: run at once where models are served on this machine, as
    a stage that waits for a few last answers leaves its servers idle. An endpoint's limits are for
    one stage at a time.
    """
    if not profile.hosted:
        return []
    chains = [[run.name for run in runs_of(params, task)] for task in params.tasks]
    changed = [chain for chain in chains if not set(chain).isdisjoint(stages)]
    return changed if len(changed) > 1 else []


def changed_stages() -> dict[str, Any]:
    """The stages that `dvc repro` would run for sure (what follows them may run too) -> why.
    Raises SettingsError that names a section which the profile has to have, and EndpointError when
    DVC can't say.
    """
    require_sections(load_params().profile)
    forget_dead_holders()
    return dict(json.loads(dvc("status", "--json") or "{}"))


@contextmanager
def prefect_server(state: Path = STATE, services: bool = False) -> Iterator[str]:
    """A Prefect server; yields its API URL. Without one, each stage would start its own (about 6 s
    each). `services` are the scheduler and the like, which stages don't need. Raises EndpointError
    when it doesn't start.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "prefect", "server", "start", "--no-ui"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += [] if services else ["--no-services"]
    env = os.environ | {"PREFECT_HOME": str((state / "prefect").resolve())}
    # Under a guard, as model servers are: it ends with this process, however that ends, and an
    # interrupt reaches its users first.
    server = start(command, state / "prefect.log", env)
    url = f"http://127.0.0.1:{port}/api"
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        while not _answers(f"{url}/health"):
            if time.monotonic() > deadline or server.poll() is not None:
                raise EndpointError(f"the Prefect server did not start; see {state}/prefect.log")
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


def require_gpus(name: str, profile: Profile, tasks: Sequence[str]) -> None:
    """Print what doctor says of a profile for GPUs, with the plan of its servers and what a run
    takes. Raises EndpointError where something is missing that a run does not fetch.
    """
    if profile.engine.device != "gpu":
        return
    from ttsgraph.runtime.doctor import examine, in_lines
    from ttsgraph.stages.estimate import estimate_all

    findings = examine(profile)
    for line in in_lines(findings, *estimate_all(dict.fromkeys(tasks, profile))):
        print(line)
    subjects = [one.subject for one in findings if not one.ok]
    missing = [subject for subject in subjects if not subject.startswith(FETCHED)]
    if missing:
        raise EndpointError(
            f"profile {name}: expected all that doctor asks for, found {len(missing)} missing"
            f" ({', '.join(missing[:4])}{', ...' if len(missing) > 4 else ''}); nothing was"
            " started or fetched"
        )


def choose(name: str, path: Path = Path("params.yaml")) -> None:
    """Make this the profile of params.yaml, and leave the rest of the file as it is."""
    text = path.read_text(encoding="utf-8")
    write_text(path, re.sub(r"(?m)^profile:.*$", f"profile: {name}", text))


@stopped_by_signals()
def repro(profile: str = "", only_ask: bool = False, folder: Path = Path()) -> None:
    """Rebuild what changed, under this profile if one is named. With `only_ask`, say whether that
    can be done here. `folder` is this one, as a reader would name it. Ends with exit code 2 when a
    stage failed or something given can't be used. Raises EndpointError where there is no dvc.
    """
    params = load_params()
    name = profile or params.profile
    loaded = load_profile(name)
    if only_ask:
        if loaded.engine.device == "gpu" and (name != params.profile or changed_stages()):
            require_gpus(name, loaded, params.tasks)
        return
    if name != params.profile:
        choose(name)
        params = load_params()
    for task in params.tasks:
        if loaded.task(task).lengths.given is not None:  # else what a call costs is measured first
            loaded.budget_on(task).require_feasible()
    if find_spec("dvc") is None:
        raise EndpointError("expected the package dvc, found none; `make setup` installs it")
    stages = changed_stages()
    if not stages:
        print("Data and pipelines are up to date.")
        tell(params.profile, folder=folder)
        return
    require_gpus(name, loaded, params.tasks)
    # Only now, as they take longer to import than it takes to see that there is nothing to do.
    from ttsgraph.searching.methods import searcher_class
    from ttsgraph.serving.running import servers_on_demand
    from ttsgraph_flows.verify import recall

    for method in params.methods:
        searcher_class(method)
    recall(params, loaded)
    with ExitStack() as stack:
        # The commands of dvc.yaml are run by this Python, whatever the PATH has.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        env = os.environ | {"PATH": path}
        if "PREFECT_API_URL" not in env:
            env["PREFECT_API_URL"] = stack.enter_context(prefect_server())
        stack.enter_context(servers_on_demand(loaded))
        command = [*DVC, "--wait-for-lock", "repro"]
        console = Console(stderr=True, highlight=False) if wants_display() else None
        chains = side_by_side(params, loaded, stages)
        tasks = [[*command, "--single-item", *chain] for chain in chains]
        status = run_dvc(tasks, env, STATE / "board", console) if tasks else 0
        if status == 0:
            status = run_dvc([command], env, STATE / "board", console)
    if status != 0:
        kept = "what was computed is kept, `make repro` goes on from there"
        say(f"error: a stage failed, see above; {kept}")
        sys.exit(EXIT_INPUT)
    tell(params.profile, folder=folder)


if __name__ == "__main__":
    command(repro, profile={"default": ""}, only_ask={"action": "store_true"})
