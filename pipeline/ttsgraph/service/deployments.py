"""Current versions of the served names, updated while requests are running.

A new version takes over once its endpoints have been checked; running requests finish on the old
version. While the registry or a new version's endpoint can't be reached, the old version serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from ttsgraph.base.errors import DeploymentError, TTSGraphError
from ttsgraph.deployment.bundle import DeployedVersion, Effort, Loader
from ttsgraph.endpoints.endpoints import FailurePolicy, RetryBudget
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer
from ttsgraph.models.client import Client
from ttsgraph.runtime.clients import connect
from ttsgraph.service.errors import ApiError
from ttsgraph.service.metrics import Metrics
from ttsgraph.service.outcomes import Outcomes, Row
from ttsgraph.service.requests import ChatRequest, FormedTask, actors
from ttsgraph.serving.running import running_servers
from ttsgraph.settings.service import ServiceSettings

LONGEST_NAME = 80
"""Maximum number of characters of an unknown name that an error message shows."""

REFRESH_S = 10.0
"""Seconds between two checks of the version that a name refers to: short for whoever promotes one,
and few requests for a registry.
"""

NEVER_STOPS = FailurePolicy(down_s=math.inf, max_failed=1, waits=False, ends=False)
"""Policy of a service, which reports a failure immediately, and never stops. A search waits for an
endpoint that is down, and eventually stops.
"""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class LiveVersion:
    """Version that is served under a name, with its client.

    `budget` limits retries. `rungs` maps other efforts to their versions; they share the client.
    """

    name: str
    deployed: DeployedVersion
    client: Client
    budget: RetryBudget
    effort: Effort | None = None
    rungs: dict[Effort, LiveVersion] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.key = self.deployed.task, self.deployed.version
        version, graph = self.deployed.version, self.deployed.graph.content_hash
        self.origin = {"model_version": version, "graph_hash": graph}
        self.runner = self.deployed.runner(self.client)
        # The last node speaks, or it selects among other nodes' answers.
        self.speaks = all(actors(one)[one.sink] for one in self.deployed.graph.branches)

    def runner_for(self, asked: ChatRequest) -> GraphRunner:
        """Return the version's runner, adapted to the request's conversation and form.

        Raises ApiError 400 if the graph doesn't support them.
        """
        runner = self.runner
        if len(asked.said) == 1 and not asked.form:
            return runner
        manners = [runner.manners[model] for model in self.deployed.used_models]
        if any(manner.prompt.style != "chat" for manner in manners):
            why = "this model uses few-shot prompts: expected a single question, without tools and"
            why += f" {asked.named('response_format')}"
            raise ApiError(400, why, asked.named("messages"), "unsupported_parameter")
        task = FormedTask(runner.task, asked) if asked.form else runner.task
        around = asked.conversation
        prompt = replace(runner.prompt, system=around.system, history=around.history)
        return replace(runner, task=task, prompt=prompt)


@dataclass(eq=False)
class Deployments:
    """Served names and their current versions, which are available while `running` is open.

    `work` has the requests under way, which end on the version with which they began. Clients and
    local servers of replaced versions stay open until the end: the next version may use them.
    """

    loader: Loader
    names: Sequence[str]
    metrics: Metrics
    settings: ServiceSettings

    def __post_init__(self) -> None:
        self._live: dict[str, LiveVersion] = {}
        self._policy = replace(NEVER_STOPS, max_retries=self.settings.max_retries)
        self.held = contextlib.AsyncExitStack()
        self.work: set[asyncio.Task[NodeAnswer]] = set()
        self.outcomes: Outcomes | None = None
        feedback = self.settings.feedback
        if feedback.keep != "nothing":
            self.outcomes = Outcomes(feedback, self.metrics, self.loader)
            self.held.callback(self.outcomes.book.close)
        self._rivals: dict[str, str] = {}  # champion's name -> challenger's name
        for name in self.names if feedback.trial.share else ():
            task, _, alias = name.partition("@")
            if "/" not in task and alias in ("", "champion"):
                self._rivals[name] = f"{task}@challenger"

    @property
    def served(self) -> dict[str, LiveVersion]:
        """Served versions by name, in the order of the names."""
        return {name: self._live[name] for name in self.names if name in self._live}

    def get(self, name: str) -> LiveVersion:
        """Return the version for a name. Raises ApiError 404 if the name isn't served."""
        if name not in (served := self.served):
            why = f"unknown model {name[:LONGEST_NAME]!r}; served: {', '.join(served) or 'none'}"
            raise ApiError(404, why, "model", "model_not_found")
        return served[name]

    def _rival(self, live: LiveVersion) -> LiveVersion | None:
        """Return the current challenger of a served version, or None if it is the same version."""
        rival = self._live.get(self._rivals.get(live.name, ""))
        return rival if rival and rival.key != live.key else None

    def chosen(self, asked: ChatRequest, trace: str) -> tuple[LiveVersion, Row]:
        """Return the version that is to answer a request, and the answer's side of an A/B test.

        Raises ApiError 404 if the requested name isn't served.
        """
        live = self.get(asked.model)
        if asked.reasoning_effort and live.rungs:
            return live.rungs[asked.reasoning_effort], {}
        rival = self._rival(live)
        return self.outcomes.side(live, rival, trace) if self.outcomes and rival else (live, {})

    async def refresh(self) -> None:
        """Update every name to its current version, and check the outcomes.

        Failures are logged and change nothing, but a name without a deployed version is no longer
        served.
        """
        for name in (*self.names, *self._rivals.values()):
            try:
                await self._update(name)
            except DeploymentError as error:
                if name in self._live:
                    _log.warning("%s is no longer served: %s", name, error)
                    self._replace(name, None)
            except Exception as error:  # whatever the loader raises, the old version stays
                said = "%s keeps its version; its update failed: %s"
                _log.warning(said, name, error, exc_info=not isinstance(error, TTSGraphError))
        if (outcomes := self.outcomes) is not None:
            try:
                pairs = [(live, self._rival(live)) for live in self.served.values()]
                await outcomes.book.later(outcomes.look, pairs)
            except Exception:
                _log.exception("can't read the table of served answers")

    async def _update(self, name: str) -> None:
        deployed = await asyncio.to_thread(self.loader.resolve, name)
        before = self._live.get(name)
        if before and deployed == before.deployed:
            return
        others = deployed.rungs
        profile = deployed.profile_with(*(m for one in others.values() for m in one.used_models))
        engine, budget = profile.engine, RetryBudget(self.settings.retry_share)
        policy = replace(
            self._policy, concurrency=engine.concurrency, timeout_s=engine.timeout_s, budget=budget
        )
        local = await asyncio.to_thread(self.held.enter_context, running_servers(profile))
        shared = await self.held.enter_async_context(connect(profile, local, policy)), budget
        rungs = {effort: LiveVersion(name, one, *shared, effort) for effort, one in others.items()}
        self._replace(name, LiveVersion(name, deployed, *shared, rungs=rungs))

    def _replace(self, name: str, live: LiveVersion | None) -> None:
        """Serve another version, or none, under a name."""
        if (before := self._live.pop(name, None)) is not None:
            self.metrics.deployed.remove(name, *before.origin.values())
        if live is not None:
            self._live[name] = live
            self.metrics.deployed.labels(name, *live.origin.values()).set(1)
            _log.info("%s is version %s, graph %s", name, *live.origin.values())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Resolve all names, and keep their versions current until the context ends.

        Raises InputError if a name can't be resolved.
        """
        async with self.held:
            for name in self.names:
                await self._update(name)
            await self.refresh()
            watcher = asyncio.create_task(self._watch())
            try:
                yield
            finally:
                watcher.cancel()
                await asyncio.wait([watcher, *self.work])
