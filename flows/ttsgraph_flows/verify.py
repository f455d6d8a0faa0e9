"""Verification and registration with recorded calls, without calling any model.

`make verify` rebuilds everything from recorded calls (recorded.py) and compares it with dvc.lock;
`ttsgraph register` brings results from elsewhere into this folder's MLflow. Verification runs in a
temporary copy, so nothing here changes.
"""

import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path

import yaml

from ttsgraph.base.ending import EXIT_INPUT, EXIT_UNVERIFIED, say
from ttsgraph.base.errors import InputError, RunStopped
from ttsgraph.base.files import md5
from ttsgraph.base.parsing import parse
from ttsgraph.models import recording
from ttsgraph.settings.profile import Params, load_params, load_profile
from ttsgraph_flows import compare_records
from ttsgraph_flows.compare_records import Verification, by_content
from ttsgraph_flows.dvc_stages import Lock, flow_of, read_lock, runs_of
from ttsgraph_flows.dvc_store import Store
from ttsgraph_flows.ending import PROFILE, TASKS, command
from ttsgraph_flows.project_copy import copy_into
from ttsgraph_flows.recorded import (
    PUBLISHED,
    chosen_params,
    published_copy,
    recorded_calls,
    remember,
    replay_in,
)

NO_CALLS = "its recorded calls aren't here; run `dvc pull` if a remote has them"
OTHER_CODE = (
    "; this code makes calls that weren't recorded: check out the commit that recorded the calls,"
    " or record again with `make repro` and `make publish`"
)

LOCK = "lock.yaml"
"""Name of the lock file next to the published calls of a profile that isn't in dvc.lock. It has the
profile's tasks, methods and seed, and the hashes of its results.
"""

PYTHON = ".".join(platform.python_version_tuple()[:2])
"""Version of this Python, which affects the grading of programs."""


def verify(profile: str | None = None, tasks: Sequence[str] = ()) -> dict[str, Verification]:
    """Rebuild tasks (by default all in params.yaml) and compare them with dvc.lock, or with the
    lock of a published profile.

    Return the result for each task, and for the report if all tasks are included. Raises InputError
    if there are no hashes to compare with.
    """
    params = chosen_params(profile)
    lock_file = Path("dvc.lock")
    own = PUBLISHED / params.profile / LOCK
    if own.exists():
        lock_file = own
        published = yaml.safe_load(own.read_text(encoding="utf-8"))
        params = parse(Params, params.model_dump() | published["params"], str(own))
        if (python := published["python"]) != PYTHON:
            say(f"{own}: made with Python {python}; Python {PYTHON} may grade programs differently")
    lock = read_lock(lock_file)
    if not lock:
        raise InputError(f"expected recorded hashes in {lock_file}, found none; run `make repro`")
    known = {task: recorded_calls(params, task, lock) for task in tasks or params.tasks}
    available = [calls for calls in known.values() if calls is not None]
    shipped = any(calls.published for calls in available)
    found: dict[str, Verification] = {}

    def see(name: str, verification: Verification) -> None:
        found[name] = verification
        say(f"{name}: {verification}")

    with tempfile.TemporaryDirectory(prefix="ttsgraph-verify-") as name:
        folder = Path(name).resolve()
        if available:
            copy_into(folder, params)
            replay_in(folder, params.profile, available)
        for task, calls in known.items():
            if calls is None:
                see(task, Verification(unverified=NO_CALLS))
            else:
                see(task, _rebuilt(folder, params, lock, calls.published, task))
        if set(known) >= set(params.tasks):
            if exit_code(found):
                see("report", Verification(unverified="it needs all tasks to be verified"))
            else:
                see("report", _rebuilt(folder, params, lock, shipped))
    return found


def exit_code(found: Mapping[str, Verification]) -> int:
    """Return the exit code of a verification: EXIT_INPUT if something differs, else EXIT_UNVERIFIED
    if something could not be verified, else 0.
    """
    if any(each.wrong for each in found.values()):
        return EXIT_INPUT
    return EXIT_UNVERIFIED if any(each.unverified for each in found.values()) else 0


def _rebuilt(folder: Path, params: Params, lock: Lock, published: bool, *task: str) -> Verification:
    """Rebuild a task's stages, or else the stages that cover all tasks, in `folder` in order, up
    to the first stage that fails, and compare their results with the recorded ones.

    If the calls were `published`, the published results must match the lock too.
    """
    found = Verification()
    store = Store()
    for run in runs_of(params, *task, of_all=not task):
        try:
            with chdir(folder):
                run.run()
        except recording.NotRecorded as error:
            found.unverified = f"{run.name} can't be rebuilt: {error}{OTHER_CODE}"
            break
        except (InputError, RunStopped) as error:
            found.wrong.append(f"{run.name} can't be rebuilt: {error}")
            break
        wanted = run.locked(lock)
        if not wanted:
            found.wrong.append(f"{run.name}: expected recorded results, found none")
        for path, digest in wanted.items():
            copy = published_copy(PUBLISHED / params.profile, path)
            kept = copy.read_bytes() if by_content(path) and copy.is_file() else None
            if kept is not None and md5(kept) != digest:
                kept = None
                if published:
                    again = "run `make publish` to write it again"
                    found.wrong.append(f"{copy} differs from the recorded file; {again}")
            if kept is None and compare_records.md5_of(folder / path) != digest:
                kept = store.find(path, digest).content
            found.see(run.name, compare_records.compared(path, folder / path, digest, kept))
    return found


def register(tasks: Sequence[str] = ()) -> list[str]:
    """Make the champions of tasks (by default all in params.yaml) usable here if they came from
    elsewhere (`dvc pull`, or a moved folder); return a line for each task.

    MLflow stores absolute paths, so searches and tests are repeated from the recorded calls, which
    gives the same files. Raises InputError if a task has no recorded calls.
    """
    from ttsgraph_flows.registry import Registry
    from ttsgraph_flows.tracking import require_own_database

    params = load_params()
    profile = load_profile(params.profile)
    require_own_database(params.tracking_uri)
    registry = Registry(params.tracking_uri)
    lines = []
    for task in tasks or params.tasks:
        try:
            registry.deployed(registry.find(task))
        except InputError:  # no champion, or an unreadable one
            recorded = recorded_calls(params, task, read_lock())
            if recorded is None:
                raise InputError(
                    f"{task}: expected its recorded calls; run `dvc pull` or `make repro`"
                ) from None
            remember(profile, recorded.calls)
            for method in params.methods:
                flow_of("search")(task, method)
                flow_of("evaluate")(task, method)
        champion = registry.champion(task)
        lines.append(f"{champion.label if champion else 'no version'} is the champion of {task}")
    return lines


def verify_tasks(profile: str | None, task: Sequence[str]) -> None:
    """Rebuild tasks from recorded calls, without any model, and compare them with the records.
    Exits with 2 if something differs, otherwise with 6 if something could not be verified, for
    instance because a task's calls aren't here.
    """
    sys.exit(exit_code(verify(profile, task)))


if __name__ == "__main__":
    command(verify_tasks, profile=PROFILE, task=TASKS)
