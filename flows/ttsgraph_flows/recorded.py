"""Recorded calls of a task: those in dvc.lock, if they were pulled or made here, otherwise those
published with the repository. They are replayed, published, or put into the call cache.
"""

import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ttsgraph.base.ending import say
from ttsgraph.base.errors import InputError, PromptRefused
from ttsgraph.base.files import md5, write_text
from ttsgraph.base.state import STATE
from ttsgraph.base.wording import counted
from ttsgraph.models import recording
from ttsgraph.models.cache import stored
from ttsgraph.models.client import Completion
from ttsgraph.models.recording import Call, Calls, read_calls, write_calls
from ttsgraph.runtime.clients import open_cache, serving_facts
from ttsgraph.settings.profile import Params, Profile, load_params, load_profile
from ttsgraph_flows.compare_records import by_content
from ttsgraph_flows.dvc_stages import Lock, StageRun, read_lock, runs_of
from ttsgraph_flows.dvc_store import Store
from ttsgraph_flows.ending import PROFILE, TASKS, command

PUBLISHED = Path("published")
"""Folder of files published with the repository: calls in published/<profile>/<task>.parquet, and
results (except pages, pictures and questions) in published/<profile>/<task>/.
"""


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """A task's calls, and whether they were published with the repository, rather than made or
    pulled here.
    """

    calls: Calls
    published: bool


def chosen_params(profile: str | None) -> Params:
    """Return params.yaml, with this profile if one is named."""
    params = load_params()
    return params.model_copy(update={"profile": profile or params.profile})


def recorded_calls(params: Params, task: str, lock: Lock) -> RecordedCalls | None:
    """Return a task's recorded calls: those in dvc.lock if all of them are available, else the
    published ones, or None if there are none.
    """
    contents = _contents(runs_of(params, task), lock, lambda path: path.startswith("calls/"))
    if None in contents.values():
        path = calls_file(params.profile, task)
        return RecordedCalls(read_calls(path), published=True) if path.exists() else None
    found: dict[str, Call] = {}
    for content in filter(None, contents.values()):
        found |= read_calls(io.BytesIO(content))
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
    write_calls(calls, folder / STATE / recording.REPLAY)
    facts = {}
    if any(found.published for found in recorded):
        facts = recording.read_engine(PUBLISHED / profile / recording.ENGINE)
    facts = facts or serving_facts(load_profile(profile))
    write_text(folder / STATE / recording.ENGINE, json.dumps(facts))


def publish(task: str, profile: str | None = None) -> Path:
    """Write a task's calls and results, and the report's results, for publication. Raises
    InputError if some of them are unavailable.
    """
    params = chosen_params(profile)
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
    publish_results(results, path.parent)
    return path


def published_copy(folder: Path, path: str) -> Path:
    """Return the path of a published result. The results of a task are in a subfolder named after
    the task, the results of a report in the profile's folder itself.
    """
    return folder.joinpath(*Path(path).parts[2:])


def publish_results(results: Mapping[str, bytes], folder: Path) -> None:
    """Write results (path -> content) for publication, replacing earlier results of their tasks."""
    for task in {Path(path).parts[2] for path in results if path.startswith("results/")}:
        shutil.rmtree(folder / task, ignore_errors=True)
    for path, content in results.items():
        copy = published_copy(folder, path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
    size = sum(map(len, results.values())) / 1e6
    say(f"{folder}: {counted(len(results), 'result file')}, {size:.2f} MB")


def write_published(calls: Calls, path: Path, engine: Mapping[str, str]) -> None:
    """Write calls for publication, and next to their file two more files: the facts about the
    engine, and the digest of the calls file.
    """
    write_calls(calls, path)
    write_text(path.with_name(recording.ENGINE), json.dumps(engine, indent=1) + "\n")
    write_text(digest_of(path), f"{md5(path)}  {path.name}\n")
    say(f"{path}: {counted(len(calls), 'call')}, {path.stat().st_size / 1e6:.2f} MB")


def digest_of(path: Path) -> Path:
    """Return the path of the file that has a published file's digest, for `md5sum -c`."""
    return path.with_name(f"{path.name}.md5")


def remember(profile: Profile, calls: Calls) -> None:
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
            remember(profile, read_calls(path))
        else:
            say(f"{path}: expected the file listed in dvc.lock, found a different one; ignoring it")


def publish_tasks(profile: str | None, task: Sequence[str]) -> None:
    """Write tasks' calls and results for publication."""
    for each in task or load_params().tasks:
        publish(each, profile)


if __name__ == "__main__":
    command(publish_tasks, profile=PROFILE, task=TASKS)
