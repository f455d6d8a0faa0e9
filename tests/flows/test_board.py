"""Progress of a whole run: which stage runs, and what it came to."""

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

import pandas as pd
import pytest

from lab import python_path
from tests.support.processes import ran
from tests.support.project import ROOT
from ttsgraph_flows.stage import MOST_ROWS, show, step
from ttsgraph_flows.tracking import run_page

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# A stage without a model: what it publishes is what the environment and the driver do.
STAGE = """
import sys, time
from ttsgraph_flows.live import live
from ttsgraph.base.ending import say
from ttsgraph.models.client import Usage
from ttsgraph.evaluation.progress import QuestionDone, BestScore, IterationStart, Expense
with live("search math random", 40) as publish:
    for number in (1, 2):
        publish(IterationStart(number, 2, 40 - 20 * (number - 1)))
        for k in range(20):
            publish(QuestionDone(Usage(10, 2, 0.1, 0.05, calls=4, cached_calls=1)))
            publish(Expense(0.05 * k, 12 * k, 1.0))
        publish(BestScore(0.5 + number / 10, 0.4, 0.8, f"iteration {number}"))
        say(f"a line of the stage {number}")
        time.sleep(0.3)  # a display refreshes four times a second
"""


COMMAND = ["env", "-u", "NO_COLOR", "-u", "FORCE_COLOR", sys.executable, "-c", STAGE]
ENVIRONMENT = os.environ | {"PYTHONPATH": python_path(ROOT), "TERM": "xterm", "COLUMNS": "120"}


def on_a_terminal() -> str:
    """What the stage writes to a real pseudo-terminal."""
    ours, theirs = pty.openpty()
    there = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with subprocess.Popen(COMMAND, env=ENVIRONMENT, **there) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # how Linux says that the other end is closed
            while piece := os.read(ours, 4096):
                shown += piece
        assert process.wait(60) == 0, shown
    os.close(ours)
    return shown.decode()


def test_a_terminal_shows_the_state_while_it_changes():
    shown = on_a_terminal()
    assert "\x1b[" in shown  # the display is drawn over itself
    text = ANSI.sub("", shown)
    for part in (
        "search math random, iteration 1 of 2",
        "search math random, iteration 2 of 2",
        "best 0.70 (0.40 to 0.80; iteration 2)",
        "calls/s, 25 % reused",
        "$0.9500 spent",
        "100%",
    ):
        assert part in text
    assert text.count("a line of the stage 1") == 1  # above the display, once


def test_a_log_gets_a_plain_line_even_where_colours_are_forced():
    done = ran([sys.executable, "-c", STAGE], environment=ENVIRONMENT | {"FORCE_COLOR": "1"})
    assert "\x1b" not in done.stderr
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("search")]
    best = r"best 0\.70 \(0\.40 to 0\.80; iteration 2\)"
    assert re.search(rf"iteration 2 of 2: done in \d:\d\d:\d\d; {best}", line)


TABLE = pd.DataFrame(
    {"label": [f"graph {k}" for k in range(300)], "accuracy": [k / 300 for k in range(300)]}
).assign(graph="{}")


def stage():
    """As a stage does it."""
    step("ask the models", lambda: 42)
    show("pilot", TABLE, run_page("sqlite:///mlflow.db", "7", "run"))


@pytest.mark.slow
def test_the_page_of_a_run_has_its_steps_its_table_and_a_link():
    # After ttsgraph_flows, which says how much Prefect logs.
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        flow(name="pilot")(stage)()
        with get_client(sync_client=True) as client:
            (run,) = client.read_flow_runs()
            (task,) = client.read_task_runs()
            artifacts = {each.key: each for each in client.read_artifacts()}
    assert task.flow_run_id == run.id
    assert task.name.startswith("ask the models")
    assert {each.flow_run_id for each in artifacts.values()} == {run.id}
    rows = json.loads(artifacts["pilot"].data)
    assert len(rows) == MOST_ROWS
    assert rows[0]["label"] == "graph 299"
    assert "graph" not in rows[0]
    assert "#/experiments/7/runs/run" in artifacts["pilot-mlflow"].data
