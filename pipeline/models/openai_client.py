"""Models behind OpenAI-compatible endpoints, through the `openai` package."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import openai
import tenacity

from pipeline.errors import CallFailed, ContextOverflow, EndpointError
from pipeline.models.answers import read_answer
from pipeline.models.client import Completion, Request, whole_text
from pipeline.models.endpoints import Fault, Patience, Server, place, stop_if_given_up
from pipeline.models.posting import Poster
from pipeline.models.streaming import read_stream
from pipeline.models.transport import backoff, connect, fault_of, reason_of
from pipeline.secrets import environment_secrets, key_problem, redact


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one model is served, and under which name. `api_key_env` names the environment variable with the key.

    Several base URLs are replicas that share the model's load. `seeds` says whether requests may carry a seed, `lists_models`
    whether /models can be asked what is served.
    """

    base_urls: tuple[str, ...]
    served_as: str
    api_key_env: str | None = None
    seeds: bool = False
    lists_models: bool = True

    def api_key(self) -> str:
        """The key, or a placeholder for servers that want none. Raises EndpointError when the variable is not set."""
        if self.api_key_env is None:
            return "none"
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise EndpointError(
                f"{self.base_urls[0]}: expected a key in the environment variable {self.api_key_env}, which is not set"
            )
        if problem := key_problem(key):
            raise EndpointError(f"{self.base_urls[0]}: the key in the environment variable {self.api_key_env}: {problem}")
        return key


@dataclass(frozen=True, slots=True)
class Retries:
    """How often an attempt that may go better is made again, seconds before the first and per attempt.

    The wait doubles each time, is drawn at random below that (full jitter), and is never shorter than the server's retry-after.
    """

    most: int = 8
    first_wait_s: float = 0.5
    timeout_s: float = 120


Ask = Callable[[Server, Request, float], Awaitable[Completion]]
"""One attempt at a server that started then (monotonic seconds)."""

DEFAULT_RETRIES, DEFAULT_PATIENCE = Retries(), Patience()


