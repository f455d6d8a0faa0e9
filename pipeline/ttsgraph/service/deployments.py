"""What each served name stands for now, kept up to date while requests run.

A new version answers once its endpoints have been checked; requests under way end on the old one.
While the registry or a new endpoint can't be reached, the old version goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from ttsgraph.base.errors import DeploymentError, TTSGraphError
from ttsgraph.deployment.bundle import Deployed, Effort, Loader
from ttsgraph.endpoints.endpoints import FailurePolicy, RetryBudget
from ttsgraph.endpoints.openai_client import Retries
from ttsgraph.models.cache import CachedClient
from ttsgraph.models.client import Client
from ttsgraph.runtime.clients import connect, open_cache
from ttsgraph.service.errors import ApiError
from ttsgraph.service.metrics import Metrics
from ttsgraph.service.outcomes import Outcomes
from ttsgraph.service.run import Upstream
from ttsgraph.serving.running import running_servers
from ttsgraph.settings.service import ServiceSettings

LONGEST_NAME = 80
"""Characters of an unknown name that an error repeats."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Live:
    """A version that answers, its client and the requests under way (`work`); rungs share these."""

    name: str
    deployed: Deployed
    client: Client
    connection: AsyncExitStack
    upstream: Upstream = field(default_factory=lambda: Upstream(RetryBudget(0.0)))
    work: set[asyncio.Task[Any]] = field(default_factory=set)
    rungs: dict[Effort, Live] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task = self.deployed.grader
        self.prompt = self.deployed.prompt
        self.runner = self.deployed.runner(self.client)
        manners = [self.runner.manners[model] for model in self.deployed.used_models]
        # Few-shot prompts have no place for a conversation.
        self.takes_conversations = all(manner.prompt.style == "chat" for manner in manners)

    def hold(self, work: asyncio.Task[Any]) -> None:
        """Keep connections open until this task ends, whether or not it has begun."""
        self.work.add(work)
        work.add_done_callback(self.work.discard)

    async def retire(self) -> None:
        """No new requests come: close once the last one has ended."""
        if self.work:
            await asyncio.wait(self.work)
        await self.connection.aclose()


class Deployments:
    """The served names, while it is `running`."""

    def __init__(
        self, loader: Loader, names: Sequence[str], metrics: Metrics, settings: ServiceSettings
    ) -> None:
        self._loader = loader
        self._names = tuple(names)
        self._metrics = metrics
        self._settings = settings
        self._live: dict[str, Live] = {}
        self._retiring = set[asyncio.Task[None]]()
        self._servers = contextlib.ExitStack()
        self.outcomes = Outcomes(settings.feedback, metrics, loader)
        self._rivals: dict[str, str] = {}  # a champion's name, and its challenger's
        for name in names if settings.feedback.trial.share else ():
            task, _, alias = name.partition("@")
            if "/" not in task and alias in ("", "champion"):
                self._rivals[name] = f"{task}@challenger"

    def get(self, name: str) -> Live:
        """What a name stands for. Raises ApiError 404 that lists the served names."""
        listed = {live.name: live for live in self.listed()}
        if name not in listed:
            said = f"unknown model {name[:LONGEST_NAME]!r}; served: {', '.join(listed) or 'none'}"
            raise ApiError(404, said, "model", "model_not_found")
        return listed[name]

    def all(self) -> list[Live]:
        """What is served, in the order the names were given."""
        return [self._live[name] for name in self._names if name in self._live]

    def listed(self) -> list[Live]:
        """What is served, with rungs of the first version that has any, unless given names."""
        found = self.all()
        rungs = {rung.name: rung for live in reversed(found) for rung in live.rungs.values()}
        return found + [rung for name, rung in rungs.items() if name not in self._names]

    def rival(self, live: Live) -> Live | None:
        """The challenger of what a name stands for."""
        return self._live.get(self._rivals.get(live.name, ""))

    async def refresh(self) -> None:
        """Look at every name and at the outcomes; failures are logged and change nothing."""
        for name in (*self._names, *self._rivals.values()):
            try:
                await self._update(name)
            except DeploymentError as error:
                if name in self._live:
                    _log.warning("%s is served no more: %s", name, error)
                    await self._replace(name, None)
            except Exception as error:  # whatever a loader raises, what is served goes on
                known = isinstance(error, TTSGraphError)
                said = error if known else repr(error)
                _log.warning("%s stays as it is: %s", name, said, exc_info=not known)
                self._metrics.refresh_failed.labels(name).inc()
        try:
            await self.outcomes.look((live, self.rival(live)) for live in self.all())
        except Exception:
            _log.exception("the table of served questions can't be read")

    async def _update(self, name: str) -> None:
        deployed = await asyncio.to_thread(self._loader.resolve, name)
        before = self._live.get(name)
        version = deployed.version, deployed.bundle_hash
        if before and version == (before.deployed.version, before.deployed.bundle_hash):
            return
        rungs = deployed.rungs
        used = {model for one in (deployed, *rungs.values()) for model in one.used_models}
        profile = deployed.profile_with(*used)
        budget = RetryBudget(self._settings.retry_share)
        # A search waits for a server that is down and stops in the end; a service says so at once,
        # and never stops.
        engine = profile.engine
        most = self._settings.max_retries
        retries = Retries(most, timeout_s=engine.timeout_s, budget=budget)
        policy = FailurePolicy(
            engine.concurrency, math.inf, max_failed=1.0, waits=False, ends=False
        )
        # Servers that are started for one version may be used by the next, so they run until the
        # service ends.
        local = await asyncio.to_thread(self._servers.enter_context, running_servers(profile))
        async with AsyncExitStack() as opened:
            client = await opened.enter_async_context(connect(profile, local, retries, policy))
            if self._settings.cache:
                store = opened.enter_context(contextlib.closing(open_cache()))
                client = CachedClient(client, store)
            connection = opened.pop_all()
        upstream = Upstream(budget)
        live = Live(name, deployed, client, connection, upstream)
        for effort, one in rungs.items():
            at = f"{one.task}@{effort}"
            live.rungs[effort] = Live(at, one, client, connection, upstream, live.work)
        await self._replace(name, live)

    async def _replace(self, name: str, live: Live | None) -> None:
        before = self._live.pop(name, None)
        if live is not None:
            self._live[name] = live
            now = live.deployed
            _log.info("%s is version %s, graph %s", name, now.version, now.graph.content_hash)
        versions = (each.deployed if each else None for each in (before, live))
        self._metrics.represents(name, *versions)
        if before is not None:
            retiring = asyncio.create_task(before.retire())
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._settings.refresh_s)
            await self.refresh()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Resolve and follow all names until the end. Raises InputError where one can't be."""
        try:
            for name in self._names:
                await self._update(name)
            await self.refresh()
            watcher = asyncio.create_task(self._watch())
            try:
                yield
            finally:
                watcher.cancel()
                await asyncio.wait([watcher])
        finally:
            for name in [*self._live]:
                await self._replace(name, None)
            await asyncio.gather(*self._retiring)
            await asyncio.to_thread(self.outcomes.close)
            await asyncio.to_thread(self._servers.close)
