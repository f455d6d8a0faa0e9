"""A stage's run in Prefect has its steps as tasks, its table and a link to MLflow as artefacts."""

import json

import pandas as pd
import pytest

from ttsgraph_flows.stage import MOST_ROWS, show, step
from ttsgraph_flows.tracking import run_page

TABLE = pd.DataFrame(
    {"label": [f"graph {k}" for k in range(300)], "accuracy": [k / 300 for k in range(300)]}
).assign(graph="{}")


def stage() -> int:
    """As a stage does it."""
    answer = step("ask the models", lambda: 42)
    show("pilot", TABLE, run_page("sqlite:///mlflow.db", "7", "run"))
    return answer


@pytest.mark.slow
def test_the_page_of_a_run_has_its_steps_its_table_and_a_link():
    # After ttsgraph_flows, which says how much Prefect logs.
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        assert flow(name="pilot")(stage)() == 42
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
