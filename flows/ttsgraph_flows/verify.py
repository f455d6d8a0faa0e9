"""Verification, publication and registration with recorded calls, without calling any model.

`make verify` rebuilds everything from recorded calls and compares it with dvc.lock, `make publish`
adds the calls to the repository, and `ttsgraph register` brings results from elsewhere into this
folder's MLflow. The recorded calls are those in dvc.lock, if they were pulled or made here,
otherwise those published with the repository. Verification runs in a temporary copy, so nothing
here changes.
"""

import io
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import chdir, closing
from pathlib import Path
from typing import NamedTuple

import yaml

from ttsgraph.base.ending import EXIT_INPUT, EXIT_UNVERIFIED, say
from ttsgraph.base.errors import InputError, PromptRefused, RunStopped
from ttsgraph.base.files import md5, write_text
from ttsgraph.base.parsing import parse
from ttsgraph.base.state import STATE
from ttsgraph.base.wording import counted
from ttsgraph.models import recording
from ttsgraph.models.cache import stored
from ttsgraph.models.client import Completion
from ttsgraph.runtime.clients import open_cache, serving_facts
from ttsgraph.settings.profile import Params, Profile, load_params, load_profile
from ttsgraph_flows import compare_records
from ttsgraph_flows.compare_records import Verification, by_content, published_copy
from ttsgraph_flows.dvc_stages import Lock, StageRun, flow_of, read_lock, runs_of
from ttsgraph_flows.dvc_store import Store
from ttsgraph_flows.ending import PROFILE, command
from ttsgraph_flows.project_copy import copy_into

PUBLISHED = Path("published")
"""Folder of files published with the repository: calls in published/<profile>/<task>.parquet, and
results (except pages, pictures and questions) in published/<profile>/<task>/.
"""

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


class RecordedCalls(NamedTuple):
    """A task's calls, and whether they were published with the repository, rather than made or
    pulled here.
    """

    calls: recording.Calls
    published: bool


def verify(profile: str | None = None, tasks: Sequence[str] = ()) -> dict[str, Verification]:
    """Rebuild tasks (by default all in params.yaml) and compare them with dvc.lock, or with the
    lock of a published profile.

    Return the result for each task, and for the report if all tasks are included. Raises InputError
    if there are no hashes to compare with.
    """
    params = load_params(profile=profile)
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
    with tempfile.TemporaryDirectory(prefix="ttsgraph-verify-") as name:
        folder = Path(name).resolve()
        if available:
            copy_into(folder, params)
            replay_in(folder, params.profile, available)
        for task, calls in known.items():
            again = calls and _rebuilt(folder, params, lock, calls.published, task)
            found[task] = again or Verification(unverified=NO_CALLS)
            say(f"{task}: {found[task]}")
        if set(known) >= set(params.tasks):
            again = None if exit_code(found) else _rebuilt(folder, params, lock, shipped)
            found["report"] = again or Verification(unverified="it needs all tasks to be verified")
            say(f"report: {found['report']}")
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
                    found.wrong.append(f"{copy} differs from the recorded file; run `make publish`")
            if kept is None and compare_records.md5_of(folder / path) != digest:
                kept = store.find(path, digest).content
            found.see(run.name, compare_records.compared(path, folder / path, digest, kept))
    return found


def recorded_calls(params: Params, task: str, lock: Lock) -> RecordedCalls | None:
    """Return a task's recorded calls: those in dvc.lock if all of them are available, else the
    published ones, or None if there are none.
    """
    contents = _contents(runs_of(params, task), lock, lambda path: path.startswith("calls/"))
    if None in contents.values():
        path = calls_file(params.profile, task)
        return RecordedCalls(recording.read_calls(path), published=True) if path.exists() else None
    found: dict[str, recording.Call] = {}
    for content in filter(None, contents.values()):
        found |= recording.read_calls(io.BytesIO(content))
    return RecordedCalls(found, published=False)


def calls_file(profile: str, task: str) -> Path:
    """Return the path of a task's published calls."""
    return PUBLISHED / profile / f"{task}.parquet"


def _contents(
    runs: Iterable[StageRun], lock: Lock, wanted: Callable[[str], bool]
) -> dict[str, bytes | None]:
    """Return path -> recorded content of these stages' outputs, as far as they are `wanted`; None
    for content that is unavailable or not recorded.
    """
    store = Store()
    return {
        path: store.find(path, run.locked(lock).get(path, "")).content
        for run in runs
        for path in run.outputs
        if wanted(path)
    }


