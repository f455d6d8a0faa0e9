"""What `make verify` runs: everything rebuilt from recorded calls, without any model, and compared
with dvc.lock.

It is done in a temporary copy, so nothing here is touched. Calls are those of dvc.lock, where they
were pulled or made here; else those that are published with the repository (`make publish`).
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from ttsgraph.base.ending import EXIT_INPUT, say
from ttsgraph.base.errors import InputError, RunStopped
from ttsgraph.base.files import md5, write_text
from ttsgraph.base.parsing import parse
from ttsgraph.base.state import STATE
from ttsgraph.base.wording import counted
from ttsgraph.models.recording import (
    ENGINE,
    REPLAY,
    Calls,
    read_calls,
    read_engine,
    write_calls,
)
from ttsgraph.runtime.clients import serving_facts
from ttsgraph.serving.servers import SERVE_PYTHON
from ttsgraph.settings.profile import Params, load_params, load_profile
from ttsgraph.stages.plan import STAGE, STAGES, StagePlan
from ttsgraph_flows.dvc_store import Store
from ttsgraph_flows.ending import PROFILE, command

PUBLISHED = Path("published")
"""Calls that are shipped with the repository: published/<profile>/<task>.parquet."""

LOCK = "lock.yaml"
"""Beside published calls of a profile that dvc.lock doesn't have: its tasks, methods and seed, and
the hashes of its results.
"""

MADE_HERE = (
    "data",
    "results",
    "reports",
    "research",
    "identity",
    "calls",
    "mlruns",
    "mlflow.db",
    "params.yaml",
    "site",
)
Lock = Mapping[str, Any]

PYTHON = ".".join(platform.python_version_tuple()[:2])
"""Which programs are judged by."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A task's calls, and whether they were published, or else made or pulled here."""

    calls: Calls
    published: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of a task's stages: files that are those of dvc.lock, and in words what is not."""

    same: int
    wrong: tuple[str, ...] = ()


def verify(
    profile: str | None = None, tasks: Sequence[str] = (), lock_file: Path = Path("dvc.lock")
) -> dict[str, Comparison]:
    """Rebuild tasks (all of params.yaml, as far as their calls are there) and compare with
    dvc.lock; of a profile that was published with a lock of its own, what that has.

    Returns what came of each task, and of the report where all tasks could be rebuilt. Raises
    InputError when there is nothing to verify.
    """
    params = load_params()
    if profile is not None:
        params = params.model_copy(update={"profile": profile})
    own = PUBLISHED / params.profile / LOCK
    if own.exists():
        lock_file = own
        published = yaml.safe_load(own.read_text(encoding="utf-8"))
        params = parse(Params, params.model_dump() | published["params"], str(own))
        if published["python"] != PYTHON:
            say(
                f"{own}: made with Python {published['python']}; Python {PYTHON} may judge programs"
                " of models otherwise"
            )
    lock = read_lock(lock_file)
    if not lock:
        raise InputError(
            f"expected {lock_file}, which says what to compare with, found none; `make repro`"
            " makes it"
        )
    known: dict[str, Recorded] = {}
    for task in tasks or params.tasks:
        calls = recorded_calls(params, task, lock)
        if calls is None:
            say(
                f"{task}: no recorded calls, so it is not verified; `dvc pull` gets them where a"
                " remote has them"
            )
        else:
            known[task] = calls
    if not known:
        raise InputError("expected recorded calls of at least one task, found none")
    with tempfile.TemporaryDirectory(prefix="ttsgraph-verify-") as name:
        folder = Path(name).resolve()
        copy_into(folder, params)
        replay_in(folder, params.profile, list(known.values()))
        with chdir(folder):
            return _rebuilt(params, list(known), lock)


def read_lock(path: Path = Path("dvc.lock")) -> Lock:
    """What DVC recorded of each stage; nothing where there is no such file."""
    if not path.exists():
        return {}
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")).get("stages", {}))


def locked_files() -> dict[str, str]:
    """Path -> MD5 of the files that stages wrote, in dvc.lock."""
    outs = (entry.get("outs", ()) for entry in read_lock().values())
    return {item["path"]: item["md5"] for item in chain.from_iterable(outs)}


def recorded_calls(params: Params, task: str, lock: Lock) -> Recorded | None:
    """A task's calls: those of dvc.lock if all can be had, else the published ones; None where
    there are neither.
    """
    locked = _locked_calls(params, task, lock)
    if locked is not None:
        return Recorded(locked, published=False)
    published = published_calls(params.profile, task)
    return None if published is None else Recorded(published, published=True)


