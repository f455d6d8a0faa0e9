"""What service shows, as Prefect events: one of them starts a search again
(ttsgraph_flows/deploy.py).
"""

from prefect.events import DeploymentEventTrigger, emit_event

from ttsgraph.base.ending import say
from ttsgraph.base.errors import TTSGraphError
from ttsgraph.deployment.bundle import Drift

DRIFTED = "ttsgraph.drifted"


class NotTold(TTSGraphError):
    """Prefect could not be told."""


def resource_of(task: str) -> str:
    """What events of a task are about."""
    return f"ttsgraph.task.{task}"


def tell_of_drift(drift: Drift) -> None:
    """An event that says which figure is no longer what it was in the test. Raises NotTold."""
    names = ("figure", "served", "tested", "answers")
    said = {"version": f"{drift.task}/{drift.version}"}
    said |= {name: getattr(drift, name) for name in names}
    about = {"prefect.resource.id": resource_of(drift.task)}
    event = emit_event(DRIFTED, resource=about, payload=said)
    if event is None:
        raise NotTold("Prefect takes no events: expected PREFECT_API_URL to be its server's")
    say(f"drift: {drift}; Prefect was told")


def on_drift(task: str) -> DeploymentEventTrigger:
    """What starts a task's re-search once its service drifts."""
    return DeploymentEventTrigger(
        name=f"{task} drifted",
        expect={DRIFTED},
        match={"prefect.resource.id": resource_of(task)},
        parameters={"task": task, "reason": "drift"},
    )
