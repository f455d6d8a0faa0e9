"""Prefect events about the drift of a served graph; they can start a re-search
(ttsgraph_flows/deploy.py).
"""

from prefect.events import DeploymentEventTrigger, emit_event

from ttsgraph.base.ending import say
from ttsgraph.base.errors import EndpointError
from ttsgraph.deployment.bundle import Drift

DRIFTED = "ttsgraph.drifted"


def resource_of(task: str) -> str:
    """Return the Prefect resource ID of a task's events."""
    return f"ttsgraph.task.{task}"


def tell_of_drift(drift: Drift) -> None:
    """Emit an event that names the drifted figure. Raises EndpointError if events can't be sent to
    Prefect.
    """
    names = ("figure", "served", "tested", "answers")
    payload = {"version": f"{drift.task}/{drift.version}"}
    payload |= {name: getattr(drift, name) for name in names}
    about = {"prefect.resource.id": resource_of(drift.task)}
    event = emit_event(DRIFTED, resource=about, payload=payload)
    if event is None:
        raise EndpointError("can't send events to Prefect: set PREFECT_API_URL to its server's URL")
    say(f"drift: {drift}; sent to Prefect")


def on_drift(task: str) -> DeploymentEventTrigger:
    """Return the trigger that starts a task's re-search when its service drifts."""
    return DeploymentEventTrigger(
        name=f"{task} drifted",
        expect={DRIFTED},
        match={"prefect.resource.id": resource_of(task)},
        parameters={"task": task, "reason": "drift"},
    )