def replay_in(folder: Path, profile: str, recorded: Sequence[Recorded]) -> None:
    """Have recorded calls answer in a project's folder, and let it know the engine that made them:
    the one published with them, else the one here. Raises EndpointError where neither is there.
    """
    calls = {key: call for found in recorded for key, call in found.calls.items()}
    write_calls(calls, folder / STATE / REPLAY)
    engine = {}
    if any(found.published for found in recorded):
        engine = read_engine(PUBLISHED / profile / ENGINE)
    write_text(folder / STATE / ENGINE, json.dumps(engine or serving_facts(load_profile(profile))))


def _locked_calls(params: Params, task: str, lock: Lock) -> Calls | None:
    """A task's calls as dvc.lock has them; None if some can't be had."""
    store = Store()
    found = {}
    for plan in STAGES:
        for path in (path for path in plan.writes if path.startswith("calls/")):
            for method in params.methods if "method" in plan.per else (None,):
                where = path.format(profile=params.profile, task=task, method=method)
                kept = store.find(where, _locked(lock, plan, task, method).get(where, ""))
                if kept.content is None:
                    return None
                found.update(read_calls(io.BytesIO(kept.content)))
    return found


def publish(task: str, profile: str | None = None) -> Path:
    """Write a task's calls, as dvc.lock has them, to be shipped with the repository. Raises
    InputError when they can't be had.
    """
    params = load_params()
    params = params.model_copy(update={"profile": profile or params.profile})
    path = PUBLISHED / params.profile / f"{task}.parquet"
    calls = _locked_calls(params, task, read_lock())
    if calls is None:
        raise InputError(
            f"expected the calls of {task} that dvc.lock has, in calls/ or in DVC's cache, found"
            " none; `make repro` first"
        )
    write_published(calls, path, serving_facts(load_profile(params.profile)))
    return path


def write_published(calls: Calls, path: Path, engine: Mapping[str, str]) -> None:
    """Write calls to be shipped, the engine that made them next to them, and their digest."""
    write_calls(calls, path)
    write_text(path.with_name(ENGINE), json.dumps(engine, indent=1) + "\n")
    write_text(digest_of(path), f"{md5(path)}  {path.name}\n")
    say(f"{path}: {counted(len(calls), 'call')}, {path.stat().st_size / 1e6:.2f} MB")


def published_calls(profile: str, task: str) -> Calls | None:
    """A task's published calls; None where there are none, or others than were written down."""
    path = PUBLISHED / profile / f"{task}.parquet"
    digest = digest_of(path)
    if not path.exists():
        return None
    if digest.exists() and digest.read_text(encoding="utf-8").split()[:1] != [md5(path)]:
        say(f"{path}: expected the file of {digest.name}, found another; it is left out")
        return None
    return read_calls(path)


def digest_of(path: Path) -> Path:
    """The file that says what was published, as `md5sum -c` reads it."""
    return path.with_name(f"{path.name}.md5")


def copy_into(folder: Path, params: Params) -> None:
    """What stages read, with an MLflow of its own; large things as links."""
    for path in Path().iterdir():
        if path.name.startswith((".", "mlflow.db")) or path.name in MADE_HERE:
            continue
        if path.name in ("inputs", "profiles"):
            shutil.copytree(path, folder / path.name)
        else:
            (folder / path.name).symlink_to(path.resolve())
    own = params.model_copy(update={"tracking_uri": f"sqlite:///{folder}/mlflow.db"})
    (folder / "params.yaml").write_text(
        yaml.safe_dump(own.model_dump(mode="json")), encoding="utf-8"
    )
    load_profile(params.profile)


def run_stages(folder: Path, params: Params, state: Path | None = STATE) -> None:
    """Run all stages of the tasks of `params` in a folder of their own, on this project's models
    and the calls kept in `state`, or on what was put there to be replayed. Raises what stages
    raise.
    """
    if state is not None:
        (folder / STATE).symlink_to(state.resolve())
        serving = Path(SERVE_PYTHON).parents[1]
        (folder / serving).symlink_to(serving.resolve())
    from ttsgraph_flows.identity import identity

    with chdir(folder):
        identity()
        for task in params.tasks:
            for _, _, run in runs_of(params, task):
                run()


def _rebuilt(params: Params, tasks: Sequence[str], lock: Lock) -> dict[str, Comparison]:
    from ttsgraph_flows.identity import identity

    identity()
    found = {}
    for task in tasks:
        found[task] = _task(params, task, lock)
        say(f"{task}: {_told(found[task])}")
    if set(tasks) == set(params.tasks) and not any(verdict.wrong for verdict in found.values()):
        found["report"] = _compared(lock, STAGE["report"], None, None, flow_of("report"))
        say(f"report: {_told(found['report'])}")
    return found