class OpenAIClient:
    """Chat completions for a pool of models. Each attempt goes to the model's least busy replica that works.

    Retries are made here and nowhere else: the `openai` package, which would retry some faults and not others, makes one attempt at
    a time. What still fails raises CallFailed; a prompt that the model can't hold ContextOverflow; RunStopped is raised when a
    model has no server left that works, or too many calls failed (`Patience`).
    """

    def __init__(
        self, endpoints: Mapping[str, Endpoint], retries: Retries = DEFAULT_RETRIES, patience: Patience = DEFAULT_PATIENCE
    ) -> None:
        self._endpoints, self._retries, self._secrets = dict(endpoints), retries, environment_secrets()
        self._clients: dict[str, openai.AsyncOpenAI] = {}
        self._servers: dict[str, Server] = {}
        for endpoint in self._endpoints.values():
            for url in endpoint.base_urls:
                if url not in self._clients:
                    self._clients[url] = connect(url, endpoint.api_key(), retries.timeout_s)
                    self._servers[url] = Server(url, patience)
        self._posters = {url: Poster(client, "/chat/completions") for url, client in self._clients.items()}
        self._replicas = {name: [self._servers[url] for url in endpoint.base_urls] for name, endpoint in endpoints.items()}

    async def check(self) -> None:
        """Ask every endpoint for its models. Raises EndpointError when one refuses or lacks a model of the pool."""
        for base_url, client in self._clients.items():
            here = {name: endpoint for name, endpoint in self._endpoints.items() if base_url in endpoint.base_urls}
            if not any(endpoint.lists_models for endpoint in here.values()):
                continue
            served = await self._served(base_url, client)
            for name, endpoint in here.items():
                if endpoint.lists_models and endpoint.served_as not in served:
                    raise EndpointError(
                        f"{base_url}: expected model {endpoint.served_as!r} (pool name {name!r}), "
                        f"but the server has {', '.join(sorted(served)) or 'none'}"
                    )

    async def _served(self, base_url: str, client: openai.AsyncOpenAI) -> set[str]:
        asking = client.with_options(max_retries=min(self._retries.most, 3))
        try:
            async with asyncio.timeout(self._retries.timeout_s):
                return {redact(whole_text(model.id)) async for model in asking.models.list()}
        except openai.APIStatusError as error:
            raise EndpointError(f"{base_url}: expected a list of models from /models, found HTTP {error.status_code}") from None
        except openai.APIError as error:
            advice = "start it, or correct base_url; `ttsgraph doctor` lists all that is missing"
            raise EndpointError(f"{base_url}: expected an OpenAI-compatible server, but {reason_of(error)}; {advice}") from None
        except TimeoutError:
            raise EndpointError(f"{base_url}: expected a list of models from /models, but it timed out") from None
        except Exception:  # whatever a server that is none of models makes of it
            raise EndpointError(f"{base_url}: expected a list of models from /models, found something else") from None

    async def complete(self, request: Request) -> Completion:
        """Answer one request; `latency_s` is the time the server took for the attempt that succeeded."""
        return await self._answer(request, self._ask)

    async def stream(self, request: Request, on_text: Callable[[str], None]) -> Completion:
        """As `complete`, and hands the text over while it is written; a fault after that is not mended by another attempt."""
        handed = False

        def hand_over(text: str) -> None:
            nonlocal handed
            handed = True
            on_text(text)

        async def ask(server: Server, request: Request, started: float) -> Completion:
            body = self._body(request) | {"stream": True, "stream_options": {"include_usage": True}}
            post = self._clients[server.url].post
            chunks = await post("/chat/completions", cast_to=object, body=body, stream=True, stream_cls=openai.AsyncStream[object])
            async with chunks:
                return await read_stream(chunks, request.sampling, started, hand_over)

        return await self._answer(request, ask, lambda: not handed)

    async def _answer(self, request: Request, ask: Ask, again: Callable[[], bool] = lambda: True) -> Completion:
        """Attempts until one succeeds, as long as there may be another."""
        servers = self._replicas[request.model]
        used = servers[0]

        async def attempt() -> Completion:
            nonlocal used
            used = await place(servers)
            return await self._attempt(used, request, ask)

        try:
            try:
                completion = await attempt()
            except Fault as fault:
                completion = await self._retried(attempt, fault, used.patience, again)
        except Fault as fault:
            stop_if_given_up(servers)
            used.finish(fault)
            raise CallFailed(f"{request.model} at {used.url}: {fault.kind}") from None
        used.finish(None)
        return replace(completion, text=redact(completion.text, self._secrets))

    async def _retried(
        self, attempt: Callable[[], Awaitable[Completion]], fault: Fault, patience: Patience, again: Callable[[], bool]
    ) -> Completion:
        """What further attempts give; the first, which most calls end with, has failed and costs no more than itself."""
        first = [fault]

        async def attempt_again() -> Completion:
            if first:
                raise first.pop()
            return await attempt()

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, Fault) and error.retry and again()),
            stop=_Attempts(self._retries.most, patience),
            wait=backoff(self._retries.first_wait_s),
            reraise=True,
        )
        return await retrying(attempt_again)

    async def _attempt(self, server: Server, request: Request, ask: Ask) -> Completion:
        """One attempt on a place that is held; the place is given back."""
        started = time.monotonic()
        try:
            # A limit on the whole attempt: one per read would wait for ever on a server that sends a byte now and then.
            async with asyncio.timeout(self._retries.timeout_s):
                completion = await ask(server, request, started)
        except Exception as error:  # whatever an answer makes of those who read it
            fault = self._fault_of(error, server, request)
            server.failed(fault, started)
            raise fault from None
        else:
            server.succeeded()
            return completion
        finally:
            server.release()

    def _fault_of(self, error: Exception, server: Server, request: Request) -> Fault:
        try:
            return fault_of(error, f"{request.model} at {server.url}")
        except ContextOverflow:
            server.succeeded()
            raise

    async def _ask(self, server: Server, request: Request, started: float) -> Completion:
        answer = await self._posters[server.url].post(self._body(request))
        return read_answer(answer, time.monotonic() - started, request.sampling)

    def _body(self, request: Request) -> dict[str, Any]:
        endpoint, sampling = self._endpoints[request.model], request.sampling
        body: dict[str, Any] = {
            "model": endpoint.served_as,
            "messages": [{"role": message.role, "content": whole_text(message.content)} for message in request.messages],
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
        }
        if sampling.temperature is not None:
            body["temperature"] = sampling.temperature
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.reasoning_effort is not None:
            body["reasoning_effort"] = sampling.reasoning_effort
        if endpoint.seeds:
            # From the content key, so that a lost cache comes back the same where the server can repeat itself.
            body["seed"] = int(request.key()[:8], 16)
        return body

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()


class _Attempts:
    """When one call has been attempted often enough.

    A server that is being started again refuses connections for as long as that takes: those attempts are no fault of the call,
    and end with the time that a server may be down.
    """

    def __init__(self, most: int, patience: Patience) -> None:
        self._most, self._patience = most, patience
        self._unreached, self._since = 0, 0.0

    def __call__(self, state: tenacity.RetryCallState) -> bool:
        fault, now = state.outcome.exception() if state.outcome else None, time.monotonic()
        if self._patience.waits and isinstance(fault, Fault) and fault.unreached:
            self._unreached += 1
            self._since = self._since or now
            return now - self._since > self._patience.down_s
        self._since = 0.0
        return state.attempt_number - self._unreached > self._most
