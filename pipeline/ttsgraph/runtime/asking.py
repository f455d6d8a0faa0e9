"""The models that steps ask: a task's environment over the pool's models, and the agent's language
model, within limits and with every call recorded.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

from ttsgraph.base.state import STATE
from ttsgraph.evaluation.judging import checked
from ttsgraph.models.cache import CachedClient
from ttsgraph.models.client import Client
from ttsgraph.models.recording import Call
from ttsgraph.runtime.clients import open_agent, open_client
from ttsgraph.runtime.limits import Meter, MeteredClient, lines_of
from ttsgraph.runtime.workers import environment_for
from ttsgraph.stages.project import Project, StepModels


@asynccontextmanager
async def asking(
    project: Project,
    meter: Meter,
    calls: dict[str, Call],
    say: Callable[[str], None],
    agent: bool = True,
    state: Path = STATE,
    client: Client | None = None,
) -> AsyncIterator[StepModels]:
    """Yield the models of a project, with the agent's language model if `agent` is true. `client`
    takes the place of the pool's endpoints. Calls are counted on the meter and recorded in `calls`.

    Reports on judges, and on prompts that were refused, are passed to `say`. Raises the errors of
    `open_client`, `open_agent` and `checked`.
    """
    profile, task, shots = project.profile, project.task, project.questions["shots"]
    opened = nullcontext(CachedClient(client)) if client else open_client(profile, state)
    speaking = open_agent(profile, state, meter, calls, agent)
    async with opened as cached, meter.watched(), speaking as speak:
        environment = environment_for(profile, task, cached, shots)
        metered = MeteredClient(cached.inner, meter, environment.paid)
        environment.client = CachedClient(metered, cached.store, calls)
        if report := await checked(environment.task, environment.client):
            say(report)
        try:
            yield StepModels(environment, speak)
        finally:
            for line in lines_of(calls):
                say(line)