def _task(params: Params, task: str, lock: Lock) -> Comparison:
    """A task's stages in order, up to the first that can't be rebuilt."""
    same = 0
    wrong: list[str] = []
    for plan, method, run in runs_of(params, task):
        verdict = _compared(lock, plan, task, method, run)
        same += verdict.same
        wrong += verdict.wrong
        if any("can't be rebuilt" in line for line in verdict.wrong):
            break
    return Comparison(same, tuple(wrong))


def _compared(
    lock: Lock, plan: StagePlan, task: str | None, method: str | None, run: Callable[[], Any]
) -> Comparison:
    """Run a stage, and compare what it wrote, and what says which settings and code it has, with
    dvc.lock.
    """
    name = _name(plan, task, method)
    try:
        run()
    except (InputError, RunStopped) as error:
        return Comparison(0, (f"{name} can't be rebuilt: {error}",))
    wanted = _locked(lock, plan, task, method)
    if not wanted:
        return Comparison(0, (f"{name}: dvc.lock does not have it",))
    found = {path: _md5(Path(path)) for path in wanted}
    wrong = tuple(
        f"{name}: {path} is {found[path]}, in dvc.lock it is {md5}"
        for path, md5 in wanted.items()
        if found[path] != md5
    )
    return Comparison(len(wanted) - len(wrong), wrong)


def lock_entries(params: Params) -> dict[str, Any]:
    """The hashes of what the stages wrote in this folder, as dvc.lock has them; what they depend on
    is left out, so that other code which makes the same files agrees.
    """
    found = {}
    for plan in STAGES:
        for task in params.tasks if "task" in plan.per else (None,):
            for method in params.methods if "method" in plan.per else (None,):
                paths = plan.outputs(profile=params.profile, task=task, method=method)
                outs = [{"path": path, "md5": _md5(Path(path))} for path in sorted(paths)]
                found[_name(plan, task, method)] = {"outs": outs}
    return found


def _locked(lock: Lock, plan: StagePlan, task: str | None, method: str | None) -> dict[str, str]:
    """Path -> MD5 of what a stage wrote, and of its identity, in dvc.lock."""
    entry = lock.get(_name(plan, task, method), {})
    identities = [dep for dep in entry.get("deps", []) if dep["path"].startswith("identity/")]
    return {item["path"]: item["md5"] for item in [*identities, *entry.get("outs", [])]}


def _name(plan: StagePlan, task: str | None, method: str | None) -> str:
    return "@".join(filter(None, [plan.name, "-".join(filter(None, [task, method]))]))


def runs_of(params: Params, task: str) -> Iterator[tuple[StagePlan, str | None, Callable[[], Any]]]:
    """A task's stages in order, once for each method where it matters: plan, method and work."""
    for plan in STAGES:
        if "task" not in plan.per:
            continue
        for method in params.methods if "method" in plan.per else (None,):
            arguments = (task,) if method is None else (task, method)
            yield plan, method, partial(flow_of(plan.name), *arguments)


def flow_of(stage: str) -> Callable[..., Any]:
    """A stage's work, without Prefect around it."""
    from prefect import Flow

    members = vars(import_module(STAGE[stage].module)).values()
    return next(each.fn for each in members if isinstance(each, Flow) and each.name == stage)


def _md5(path: Path) -> str:
    """The hash by which DVC knows a file or a folder; nothing where there is none."""
    if path.is_file():
        return md5(path)
    if not path.is_dir():
        return "missing"
    files = sorted(_files(path))
    listed = [{"md5": _md5(path / relative), "relpath": relative} for relative in files]
    return (
        hashlib.md5(json.dumps(listed, sort_keys=True).encode(), usedforsecurity=False).hexdigest()
        + ".dir"
    )


def _files(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _told(verdict: Comparison) -> str:
    shown = f"{counted(verdict.same, 'file')} as in dvc.lock"
    return "; ".join([shown, *verdict.wrong])


def verify_or_publish(profile: str | None, task: Sequence[str], publishing: bool) -> None:
    """Rebuild tasks from recorded calls, without any model, and compare with dvc.lock."""
    if publishing:
        for each in task or load_params().tasks:
            publish(each, profile)
    elif any(verdict.wrong for verdict in verify(profile, task).values()):
        sys.exit(EXIT_INPUT)


if __name__ == "__main__":
    command(
        verify_or_publish,
        profile=PROFILE,
        task={
            "nargs": "*",
            "default": [],
            "help": "tasks of the profile (default: those of params.yaml)",
        },
        publish={
            "action": "store_true",
            "dest": "publishing",
            "help": "write the tasks' calls, to be shipped with the repository, instead",
        },
    )
