"""What it costs to record a candidate in MLflow: on the search's own path, and in all."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from lab.benchmarks.measured import Ratio
from ttsgraph.evaluation.archive import Record, record_of
from ttsgraph.evaluation.environment import Feedback, QuestionResult
from ttsgraph.graphs.topologies import parallel
from ttsgraph.models.client import Usage
from ttsgraph_flows.tracking import SearchTracker, log_steps

BATCHES = 25
BATCH = 8
MOST_MS = 3.0
MOST_ON_PATH_MS = 0.1


def _record(number: int) -> Record:
    results = tuple(QuestionResult(f"q{k}", k % 3 != 0, "", 1.0) for k in range(16))
    graph = parallel(["model"] * 8, "model")
    return record_of(
        number,
        "random",
        number // BATCH,
        "train",
        graph,
        9.0,
        Feedback(results, Usage(1, 1, 1.0, 1.0, 1), 0.1),
        "ok",
        "loop, iteration 1",
    )


def compare(
    write: Callable[..., None] = log_steps,
    put: Callable[[SearchTracker, Record], None] = SearchTracker.candidate,
    clock: Callable[[], float] = time.process_time,
    path_clock: Callable[[], float] = time.thread_time,
) -> list[Ratio]:
    """Two times a candidate, in core milliseconds; a search of BATCH candidates an iteration waits
    for none of the batches. `write` and `put` are how batches and candidates are written.
    """
    records = [_record(number) for number in range(BATCHES * BATCH)]
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/mlflow.db"
        with SearchTracker(uri, "benchmark", "random", {}) as tracker:
            earlier = tracker.client.create_run(tracker.experiment.experiment_id).info.run_id
            started = clock()
            for at in range(0, len(records), BATCH):
                rows = [asdict(record) for record in records[at : at + BATCH]]
                write(tracker.client, earlier, rows)
            batched = clock() - started
            started = path_clock()
            for record in records:
                put(tracker, record)
            on_path = path_clock() - started
            tracker.wait()
        size = (Path(folder) / "mlflow.db").stat().st_size
    details = {
        "candidates": len(records),
        "a batch": BATCH,
        "database, bytes": size,
    }
    each, path = (1000 * seconds / len(records) for seconds in (batched, on_path))
    return [
        Ratio(
            "core time to record a candidate in MLflow, ms",
            round(each, 2),
            "at most",
            MOST_MS,
            details,
        ),
        Ratio(
            "of it on the search's own thread, ms",
            round(path, 4),
            "at most",
            MOST_ON_PATH_MS,
            details,
        ),
    ]


def measure() -> list[Ratio]:
    """The ratios of `compare`, of what is there."""
    return compare()
