"""A stage's run in Prefect has its steps as tasks."""

import pytest

from ttsgraph_flows.stage import step


def stage() -> int:
    return step("ask the models", lambda: 42)


def test_outside_a_flow_a_step_is_a_call():
    assert stage() == 42


@pytest.mark.slow
def test_the_page_of_a_run_has_its_steps():
    # After ttsgraph_flows, which says how much Prefect logs.
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        assert flow(name="pilot")(stage)() == 42
        with get_client(sync_client=True) as client:
            (run,) = client.read_flow_runs()
            (task,) = client.read_task_runs()
    assert task.flow_run_id == run.id
    assert task.name.startswith("ask the models")