def replay_in(folder: Path, profile: str, recorded: Sequence[RecordedCalls]) -> None:
    """Prepare recorded calls for replay in `folder`, a copy of the project, together with the facts
    about the engine that made them.

    Published calls use the published facts, if there are any; all other calls use the local
    engine's facts. Raises EndpointError if there are no facts.
    """
    calls = {key: call for found in recorded for key, call in found.calls.items()}
    recording.write_calls(calls, folder / STATE / recording.REPLAY)
    published = any(found.published for found in recorded)
    facts = published and recording.read_engine(PUBLISHED / profile / recording.ENGINE)
    facts = facts or serving_facts(load_profile(profile))
    write_text(folder / STATE / recording.ENGINE, json.dumps(facts))


def publish(task: str, profile: str | None = None) -> Path:
    """Write a task's calls and results, and the report's results, for publication. Raises
    InputError if some of them are unavailable.
    """
    params = load_params(profile=profile)
    path = calls_file(params.profile, task)
    lock = read_lock()
    recorded = recorded_calls(params, task, lock)
    ran = (run for run in runs_of(params, task, of_all=True) if run.locked(lock))
    contents = _contents(ran, lock, by_content)
    results = {output: content for output, content in contents.items() if content is not None}
    if recorded is None or recorded.published or len(results) < len(contents):
        missing = sorted(contents.keys() - results.keys()) or ["calls"]
        raise InputError(
            f"expected the calls and results of {task} that dvc.lock lists, here or in DVC's cache,"
            f" but some are missing: {', '.join(missing)}; run `make repro` first"
        )
    write_published(recorded.calls, path, serving_facts(load_profile(params.profile)))
    compare_records.publish_results(results, path.parent)
    return path


def write_published(calls: recording.Calls, path: Path, engine: Mapping[str, str]) -> None:
    """Write calls for publication, and next to their file two more files: the facts about the
    engine, and the digest of the calls file.
    """
    recording.write_calls(calls, path)
    write_text(path.with_name(recording.ENGINE), json.dumps(engine, indent=1) + "\n")
    write_text(digest_of(path), f"{md5(path)}  {path.name}\n")
    say(f"{path}: {counted(len(calls), 'call')}, {path.stat().st_size / 1e6:.2f} MB")


def digest_of(path: Path) -> Path:
    """Return the path of the file that has a published file's digest, for `md5sum -c`."""
    return path.with_name(f"{path.name}.md5")


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


def remember(profile: Profile, calls: recording.Calls) -> None:
    """Put answers into the call cache; do nothing for a simulated pool, which needs no cache."""
    if profile.engine.kind == "simulated":
        return
    with closing(open_cache()) as cache:
        for key, call in calls.items():
            if isinstance(call.outcome, Completion | PromptRefused):
                cache.put(key, stored(call.outcome), call.model)


def recall(params: Params, profile: Profile) -> None:
    """Put pulled calls into the call cache so that they are not made again; do nothing if a cache
    already exists. A file that differs from dvc.lock is skipped with a message.
    """
    if (STATE / "calls").exists():
        return
    outs = (out for entry in read_lock().values() for out in entry.get("outs", ()))
    locked = {out["path"]: out["md5"] for out in outs}
    for path in sorted(Path("calls", params.profile).rglob("*.parquet")):
        if locked.get(str(path)) in (None, md5(path)):
            remember(profile, recording.read_calls(path))
        else:
            say(f"{path}: expected the file listed in dvc.lock, found a different one; ignoring it")


def verify_or_publish(profile: str | None, task: Sequence[str], publishing: bool) -> None:
    """Rebuild tasks from recorded calls, without any model, and compare them with the records.
    Exits with 2 if something differs, otherwise with 6 if something could not be verified, for
    instance because a task's calls aren't here.
    """
    if publishing:
        for each in task or load_params().tasks:
            publish(each, profile)
    else:
        sys.exit(exit_code(verify(profile, task)))


if __name__ == "__main__":
    TASKS = "tasks of the profile (default: those in params.yaml)"
    CALLS = "write the tasks' calls and results for publication, instead of verifying them"
    command(
        verify_or_publish,
        profile=PROFILE,
        task={"nargs": "*", "default": [], "help": TASKS},
        publish={"action": "store_true", "dest": "publishing", "help": CALLS},
    )
